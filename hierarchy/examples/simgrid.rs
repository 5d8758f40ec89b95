//! scratch grid
use statcache_hierarchy::{infer, session::{self, Plan}, sim::{Machine, random}};
use std::time::Instant;
fn main() {
    let a: Vec<u64> = std::env::args().skip(1).map(|x| x.parse().unwrap()).collect();
    for seed in a[0]..a[1] {
        let t = random::machine(seed);
        let mut m = Machine::new(t.clone());
        let t0 = Instant::now();
        let plan = Plan { budget_ns: 6_000_000_000, code: false, footprint: 16 << 20, shared: 0, tlb_pages: 0, passes: 1, votes: 5, evict_votes: 3, per_octave: 6, ..Plan::STANDARD };
        let raw = session::collect(&mut m, plan, seed, &mut |_, _| ());
        let h = infer(&raw);
        let el = t0.elapsed().as_secs_f64();
        println!("--- {seed} {el:.1}s sim {:.1}s L1 truth {}x{} line {} lat {} {}  noise {:?}", raw.elapsed_ns as f64 / 1e9, t.levels[0].sets * t.levels[0].line, t.levels[0].ways, t.levels[0].line, t.levels[0].latency, t.levels[0].policy.name(t.levels[0].ways), t.noise);
        println!("    L2 truth {} = {} sets x{} {:?} lat {} {:?}; mem {} tlb {:?}", t.levels[1].bytes(), t.levels[1].sets, t.levels[1].ways, t.levels[1].index, t.levels[1].latency, t.levels[1].policy, t.memory, t.tlbs);
        if let Some(l) = t.levels.get(2) { println!("    L3 truth {} lat {} {:?}", l.bytes(), l.latency, l.inclusion); }
        for l in &h.levels {
            println!("  L{} cap {:?} {} [{}] range {:?}| ways {:?} {} {}/{} [{}]| line {:?} {}| lat {:?} {} [{}]| pol {:?} {} [{}] lin {:?}", l.level, l.capacity.value, l.capacity.confidence.word(), l.capacity.reason, l.range, l.ways.value, l.ways.confidence.word(), l.ways.agree, l.ways.votes, l.ways.reason, l.line.value, l.line.confidence.word(), l.latency.value.map(|x| x.cycles), l.latency.confidence.word(), l.latency.reason, l.policy.value.as_ref().map(|p| &p.name), l.policy.confidence.word(), l.policy.reason, l.linear_index.value);
        }
        println!("  evict {:?} lin {:?} {:?}", statcache_hierarchy::probe::evict::colours(&raw.evict), statcache_hierarchy::probe::evict::linear(&raw.evict), raw.evict.iter().map(|v| (&v.curve, &v.gave_up, v.congruent, v.pool, v.prefix, v.levels)).collect::<Vec<_>>());
        println!("  mem {:?} tlb {:?} {} page {:?} wa {:?} (truth {})", h.memory.value.map(|m| m.cycles_p10), h.translation.entries.value, h.translation.entries.reason, h.translation.page.value, h.write_allocate.value, t.write_allocate);
    }
}
