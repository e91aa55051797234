use html5ever::{
    ParseOpts, parse_document,
    tendril::TendrilSink,
    tokenizer::{BufferQueue, Token, TokenSink, TokenSinkResult, Tokenizer},
};

use super::*;
use crate::history::tests::replayed;

const DEMOS: [&str; 2] = ["async-write-starvation", "fsync-serialization"];

fn demo(name: &str) -> String {
    let about = About {
        command: Some("fio <job> & \"more\"".to_owned()),
        ended: Some("it ended with code 1".to_owned()),
        warning: Some("the recording is torn".to_owned()),
    };
    page(&replayed(name), Some(&fio_view()), &about)
}

fn fio_view() -> FioView {
    use crate::fio::join::{JobPart, JobRow, Seen};
    FioView {
        version: "fio-3.33".to_owned(),
        jobs: vec![JobRow {
            name: "<writer>".to_owned(),
            error: Some(5),
            cgroups: Vec::new(),
            devices: vec!["sda".to_owned()],
            rate: Some("rate=4m".to_owned()),
            parts: vec![JobPart {
                class: io_starve_common::class::Class::AsyncWrite,
                ios: 7,
                bytes: 28_672,
                mean_ns: None,
                p99_ns: None,
                max_ns: None,
                seen: Seen::Buffered,
            }],
            syncs: None,
        }],
        agreement: Vec::new(),
        notes: vec!["a note".to_owned()],
    }
}

/// What a parser of HTML complains about, and every tag with its attributes.
#[derive(Default)]
struct Seen {
    errors: std::cell::RefCell<Vec<String>>,
    ids: std::cell::RefCell<Vec<String>>,
    links: std::cell::RefCell<Vec<String>>,
    tags: std::cell::RefCell<Vec<String>>,
}

impl TokenSink for &Seen {
    type Handle = ();
    fn process_token(&self, token: Token, _: u64) -> TokenSinkResult<()> {
        match token {
            Token::ParseError(e) => self.errors.borrow_mut().push(e.into_owned()),
            Token::TagToken(tag) => {
                self.tags.borrow_mut().push(tag.name.to_string());
                for a in tag.attrs {
                    match &*a.name.local {
                        "id" => self.ids.borrow_mut().push(a.value.to_string()),
                        "href" | "src" => self.links.borrow_mut().push(a.value.to_string()),
                        "aria-labelledby" => {
                            let named = a.value.split(' ').map(|id| format!("#{id}"));
                            self.links.borrow_mut().extend(named);
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        TokenSinkResult::Continue
    }
}

fn tokens(html: &str) -> Seen {
    let seen = Seen::default();
    let queue = BufferQueue::default();
    queue.push_back(html.into());
    let tokenizer = Tokenizer::new(&seen, Default::default());
    let _ = tokenizer.feed(&queue);
    tokenizer.end();
    seen
}

#[test]
fn pages_are_valid_stand_alone_and_every_link_leads_somewhere() {
    for name in DEMOS {
        let html = demo(name);
        let seen = tokens(&html);
        assert_eq!(*seen.errors.borrow(), Vec::<String>::new(), "{name}");
        let tree = parse_document(markup5ever_rcdom::RcDom::default(), ParseOpts::default())
            .one(html.as_str());
        assert_eq!(
            *tree.errors.borrow(),
            Vec::<std::borrow::Cow<'static, str>>::new(),
            "{name}"
        );
        let ids = seen.ids.borrow();
        for link in seen.links.borrow().iter() {
            let id = link
                .strip_prefix('#')
                .unwrap_or_else(|| panic!("{link} leads away"));
            assert_eq!(ids.iter().filter(|i| *i == id).count(), 1, "{link}");
        }
        let tags = seen.tags.borrow();
        let outside = ["script", "img", "link", "iframe", "object"];
        assert!(!tags.iter().any(|t| outside.contains(&t.as_str())));
        assert!(
            !html.contains("url(") && !html.contains("@import"),
            "the style is inside"
        );
    }
}

#[test]
fn pages_tell_what_the_run_told() {
    let html = demo("fsync-serialization");
    for part in [
        "<h2 id=\"verdict-title\">Verdict</h2>",
        "waits for commit 6 of the journal",
        "raise or lift io.max of /fsync-journal-data/slow",
        "held by a limit",
        "journal commit",
        "not attributable to a job",
        "fio &lt;job&gt; &amp; &quot;more&quot;",
        "it ended with code 1",
        "Nothing was lost",
        "class=\"blame\"",
    ] {
        assert!(html.contains(part), "{part}");
    }
}

#[test]
fn an_empty_run_has_a_page_too() {
    let html = page(&Summary::default(), None, &About::default());
    assert_eq!(*tokens(&html).errors.borrow(), Vec::<String>::new());
    assert!(html.contains("No findings") && html.contains("No disk had I/O"));
}

#[test]
fn what_is_drawn_stays_small() {
    for name in DEMOS {
        let html = demo(name);
        assert!(html.len() < 200_000, "{name}: {} bytes", html.len());
    }
}
