//! dbg
use statcache_hierarchy::{session::{self, Plan}, sim::{Machine, random}, probe::policy};
fn main() {
    let seed: u64 = std::env::args().nth(1).unwrap().parse().unwrap();
    let t = random::machine(seed);
    println!("{:?}\n{:?}", t.levels[0], t.prefetch);
    let mut m = Machine::new(t.clone());
    let plan = Plan { budget_ns: 6_000_000_000, code: false, footprint: 1 << 10, shared: 0, tlb_pages: 0, passes: 1, votes: 5, evict_votes: 0, per_octave: 6, ..Plan::STANDARD };
    let raw = session::collect(&mut m, plan, seed, &mut |_, _| ());
    let f = policy::infer(&raw.policy);
    println!("{} samples {} {:?}", raw.policy.samples.len(), raw.policy.unsplit, f);
}
