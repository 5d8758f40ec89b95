//! scratch
use statcache_hierarchy::{
    session::{self, Plan},
    sim::{Machine, random},
};
use std::collections::BTreeMap;
fn cpu() -> f64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}
fn main() {
    for seed in 20..22 {
        let t = random::machine(seed);
        println!("{:?}", t.levels);
        let mut m = Machine::new(t);
        let mut by: BTreeMap<String, (f64, u32)> = BTreeMap::new();
        let mut last = (String::new(), cpu());
        let plan = Plan {
            budget_ns: 6_000_000_000,
            votes: 5,
            evict_votes: 3,
            pool_pages: 8192,
            footprint: 8 << 20,
            per_octave: 5,
            passes: 1,
            shared: 0,
            tlb_pages: 0,
            code: false,
            gap_ns: 20_000_000,
            ..Plan::STANDARD
        };
        session::collect(&mut m, plan, seed, &mut |w, _| {
            let now = cpu();
            let e = by.entry(last.0.clone()).or_default();
            e.0 += now - last.1;
            e.1 += 1;
            last = (w.to_string(), now);
        });
        println!("{by:.2?}");
    }
}
