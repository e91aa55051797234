//! Time as a horizontal coordinate.

use maud::{Markup, html};

use crate::{history::summary::Summary, output::format::duration};

/// Marks of time below a picture, about so many.
const MARKS: u64 = 8;

/// Puts moments of a run on a line.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    begin_ns: u64,
    length_ns: u64,
    left: f64,
    width: f64,
}

impl Scale {
    /// The run from `left` on, `width` wide, in units of the picture.
    pub fn new(summary: &Summary, left: f64, width: f64) -> Scale {
        Scale {
            begin_ns: summary.begin_ns,
            length_ns: summary.elapsed_ns.max(1),
            left,
            width,
        }
    }

    /// Where a moment is; what is before or after the run is at its ends.
    pub fn x(&self, ns: u64) -> f64 {
        let since = ns.saturating_sub(self.begin_ns).min(self.length_ns);
        self.left + self.width * (since as f64 / self.length_ns as f64)
    }

    /// How long after the beginning of the run, in words.
    pub fn since(&self, ns: u64) -> String {
        duration(ns.saturating_sub(self.begin_ns))
    }

    /// Lines with their times from `top` to `bottom`.
    pub fn marks(&self, top: f64, bottom: f64) -> Markup {
        let step = step_ns(self.length_ns);
        let all = (0..=self.length_ns / step).map(|i| i * step);
        html! {
            g.axis aria-hidden="true" {
                @for since in all {
                    @let x = round(self.x(self.begin_ns + since));
                    line x1=(x) x2=(x) y1=(round(top)) y2=(round(bottom)) {}
                    text x=(x) y=(round(bottom + 14.0)) text-anchor="middle" { (whole(since)) }
                }
            }
        }
    }
}

/// A step of 1, 2 or 5 of a unit that people count in, in ns.
fn step_ns(length_ns: u64) -> u64 {
    const MS: u64 = 1_000_000;
    const S: u64 = 1_000 * MS;
    const STEPS: [u64; 18] = [
        10 * MS,
        20 * MS,
        50 * MS,
        100 * MS,
        200 * MS,
        500 * MS,
        S,
        2 * S,
        5 * S,
        10 * S,
        20 * S,
        30 * S,
        60 * S,
        120 * S,
        300 * S,
        600 * S,
        1_800 * S,
        3_600 * S,
    ];
    let fits = STEPS.into_iter().find(|step| length_ns / step <= MARKS);
    fits.unwrap_or_else(|| (length_ns / MARKS).div_ceil(86_400 * S).max(1) * 86_400 * S)
}

/// A round time: `0 s`, `500 ms`, `20 s`, `2 min`, `1 h`.
fn whole(ns: u64) -> String {
    let ms = ns / 1_000_000;
    match ms {
        _ if ms >= 3_600_000 && ms.is_multiple_of(3_600_000) => format!("{} h", ms / 3_600_000),
        _ if ms >= 60_000 && ms.is_multiple_of(60_000) => format!("{} min", ms / 60_000),
        _ if ms.is_multiple_of(1_000) => format!("{} s", ms / 1_000),
        _ => format!("{ms} ms"),
    }
}

/// A coordinate in few characters.
pub fn round(x: f64) -> String {
    let text = format!("{x:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_round() {
        const S: u64 = 1_000_000_000;
        for (length, step, last) in [
            (S / 20, 10_000_000, "50 ms"),
            (7 * S, S, "7 s"),
            (42 * S, 5 * S, "40 s"),
            (600 * S, 120 * S, "10 min"),
            (3 * 3_600 * S, 1_800 * S, "3 h"),
        ] {
            assert_eq!(step_ns(length), step, "{length}");
            assert_eq!(whole(length / step * step), last);
        }
        assert!(step_ns(90 * 86_400 * S) > 0);
        assert_eq!(whole(0), "0 s");
        assert_eq!(
            (round(1.04), round(12.0)),
            ("1".to_owned(), "12".to_owned())
        );
    }
}
