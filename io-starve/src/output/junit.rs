//! A run as JUnit XML, which CI servers show: a test case for each kind that was not to be found, else for each kind of finding. Pure.

use std::fmt::Write;

use super::{alert::FindingAlert, format::printable, text};
use crate::{
    cli::FailOn,
    detect::finding::{Kind, Severity},
    history::summary::Summary,
};

/// The document. Kinds of `fail_on` are the cases; without any, all kinds are, and none fails.
pub fn junit(
    summary: &Summary,
    fail_on: &[FailOn],
    command: &str,
    command_failed: Option<&str>,
) -> String {
    let cases: Vec<(Kind, Option<Severity>)> = match fail_on {
        [] => Kind::ALL.iter().map(|k| (*k, None)).collect(),
        _ => fail_on.iter().map(|f| (f.kind, Some(f.severity))).collect(),
    };
    let failures = cases
        .iter()
        .filter(|(kind, least)| {
            least.is_some_and(|least| of(summary, *kind).any(|f| f.severity >= least))
        })
        .count();
    let seconds = summary.elapsed_ns as f64 / 1e9;
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(
        xml,
        "<testsuites>\n<testsuite name=\"io-starve\" tests=\"{}\" failures=\"{failures}\" errors=\"{}\" skipped=\"0\" time=\"{seconds:.3}\">",
        cases.len() + 1,
        u8::from(command_failed.is_some())
    );
    let _ = write!(
        xml,
        "<testcase classname=\"io-starve.command\" name=\"{}\" time=\"{seconds:.3}\"",
        escaped(command)
    );
    match command_failed {
        Some(why) => {
            let _ = writeln!(xml, "><error message=\"{}\"/></testcase>", escaped(why));
        }
        None => xml.push_str("/>\n"),
    }
    for (kind, least) in cases {
        case(&mut xml, summary, kind, least);
    }
    let _ = writeln!(
        xml,
        "<system-out>{}</system-out>",
        escaped(&summary.verdict)
    );
    xml.push_str("</testsuite>\n</testsuites>\n");
    xml
}

fn of(summary: &Summary, kind: Kind) -> impl Iterator<Item = &FindingAlert> {
    summary.alerts().filter(move |f| f.kind == kind)
}

fn case(xml: &mut String, summary: &Summary, kind: Kind, least: Option<Severity>) {
    let found: Vec<&FindingAlert> = of(summary, kind).collect();
    let longest_ms = found.iter().map(|f| f.duration_ms).max().unwrap_or(0);
    let name = match least {
        Some(Severity::Info) | None => kind.name().to_owned(),
        Some(least) => format!("{}:{}", kind.name(), least.name()),
    };
    let _ = write!(
        xml,
        "<testcase classname=\"io-starve.findings\" name=\"{name}\" time=\"{:.3}\"",
        longest_ms as f64 / 1e3
    );
    if found.is_empty() {
        xml.push_str("/>\n");
        return;
    }
    xml.push_str(">\n");
    let mut rest = Vec::new();
    for finding in found {
        let words = escaped(&text::sentence(finding, "waited"));
        if least.is_some_and(|least| finding.severity >= least) {
            let advice = finding
                .advice
                .iter()
                .map(|a| format!("try: {}\n", escaped(a)));
            let advice: String = advice.collect();
            let _ = writeln!(
                xml,
                "<failure type=\"{}\" message=\"{words}\">{advice}</failure>",
                finding.severity.name()
            );
        } else {
            rest.push(words);
        }
    }
    if !rest.is_empty() {
        let _ = writeln!(xml, "<system-out>{}</system-out>", rest.join("\n"));
    }
    xml.push_str("</testcase>\n");
}

/// Safe in XML 1.0, as text and as an attribute.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            // Not allowed in any form.
            '\u{fffe}' | '\u{ffff}' => out.push(char::REPLACEMENT_CHARACTER),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::tests::replayed;

    fn on(kind: Kind, severity: Severity) -> FailOn {
        FailOn { kind, severity }
    }

    #[test]
    fn a_finding_fails_its_case_when_it_was_not_to_be() {
        let summary = replayed("fsync-serialization");
        let strict = [
            on(Kind::FsyncSerialization, Severity::Warning),
            on(Kind::ReadStarvation, Severity::Info),
        ];
        let xml = junit(&summary, &strict, "fio \"a\" <b>", None);
        assert!(
            xml.contains("tests=\"3\" failures=\"1\" errors=\"0\""),
            "{xml}"
        );
        assert!(
            xml.contains("name=\"fio &quot;a&quot; &lt;b&gt;\""),
            "{xml}"
        );
        assert!(
            xml.contains("name=\"fsync-serialization:warning\""),
            "{xml}"
        );
        assert!(
            xml.contains("<failure type=\"warning\" message=\"warning fsync-serialization on"),
            "{xml}"
        );
        assert!(
            xml.contains("name=\"read-starvation\" time=\"0.000\"/>"),
            "{xml}"
        );
    }

    #[test]
    fn without_conditions_findings_are_told_and_nothing_fails() {
        let summary = replayed("fsync-serialization");
        let xml = junit(&summary, &[], "x", Some("it was killed by signal 9"));
        let tests = Kind::ALL.len() + 1;
        assert!(
            xml.contains(&format!("tests=\"{tests}\" failures=\"0\" errors=\"1\"")),
            "{xml}"
        );
        assert!(
            xml.contains("<error message=\"it was killed by signal 9\"/>"),
            "{xml}"
        );
        assert!(
            xml.contains("<system-out>warning fsync-serialization on"),
            "{xml}"
        );
    }
}
