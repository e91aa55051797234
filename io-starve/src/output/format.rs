//! Numbers and names as people read them, the same on screen and in text.
//!
//! Goes in: figures of a snapshot or a finding. Comes out: short strings; durations below ten years take 7 columns
//! at most, rates 6. A figure that is not known is [`DASH`], never 0.

use std::borrow::Cow;

/// Stands for "not known" or "there is none".
pub const DASH: &str = "-";

/// The figure, or [`DASH`] when it is not known.
pub fn or_dash<T>(value: Option<T>, format: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| DASH.to_owned(), format)
}

/// A duration given in ns: `0 s`, `850 ns`, `120 us`, `4.1 ms`, `41 ms`, `17.0 s`, `5m 12s`, `2h 05m`, `3d 04h`.
pub fn duration(ns: u64) -> String {
    const US: u64 = 1_000;
    const MS: u64 = 1_000 * US;
    const S: u64 = 1_000 * MS;
    // A unit ends where rounding would print it as 1000 of itself.
    if ns == 0 {
        "0 s".to_owned()
    } else if ns < US {
        format!("{ns} ns")
    } else if ns < MS - US / 2 {
        three_digits(ns, US, "us")
    } else if ns < S - MS / 2 {
        three_digits(ns, MS, "ms")
    } else if ns < 60 * S - S / 20 {
        let tenths = (ns + S / 20) / (S / 10);
        format!("{}.{} s", tenths / 10, tenths % 10)
    } else {
        let secs = ns.saturating_add(S / 2) / S;
        if secs < 3_600 {
            format!("{}m {:02}s", secs / 60, secs % 60)
        } else if secs < 86_400 {
            format!("{}h {:02}m", secs / 3_600, secs / 60 % 60)
        } else {
            format!("{}d {:02}h", secs / 86_400, secs / 3_600 % 24)
        }
    }
}

/// A duration given in ms; see [`duration`].
pub fn duration_ms(ms: u64) -> String {
    duration(ms.saturating_mul(1_000_000))
}

fn three_digits(ns: u64, unit: u64, name: &str) -> String {
    let tenths = (ns + unit / 20) / (unit / 10);
    if tenths < 100 {
        format!("{}.{} {name}", tenths / 10, tenths % 10)
    } else {
        format!("{} {name}", (ns + unit / 2) / unit)
    }
}

/// Events a second: `0`, `<0.1`, `2.4`, `300`, `12.3k`, `1.2M`; [`DASH`] for what is not a number.
pub fn rate(per_s: f64) -> String {
    if !per_s.is_finite() || per_s < 0.0 {
        DASH.to_owned()
    } else if per_s == 0.0 {
        "0".to_owned()
    } else if per_s < 0.05 {
        "<0.1".to_owned()
    } else if per_s < 9.95 {
        format!("{per_s:.1}")
    } else if per_s < 9_999.5 {
        format!("{per_s:.0}")
    } else if per_s < 999_950.0 {
        format!("{:.1}k", per_s / 1e3)
    } else if per_s < 999_950_000.0 {
        format!("{:.1}M", per_s / 1e6)
    } else {
        format!("{:.1}G", per_s / 1e9)
    }
}

/// A number of things in few columns: `0`, `48`, `9999`, `12.3k`, `1.2M`.
pub fn short_count(n: u64) -> String {
    if n < 10_000 {
        n.to_string()
    } else {
        rate(n as f64)
    }
}

/// Bytes a second as MB/s (10^6): the number only, formatted like [`rate`].
pub fn megabytes(bytes_per_s: f64) -> String {
    rate(bytes_per_s / 1e6)
}

/// An amount of memory or data: `512 B`, `4 KiB`, `1.5 MiB`, `64 MiB`.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value < 9.95 && (value * 10.0).round() % 10.0 != 0.0 {
        format!("{value:.1} {}", UNITS[unit])
    } else {
        format!("{value:.0} {}", UNITS[unit])
    }
}

/// A whole number with thousands marked: `12,034`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A part of a whole, 0 to 1, in per cent: `0 %`, `<1 %`, `97 %`, `>99 %`, `100 %`. What is nearly nothing or
/// nearly everything never reads as exactly that.
pub fn share(part: f64) -> String {
    if !part.is_finite() || part < 0.0 {
        DASH.to_owned()
    } else if part > 0.0 && part < 0.01 {
        "<1 %".to_owned()
    } else if part > 0.99 && part < 1.0 {
        ">99 %".to_owned()
    } else {
        format!("{:.0} %", part * 100.0)
    }
}

