//! CPython's own regression tests, where they are installed: the same cases pass and fail under windows back to back as
//! they do alone.
//!
//! Some of them here; with `STATCACHE_CPYTHON` those that it names (`test_socket test_asyncio`).

use crate::support::cli::{back_to_back, lossy, text};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Threads; mappings; calls through code that libffi makes, and signals in them.
const SOME: &str = "test_thread test_mmap test_ctypes";

/// How each case of a module ended. Source: the report of `python -m test --junit-xml`.
fn cases(before: &[&str], module: &str, place: &Path) -> BTreeMap<String, &'static str> {
    let report = place.join("report.xml");
    // Of a module that ends without a report nothing is to be found from the one before.
    let _ = std::fs::remove_file(&report);
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "600"]).args(before);
    command.args(["python3", "-m", "test", "--junit-xml"]);
    command.arg(&report).arg(module).current_dir(place);
    let output = command.output().expect("run");
    let Ok(found) = std::fs::read_to_string(&report) else {
        println!("{module}: no report: {}", lossy(&output.stderr));
        return BTreeMap::new();
    };
    let each = found.split("<testcase ").skip(1);
    each.filter_map(|case| {
        let name = case.strip_prefix("name=\"")?.split('"').next()?;
        let ways = ["failure", "error", "skipped"];
        let how = ways
            .into_iter()
            .find(|how| case.contains(&format!("<{how}")));
        Some((name.to_owned(), how.unwrap_or("passed")))
    })
    .collect()
}

#[test]
fn the_same_cases_pass() {
    let installed = Command::new("python3")
        .args(["-c", "import test.test_thread"])
        .output();
    if !installed.is_ok_and(|output| output.status.success()) {
        println!("SKIP the_same_cases_pass: CPython's regression tests are not installed");
        return;
    }
    let wanted = std::env::var("STATCACHE_CPYTHON").unwrap_or(SOME.to_owned());
    let place = tempfile::tempdir().expect("a temporary directory");
    let profile = text(&place.path().join("p"));
    let before = back_to_back(&profile);
    let (mut different, mut ran) = (Vec::new(), 0);
    for module in wanted.split_whitespace() {
        let compare = || {
            let alone = cases(&[], module, place.path());
            let found = cases(&before, module, place.path());
            println!("{module}: {} cases, {} alone", found.len(), alone.len());
            let unlike = |name: &&String| alone.get(*name) != found.get(*name);
            let names: Vec<String> = alone
                .keys()
                .chain(found.keys())
                .filter(unlike)
                .cloned()
                .collect();
            (names, alone.is_empty())
        };
        // Some depend on how long things take: what is not the same twice is none of ours.
        let (first, none) = compare();
        ran += usize::from(!none);
        if none {
            println!("SKIP {module}: does not run alone");
        } else if !first.is_empty() {
            let (again, _) = compare();
            different.extend(again.into_iter().filter(|name| first.contains(name)));
        }
    }
    assert!(ran > 0, "none runs alone");
    assert!(different.is_empty(), "{different:#?}");
}
