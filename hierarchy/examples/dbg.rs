//! dbg
use statcache_hierarchy::{MachineReport, policy::Policy, probe::policy};
fn main() {
    let r: MachineReport =
        serde_json::from_slice(&std::fs::read(std::env::args().nth(1).unwrap()).unwrap()).unwrap();
    let s = &r.raw.policy;
    let mut v: Vec<(f64, Policy)> = Policy::library(s.ways)
        .into_iter()
        .map(|p| {
            (
                s.samples
                    .iter()
                    .map(|x| policy::cost(x, p, s.ways))
                    .sum::<f64>()
                    / s.samples.len() as f64,
                p,
            )
        })
        .collect();
    v.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (c, p) in v.iter().take(12).chain(
        v.iter()
            .filter(|x| matches!(x.1, Policy::LruOfPlru { .. } | Policy::Lru)),
    ) {
        println!("{c:.3} {}", p.name(s.ways));
    }
    let mut h = [0; 12];
    for x in &s.samples {
        h[((x.hit_share * 10.0) as i64).clamp(0, 11) as usize] += 1;
    }
    println!("{h:?} {} {}", s.samples.len(), s.unsplit);
    println!("{:?}", policy::infer(s));
}
