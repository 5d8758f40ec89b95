//! What threads do to each other's caches, from the profile to the views.

use crate::common;
use crate::common::threads::{ADD, COUNT, Kind, Plan, SNAPSHOT, records, simulate};
use serde_json::Value;
use statcache::analysis::{Analysis, By, Caches, DEFAULT_LINE_BYTES};
use statcache::profile::Profile;
use statcache::profile::types::Record;
use statcache::report::{self, Options, Source, Sources, Style};
use statcache_model::{Policy, Sharing, Stream};

/// No source text anywhere.
struct Nowhere;

impl Sources for Nowhere {
    fn read(&self, _: &str) -> Option<Source> {
        None
    }
}

fn profile(plan: Plan) -> Profile {
    Profile::from_records(records(plan)).unwrap()
}

/// Observed with gaps: fewer samples, distances cut at the windows' ends.
fn with_gaps(kind: Kind) -> Plan {
    Plan {
        full: false,
        windows: 24,
        window: 30_000,
        ..Plan::new(kind)
    }
}

fn options() -> Options {
    Options {
        caches: None,
        line_bytes: 64,
        policy: Policy::RANDOM,
        stream: None,
        by: None,
        top: None,
        source: None,
    }
}

fn report(profile: &Profile, options: &Options, width: usize) -> String {
    let analysis = Analysis::new(profile).unwrap();
    let style = Style {
        width,
        colour: false,
        unicode: true,
    };
    report::render(&analysis, options, &Nowhere, &style).unwrap()
}

/// The lines of a report from a heading to the next.
fn section(report: &str, title: &str) -> String {
    const TITLES: [&str; 5] = ["Miss ratio", "Sharing", "Top ", "warning", "more:"];
    let next = |l: &str| TITLES.iter().any(|&t| t != title && l.starts_with(t));
    let lines = report.lines().skip_while(|l| !l.starts_with(title));
    let lines: Vec<&str> = lines.take_while(|l| !next(l)).collect();
    lines.join("\n").trim_end().to_owned()
}

/// Whatever it was wrapped to.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn false_sharing_is_found_and_named() {
    for plan in [Plan::new(Kind::Counters(8)), with_gaps(Kind::Counters(8))] {
        let profile = profile(plan);
        let analysis = Analysis::new(&profile).unwrap();
        let sharing = analysis.sharing().unwrap().unwrap();
        println!("{:?}", sharing.at_64);
        assert_eq!(sharing.threads, 2);
        assert!(sharing.at_64.miss_ratio > 0.01 && sharing.at_64.weak.is_none());
        let pair = &sharing.pairs[0];
        assert_eq!(pair.verdict, Sharing::False);
        assert!(pair.share > 0.99 && pair.disjoint > 0.99);
        let line = &sharing.subjects.list[pair.first as usize];
        assert_eq!(
            (line.file.as_str(), line.line),
            ("/opt/demo/falseshare.c", 10)
        );
        assert_eq!(
            pair.second,
            Some(pair.first),
            "both threads run the same line"
        );
        assert_eq!(pair.data.name, "heap");
        // Counters 8 bytes apart share lines of any size.
        assert!(sharing.by_line.iter().all(|(_, c)| c.miss_ratio > 0.01));
        let text = section(&report(&profile, &options(), 100), "Sharing");
        println!("{text}");
        for wanted in [
            "false sharing",
            "falseshare.c:10 work ↔ falseshare.c:10 work",
            "heap",
            "Pad or align",
        ] {
            assert!(text.contains(wanted), "{wanted} in\n{text}");
        }
        assert!(!text.contains("true sharing"));
    }
}

