//! Bad situations on simulated machines: what is lost is said, and the rest is kept.

use statcache_hierarchy::declared::{Claim, Declared};
use statcache_hierarchy::measure::{Chase, Facts, Measure, MeasureError, Window};
use statcache_hierarchy::report::HostKey;
use statcache_hierarchy::session::{self, Plan};
use statcache_hierarchy::sim::{Machine, Noise, Truth, random};
use statcache_hierarchy::{MachineReport, RawSamples, Verdict, render_svg, render_text};

const PLAN: Plan = Plan {
    budget_ns: 1_500_000_000,
    stretch: 1.0,
    patience: 1.0,
    after_ns: 0,
    votes: 5,
    evict_votes: 2,
    evict_ns: 200_000_000,
    pool_pages: 8192,
    footprint: 8 << 20,
    per_octave: 4,
    passes: 1,
    shared: 0,
    tlb_pages: 0,
    code: false,
    gap_ns: 20_000_000,
};

/// A random machine in a silent world.
fn quiet(seed: u64) -> Truth {
    let mut truth = random::machine(seed);
    truth.noise = Noise {
        burst_every: 0.0,
        switch_every: 0.0,
        hidden_switches: 0.0,
        drift: 0.0,
        timer_step: 1.0,
    };
    truth
}

fn report(raw: RawSamples, declared: Declared) -> MachineReport {
    let key = HostKey {
        cpu: "simulated <1>".into(),
        kernel: "none".into(),
        allowed: vec![0],
    };
    MachineReport::new(key, 0, "standard", declared, raw)
}

fn row<'a>(report: &'a MachineReport, what: &str) -> &'a statcache_hierarchy::Row {
    report
        .rows
        .iter()
        .find(|r| r.what == what)
        .unwrap_or_else(|| panic!("no row {what}"))
}

/// A backend that is taken away after some questions.
struct Failing {
    machine: Machine,
    left: u32,
}

impl Measure for Failing {
    fn facts(&self) -> &Facts {
        self.machine.facts()
    }
    fn now_ns(&self) -> u64 {
        self.machine.now_ns()
    }
    fn chase(&mut self, chase: &Chase<'_>) -> Result<Vec<Window>, MeasureError> {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            return Err(MeasureError::System {
                operation: "sched_setaffinity",
                cause: "no CPU is allowed any more".into(),
            });
        }
        self.machine.chase(chase)
    }
}

#[test]
fn too_little_memory_for_the_sweep_leaves_the_first_level() {
    let truth = quiet(11);
    let mut machine = Machine::new(truth.clone()).with_memory(8 << 20);
    let raw = session::collect(&mut machine, PLAN, 1, &mut |_, _| ());
    let report = report(raw, Declared::default());
    let first = &report.hierarchy.levels[0];
    assert_eq!(
        first.capacity.value,
        Some(truth.levels[0].bytes()),
        "{:?}",
        first.capacity
    );
    assert!(
        report.warnings.iter().any(
            |w| w.contains("may be used for measuring") && w.contains("raise the memory limit")
        ),
        "{:?}",
        report.warnings
    );
    assert!(report.raw.footprint.iter().all(|p| p.bytes <= 8 << 20));
    assert!(render_text(&report).contains("8 MiB"));
}

#[test]
fn hardly_any_memory_refuses_instead_of_guessing() {
    let mut machine = Machine::new(quiet(12)).with_memory(64 << 10);
    let raw = session::collect(&mut machine, PLAN, 1, &mut |_, _| ());
    let report = report(raw, Declared::default());
    for level in &report.hierarchy.levels {
        assert_eq!(level.capacity.value, None, "{level:?}");
    }
    assert!(!report.warnings.is_empty());
    assert!(render_svg(&report).ends_with("</svg>\n"));
    for r in report.rows.iter().filter(|r| r.measured.is_empty()) {
        assert!(
            !r.reason.is_empty(),
            "{} has neither a figure nor a reason",
            r.what
        );
    }
}

#[test]
fn a_lying_host_is_found_out_and_not_believed() {
    let truth = quiet(13);
    let raw = session::collect(&mut Machine::new(truth.clone()), PLAN, 1, &mut |_, _| ());
    let bytes = truth.levels[0].bytes();
    let claim = |what: &str, source: &str, value| Claim {
        what: what.into(),
        source: source.into(),
        value,
    };
    let claims = vec![
        claim("L1d.capacity", "sysfs", 2 * bytes),
        claim("L1d.ways", "sysfs", u64::from(truth.levels[0].ways)),
        claim("DTLB1.entries", "cpuid 0x18", 7),
    ];
    let declared = Declared {
        claims,
        ..Declared::default()
    };
    let honest = report(raw.clone(), Declared::default());
    let report = report(raw, declared);
    assert_eq!(report.hierarchy, honest.hierarchy);
    assert_eq!(row(&report, "L1d.capacity").verdict, Verdict::DeclaredWrong);
    assert_eq!(row(&report, "L1d.ways").verdict, Verdict::Agrees);
    assert_eq!(
        row(&report, "DTLB1.entries").verdict,
        Verdict::DeclaredWrong
    );
    assert!(render_text(&report).contains("DECLARED WRONG"));
}

