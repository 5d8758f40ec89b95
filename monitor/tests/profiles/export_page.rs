//! The exported page: whole in itself, valid whatever is in a profile, and of the same figures as the other exports.

use std::path::Path;
use std::process::Command;

use crate::common::page::{Element, Page};
use crate::common::threads::{self, Kind};
use crate::common::{Plan, process, records, write};
use serde_json::Value;
use statcache::profile::types::Record;
use statcache::report::percent;

fn export(records: &[Record], format: &str, args: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.prof");
    write(&path, records);
    let out = Command::new(env!("CARGO_BIN_EXE_statcache"))
        .args(["export", path.to_str().unwrap(), "--format", format])
        .args(args)
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).unwrap()
}

fn page(records: &[Record]) -> Page {
    Page::parse(&export(records, "html", &[]))
}

fn miss_at(entry: &Value, bytes: u64) -> &Value {
    let list = entry["miss"].as_array().unwrap();
    list.iter().find(|m| m["cache_bytes"] == bytes).unwrap()
}

#[test]
fn a_page_is_whole_in_itself() {
    let page = page(&records(Plan::small()));
    page.check();
    for outside in ["http:", "https:", "//www"] {
        assert!(!page.bytes.contains(outside), "{outside}");
    }
    for part in ["curve", "where", "source", "time"] {
        assert!(page.id(&format!("p0-{part}")).is_some(), "{part}");
    }
    assert!(page.id("p0-sharing").is_none(), "one thread alone");
    let text = &page.all("body").next().unwrap().text;
    for told in [
        "./grind --size large input.dat",
        "exit status 0",
        "2 threads ran unobserved",
        "run single-threaded to see all",
        "Not found here, and so not shown (export where the sources are): ",
    ] {
        assert!(text.contains(told), "{told}");
    }
    // Both axes of every line size.
    let drawn = page.elements.iter().filter(|e| e.has("variant"));
    assert_eq!(drawn.filter(|e| e.name == "g").count(), 10);
}

#[test]
fn figures_are_those_of_the_document() {
    let records = records(Plan {
        full: false,
        ..Plan::small()
    });
    let doc: Value = serde_json::from_str(&export(&records, "json", &[])).unwrap();
    let asked = ["--cache", "32K,1M"];
    for (page, sizes) in [
        (page(&records), vec![48 << 10, 2 << 20, 32 << 20]),
        (
            Page::parse(&export(&records, "html", &asked)),
            vec![32 << 10, 1 << 20],
        ),
    ] {
        page.check();
        let data = page.data();
        for curve in doc["curves"].as_array().unwrap() {
            let key = format!("own-{}", curve["line_size"]);
            let shown = &data[0]["curves"][key][curve["policy"].as_str().unwrap()];
            for bytes in [48 << 10, 1 << 20] {
                let has = |v: &Value| *v == bytes;
                let at = data[0]["sizes"].as_array().unwrap();
                let at = at.iter().position(has).unwrap();
                let points = curve["points"].as_array().unwrap();
                let point = points.iter().find(|p| p["cache_bytes"] == bytes).unwrap();
                for (n, key) in ["miss_ratio", "low", "high"].iter().enumerate() {
                    let off = shown[at][n].as_f64().unwrap() - point[key].as_f64().unwrap();
                    assert!(off.abs() < 1e-6, "{bytes} {key}: {off}");
                }
            }
        }
        for (list, name) in [
            ("lines", "file"),
            ("functions", "function"),
            ("data", "name"),
            ("instructions", "function"),
        ] {
            let rows = page.rows(list);
            let entries = doc[list].as_array().unwrap();
            assert!(rows.len() > 1 && rows.len() <= entries.len(), "{list}");
            // The host's second level ranks, or what was asked for first.
            let ranks = if sizes.len() == 2 { 0 } else { 1 };
            let shares = rows.iter().map(|(keys, _)| keys[2 * ranks]);
            assert!(shares.is_sorted_by(|a, b| a >= b), "{list}");
            for (keys, text) in &rows {
                let same = |e: &&&Value| {
                    sizes.iter().enumerate().all(|(n, &bytes)| {
                        let miss = miss_at(e, bytes);
                        let near = |key: usize, of: &str| {
                            (keys[key] - miss[of].as_f64().unwrap()).abs() < 1e-6
                        };
                        near(2 * n, "miss_share") && near(2 * n + 1, "miss_ratio")
                    })
                };
                let entries: Vec<&Value> = entries.iter().collect();
                let entry = entries.iter().find(same);
                let entry = entry.unwrap_or_else(|| panic!("{list}: {text} {keys:?}"));
                let name = entry[name].as_str().unwrap().rsplit('/').next().unwrap();
                assert!(text.contains(name), "{name} in {text}");
                for &bytes in &sizes {
                    let miss = miss_at(entry, bytes);
                    let mark = if miss["weak"] == true { "~" } else { "" };
                    let said = format!("{mark}{}", percent(miss["miss_ratio"].as_f64().unwrap()));
                    assert!(text.contains(&said), "{said} in {text}");
                }
            }
        }
    }
}

