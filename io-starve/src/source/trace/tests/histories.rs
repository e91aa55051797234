//! Texts made from known histories.

use proptest::prelude::*;

use super::*;

/// One request of a history.
#[derive(Debug, Clone)]
struct Told {
    letters: &'static str,
    class: Class,
    at: u64,
    inserted: bool,
    waits: u64,
    served: u64,
    requeued: bool,
    parts: u64,
    grows: bool,
}

fn told() -> impl Strategy<Value = Told> {
    let class = prop::sample::select(vec![
        ("R", Class::SyncRead),
        ("RAM", Class::SyncRead),
        ("W", Class::AsyncWrite),
        ("WS", Class::SyncWrite),
        ("FWFSM", Class::SyncWrite),
        ("D", Class::Discard),
    ]);
    (
        class,
        0u64..3 * S,
        any::<bool>(),
        1u64..5 * S,
        1u64..S,
        any::<bool>(),
        1u64..4,
        any::<bool>(),
    )
        .prop_map(
            |((letters, class), at, inserted, waits, served, requeued, parts, grows)| Told {
                letters,
                class,
                at,
                inserted,
                waits,
                served,
                requeued,
                parts,
                grows: grows && inserted,
            },
        )
}

/// Lines with their times, and what they must come to.
fn write(history: &[Told], expected: &mut BTreeMap<(DevId, Class), Sum>) -> Vec<(u64, String)> {
    let mut lines = Vec::new();
    for (i, t) in history.iter().enumerate() {
        let mut put = |us: u64, what: &str, rest: String| {
            lines.push((S + us, line(S + us, what, &format!("{} {rest}", t.letters))));
        };
        let (sector, mut sectors) = (10_000 * (i as u64 + 1), 24);
        let issue = t.at + t.waits;
        if t.inserted {
            put(
                t.at,
                "block_rq_insert",
                format!("{} () {sector} + {sectors}", sectors * 512),
            );
        }
        if t.grows {
            put(
                t.at + t.waits / 2,
                "block_bio_backmerge",
                format!("{} + 12", sector + sectors),
            );
            sectors += 12;
        }
        let bytes = sectors * 512;
        let mut last_issue = issue;
        put(
            issue,
            "block_rq_issue",
            format!("{bytes} () {sector} + {sectors}"),
        );
        if t.requeued {
            put(
                issue + 10,
                "block_rq_requeue",
                format!("() {sector} + {sectors}"),
            );
            put(
                issue + 30,
                "block_rq_issue",
                format!("{bytes} () {sector} + {sectors}"),
            );
            last_issue = issue + 30;
        }
        let end = last_issue + t.served + t.parts;
        let part = sectors / t.parts;
        for p in 0..t.parts {
            put(
                end - t.parts + p + 1,
                "block_rq_complete",
                format!("() {} + {part}", sector + p * part),
            );
        }
        let sum = expected.entry((SDA, t.class)).or_default();
        sum.seen += 1;
        sum.finished += 1;
        sum.inserts += u64::from(t.inserted);
        sum.issues += 1 + u64::from(t.requeued);
        sum.requeues += u64::from(t.requeued);
        sum.bytes += bytes;
        if t.inserted {
            sum.queued.0 += 1;
            sum.queued.1 += (last_issue - t.at) * 1_000;
        }
        sum.device.0 += 1;
        sum.device.1 += (end - last_issue) * 1_000;
    }
    lines
}

proptest! {
    #[test]
    fn a_text_made_from_a_history_gives_back_that_history(
        history in prop::collection::vec(told(), 1..40),
        noise in prop::collection::vec((0u64..9 * S, 0usize..5), 0..20),
        crlf in any::<bool>(),
        late in 0u64..400_000,
    ) {
        let mut expected = BTreeMap::new();
        let mut lines = write(&history, &mut expected);
        let foreign = noise.len() as u64;
        for (us, kind) in noise {
            let text = [
                format!("  bash-1 [001] ..... {}.000001: sched_switch: prev_comm=x ==> next_comm=block_rq_issue\n", us / S),
                "some other program's words\n".to_owned(),
                line(S + us, "block_plug", "x"),
                "\t ffffffff81 blk_mq_start_request+0x1 ([kernel.kallsyms])\n".to_owned(),
                "\u{fffd}\u{0}\u{1b}[31m\n".to_owned(),
            ];
            lines.push((S + us, text[kind].clone()));
        }
        // Two CPUs, one of which is written out late.
        lines.sort_by_key(|(us, text)| (us + if us % 2 == 0 { late } else { 0 }, text.clone()));
        let mut text: String = lines.into_iter().map(|(_, line)| line).collect();
        if crlf {
            text = text.replace('\n', "\r\n");
        }
        let (all, notes) = replayed(&text);
        prop_assert_eq!(sums(&all), expected);
        let last = all.last().unwrap();
        prop_assert_eq!(in_flight(last), 0);
        prop_assert!(last.loss.is_empty(), "{:?}", last.loss);
        prop_assert_eq!(notes.foreign, foreign);
        prop_assert_eq!((notes.late, notes.unreadable, notes.clock_jumps), (0, 0, 0));
    }
}

/// What happens to a line on its way.
#[derive(Debug, Clone, Copy)]
enum Damage {
    None,
    Dropped,
    Cut,
    Twice,
    Early,
    Gap,
    Garbage,
}

proptest! {
    #[test]
    fn a_damaged_text_still_has_accounts_that_balance(
        history in prop::collection::vec(told(), 1..60),
        damage in prop::collection::vec(
            prop::sample::select(vec![
                Damage::None, Damage::None, Damage::None, Damage::None, Damage::Dropped, Damage::Cut, Damage::Twice,
                Damage::Early, Damage::Gap, Damage::Garbage,
            ]),
            400,
        ),
        crowded in any::<bool>(),
    ) {
        let mut lines = write(&history, &mut BTreeMap::new());
        lines.sort();
        let mut text = String::new();
        for ((us, line), damage) in lines.iter().zip(damage) {
            // Requests that lie upon each other.
            let line = if crowded { line.replace("0000 + ", "9 + ") } else { line.clone() };
            match damage {
                Damage::None => text += &line,
                Damage::Dropped => {}
                Damage::Cut => text += &line[..line.len() / 2],
                Damage::Twice => text += &line.repeat(2),
                Damage::Early => text += &line.replacen(&format!("{:>4}.", us / S), "   0.", 1),
                Damage::Gap => text += &format!("CPU:0 [LOST 3 EVENTS]\n{line}"),
                Damage::Garbage => text += &line.replace("8,0", "8,x"),
            }
        }
        let mut pipeline = crate::pipeline::Pipeline::default();
        let (all, _) = replayed(&text);
        for o in &all {
            pipeline.feed(o);
        }
        pipeline.detach();
        let last = all.last().unwrap();
        // Whatever waits has waited since some event.
        for w in all.iter().flat_map(|o| &o.waiters) {
            prop_assert!(w.since_ns > 0, "{w:?}");
        }
        for ((dev, class), s) in sums(&all) {
            let left: u64 = last
                .waiting
                .iter()
                .filter(|w| (w.key.dev, w.key.class) == (dev, class))
                .map(|w| w.count[1] + w.count[2])
                .sum();
            prop_assert_eq!(s.seen, s.finished + s.merged + s.expired + left, "{:?}: {:?}", class, s);
        }
    }
}
