//! dbg
use statcache_hierarchy::{
    infer,
    session::{self, Plan},
    sim::{Machine, judge::judge, random},
};
fn main() {
    let seed: u64 = std::env::args().nth(1).unwrap().parse().unwrap();
    let t = random::machine(seed);
    println!(
        "{:?}\n{:?} {:?} {:?}",
        t.levels, t.prefetch, t.noise, t.tlbs
    );
    let mut m = Machine::new(t.clone());
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
    let raw = session::collect(&mut m, plan, seed, &mut |_, _| ());
    let h = infer(&raw);
    for (f, o) in judge(&t, &h) {
        println!("{f} {o:?}");
    }
    println!("{:?} {:?}", raw.latency.l2, raw.latency.l2_lines);
    println!("{:?}", h.levels[0].policy);
    for l in &h.levels {
        println!("{:?} {:?} {:?}", l.latency, l.ways, l.capacity);
    }
    for v in &raw.evict {
        println!(
            "{:?} {:?} {:?} {:?}",
            v.levels, v.curve, v.gave_up, v.crossed
        );
    }
}