/// Gives everything in a profile that has a name a name that would be markup.
fn hostile(records: &mut [Record]) {
    const EVIL: &str =
        "</script></style><script>alert('x')</script>\" onload=\"y&lt;\n\r\0\u{202e}";
    for record in records {
        match record {
            Record::Header(header) => {
                header.command = vec![EVIL.to_owned(), "a\u{fffd}b\n".to_owned()];
                header.host_cpu = EVIL.to_owned();
                header.statcache_version = EVIL.to_owned();
                header.engine = EVIL.to_owned();
            }
            Record::Modules(modules) => modules.iter_mut().for_each(|m| m.path += EVIL),
            Record::Symbols(chains) => chains.iter_mut().flatten().for_each(|frame| {
                frame.function += EVIL;
                frame.file += EVIL;
            }),
            Record::DataSymbols(names) => names.iter_mut().for_each(|n| n.3 += EVIL),
            Record::Footer(footer) => footer.warnings.iter_mut().for_each(|w| {
                w.what += EVIL;
                w.remedy += EVIL;
            }),
            _ => {}
        }
    }
}

#[test]
fn names_are_text_whatever_they_are() {
    let mut records = records(Plan::small());
    hostile(&mut records);
    let page = page(&records);
    page.check();
    assert!(!page.bytes.contains("alert('x')</script>"));
    for acts in ['\0', '\r', '\u{202e}'] {
        assert!(!page.bytes.contains(acts), "{acts:?}");
    }
    let rows = page.rows("lines");
    let (_, lookup) = rows.iter().find(|r| r.1.contains("lookup")).unwrap();
    let name = "lookup</script></style><script>alert('x')</script>\" onload=\"y&lt;␊␍␀<U+202E>";
    assert!(lookup.contains(name), "{lookup}");
    assert!(page.all("title").next().unwrap().text.contains("script>"));
}

/// Where the sources of the synthetic program are: `main.c` is long, and grid.c is not there.
fn with_sources(dir: &Path, started_unix_s: f64) -> Vec<Record> {
    let mut records = records(Plan::small());
    let line = |n: usize| format!("\tcode <{n}> && \"x\";\n");
    std::fs::write(dir.join("hash.h"), (1..=40).map(line).collect::<String>()).unwrap();
    std::fs::write(dir.join("main.c"), (1..=3000).map(line).collect::<String>()).unwrap();
    for record in &mut records {
        match record {
            Record::Header(header) => {
                header.cwd = dir.to_str().unwrap().to_owned();
                header.start_unix_s = started_unix_s;
            }
            Record::Symbols(chains) => {
                for frame in chains.iter_mut().flatten() {
                    frame.file = frame.file.replace("/opt/demo/src/", "");
                }
            }
            _ => {}
        }
    }
    records
}

#[test]
fn source_stands_beside_its_figures() {
    let dir = tempfile::tempdir().unwrap();
    let page = page(&with_sources(dir.path(), 4e9));
    page.check();
    let sheet = |name: &str| {
        let sheets = page.elements.iter().filter(|e| e.has("sheet"));
        let mut found = sheets.filter(|e| e.text.starts_with(name));
        found.next().unwrap()
    };
    let (hash, main) = (sheet("hash.h"), sheet("main.c"));
    let line = |sheet: &Element, n: u32| {
        let id = format!("{}-{n}", sheet.attributes["id"]);
        page.id(&id).unwrap()
    };
    let (keys, row) = page.rows("lines").swap_remove(0);
    assert!(row.contains("hash.h:31") && row.contains("code <31> && \"x\";"));
    let marked = line(hash, 31);
    assert!(
        marked.text.starts_with(&percent(keys[2])),
        "{}",
        marked.text
    );
    assert!(marked.text.ends_with("31\tcode <31> && \"x\";"));
    let link = format!("#{}", marked.attributes["id"]);
    assert!(
        page.all("a")
            .any(|a| a.attributes["href"] == link && a.text == "hash.h:31")
    );
    // A short file is there as a whole, of a long one what is near.
    for n in [1, 40] {
        assert!(hash.text.contains(&format!("code <{n}>")), "{n}");
    }
    line(main, 47);
    for (n, there) in [
        (37, true),
        (36, false),
        (57, true),
        (58, false),
        (3000, false),
    ] {
        assert_eq!(main.text.contains(&format!("code <{n}>")), there, "{n}");
    }
    assert!(page.bytes.contains("Not found here"), "grid.c");
    assert!(!page.bytes.contains("changed since the run"));
}