#[test]
fn padded_counters_are_silent() {
    for plan in [Plan::new(Kind::Counters(64)), with_gaps(Kind::Counters(64))] {
        let profile = profile(plan);
        let analysis = Analysis::new(&profile).unwrap();
        let sharing = analysis.sharing().unwrap().unwrap();
        assert_eq!(sharing.at_64.lost, 0);
        assert_eq!(sharing.pairs, []);
        let text = section(&report(&profile, &options(), 80), "Sharing");
        println!("{text}");
        assert!(words(&text).contains("too few to matter") && !text.contains("false"));
        let at = |line| sharing.by_line.iter().find(|l| l.0 == line).unwrap().1;
        assert!(at(128).miss_ratio > 0.01, "at 128 bytes they share a line");
        assert!(at(32).lost == 0);
        // The private cache is then that of the own distances alone.
        let curve = |stream| {
            let sizes = [32 << 10, 128 << 10];
            analysis.curve(64, Policy::RANDOM, stream, &sizes).unwrap()
        };
        assert_eq!(curve(Stream::Private), curve(Stream::Own));
    }
}

#[test]
fn true_sharing_is_told_apart_and_both_lines_are_named() {
    let profile = profile(Plan::new(Kind::Total));
    let analysis = Analysis::new(&profile).unwrap();
    let sharing = analysis.sharing().unwrap().unwrap();
    let line = |subject: u32| sharing.subjects.list[subject as usize].line;
    let of = |instr: u32| [21, 34][usize::from(instr == SNAPSHOT)];
    let (adds, reads) = (&sharing.pairs[0], &sharing.pairs[1]);
    assert_eq!(
        (line(adds.first), line(adds.second.unwrap())),
        (of(ADD), of(ADD))
    );
    assert_eq!(
        (line(reads.first), line(reads.second.unwrap())),
        (of(SNAPSHOT), of(ADD)),
        "who only reads loses, and is named first"
    );
    assert_eq!(reads.first_share, 1.0);
    for pair in [adds, reads] {
        assert_eq!((pair.verdict, pair.disjoint), (Sharing::True, 0.0));
        assert_eq!(pair.data.name, "totals");
    }
    let text = section(&report(&profile, &options(), 100), "Sharing");
    println!("{text}");
    for wanted in [
        "true sharing",
        "stats.c:21 add ↔ stats.c:21 add",
        "stats.c:34 snapshot ← stats.c:21 add",
        "totals, static in falseshare",
        "Padding does not help",
    ] {
        assert!(text.contains(wanted), "{wanted} in\n{text}");
    }
    assert!(!text.contains("false sharing"));
}

#[test]
fn few_lost_lines_have_no_verdict() {
    let plan = Plan {
        period: 4_000,
        ..Plan::new(Kind::Counters(8))
    };
    let profile = profile(plan);
    let analysis = Analysis::new(&profile).unwrap();
    let sharing = analysis.sharing().unwrap().unwrap();
    assert!(
        sharing.at_64.lost > 0 && sharing.at_64.weak.is_some(),
        "{sharing:?}"
    );
    let text = section(&report(&profile, &options(), 100), "Sharing");
    println!("{text}");
    assert!(text.contains("no verdict") && text.contains('~'));
    assert!(!text.contains("Pad or align"));
}

/// Two threads sweep 24 KiB each: each fits 32 KiB, both together do not.
#[test]
fn own_and_shared_caches_differ_where_they_must() {
    for plan in [
        Plan::new(Kind::Sweep(24 << 10)),
        with_gaps(Kind::Sweep(24 << 10)),
    ] {
        let profile = profile(plan);
        let analysis = Analysis::new(&profile).unwrap();
        let at = |policy, stream, bytes: u64| {
            analysis.curve(64, policy, stream, &[bytes]).unwrap()[0].miss_ratio
        };
        for stream in [Stream::Own, Stream::Private] {
            let own = at(Policy::LRU, stream, 32 << 10);
            assert!(own < 0.01, "{stream:?}: {own}");
        }
        // One reference in eight is the first to its line.
        let all = at(Policy::LRU, Stream::All, 32 << 10);
        assert!((all - 0.125).abs() < 0.01, "{all}");
        let all = at(Policy::LRU, Stream::All, 64 << 10);
        assert!(all < 0.01, "{all}");
        let (own, all) = (
            at(Policy::RANDOM, Stream::Own, 32 << 10),
            at(Policy::RANDOM, Stream::All, 32 << 10),
        );
        assert!(own < 0.01 && all > 0.05, "{own} {all}");
        // The host's levels are answered by what they see: L1 and L2 private, L3 shared.
        let streams = [48 << 10, 2 << 20, 32 << 20].map(|bytes| analysis.stream_at(bytes));
        assert_eq!(streams, [Stream::Private, Stream::Private, Stream::All]);
    }
}

