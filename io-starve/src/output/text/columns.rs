//! Tables of text.

use unicode_width::UnicodeWidthStr;

/// Rows as lines, two spaces apart and indented by two. The first `left` columns are read from the left, the others from the right.
pub fn aligned(rows: &[Vec<String>], left: usize) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let mut widths = vec![0; columns];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.width().max(*width);
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (i, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let padding = " ".repeat(width - cell.width());
            line.push_str("  ");
            if i < left {
                line.push_str(cell);
                line.push_str(&padding);
            } else {
                line.push_str(&padding);
                line.push_str(cell);
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_left_and_figures_right() {
        let rows =
            [["NAME", "N"], ["备份", "12"], ["a", "3"]].map(|r| r.map(str::to_owned).to_vec());
        assert_eq!(aligned(&rows, 1), "  NAME   N\n  备份  12\n  a      3\n");
    }
}
