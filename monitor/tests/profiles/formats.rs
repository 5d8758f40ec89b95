//! Exports for other profilers: what they count is what the JSON export tells, and the tools themselves read it where they are installed.

use std::collections::{BTreeSet, HashMap};
use std::io::Read;
use std::process::Command;

use crate::common::{Plan, process, records, threads, write};
use flate2::read::GzDecoder;
use prost::Message;
use serde_json::Value;
use statcache::profile::types::Record;

/// A profile, and all that is made of it.
struct Exports {
    dir: tempfile::TempDir,
}

impl Exports {
    fn new(records: &[Record]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("p.prof"), records);
        Self { dir }
    }

    fn get(&self, format: &str, more: &[&str]) -> Vec<u8> {
        let path = self.dir.path().join("p.prof");
        let out = Command::new(env!("CARGO_BIN_EXE_statcache"))
            .args(["export", path.to_str().unwrap(), "--format", format])
            .args(more)
            .output()
            .unwrap();
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        out.stdout
    }

    fn text(&self, format: &str, more: &[&str]) -> String {
        String::from_utf8(self.get(format, more)).unwrap()
    }

    fn json(&self, format: &str, more: &[&str]) -> Value {
        serde_json::from_slice(&self.get(format, more)).unwrap()
    }

    /// References of the run, and misses at each of these sizes, by the JSON export.
    fn told(&self, sizes: &[u64]) -> (f64, Vec<f64>) {
        let doc = self.json("json", &[]);
        let curve = doc["curves"]
            .as_array()
            .unwrap()
            .iter()
            .find(|c| c["line_size"] == 64 && c["policy"] == "random" && c["stream"] == "own");
        let points = curve.unwrap()["points"].as_array().unwrap();
        let refs = doc["totals"]["accesses_estimated"].as_f64().unwrap();
        let ratio = |&bytes: &u64| {
            let point = points.iter().find(|p| p["cache_bytes"] == bytes).unwrap();
            point["miss_ratio"].as_f64().unwrap()
        };
        (refs, sizes.iter().map(|b| refs * ratio(b)).collect())
    }
}

/// The host of the synthetic profile.
const HOST: [u64; 3] = [48 << 10, 2 << 20, 32 << 20];

fn near(found: f64, wanted: f64, what: &str) {
    // Places are rounded to whole misses, a few hundred of them at the most.
    let off = (found - wanted).abs();
    assert!(off <= 300.0 + 1e-6 * wanted, "{what}: {found} for {wanted}");
}

/// Cost lines of a file in Callgrind's format, by function, file, line and address; and its totals.
type Costs = HashMap<(String, String, String, String), Vec<u64>>;

fn callgrind(text: &str) -> (Vec<String>, Costs, Vec<u64>) {
    let numbers = |text: &str| -> Vec<u64> {
        let fields = text.split_whitespace();
        fields.map(|n| n.parse().unwrap()).collect()
    };
    let (mut events, mut totals, mut costs) = (Vec::new(), Vec::new(), Costs::new());
    let (mut object, mut function, mut file) = Default::default();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(names) = line.strip_prefix("events: ") {
            events = names.split(' ').map(str::to_owned).collect();
        } else if let Some(sums) = line.strip_prefix("totals: ") {
            totals = numbers(sums);
        } else if let Some(sums) = line.strip_prefix("summary: ") {
            assert!(text.contains(&format!("totals: {sums}\n")));
        } else if let Some((key, value)) = line.split_once('=') {
            match key {
                "ob" => object = value.to_owned(),
                "fn" => function = value.to_owned(),
                "fl" | "fi" | "fe" => file = value.to_owned(),
                _ => panic!("{line}"),
            }
        } else if line.starts_with("0x") {
            let mut fields = line.splitn(3, ' ');
            let mut next = || fields.next().unwrap().to_owned();
            let (address, number, rest) = (next(), next(), next());
            let place = format!("{file}:{number}");
            let of = numbers(&rest);
            assert_eq!(of.len(), events.len(), "{line}");
            let key = (object.clone(), function.clone(), place, address);
            assert!(costs.insert(key, of).is_none(), "twice: {line}");
        }
    }
    (events, costs, totals)
}