/// Both kinds of cache against exact simulation, observed as a whole and in windows.
#[test]
fn curves_are_those_of_simulated_caches() {
    for kind in [Kind::Counters(8), Kind::Total, Kind::Sweep(24 << 10)] {
        let plan = Plan {
            threads: 3,
            windows: 10,
            ..Plan::new(kind)
        };
        // With gaps, a quarter of a run four times as long is seen: the same program all the time.
        for observed in [
            plan,
            Plan {
                full: false,
                ..plan
            },
        ] {
            let profile = profile(observed);
            let analysis = Analysis::new(&profile).unwrap();
            for bytes in [16 << 10, 32 << 10, 64 << 10, 128 << 10, 512 << 10] {
                for (stream, private) in [(Stream::Private, true), (Stream::All, false)] {
                    let exact = simulate(plan, bytes, private);
                    let curve = analysis.curve(64, Policy::RANDOM, stream, &[bytes]);
                    let p = curve.unwrap()[0];
                    let off = p.miss_ratio - exact;
                    println!(
                        "{bytes:>7} {stream:?}: exact {exact:.4}, {:.4} ({:.4}..{:.4}) off {off:.4}",
                        p.miss_ratio, p.low, p.high
                    );
                    let inside = p.low - 0.01 <= exact && exact <= p.high + 0.01;
                    assert!(inside && off.abs() < 0.025, "{bytes} {stream:?}");
                }
            }
        }
    }
}

#[test]
fn rankings_charge_what_the_chosen_caches_miss() {
    let profile = profile(Plan::new(Kind::Counters(8)));
    let analysis = Analysis::new(&profile).unwrap();
    let ratio = |stream| {
        let caches = Caches {
            sizes: vec![1 << 20],
            line_bytes: DEFAULT_LINE_BYTES,
            policy: Policy::RANDOM,
            stream,
            primary: Some(0),
        };
        let ranking = analysis.ranking(By::Instruction, &caches).unwrap();
        let list = &ranking.subjects.list;
        let row = |r: &&statcache::analysis::Row| {
            list[r.subject as usize].offset == Some(if COUNT == 0 { 0x1188 } else { 0 })
        };
        let row = ranking.rows.iter().find(row).unwrap().clone();
        (row.miss[0].miss_ratio, row.sharing.unwrap())
    };
    let (own, sharing) = ratio(Some(Stream::Own));
    let (private, _) = ratio(Some(Stream::Private));
    let (all, _) = ratio(Some(Stream::All));
    println!("{own} {private} {all} {sharing:?}");
    assert!(
        own < 0.02 && all < 0.02,
        "the counters stay in a cache of 1 MiB"
    );
    assert!(private > 0.1);
    assert!((sharing.coherence - private).abs() < 0.02);
    assert_eq!(sharing.verdict, Sharing::False);
    assert_eq!(ratio(None).0, private, "1 MiB is less than the last level");
}

#[test]
fn windows_of_threads_are_one_window_each_in_the_views() {
    let profile = profile(Plan::new(Kind::Counters(8)));
    let by = Options {
        by: Some(By::Window),
        ..options()
    };
    let text = report(&profile, &by, 100);
    println!("{text}");
    assert_eq!(text.lines().filter(|l| l.contains("100,000")).count(), 5);
}

/// A stack belongs to the thread that alone uses what is around it, also where another comes by.
#[test]
fn a_shared_stack_is_named_after_its_thread() {
    let mut records = records(Plan::new(Kind::Counters(8)));
    for record in &mut records {
        let Record::Window(w) = record else { continue };
        for taken in &mut w.samples {
            let s = &mut taken.sample;
            if s.ip == COUNT {
                // The counters lie in the first thread's frame, beside what is its own.
                s.memory = statcache::profile::types::Memory::Stack;
            } else if s.tid == common::threads::TID {
                s.memory = statcache::profile::types::Memory::Stack;
                s.address = 0x7f00_0000_0f00;
            }
        }
    }
    let profile = Profile::from_records(records).unwrap();
    let analysis = Analysis::new(&profile).unwrap();
    let sharing = analysis.sharing().unwrap().unwrap();
    assert_eq!(sharing.pairs.len(), 1);
    assert_eq!(sharing.pairs[0].data.name, "stack of thread 4242");
}

