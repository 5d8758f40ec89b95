//! scratch
use statcache_hierarchy::{hw::Host, measure::*, rng::Rng};
fn best(w: &[Window]) -> f64 {
    w.iter()
        .filter(|w| w.clean())
        .map(Window::cycles)
        .fold(f64::INFINITY, f64::min)
}
fn main() {
    let mut h = Host::open().unwrap();
    println!("{:?} cpu {}", h.facts(), h.cpu());
    let mut rng = Rng::new(1);
    for n in [1u64, 2, 4, 6, 8, 10, 11, 12, 13, 14, 16, 20, 24, 32, 48, 64] {
        let mut pages: Vec<u64> = (0..256).collect();
        rng.shuffle(&mut pages);
        let conf: Vec<u64> = pages[..n as usize].iter().map(|p| p * 4096).collect();
        let spread: Vec<u64> = pages[..n as usize]
            .iter()
            .enumerate()
            .map(|(i, p)| p * 4096 + (i as u64 * 64) % 4096)
            .collect();
        let mut f = |t: &[u64]| {
            h.chase(&Chase {
                timed: t,
                warm: n * 4,
                loads: 2000,
                windows: 5,
                ..Default::default()
            })
            .unwrap()
        };
        println!(
            "{n}: conf {:.2} spread {:.2}",
            best(&f(&conf)),
            best(&f(&spread))
        );
    }
    for kb in [
        4u64, 16, 32, 40, 44, 46, 47, 48, 49, 50, 52, 56, 64, 96, 128, 192, 256, 512, 768, 1024,
        1280, 1536, 1792, 2048, 2560, 3072, 4096, 8192, 16384, 32768, 65536, 131072,
    ] {
        let t0 = h.now_ns();
        let mut l: Vec<u64> = (0..kb * 16).map(|i| i * 64).collect();
        rng.shuffle(&mut l);
        let w = h
            .chase(&Chase {
                timed: &l,
                warm: l.len() as u64,
                loads: 2000,
                windows: 10,
                ..Default::default()
            })
            .unwrap();
        println!(
            "{kb}K {:.2}  ({} ms) clean {}",
            best(&w),
            (h.now_ns() - t0) / 1000000,
            w.iter().filter(|w| w.clean()).count()
        );
    }
    let lines: Vec<u64> = (0..64u64)
        .map(|i| (i % 32) * 4096 + (i * 320) % 4096 / 64 * 64)
        .collect();
    let w = h
        .chase(&Chase {
            timed: &lines,
            flush: &lines,
            windows: 50,
            prep: &lines
                .iter()
                .map(|x| x / 4096 * 4096 + 2048 + 8)
                .take(32)
                .collect::<Vec<_>>(),
            ..Default::default()
        })
        .unwrap();
    println!("mem {:.1}", best(&w));
    for n in [
        32u64, 48, 64, 80, 90, 95, 96, 97, 98, 100, 112, 128, 160, 200, 256, 512,
    ] {
        let mut l: Vec<u64> = (0..n).map(|i| i * 4096 + (i * 64) % 4096).collect();
        rng.shuffle(&mut l);
        let mut d: Vec<u64> = (0..n).map(|i| i * 64).collect();
        rng.shuffle(&mut d);
        let mut f = |t: &[u64]| {
            h.chase(&Chase {
                timed: t,
                warm: n * 4,
                loads: 4000,
                windows: 8,
                ..Default::default()
            })
            .unwrap()
        };
        println!("tlb {n}: {:.3} dense {:.3}", best(&f(&l)), best(&f(&d)));
    }
    for (pad, ind) in [(50, true), (0, true), (0, false)] {
        for n in [2u64, 4, 6, 7, 8, 9, 10, 12, 16, 24, 32] {
            let b: Vec<u64> = (0..n).map(|i| i * 4096).collect();
            let w = h
                .code(&CodeChase {
                    blocks: &b,
                    pad,
                    indirect: ind,
                    jumps: 4096,
                    windows: 5,
                })
                .unwrap();
            print!("{n}:{:.1} ", best(&w));
        }
        println!();
        for kb in [8u64, 16, 24, 28, 32, 36, 40, 48, 64, 96, 128] {
            let mut b: Vec<u64> = (0..kb * 16).map(|i| i * 64).collect();
            if !ind {
                rng.shuffle(&mut b);
            }
            let w = h
                .code(&CodeChase {
                    blocks: &b,
                    pad,
                    indirect: ind,
                    jumps: 8192,
                    windows: 5,
                })
                .unwrap();
            print!("{kb}K:{:.1} ", best(&w));
        }
        println!();
    }
}
