//! Latencies over time: columns of time, rows of octaves, the more requests the darker.

use std::fmt::Write;

use io_starve_common::hist::lower_bound;
use maud::{Markup, html};

use super::{
    scale::{Scale, round},
    tables::{said, table},
};
use crate::{
    history::{
        axis::ROWS,
        summary::{Heat, Summary},
    },
    output::format::{count, duration, printable},
};

/// Pictures, those with the longest waits first.
const MOST: usize = 12;
/// Shades.
const SHADES: usize = 5;
/// Geometry, in units of the picture.
const WIDTH: f64 = 560.0;
const LEFT: f64 = 56.0;
const ROW: f64 = 12.0;

/// The pictures; `None` when nothing left a stage.
pub fn body(summary: &Summary) -> Option<Markup> {
    let mut heats: Vec<&Heat> = summary.heats.iter().collect();
    heats.sort_by_key(|h| std::cmp::Reverse(weight(h)));
    let left_out = heats.len().saturating_sub(MOST);
    heats.truncate(MOST);
    (!heats.is_empty()).then(|| {
        html! {
            p { "Each column is " (duration(summary.column_ns)) " of the run, each row twice the time of the one below. The darker, the more requests left the stage then, after so long." }
            div.heats {
                @for (i, heat) in heats.iter().enumerate() { (one(i, heat, summary)) }
            }
            @if left_out > 0 { p { (left_out) " more with shorter times are not drawn." } }
            details {
                summary { "The same as a table" }
                (as_table(&heats))
            }
        }
    })
}

/// Time that was spent in it, roughly.
fn weight(heat: &Heat) -> u64 {
    let rows = heat
        .grid
        .columns()
        .iter()
        .flat_map(|c| c.iter().enumerate());
    rows.fold(0u64, |sum, (row, n)| {
        sum.saturating_add(from_ns(row).saturating_mul(*n))
    })
}

/// The shortest time of a row, in ns.
fn from_ns(row: usize) -> u64 {
    lower_bound(row as u32 * 4)
}

fn title(heat: &Heat) -> String {
    format!(
        "{}, {}, {}",
        printable(&heat.device),
        heat.class.name(),
        heat.stage.name()
    )
}

fn one(i: usize, heat: &Heat, summary: &Summary) -> Markup {
    let columns = heat.grid.columns();
    let used = |row: &usize| columns.iter().any(|c| c[*row] > 0);
    let low = (0..ROWS).find(used).unwrap_or(0);
    let high = (0..ROWS).rev().find(used).unwrap_or(low);
    // Some room above and below, so that one row does not fill the picture.
    let (low, high) = (low.saturating_sub(1), (high + 1).min(ROWS - 1));
    let height = ROW * (high - low + 1) as f64;
    let scale = Scale::new(summary, LEFT, WIDTH - LEFT - 12.0);
    let at = |column: usize| scale.x(summary.begin_ns + summary.column_ns * column as u64);
    let most = columns.iter().flatten().max().copied().unwrap_or(1);
    let mut shades = vec![String::new(); SHADES];
    for (column, counts) in columns.iter().enumerate() {
        let (x, next) = (at(column), at(column + 1));
        for (row, n) in counts.iter().enumerate() {
            if let Some(shade) = shade(*n, most) {
                let y = ROW * (high - row) as f64;
                let width = round((next - x).max(1.0));
                let _ = write!(
                    shades[shade],
                    "M{} {}h{width}v{ROW}h-{width}z",
                    round(x),
                    round(y)
                );
            }
        }
    }
    let (name, describe) = (format!("heat-{i}"), format!("heat-{i}-desc"));
    html! {
        figure {
            figcaption { (title(heat)) span.small { " " (count(heat.grid.total())) " requests" } }
            svg.heat viewBox=(format!("0 0 {WIDTH} {}", round(height + 20.0))) role="img" aria-labelledby={ (name) " " (describe) } {
                title id=(name) { "Times of " (title(heat)) }
                desc id=(describe) { "From " (duration(from_ns(low))) " to " (duration(from_ns(high + 1))) ". The table below has the counts." }
                rect.ground x=(LEFT) y="0" width=(round(WIDTH - LEFT - 12.0)) height=(round(height)) {}
                @for (shade, path) in shades.iter().enumerate() {
                    @if !path.is_empty() { path class={ "shade" (shade) } d=(path) {} }
                }
                g.axis aria-hidden="true" {
                    @for row in (low..=high).filter(|r| (r - low) % 3 == 1) {
                        text x=(round(LEFT - 6.0)) y=(round(ROW * (high - row + 1) as f64 + 4.0)) text-anchor="end" { (duration(from_ns(row))) }
                    }
                }
                (scale.marks(height, height + 2.0))
            }
        }
    }
}

/// By the logarithm: a few slow ones show beside many fast ones.
fn shade(n: u64, most: u64) -> Option<usize> {
    if n == 0 {
        return None;
    }
    let part = (n as f64).ln_1p() / (most as f64).ln_1p();
    Some(((part * SHADES as f64) as usize).min(SHADES - 1))
}

fn as_table(heats: &[&Heat]) -> Markup {
    let rows = heats.iter().flat_map(|heat| {
        let total = |row: usize| heat.grid.columns().iter().map(|c| c[row]).sum::<u64>();
        (0..ROWS)
            .filter(move |row| total(*row) > 0)
            .map(move |row| {
                vec![
                    said(title(heat)),
                    said(duration(from_ns(row))),
                    said(duration(from_ns(row + 1))),
                    said(count(total(row))),
                ]
            })
    });
    table(
        "Requests by how long they were in a stage",
        &["Disk, class, stage", "From", "To", "Requests"],
        1,
        rows.collect(),
    )
}