#[test]
fn a_host_that_declares_nothing_is_measured_all_the_same() {
    let root = tempfile::tempdir().unwrap_or_else(|e| panic!("{e}"));
    let declared = statcache_hierarchy::declared::read(root.path(), 0);
    let truth = quiet(16);
    let raw = session::collect(&mut Machine::new(truth.clone()), PLAN, 1, &mut |_, _| ());
    let report = report(raw, declared);
    let of_sysfs = |w: &String| w.contains("not declared: sysfs: no cache directory");
    assert!(
        report.warnings.iter().any(of_sysfs),
        "{:?}",
        report.warnings
    );
    let first = report.hierarchy.levels[0].capacity.value;
    assert_eq!(first, Some(truth.levels[0].bytes()));
    let sources = report.rows.iter().flat_map(|r| &r.declared);
    assert_eq!(sources.filter(|c| c.0 == "sysfs").count(), 0);
}

#[test]
fn what_was_measured_before_a_failure_is_kept() {
    let truth = quiet(14);
    let mut machine = Failing {
        machine: Machine::new(truth.clone()),
        left: 4000,
    };
    let raw = session::collect(&mut machine, PLAN, 1, &mut |_, _| ());
    assert!(
        machine.left == 0,
        "the failure never came: {} questions left",
        machine.left
    );
    let report = report(raw, Declared::default());
    assert_eq!(
        report.hierarchy.levels[0].capacity.value,
        Some(truth.levels[0].bytes())
    );
    let told = |w: &&String| w.contains("sched_setaffinity failed: no CPU is allowed any more");
    assert!(
        report.warnings.iter().any(|w| told(&w)),
        "{:?}",
        report.warnings
    );
}

#[test]
fn a_backend_that_can_do_nothing_gives_a_report_of_reasons() {
    let mut machine = Failing {
        machine: Machine::new(quiet(15)),
        left: 1,
    };
    let raw = session::collect(&mut machine, PLAN, 1, &mut |_, _| ());
    let report = report(raw, Declared::default());
    assert!(
        report
            .rows
            .iter()
            .all(|r| !r.measured.is_empty() || !r.reason.is_empty())
    );
    assert!(report.warnings.iter().any(|w| w.contains("first level")));
    assert!(render_text(&report).contains("no footprint was measured"));
}

#[test]
fn an_architecture_without_a_backend_says_which_one_it_needs() {
    let error = statcache_hierarchy::HierarchyError::Architecture("aarch64");
    let text = error.to_string();
    assert!(
        text.contains("aarch64") && text.contains("Linux on x86-64"),
        "{text}"
    );
}

/// What the tables of X-Ray (Yotov et al. 2005, tables 1 to 3 and section 6) and of AMP (Coleman & Davidson 2001, table 1
/// and section 3) list, as this table names it.
const OF_THE_PAPERS: [&str; 36] = [
    "core clock",
    "L1d.capacity",
    "L1d.line",
    "L1d.ways",
    "L1d.latency",
    "L1d.replacement",
    "L1d.unified",
    "L2.capacity",
    "L2.line",
    "L2.ways",
    "L2.latency",
    "L2.replacement",
    "L2.unified",
    "L2.inclusion",
    "L3.capacity",
    "L3.line",
    "L3.ways",
    "L3.latency",
    "L3.replacement",
    "L3.unified",
    "memory.latency",
    "write-allocate",
    "L1i.capacity",
    "L1i.line",
    "L1i.ways",
    "L1i.replacement",
    "page size",
    "DTLB1.entries",
    "DTLB1.ways",
    "DTLB2.entries",
    "DTLB2.ways",
    "ITLB1.entries",
    "ITLB1.ways",
    "ITLB1.page",
    "registers",
    "registers for a compiler",
];

#[test]
fn every_parameter_of_the_papers_has_its_row() {
    let machine = |left| Failing {
        machine: Machine::new(quiet(17)),
        left,
    };
    // All is well, and nothing is.
    for left in [u32::MAX, 1] {
        let raw = session::collect(&mut machine(left), PLAN, 1, &mut |_, _| ());
        let report = report(raw, Declared::default());
        for what in OF_THE_PAPERS {
            let rows: Vec<_> = report.rows.iter().filter(|r| r.what == what).collect();
            assert_eq!(rows.len(), 1, "rows of {what}");
            let told = !rows[0].measured.is_empty() || !rows[0].reason.is_empty();
            assert!(told, "{what} has neither a figure nor a reason");
            // What could not be measured is listed with its reason, and what was in the table.
            let name = what.split_once('.').map_or(what, |w| w.1);
            assert!(render_text(&report).contains(name), "{what} is not shown");
        }
    }
}

#[test]
fn a_second_translation_level_declared_too_small_is_flagged() {
    let mut truth = quiet(13);
    truth.tlbs[1].entries = 1024;
    let plan = Plan {
        budget_ns: 4_000_000_000,
        tlb_pages: 4096,
        ..PLAN
    };
    let raw = session::collect(&mut Machine::new(truth), plan, 1, &mut |_, _| ());
    let claims = |value| Declared {
        claims: vec![Claim {
            what: "DTLB2.entries".into(),
            source: "cpuid 0x80000006".into(),
            value,
        }],
        ..Declared::default()
    };
    let wrong = report(raw.clone(), claims(128));
    let found = row(&wrong, "DTLB2.entries");
    assert_eq!(found.verdict, Verdict::DeclaredWrong, "{found:?}");
    let right = report(raw, claims(1024));
    let found = row(&right, "DTLB2.entries");
    assert_eq!(found.verdict, Verdict::Agrees, "{found:?}");
}