#[test]
fn callgrind_has_all_misses_at_their_places() {
    let exports = Exports::new(&records(Plan::small()));
    let text = exports.text("callgrind", &[]);
    assert!(
        text.starts_with("# callgrind format\nversion: 1\n"),
        "{text}"
    );
    let (events, costs, totals) = callgrind(&text);
    assert_eq!(events, ["Refs", "Miss_L1_48K", "Miss_L2_2M", "Miss_L3_32M"]);
    let (refs, misses) = exports.told(&HOST);
    near(totals[0] as f64, refs, "references");
    for (at, wanted) in misses.iter().enumerate() {
        near(totals[1 + at] as f64, *wanted, &events[1 + at]);
        let sum: u64 = costs.values().map(|of| of[1 + at]).sum();
        assert_eq!(sum, totals[1 + at]);
    }
    // The instruction that looks the table up, which is inlined, has its line and its misses.
    let doc = exports.json("json", &[]);
    let listed = doc["instructions"].as_array().unwrap();
    let lookup = listed.iter().find(|i| i["offset"] == 0x1188).unwrap();
    let at = |m: &&Value| m["cache_bytes"] == HOST[1];
    let miss = lookup["miss"].as_array().unwrap().iter().find(at).unwrap();
    let wanted = miss["miss_share"].as_f64().unwrap() * misses[1];
    let place = costs
        .iter()
        .find(|((object, _, _, address), _)| object.ends_with("grind") && address == "0x1188");
    let ((_, function, line, _), of) = place.unwrap();
    near(of[2] as f64, wanted, "the table's lookup");
    let place = format!(
        "{}:{}",
        lookup["file"].as_str().unwrap(),
        lookup["line"].as_u64().unwrap()
    );
    assert_eq!(*line, place);
    assert_ne!(
        *function,
        lookup["function"].as_str().unwrap(),
        "it is inlined"
    );
}

#[test]
fn callgrind_annotate_reads_it() {
    let exports = Exports::new(&records(Plan::small()));
    let path = exports.dir.path().join("callgrind.out.1");
    std::fs::write(&path, exports.get("callgrind", &[])).unwrap();
    let Ok(out) = Command::new("callgrind_annotate")
        .arg("--auto=no")
        .arg(&path)
        .output()
    else {
        println!("SKIP callgrind_annotate_reads_it: no callgrind_annotate here");
        return;
    };
    let said = String::from_utf8_lossy(&out.stdout);
    let warned = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && warned.is_empty(), "{said}{warned}");
    assert!(said.contains("hash.h:"), "{said}");
}

#[test]
fn folded_stacks_add_up_to_the_misses_in_one_cache() {
    let exports = Exports::new(&records(Plan::small()));
    let total = |more: &[&str]| -> u64 {
        let text = exports.text("folded", more);
        let lines = text.lines().map(|line| {
            let (stack, count) = line.rsplit_once(' ').unwrap();
            assert!(stack.starts_with("grind;"), "{line}");
            count.parse::<u64>().unwrap()
        });
        lines.sum()
    };
    let (_, misses) = exports.told(&[32 << 10, 2 << 20]);
    near(total(&["--cache", "32K"]) as f64, misses[0], "32K");
    // Without a size of its own it is the level that reports rank by.
    near(total(&[]) as f64, misses[1], "2M");
    let text = exports.text("folded", &[]);
    let lookup = text.lines().find(|line| line.contains("hash.h:31 "));
    let frames = lookup.unwrap().split(';').count();
    assert!(
        frames >= 5,
        "program, object, two functions, line: {lookup:?}"
    );
}