#[test]
fn source_that_has_changed_is_said_to_have() {
    let dir = tempfile::tempdir().unwrap();
    let page = page(&with_sources(dir.path(), 1e9));
    page.check();
    let changed = |e: &&Element| e.has("sheet") && e.text.contains("changed since the run");
    assert_eq!(page.elements.iter().filter(changed).count(), 2);
    // It stands under its warning, and not in the list.
    assert!(!page.rows("lines")[0].1.contains("code <31>"));
}

#[test]
fn profiles_that_hold_little_have_pages() {
    let whole = records(Plan::small());
    let header = || whole[..1].to_vec();
    let empty = page(&header());
    empty.check();
    assert!(empty.bytes.contains("Nothing was measured"));
    assert!(empty.bytes.contains("no end recorded"));
    assert_eq!(empty.all("svg").count(), 0);
    // Windows without samples.
    let mut bare = whole.clone();
    for record in &mut bare {
        if let Record::Window(window) = record {
            window.samples.clear();
        }
    }
    let bare = page(&bare);
    bare.check();
    assert!(bare.bytes.contains("Nothing was measured"));
    // Cut short: neither symbols nor an end.
    let short = |r: &&Record| {
        !matches!(
            r,
            Record::Symbols(_) | Record::DataSymbols(_) | Record::Footer(_)
        )
    };
    let cut: Vec<Record> = whole.iter().filter(short).cloned().collect();
    let cut = page(&cut);
    cut.check();
    assert!(cut.rows("lines")[0].1.contains("grind+0x1188"));
    assert!(cut.bytes.contains("No code with misses has line numbers."));
    assert!(!cut.bytes.contains("fetched"), "no time is known");
    // By function, as a report has it.
    assert!(cut.id("p0-functions").unwrap().has("on"));
}

#[test]
fn threads_have_both_kinds_of_caches_and_what_they_take_from_each_other() {
    let records = threads::records(threads::Plan::new(Kind::Counters(8)));
    let doc: Value = serde_json::from_str(&export(&records, "json", &[])).unwrap();
    let page = page(&records);
    page.check();
    let data = page.data();
    let at = |data: &Value, bytes: u64| {
        let sizes = data["sizes"].as_array().unwrap();
        sizes.iter().position(|s| *s == bytes).unwrap()
    };
    for (stream, key) in [("own", "private_miss_ratio"), ("all", "miss_ratio")] {
        let curves = doc["curves"].as_array().unwrap();
        let is =
            |c: &&Value| c["stream"] == stream && c["line_size"] == 64 && c["policy"] == "random";
        let points = curves.iter().find(is).unwrap()["points"]
            .as_array()
            .unwrap();
        let point = points.iter().find(|p| p["cache_bytes"] == 1 << 20).unwrap();
        let shown = &data[0]["curves"][format!("{stream}-64")]["random"][at(&data[0], 1 << 20)];
        let off = shown[0].as_f64().unwrap() - point[key].as_f64().unwrap();
        assert!(off.abs() < 1e-6, "{stream}: {off}");
    }
    let sharing = &page.id("p0-sharing").unwrap().text;
    for told in ["false sharing", "falseshare.c:10", "Pad or align"] {
        assert!(sharing.contains(told), "{told} in {sharing}");
    }
    let share = doc["sharing"]["pairs"][0]["share"].as_f64().unwrap();
    assert!(sharing.contains(&percent(share)));
}

#[test]
fn every_process_has_its_figures_and_the_busiest_is_seen_first() {
    // A process that starts another and does next to nothing.
    let mut all = records(Plan {
        accesses: 60_000,
        window: 30_000,
        period: 50,
        ..Plan::small()
    });
    let footer = all.pop().unwrap();
    all.push(process(1, "/opt/work<er>"));
    all.extend(records(Plan::small()).split_off(1));
    // One that no window saw.
    all.extend([process(2, "idle"), footer.clone()]);
    all.extend([process(0, "./grind"), footer]);
    let page = page(&all);
    page.check();
    let heads: Vec<&str> = page.all("h1").map(|h| h.text.as_str()).collect();
    assert_eq!(heads, ["'/opt/work<er>'", "./grind --size large input.dat"]);
    let chooser = page.all("nav").next().unwrap();
    assert!(
        chooser.text.starts_with("work<er> 4243 · "),
        "{}",
        chooser.text
    );
    let run = page.elements.iter().find(|e| e.has("run")).unwrap();
    for told in [
        "1 process without figures here",
        "idle",
        "of the run, or of process 4242: ",
    ] {
        assert!(run.text.contains(told), "{told} in {}", run.text);
    }
    assert_eq!(page.data().as_array().unwrap().len(), 2);
    assert!(page.id("p1-lines").is_some());
}
