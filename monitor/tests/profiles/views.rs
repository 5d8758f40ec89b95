//! Snapshots of what users and tools see. Figures depend on the model, which is judged elsewhere:
//! here every digit is a `0`, so that these tests fail when a view changes and only then.

use std::process::Command;

use crate::common::{Plan, records, write};
use serde_json::Value;
use statcache::analysis::Analysis;
use statcache::profile::Profile;
use statcache::profile::types::Record;
use statcache::report::{self, Style};

fn run(args: &[&str], columns: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("statcache.prof"), &records(Plan::small()));
    let out = Command::new(env!("CARGO_BIN_EXE_statcache"))
        .args(args)
        .current_dir(dir.path())
        .env_clear()
        .env("LANG", "C.UTF-8")
        .env("COLUMNS", columns)
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).unwrap()
}

/// Digits are zeros; numbers of any length, and the blanks that make up for it, are alike; the
/// bars of plots are left out, and of lines that are then alike all but the first.
pub fn masked(report: &str) -> String {
    let mut out = String::new();
    // Whether these lines are there at all is for the figures to say.
    let chance = |l: &str| l.contains("could not be placed") || l.starts_with("steepest");
    let plot = |l: &str| l.contains(['┤', '└', '┊']);
    for line in report
        .lines()
        .filter(|l| !plot(l) && !chance(l))
        .map(str::trim_start)
    {
        if line.is_empty() && out.ends_with("\n\n") {
            continue;
        }
        let start = out.len();
        let mut before = ' ';
        for c in line.chars() {
            let c = match c {
                '1'..='9' => '0',
                '▁'..='█' => '▇',
                c => c,
            };
            let repeated = c == before && (c == '0' || c == ' ' || c == '▇');
            if !repeated {
                out.push(c);
            }
            before = c;
        }
        out.push('\n');
        let seen = out[..start]
            .split_inclusive('\n')
            .any(|l| l == &out[start..]);
        if seen && out.len() > start + 1 {
            out.truncate(start);
        }
    }
    // Ratios are shown with as many decimals as they deserve.
    for (from, to) in [("0,0", "0"), ("0.0", "0"), ("~0", "0"), ("<0", "0")] {
        out = out.replace(from, to);
    }
    out
}

#[test]
fn the_overview() {
    insta::assert_snapshot!(masked(&run(&["report"], "80")));
}

#[test]
fn what_run_says_at_the_end() {
    let profile = Profile::from_records(records(Plan::small())).unwrap();
    let analysis = Analysis::new(&profile).unwrap();
    let style = Style {
        width: 80,
        colour: false,
        unicode: true,
    };
    insta::assert_snapshot!(masked(&report::summary(&analysis, &style).unwrap()));
}

#[test]
fn instructions_in_a_wide_terminal() {
    insta::assert_snapshot!(masked(&run(&["report", "--by", "instruction"], "120")));
}

/// Of a line of a header the text and place of the program's own line are told.
#[test]
fn lines_of_libraries_name_those_that_they_were_inlined_into() {
    let dir = tempfile::tempdir().unwrap();
    let main = dir.path().join("main.c");
    let text = "\n".repeat(51) + "  total += lookup(table, key);\n";
    std::fs::write(&main, text).unwrap();
    // A source that is newer than the run is not shown.
    let file = std::fs::File::options().append(true).open(&main).unwrap();
    let mut records = records(Plan::small());
    for record in &mut records {
        let Record::Symbols(symbols) = record else {
            continue;
        };
        for frame in symbols.iter_mut().flatten() {
            match frame.file.as_str() {
                "/opt/demo/src/hash.h" => frame.file = "/usr/include/hash.h".to_owned(),
                "/opt/demo/src/main.c" => frame.file = main.to_str().unwrap().to_owned(),
                _ => {}
            }
        }
    }
    let path = dir.path().join("p");
    write(&path, &records);
    let report = || {
        let out = Command::new(env!("CARGO_BIN_EXE_statcache"))
            .args(["report", "--by", "line"])
            .arg(&path)
            .env_clear()
            .env("COLUMNS", "100")
            .output()
            .unwrap();
        String::from_utf8(out.stdout).unwrap()
    };
    file.set_modified(std::time::SystemTime::now()).unwrap();
    let changed = report();
    assert!(
        changed.contains("the text of main.c") && !changed.contains("total += lookup"),
        "{changed}"
    );
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    let report = report();
    let lines: Vec<&str> = report.lines().collect();
    let header = lines.iter().position(|l| l.contains("hash.h:31 ")).unwrap();
    let below = &lines[header + 1..];
    assert!(
        below[0].ends_with("| total += lookup(table, key);"),
        "{report}"
    );
    assert!(below[1].contains("inlined into main.c:52 run,"), "{report}");
    let own = lines.iter().position(|l| l.contains("main.c:47 ")).unwrap();
    assert!(!lines[own + 1].contains("inlined into"), "{report}");
    assert!(!report.contains("not shown"), "{report}");
}

#[test]
fn windows_over_time() {
    insta::assert_snapshot!(masked(&run(
        &["report", "--by", "window", "--top", "3"],
        "80"
    )));
}

#[test]
fn a_file_without_its_source() {
    insta::assert_snapshot!(masked(&run(&["report", "--source", "hash.h"], "80")));
}

/// The document with every value replaced by its type, lists by their first element.
pub fn shape(value: &Value) -> Value {
    match value {
        Value::Null => "null".into(),
        Value::Bool(_) => "bool".into(),
        Value::Number(n) if n.is_f64() => "real".into(),
        Value::Number(_) => "integer".into(),
        Value::String(_) => "text".into(),
        Value::Array(list) => list.iter().take(1).map(shape).collect(),
        Value::Object(map) => map.iter().map(|(k, v)| (k.clone(), shape(v))).collect(),
    }
}

#[test]
fn the_shape_of_the_json_export() {
    let mut document: Value =
        serde_json::from_str(&run(&["export", "--format", "json"], "80")).unwrap();
    document.as_object_mut().unwrap().remove("processes");
    insta::assert_snapshot!(serde_json::to_string_pretty(&shape(&document)).unwrap());
}

#[test]
fn the_columns_of_the_csv_export() {
    let csv = run(&["export", "--format", "csv"], "80");
    let mut sections: Vec<&str> = Vec::new();
    let mut examples = vec![csv.lines().next().unwrap().to_owned()];
    for line in csv.lines().skip(1) {
        let section = line.split(',').next().unwrap();
        if !sections.contains(&section) {
            sections.push(section);
            examples.push(masked(line).trim_end().to_owned());
        }
    }
    insta::assert_snapshot!(examples.join("\n"));
}