/// What is read of pprof's messages here.
mod pprof {
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Profile {
        #[prost(message, repeated, tag = "1")]
        pub sample_type: Vec<ValueType>,
        #[prost(message, repeated, tag = "2")]
        pub sample: Vec<Sample>,
        #[prost(message, repeated, tag = "3")]
        pub mapping: Vec<Id>,
        #[prost(message, repeated, tag = "4")]
        pub location: Vec<Location>,
        #[prost(message, repeated, tag = "5")]
        pub function: Vec<Id>,
        #[prost(string, repeated, tag = "6")]
        pub string_table: Vec<String>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct ValueType {
        #[prost(int64, tag = "1")]
        pub name: i64,
        #[prost(int64, tag = "2")]
        pub unit: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Sample {
        #[prost(uint64, repeated, tag = "1")]
        pub location_id: Vec<u64>,
        #[prost(int64, repeated, tag = "2")]
        pub value: Vec<i64>,
        #[prost(message, repeated, tag = "3")]
        pub label: Vec<Label>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Label {
        #[prost(int64, tag = "1")]
        pub key: i64,
        #[prost(int64, tag = "2")]
        pub text: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Id {
        #[prost(uint64, tag = "1")]
        pub id: u64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Location {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(uint64, tag = "2")]
        pub mapping_id: u64,
        #[prost(message, repeated, tag = "4")]
        pub line: Vec<Id>,
    }
}

#[test]
fn pprof_has_all_misses_by_place_and_data() {
    let exports = Exports::new(&records(Plan::small()));
    let mut bytes = Vec::new();
    let packed = exports.get("pprof", &[]);
    GzDecoder::new(&packed[..]).read_to_end(&mut bytes).unwrap();
    let profile = pprof::Profile::decode(&bytes[..]).unwrap();
    let text = |at: i64| profile.string_table[at as usize].as_str();
    assert_eq!(text(0), "");
    let types: Vec<&str> = profile.sample_type.iter().map(|t| text(t.name)).collect();
    let wanted = [
        "references",
        "misses_L1_48K",
        "misses_L2_2M",
        "misses_L3_32M",
    ];
    assert_eq!(types, wanted);
    assert!(profile.sample_type.iter().all(|t| text(t.unit) == "count"));
    // What samples and locations name is there, once.
    let ids = |list: &[pprof::Id]| -> Vec<u64> { list.iter().map(|f| f.id).collect() };
    let (functions, mappings) = (ids(&profile.function), ids(&profile.mapping));
    for location in &profile.location {
        assert!(location.mapping_id == 0 || mappings.contains(&location.mapping_id));
        assert!(!location.line.is_empty());
        assert!(
            location
                .line
                .iter()
                .all(|line| functions.contains(&line.id))
        );
    }
    let locations: Vec<u64> = profile.location.iter().map(|l| l.id).collect();
    let (refs, misses) = exports.told(&HOST);
    let mut sums = [0; 4];
    let mut heap = 0;
    for sample in &profile.sample {
        assert!(sample.location_id.iter().all(|id| locations.contains(id)));
        assert_eq!(sample.value.len(), sums.len());
        sums.iter_mut()
            .zip(&sample.value)
            .for_each(|(s, v)| *s += v);
        let of_heap = |l: &pprof::Label| text(l.key) == "memory" && text(l.text) == "heap";
        if sample.label.iter().any(of_heap) {
            heap += sample.value[2];
        }
    }
    near(sums[0] as f64, refs, "references");
    for (sum, wanted) in sums[1..].iter().zip(&misses) {
        near(*sum as f64, *wanted, "misses");
    }
    let doc = exports.json("json", &[]);
    let data = doc["data"].as_array().unwrap();
    let of_heap = data.iter().find(|d| d["kind"] == "heap").unwrap();
    let at = |m: &&Value| m["cache_bytes"] == HOST[1];
    let miss = of_heap["miss"].as_array().unwrap().iter().find(at).unwrap();
    let share = miss["miss_share"].as_f64().unwrap();
    assert!(share > 0.3, "{share}");
    let found = heap as f64 / sums[2] as f64;
    assert!((found - share).abs() < 0.02, "heap: {found} for {share}");
}

#[test]
fn go_tool_pprof_reads_it() {
    let exports = Exports::new(&records(Plan::small()));
    let path = exports.dir.path().join("p.pb.gz");
    std::fs::write(&path, exports.get("pprof", &[])).unwrap();
    let Ok(out) = Command::new("go")
        .args(["tool", "pprof", "-top"])
        .arg(&path)
        .env("HOME", exports.dir.path())
        .output()
    else {
        println!("SKIP go_tool_pprof_reads_it: no go here");
        return;
    };
    let said = String::from_utf8_lossy(&out.stdout);
    let warned = String::from_utf8_lossy(&out.stderr);
    if warned.contains("no such tool") {
        println!("SKIP go_tool_pprof_reads_it: this go has no pprof");
        return;
    }
    assert!(out.status.success(), "{said}{warned}");
    assert!(said.contains("Type: misses_L2_2M"), "{said}");
    assert!(said.contains("(inline)"), "{said}");
}

#[test]
fn firefox_has_a_track_for_each_cache_over_the_run() {
    let exports = Exports::new(&records(Plan::small()));
    let doc = exports.json("firefox", &[]);
    assert_eq!(doc["meta"]["product"], "statcache");
    let threads = doc["threads"].as_array().unwrap();
    let (_, misses) = exports.told(&HOST);
    let wall_ms = 1000.0
        * exports.json("json", &[])["time"]["wall_s"]
            .as_f64()
            .unwrap();
    let names = ["L1 48K", "L2 2M", "L3 32M"];
    assert_eq!(threads.len(), names.len());
    for ((thread, name), wanted) in threads.iter().zip(names).zip(misses) {
        assert_eq!(thread["name"], format!("misses in {name}"));
        let samples = &thread["samples"];
        let weights = samples["weight"].as_array().unwrap();
        let sum: i64 = weights.iter().map(|w| w.as_i64().unwrap()).sum();
        near(sum as f64, wanted, name);
        let deltas = samples["timeDeltas"].as_array().unwrap();
        let mut at_ms = 0.0;
        let mut times = Vec::new();
        for delta in deltas {
            at_ms += delta.as_f64().unwrap();
            times.push(at_ms);
        }
        assert!(
            times.is_sorted() && at_ms <= wall_ms,
            "{at_ms} of {wall_ms}"
        );
        // The viewer's graph is of the time that a processor took of what lies before a sample.
        let cpu = samples["threadCPUDelta"].as_array().unwrap();
        let cpu: Vec<f64> = cpu.iter().map(|c| c.as_f64().unwrap()).collect();
        let before = times.iter().zip([0.0].iter().chain(&times));
        let parts = before
            .zip(&cpu)
            .map(|((to, from), cpu)| cpu / 1000.0 / (to - from).max(1e-9));
        let largest = parts.fold(0.0, f64::max);
        assert!((0.9..1.1).contains(&largest), "{largest}");
        let mut moments = times.clone();
        moments.dedup();
        assert!(moments.len() >= 7, "of eight windows: {moments:?}");
    }
}

/// Threads have a cache of all of them where the host has one: what is counted is what a report says of each level.
#[test]
fn threads_and_empty_profiles_have_exports_too() {
    let plan = threads::Plan::new(threads::Kind::Counters(8));
    let of_threads = Exports::new(&threads::records(plan));
    let (_, _, totals) = callgrind(&of_threads.text("callgrind", &[]));
    let doc = of_threads.json("json", &[]);
    let ratio = |stream: &str, bytes: u64, what: &str| {
        let curves = doc["curves"].as_array().unwrap();
        let curve = curves
            .iter()
            .find(|c| c["line_size"] == 64 && c["policy"] == "random" && c["stream"] == stream);
        let points = curve.unwrap()["points"].as_array().unwrap();
        let point = points.iter().find(|p| p["cache_bytes"] == bytes).unwrap();
        point[what].as_f64().unwrap()
    };
    // The counters are next to each other: a private cache loses their line to the other thread's writes, a shared one does not.
    let refs = totals[0] as f64;
    let private = ratio("own", HOST[0], "private_miss_ratio");
    assert!(private > 0.1, "{private}");
    near(totals[1] as f64, private * refs, "private misses");
    near(
        totals[3] as f64,
        ratio("all", HOST[2], "miss_ratio") * refs,
        "shared misses",
    );
    let beginning = records(Plan::small())
        .into_iter()
        .filter(|record| !matches!(record, Record::Window(_)))
        .collect::<Vec<_>>();
    let empty = Exports::new(&beginning);
    let (_, costs, totals) = callgrind(&empty.text("callgrind", &[]));
    assert!(totals.iter().all(|&n| n == 0), "{totals:?}");
    assert!(costs.values().flatten().all(|&n| n == 0), "{costs:?}");
    assert!(empty.text("folded", &[]).is_empty());
    assert!(!empty.get("pprof", &[]).is_empty());
    assert!(empty.json("firefox", &[])["threads"].is_array());
}

#[test]
fn processes_are_all_there_or_one_alone() {
    let mut all = records(Plan::small());
    let footer = all.pop().unwrap();
    all.push(process(1, "/opt/worker"));
    all.extend(records(Plan::small()).split_off(1));
    all.extend([process(0, "./grind"), footer]);
    let exports = Exports::new(&all);
    let programs = |more: &[&str]| -> BTreeSet<String> {
        let text = exports.text("folded", more);
        let first = |line: &str| line.split(';').next().unwrap().to_owned();
        text.lines().map(first).collect()
    };
    let both = ["grind", "worker"].map(str::to_owned);
    assert_eq!(programs(&[]), both.clone().into());
    let only = |pid: &str| programs(&["--process", pid]);
    assert_eq!(only("4242"), [both[0].clone()].into());
    assert_eq!(only("worker"), [both[1].clone()].into());
    let listed = |more: &[&str]| {
        exports.json("json", more)["processes"]
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!((listed(&[]), listed(&["--process", "4242"])), (2, 1));
    let page = exports.text("html", &["--process", "4242"]);
    assert!(page.contains("./grind") && !page.contains("/opt/worker"));
    let tracks = |more: &[&str]| {
        exports.json("firefox", more)["threads"]
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!((tracks(&[]), tracks(&["--process", "worker"])), (6, 3));
}
