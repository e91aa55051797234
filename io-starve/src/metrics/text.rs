//! Families as text: the format of Prometheus (0.0.4) and OpenMetrics (1.0.0). Pure.
//!
//! Own code, because both are written from the same families and the crates at hand write one of them each.

use std::fmt::Write;

use super::{Family, Type, Value, upper_bound};

/// In which notation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notation {
    /// Every Prometheus understands it.
    Prometheus,
    /// What newer ones prefer.
    OpenMetrics,
}

impl Notation {
    /// What a scraper asks for with its Accept header.
    pub fn asked_for(accept: &str) -> Notation {
        let refused = |media: &str| {
            media
                .split(';')
                .any(|p| matches!(p.trim(), "q=0" | "q=0.0"))
        };
        let asks = accept.split(',').any(|media| {
            media.trim().starts_with("application/openmetrics-text") && !refused(media)
        });
        match asks {
            true => Notation::OpenMetrics,
            false => Notation::Prometheus,
        }
    }

    /// The Content-Type.
    pub const fn content_type(self) -> &'static str {
        match self {
            Notation::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Notation::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// All families that have samples.
pub fn render(families: &[Family], notation: Notation) -> String {
    let mut out = String::new();
    for family in families.iter().filter(|f| !f.samples.is_empty()) {
        let suffix = match family.kind {
            Type::Counter => "_total",
            Type::Gauge | Type::Histogram => "",
        };
        let Family {
            name, help, unit, ..
        } = family;
        let described = match notation {
            Notation::Prometheus => suffix,
            Notation::OpenMetrics => "",
        };
        let kind = match family.kind {
            Type::Counter => "counter",
            Type::Gauge => "gauge",
            Type::Histogram => "histogram",
        };
        let _ = writeln!(out, "# HELP {name}{described} {help}");
        let _ = writeln!(out, "# TYPE {name}{described} {kind}");
        if notation == Notation::OpenMetrics && !unit.is_empty() {
            let _ = writeln!(out, "# UNIT {name} {unit}");
        }
        for sample in &family.samples {
            let labels: String = sample
                .labels
                .iter()
                .map(|(name, value)| format!(",{name}=\"{}\"", escaped(value)))
                .collect();
            let labels = labels.strip_prefix(',').unwrap_or_default();
            match &sample.value {
                Value::Count(n) => {
                    line(&mut out, &format!("{name}{suffix}"), labels, &n.to_string())
                }
                Value::Number(x) => {
                    line(&mut out, &format!("{name}{suffix}"), labels, &x.to_string())
                }
                Value::Histogram(counts, sum) => histogram(&mut out, name, labels, counts, *sum),
            }
        }
    }
    if notation == Notation::OpenMetrics {
        out.push_str("# EOF\n");
    }
    out
}

fn histogram(out: &mut String, name: &str, labels: &str, counts: &[u64], sum: f64) {
    let comma = if labels.is_empty() { "" } else { "," };
    let mut below = 0u64;
    for (bucket, count) in counts.iter().enumerate() {
        below = below.saturating_add(*count);
        let bound = match upper_bound(bucket) {
            bound if bound.is_finite() => bound.to_string(),
            _ => "+Inf".to_owned(),
        };
        let labels = format!("{labels}{comma}le=\"{bound}\"");
        line(out, &format!("{name}_bucket"), &labels, &below.to_string());
    }
    line(out, &format!("{name}_sum"), labels, &sum.to_string());
    line(out, &format!("{name}_count"), labels, &below.to_string());
}

fn line(out: &mut String, name: &str, labels: &str, value: &str) {
    let _ = match labels {
        "" => writeln!(out, "{name} {value}"),
        _ => writeln!(out, "{name}{{{labels}}} {value}"),
    };
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{BUCKETS, Sample};

    fn families() -> Vec<Family> {
        let mut counts = [0; BUCKETS];
        counts[1] = 2;
        counts[BUCKETS - 1] = 1;
        let family = |name, unit, kind, value| Family {
            name,
            unit,
            help: "Says something.",
            kind,
            samples: vec![Sample {
                labels: vec![("cgroup", "/a\"b\\\n".to_owned())],
                value,
            }],
        };
        vec![
            family("x_seconds", "seconds", Type::Counter, Value::Number(1.5)),
            family(
                "y_seconds",
                "seconds",
                Type::Histogram,
                Value::Histogram(counts, 80.0),
            ),
            Family {
                samples: Vec::new(),
                ..family("z", "", Type::Gauge, Value::Count(0))
            },
        ]
    }

    #[test]
    fn counters_are_described_with_their_suffix_in_one_notation_only() {
        let text = render(&families(), Notation::Prometheus);
        assert!(text.starts_with(
            "# HELP x_seconds_total Says something.\n# TYPE x_seconds_total counter\n\
             x_seconds_total{cgroup=\"/a\\\"b\\\\\\n\"} 1.5\n"
        ));
        assert!(
            text.contains("y_seconds_bucket{cgroup=\"/a\\\"b\\\\\\n\",le=\"0.000262144\"} 2\n")
        );
        assert!(text.contains(",le=\"+Inf\"} 3\n"));
        assert!(
            text.ends_with("_count{cgroup=\"/a\\\"b\\\\\\n\"} 3\n"),
            "{text}"
        );
        let open = render(&families(), Notation::OpenMetrics);
        assert!(open.starts_with(
            "# HELP x_seconds Says something.\n# TYPE x_seconds counter\n# UNIT x_seconds seconds\nx_seconds_total"
        ));
        assert!(open.ends_with("# EOF\n"));
    }

    #[test]
    fn the_scraper_chooses() {
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.4,*/*;q=0.1";
        assert_eq!(Notation::asked_for(prometheus), Notation::OpenMetrics);
        assert_eq!(Notation::asked_for("*/*"), Notation::Prometheus);
        assert_eq!(Notation::asked_for(""), Notation::Prometheus);
        assert_eq!(
            Notation::asked_for("application/openmetrics-text;q=0"),
            Notation::Prometheus
        );
    }
}
