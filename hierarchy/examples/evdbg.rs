//! Debugging.

use statcache_hierarchy::measure::Measure;
use statcache_hierarchy::probe::{evict, l1};
use statcache_hierarchy::rng::Rng;
use statcache_hierarchy::sim::{Machine, random};
fn main() {
    let a: Vec<u64> = std::env::args()
        .skip(1)
        .map(|x| x.parse().unwrap())
        .collect();
    let (ns, votes) = (a[0] * 1_000_000, a[1]);
    for &seed in &a[2..] {
        let truth = random::machine(seed);
        let mut m = Machine::new(truth.clone());
        let (s1, s2) = (truth.levels[0], truth.levels[1]);
        println!(
            "seed {seed} L1 {} x {} {:?} L2 {} x {} {:?} {:?} L3 {:?} noise {:?} pf {:?}",
            s1.sets,
            s1.ways,
            s1.policy,
            s2.sets,
            s2.ways,
            s2.policy,
            s2.index,
            truth
                .levels
                .get(2)
                .map(|l| (l.sets, l.ways, l.policy, l.inclusion)),
            truth.noise,
            truth.prefetch
        );
        let g = l1::Geometry {
            ways: s1.ways,
            way_bytes: s1.sets * s1.line,
        };
        let mut rng = Rng::new(seed);
        let mut all = vec![];
        for _ in 0..votes {
            let from = m.now_ns();
            let until = from + ns;
            let v = evict::collect(&mut m, g, s1.line, Some(s2.latency), 16384, until, &mut rng)
                .unwrap();
            let col = (s2.sets * s2.line / 4096).max(1);
            let mut set = |p: u64| {
                if s2.index == statcache_hierarchy::sim::cache::Index::Modulo {
                    m.frame(p) % col
                } else {
                    let bits = (s2.sets).trailing_zeros();
                    let n = if s2.line == 64 {
                        m.frame(p) << 6
                    } else if s2.line == 32 {
                        m.frame(p) << 7
                    } else {
                        m.frame(p) << 5
                    };
                    let _ = n;
                    (n ^ (n >> bits) ^ (n >> (2 * bits))) & (s2.sets - 1)
                }
            };
            let c: Vec<u64> = v.class.iter().map(|p| set(*p)).collect();
            let home = c.first().copied();
            let mut uniq = c.clone();
            uniq.sort();
            uniq.dedup();
            let bad = v.others.iter().filter(|p| Some(set(**p)) == home).count();
            println!(
                "  {:.0}ms levels {:.1?} prefix {} class {} of {} sets, others {} with {} congruent | {:?} {:?} ctl {:?} crossed {:.1?} {:?}",
                (m.now_ns() - from) as f64 / 1e6,
                v.levels,
                v.prefix,
                c.len(),
                uniq.len(),
                v.others.len(),
                bad,
                v.curve,
                v.batches,
                v.control,
                v.crossed,
                v.gave_up
            );
            all.push(v);
        }
        println!(
            "   -> {:?} linear {:?} colours {:?} truth {}",
            evict::infer(&all),
            evict::linear(&all),
            evict::colours(&all),
            s2.sets * s2.line / 4096
        );
    }
}
