//! Random machines: the population the inference is tested on.
//!
//! Ranges are chosen wider than what is on sale, so that nothing can be guessed from habit. What every
//! machine has: a first level indexed by virtual address with a way of at most 64 KiB.

use super::cache::{Inclusion, Index, Shape};
use super::{Noise, Prefetch, Tlb, Truth};
use crate::policy::{Ageing, Policy};
use crate::rng::Rng;

fn policy(rng: &mut Rng, ways: u32) -> Policy {
    if ways == 1 {
        return Policy::Lru;
    }
    let qlru = [
        Policy::Qlru {
            hit3: 1,
            hit2: 1,
            insert: 1,
            from_right: false,
            ageing: Ageing::AllToThree,
            on_miss_only: false,
        },
        Policy::Qlru {
            hit3: 0,
            hit2: 0,
            insert: 1,
            from_right: false,
            ageing: Ageing::OthersToThree,
            on_miss_only: false,
        },
        Policy::Qlru {
            hit3: 1,
            hit2: 0,
            insert: 2,
            from_right: true,
            ageing: Ageing::AllByOne,
            on_miss_only: true,
        },
    ];
    match rng.below(8) {
        0 | 1 => Policy::Lru,
        2 if ways.is_power_of_two() && ways > 2 => Policy::TreePlru,
        3 if ways == 12 => Policy::LruOfPlru { groups: 3 },
        4 => Policy::Random,
        5 => Policy::Fifo,
        6 => Policy::BitPlru,
        7 => rng.pick(&qlru),
        _ if ways.is_power_of_two() && ways > 2 => Policy::TreePlru,
        _ => Policy::Lru,
    }
}

/// The machine that belongs to a seed.
pub fn machine(seed: u64) -> Truth {
    let mut r = Rng::new(seed.wrapping_mul(0x5851_F42D_4C95_7F2D) ^ 0x1234_5678);
    let line = r.pick(&[64, 64, 64, 64, 32, 128]);
    // First level: way size a power of two or three times one, 1 KiB to 32 KiB, 16 to 128 KiB in all.
    let way = r.pick(&[
        1024, 2048, 4096, 4096, 4096, 4096, 8192, 16384, 32768, 3072, 6144,
    ]);
    let ways = loop {
        let w = r.pick(&[1, 2, 3, 4, 5, 6, 8, 8, 10, 12, 12, 16]);
        if (16_384..=131_072).contains(&(way * u64::from(w))) {
            break w;
        }
    };
    let l1 = Shape {
        sets: way / line,
        ways,
        line,
        latency: r.pick(&[3.0, 4.0, 4.0, 5.0, 5.0]),
        policy: policy(&mut r, ways),
        index: Index::Modulo,
        inclusion: Inclusion::Neither,
    };
    let ways2 = r.pick(&[4, 6, 8, 8, 10, 12, 16, 16, 20]);
    let l2 = loop {
        let sets = r.pick(&[1u64, 3]) << (6 + r.below(6)) << 1;
        let pow2 = sets.is_power_of_two();
        let s = Shape {
            sets,
            ways: ways2,
            line,
            latency: 11.0 + r.below(9) as f64,
            policy: policy(&mut r, ways2),
            index: if pow2 && r.chance(0.3) {
                Index::XorFold
            } else {
                Index::Modulo
            },
            inclusion: Inclusion::Neither,
        };
        if s.bytes() >= 4 * l1.bytes()
            && (128 << 10..=2 << 20).contains(&s.bytes())
            && sets * line >= 32_768
        {
            break s;
        }
    };
    let mut levels = vec![l1, l2];
    if r.chance(0.8) {
        let ways = r.pick(&[8, 11, 12, 16, 20]);
        let latency = 35.0 + r.below(50) as f64;
        let inclusion = r.pick(&[Inclusion::Neither, Inclusion::Inclusive, Inclusion::Victim]);
        let policy = policy(&mut r, ways);
        let mut sets = r.pick(&[1u64, 3, 5, 7]) << (8 + r.below(4));
        while sets * u64::from(ways) * line < 3 * l2.bytes() {
            sets *= 2;
        }
        let index = if sets.is_power_of_two() {
            Index::XorFold
        } else {
            Index::Modulo
        };
        levels.push(Shape {
            sets,
            ways,
            line,
            latency,
            policy,
            index,
            inclusion,
        });
    }
    let l1_tlb = r.pick(&[
        (32, 0),
        (48, 0),
        (64, 0),
        (64, 4),
        (72, 0),
        (96, 0),
        (96, 6),
    ]);
    let l2_tlb = r.pick(&[512u64, 1024, 1536, 2048, 3072, 4096]);
    let code_ways = r.pick(&[4, 8, 8, 16]);
    Truth {
        memory: levels.last().map_or(60.0, |l| l.latency) + 150.0 + r.below(250) as f64,
        tlbs: vec![
            Tlb {
                entries: l1_tlb.0,
                ways: l1_tlb.1,
                miss_cycles: 5.0 + r.below(5) as f64,
            },
            Tlb {
                entries: l2_tlb,
                ways: r.pick(&[4, 8, 16]),
                miss_cycles: 18.0 + r.below(25) as f64,
            },
        ],
        levels,
        write_allocate: r.chance(0.85),
        write_back: seed % 7 != 3,
        code: Shape {
            sets: 4096 / 64 * r.pick(&[1, 1, 1, 2]),
            ways: code_ways,
            line: 64,
            latency: 0.0,
            policy: Policy::Lru,
            index: Index::Modulo,
            inclusion: Inclusion::Neither,
        },
        prefetch: Prefetch {
            pair: r.chance(0.5),
            stride: r.chance(0.7),
        },
        noise: Noise {
            burst_every: r.pick(&[0.0, 5e8, 2e9]),
            switch_every: r.pick(&[0.0, 4e6, 1e8]),
            hidden_switches: r.pick(&[0.0, 0.5, 1.0]),
            drift: r.pick(&[0.0, 0.02, 0.1]),
            timer_step: r.pick(&[1.0, 2.0, 26.0, 26.0, 40.0]),
        },
        code_tlb: Tlb {
            entries: r.pick(&[32, 48, 64, 96, 128, 256]),
            ways: 0,
            miss_cycles: r.pick(&[0.5, 2.0, 4.0, 7.0]),
        },
        far_jumps: r.pick(&[64, 96, 128, 1024]),
        seed,
    }
}