/// Text from outside (task, cgroup, file and device names) made safe for a terminal: control characters, line
/// separators and characters that are invisible or change the direction of writing become U+FFFD.
pub fn printable(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_printable) {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(
            text.chars()
                .map(|c| {
                    if is_printable(c) {
                        c
                    } else {
                        char::REPLACEMENT_CHARACTER
                    }
                })
                .collect(),
        )
    }
}

fn is_printable(c: char) -> bool {
    !(c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_keep_their_unit_to_its_end() {
        let cases = [
            (0, "0 s"),
            (1, "1 ns"),
            (999, "999 ns"),
            (1_000, "1.0 us"),
            (120_000, "120 us"),
            (999_499, "999 us"),
            (999_500, "1.0 ms"),
            (4_149_000, "4.1 ms"),
            (9_950_000, "10 ms"),
            (41_000_000, "41 ms"),
            (999_499_999, "999 ms"),
            (999_500_000, "1.0 s"),
            (17_000_000_000, "17.0 s"),
            (59_949_999_999, "59.9 s"),
            (59_950_000_000, "1m 00s"),
            (312_000_000_000, "5m 12s"),
            (3_599_400_000_000, "59m 59s"),
            (3_599_500_000_000, "1h 00m"),
            (7_500_000_000_000, "2h 05m"),
            (273_600_000_000_000, "3d 04h"),
        ];
        for (ns, text) in cases {
            assert_eq!(duration(ns), text, "{ns}");
        }
        assert_eq!(duration_ms(17_000), "17.0 s");
        assert_eq!(duration_ms(u64::MAX), duration(u64::MAX));
    }

    #[test]
    fn rates_never_round_something_to_nothing() {
        let cases = [
            (0.0, "0"),
            (0.004, "<0.1"),
            (0.06, "0.1"),
            (2.44, "2.4"),
            (9.96, "10"),
            (300.2, "300"),
            (9_999.4, "9999"),
            (12_345.0, "12.3k"),
            (999_960.0, "1.0M"),
            (f64::NAN, "-"),
            (f64::INFINITY, "-"),
            (-1.0, "-"),
        ];
        for (n, text) in cases {
            assert_eq!(rate(n), text, "{n}");
        }
        assert_eq!(megabytes(1_228_800.0), "1.2");
    }

    #[test]
    fn amounts() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(4096), "4 KiB");
        assert_eq!(bytes(1_572_864), "1.5 MiB");
        assert_eq!(bytes(64 << 20), "64 MiB");
        assert_eq!(bytes((1 << 20) - 1), "1 MiB");
        assert_eq!(bytes(u64::MAX), "16 EiB");
        assert_eq!(short_count(2), "2");
        assert_eq!(short_count(9_999), "9999");
        assert_eq!(short_count(12_345), "12.3k");
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(12_034), "12,034");
        assert_eq!(count(1_000_000), "1,000,000");
    }

    #[test]
    fn shares_keep_their_distance_from_the_ends() {
        for (part, text) in [
            (0.0, "0 %"),
            (0.004, "<1 %"),
            (0.01, "1 %"),
            (0.97, "97 %"),
            (0.996, ">99 %"),
            (1.0, "100 %"),
        ] {
            assert_eq!(share(part), text, "{part}");
        }
        assert_eq!(share(f64::NAN), DASH);
    }

    #[test]
    fn unknown_is_a_dash() {
        assert_eq!(or_dash(None, duration), DASH);
        assert_eq!(or_dash(Some(0), duration), "0 s");
    }

    #[test]
    fn names_cannot_steer_the_terminal() {
        assert_eq!(printable("kworker/u8:2"), "kworker/u8:2");
        assert_eq!(printable("备份"), "备份");
        assert_eq!(
            printable("a\x1b[2Jb\n\u{202e}c\u{200b}"),
            "a\u{fffd}[2Jb\u{fffd}\u{fffd}c\u{fffd}"
        );
        assert_eq!(printable("\u{9b}31m"), "\u{fffd}31m");
    }

    proptest! {
        #[test]
        fn figures_fit_their_columns(ns in 0u64..864_000_000_000_000, n in 0.0f64..1e11) {
            prop_assert!(duration(ns).len() <= 7);
            prop_assert!(rate(n).len() <= 6);
            prop_assert!(short_count(ns / 1_000).len() <= 7);
        }

        #[test]
        fn printable_keeps_the_number_of_characters(text in any::<String>()) {
            let safe = printable(&text);
            prop_assert_eq!(safe.chars().count(), text.chars().count());
            prop_assert!(safe.chars().all(is_printable));
        }
    }
}
