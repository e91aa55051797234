//! The pictures of README: frames of the recordings that ship inside the program, written as SVG, so that they never show
//! what the program no longer does. `IO_STARVE_WRITE_SCREENS=1 cargo test -p io-starve --lib screens` writes them anew.

use std::{fmt::Write, path::Path};

use ratatui::{buffer::Cell, style::Modifier};

use super::{demos::at_its_worst, *};
use crate::commands::demo::DEMOS;

/// A cell of the picture, in units of its own.
const CELL: (usize, usize) = (8, 17);
const BACKGROUND: &str = "#16181d";
const FOREGROUND: &str = "#d5d8de";

fn color(cell: &Cell) -> &'static str {
    match cell.fg {
        Color::Red => "#f2777a",
        Color::Green => "#8fc98f",
        Color::Magenta => "#d79bea",
        _ => FOREGROUND,
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// Cells of one look, from this column on.
fn run(out: &mut String, (x, y): (usize, usize), cells: &[&Cell]) {
    let Some(first) = cells.first() else { return };
    let text: String = cells.iter().map(|c| c.symbol()).collect();
    let width = cells.len() * CELL.0;
    let (left, top) = (x * CELL.0, y * CELL.1);
    let is = |modifier| first.modifier.contains(modifier);
    let (ink, paper) = match is(Modifier::REVERSED) {
        true => (BACKGROUND, Some(color(first))),
        false => (color(first), None),
    };
    if let Some(paper) = paper {
        let height = CELL.1;
        let _ = writeln!(
            out,
            r#"<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="{paper}"/>"#
        );
    }
    if text.trim().is_empty() {
        return;
    }
    let bold = if is(Modifier::BOLD) {
        r#" font-weight="bold""#
    } else {
        ""
    };
    let dim = if is(Modifier::DIM) {
        r#" opacity="0.6""#
    } else {
        ""
    };
    let base = top + CELL.1 - 4;
    let _ = writeln!(
        out,
        r#"<text x="{left}" y="{base}" textLength="{width}" fill="{ink}"{bold}{dim}>{}</text>"#,
        escaped(&text)
    );
}

fn svg(buffer: &Buffer) -> String {
    let (columns, lines) = (buffer.area.width, buffer.area.height);
    let (width, height) = (usize::from(columns) * CELL.0, usize::from(lines) * CELL.1);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-8 -8 {} {}\" font-family=\"monospace\" font-size=\"13\" xml:space=\"preserve\">\n\
         <rect x=\"-8\" y=\"-8\" width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{BACKGROUND}\"/>\n",
        width + 16,
        height + 16
    );
    for y in 0..lines {
        let cells: Vec<&Cell> = (0..columns).map(|x| &buffer[(x, y)]).collect();
        let mut x = 0;
        let same = |a: &&Cell, b: &&Cell| a.fg == b.fg && a.modifier == b.modifier;
        for part in cells.chunk_by(same) {
            run(&mut out, (x, usize::from(y)), part);
            x += part.len();
        }
    }
    out + "</svg>\n"
}

#[test]
fn pictures_show_what_the_program_shows() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/screens");
    for (file, demo, keys) in [
        ("overview", "async-write-starvation", vec![]),
        ("disk", "async-write-starvation", vec![Key::Char('2')]),
        ("fsync", "fsync-serialization", vec![Key::Char('3')]),
    ] {
        let demo = DEMOS.iter().find(|d| d.name == demo).unwrap();
        let mode = Mode::Demo {
            name: demo.name.to_owned(),
        };
        let mut app = App::new(mode, Arc::new(at_its_worst(demo.bytes)));
        press(&mut app, &keys);
        let drawn = svg(&buffer(&mut app, &look(true, false), 120, 34));
        let path = folder.join(format!("{file}.svg"));
        if std::env::var_os("IO_STARVE_WRITE_SCREENS").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &drawn).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            kept == drawn,
            "docs/screens/{file}.svg is not what the program shows; IO_STARVE_WRITE_SCREENS=1 cargo test -p io-starve --lib screens"
        );
    }
}