fn json(plan: Plan) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.prof");
    common::write(&path, &records(plan));
    let read = Profile::read(&path).unwrap();
    assert_eq!(read, profile(plan), "the file holds all of it");
    let out = std::process::Command::new(env!("CARGO_BIN_EXE_statcache"))
        .args(["export", path.to_str().unwrap(), "--format", "json"])
        .output()
        .unwrap();
    assert!(out.status.success());
    serde_json::from_slice(&out.stdout).unwrap()
}

#[test]
fn the_document_tells_of_threads() {
    let doc = json(with_gaps(Kind::Counters(8)));
    let curves = doc["curves"].as_array().unwrap();
    assert_eq!(curves.len(), 20);
    for stream in ["own", "all"] {
        let of = curves.iter().filter(|c| c["stream"] == stream);
        assert_eq!(of.count(), 10);
    }
    let own = &curves
        .iter()
        .find(|c| c["stream"] == "own" && c["line_size"] == 64)
        .unwrap()["points"][0];
    assert!(own["private_miss_ratio"].as_f64() > own["miss_ratio"].as_f64());
    let sharing = &doc["sharing"];
    assert_eq!(*sharing, doc["processes"][0]["sharing"]);
    let x = |v: &Value| v.as_f64().unwrap();
    let sum = x(&sharing["private"]) + x(&sharing["shared"]) + x(&sharing["coherence"]);
    assert!((sum - 1.0).abs() < 1e-9);
    assert!(x(&sharing["coherence_low"]) <= x(&sharing["coherence"]));
    assert!(x(&sharing["coherence"]) <= x(&sharing["coherence_high"]));
    let pair = &sharing["pairs"][0];
    assert_eq!(pair["verdict"], "false");
    for end in ["line", "writer"] {
        assert_eq!(
            (&pair[end]["file"], &pair[end]["line"]),
            (&"/opt/demo/falseshare.c".into(), &10.into())
        );
    }
    assert_eq!(pair["data"]["kind"], "heap");
    assert_eq!(doc["windows"].as_array().unwrap().len(), 24);
    assert_eq!(doc["windows"][0]["threads"].as_array().unwrap().len(), 2);
    let threads = doc["windows"][0]["threads"].as_array().unwrap();
    assert!(
        threads
            .iter()
            .any(|t| t["tid"] == 4243 && x(&t["accesses"]) > 0.0)
    );
    let line = &doc["lines"][0];
    assert_eq!(line["sharing"]["verdict"], "false");
    assert_eq!(
        line["miss"].as_array().unwrap().len(),
        line["miss_all"].as_array().unwrap().len()
    );
}

/// Digits are zeros, as figures are judged elsewhere.
fn masked(text: &str) -> String {
    let digit = |c: char| if c.is_ascii_digit() { '0' } else { c };
    text.chars().map(digit).collect()
}

#[test]
fn the_section_of_a_report() {
    let text = report(&profile(Plan::new(Kind::Counters(8))), &options(), 100);
    insta::assert_snapshot!(masked(&section(&text, "Sharing")));
}

#[test]
fn the_curve_of_a_report() {
    for width in [60, 80, 100] {
        let text = report(&profile(Plan::new(Kind::Counters(8))), &options(), width);
        let curve = section(&text, "Miss ratio");
        println!("{curve}");
        for line in curve.lines() {
            assert!(line.chars().count() <= width, "{line}");
        }
        let row = |name: &str| {
            let mut from_the_end = curve.lines().rev();
            let row = from_the_end.find(|l| l.trim_start().starts_with(name));
            row.unwrap().to_owned()
        };
        assert!(row("L1 48K").contains(" own"));
        assert!(row("L3 32M").contains(" all"));
        // The other policy goes where there is no room.
        let ratios = if width < 80 { 2 } else { 4 };
        assert_eq!(row("64K").matches(" %").count(), ratios);
    }
}
