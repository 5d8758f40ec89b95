//! Of what code a window is, and how fast code is natively, by what was timed of it.

use super::rates::HIGHEST_RATE;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Bytes of code that are taken together.
const GRANULE: u64 = 16;
/// Of the image in a granule's number.
const IMAGE_SHIFT: u32 = 48;
/// Windows on either side of one whose laps tell how fast its code is.
const FAR: usize = 30;
/// Numbers of code that is near, at the most: half a kilobyte, a function or so.
const REACH: u64 = 32;
/// What laps must weigh together that tell how fast code is, one of the window's own being 1: the nearest in code are asked until they do.
const ENOUGH: f64 = 1.0;
/// The same of laps that stayed there: with so much of them others are heard only for what is missing to [`ENOUGH`], if they are the window's
/// own. (Nine runs each of ten programs: mean error 1.47 points where laps were heard wherever they led, 0.94 so, 1.12 with those that led elsewhere at a fifth of their weight; with 1.5 three runs each 1.53 for 0.77.)
const STAYED: f64 = 0.5;
/// Share of a window's samples that must be next to laps of its own for these to stand for the rest of its code.
const OWN_SHARE: f64 = 0.2;
/// Below this they tell nothing.
const LITTLE: f64 = 0.05;

/// Whether code with these numbers is near.
pub fn is_near(one: u64, other: u64) -> bool {
    one.abs_diff(other) <= REACH
}

/// The number of the code at `ip` of program image `image`: near ones have near numbers.
pub fn granule(image: u32, ip: u64) -> u64 {
    (ip / GRANULE) ^ (u64::from(image) << IMAGE_SHIFT)
}

/// What the samples of a window are of.
#[derive(Clone, Debug, Default)]
pub struct Content {
    /// Code and its share of the samples, in the order of addresses.
    code: Vec<(u64, f64)>,
}

impl Content {
    /// Of a window of program image `image` with samples of these instructions.
    pub fn new(image: u32, ips: &[u64]) -> Content {
        let mut counts: FxHashMap<u64, u32> = FxHashMap::default();
        for &ip in ips {
            *counts.entry(granule(image, ip)).or_default() += 1;
        }
        let share = |(granule, count)| (granule, f64::from(count) / ips.len() as f64);
        let mut code: Vec<(u64, f64)> = counts.into_iter().map(share).collect();
        code.sort_unstable_by_key(|&(granule, _)| granule);
        Content { code }
    }

    /// Whether nothing is known of it.
    pub fn is_empty(&self) -> bool {
        self.code.is_empty()
    }
}

/// One end of a lap.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// See [`granule`].
    pub at: u64,
    /// What it counts: half of the lap's accesses, in those of a mean one.
    pub part: f64,
    /// Native seconds per access of the lap.
    pub access_s: f64,
    /// Whether its other end is near.
    pub stays: bool,
}

/// How fast the code of a window is.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    /// The share of its samples for which there are laps.
    pub covered: f64,
    /// Native seconds per access there.
    pub access_s: f64,
    /// Whether laps of its own are among them.
    pub own: bool,
}

/// How long an access takes in what code, by the laps beside windows.
#[derive(Debug)]
pub struct Speeds<'a> {
    /// Of the windows in their order.
    laps: Vec<&'a [Place]>,
}

impl<'a> Speeds<'a> {
    /// By what was timed beside each window, in their order.
    pub fn new(laps: Vec<&'a [Place]>) -> Speeds<'a> {
        Speeds { laps }
    }

    /// How fast the code is natively that window number `window` is of.
    ///
    /// Each piece of code is as fast as the laps nearest to it: the window's own where they are among these, else those of other windows, near
    /// ones rather, and as far as these do not suffice the window's own in other parts of its code. A lap that went on into other code is
    /// then heard only where the window was in that, too, and where none stayed. One faster than any
    /// code but `rep` instructions says nothing of windows of other code (`repeats`: of these).
    pub fn of(&self, window: usize, content: &Content, repeats: bool) -> Speed {
        let from = window.saturating_sub(FAR);
        let windows = self.laps.iter().enumerate();
        let near = windows.take(window + FAR + 1).skip(from);
        let all = near.flat_map(|(other, places)| places.iter().map(move |place| (other, place)));
        let all = all.filter(|(_, place)| repeats || place.access_s * HIGHEST_RATE >= 1.0);
        let mut all: Vec<(usize, &Place)> = all.collect();
        all.sort_by_key(|(_, place)| place.at);
        let is_own = |&&(other, _): &&(usize, &Place)| other == window;
        let own: Vec<(usize, &Place)> = all.iter().filter(is_own).copied().collect();
        let next_to_own = |at: u64| has_near(&own, |(_, place)| place.at, at);
        let next_to_code = |at: u64| has_near(&content.code, |&(code, _)| code, at);
        let (_, own_s) = mean(own.iter().filter(|(_, p)| next_to_code(p.at)), window);
        let next = content.code.iter().filter(|&&(at, _)| next_to_own(at));
        let own_share: f64 = next.map(|&(_, share)| share).sum();
        let mut speed = Speed {
            covered: 0.0,
            access_s: 0.0,
            own: own_share >= OWN_SHARE,
        };
        let stays: Vec<(usize, &Place)> = all.iter().filter(|(_, p)| p.stays).copied().collect();
        let speed_at = |all: &[(usize, &Place)], granule| {
            let nearest = nearest(all, granule, window);
            let (weight, near_s) = mean(nearest.iter().filter(is_own), window);
            match weight < ENOUGH {
                true => mean(nearest.iter(), window),
                false => (weight, near_s),
            }
        };
        for &(granule, share) in &content.code {
            let (mut weight, mut near_s) = speed_at(&stays, granule);
            if weight < STAYED {
                (weight, near_s) = speed_at(&all, granule);
            }
            if speed.own {
                let near = weight.min(1.0);
                speed.covered += share;
                speed.access_s += share * (near * near_s + (1.0 - near) * own_s);
            } else if weight >= LITTLE {
                speed.covered += share;
                speed.access_s += share * near_s;
            }
        }
        speed.access_s /= speed.covered.max(f64::MIN_POSITIVE);
        speed
    }
}

/// Whether one of these, in the order of their numbers, is next to this number.
fn has_near<T>(sorted: &[T], number: impl Fn(&T) -> u64, granule: u64) -> bool {
    let next = sorted.partition_point(|one| number(one) + REACH < granule);
    sorted
        .get(next)
        .is_some_and(|one| number(one) <= granule + REACH)
}

/// What places of windows weigh seen from this one, and seconds per access: within a window the mean, over windows that of the rates,
/// because windows fall evenly in time, and those that were faster made more of the accesses.
fn mean<'p>(places: impl Iterator<Item = &'p (usize, &'p Place)>, window: usize) -> (f64, f64) {
    let mut windows: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
    for (other, place) in places {
        let sum = windows.entry(*other).or_default();
        *sum = (sum.0 + place.part, sum.1 + place.part * place.access_s);
    }
    let (mut weight, mut accesses) = (0.0, 0.0);
    for (other, (part, seconds)) in windows {
        let counts = part * falling(window.abs_diff(other));
        weight += counts;
        accesses += counts * part / seconds;
    }
    match accesses > 0.0 {
        true => (weight, weight / accesses),
        false => (0.0, 0.0),
    }
}

/// The places nearest to this one, in the order of code, that together weigh [`ENOUGH`] seen from the window.
fn nearest<'a, 'p>(
    places: &'a [(usize, &'p Place)],
    granule: u64,
    window: usize,
) -> &'a [(usize, &'p Place)] {
    let distance = |at: usize| {
        places
            .get(at)
            .map(|(_, place)| place.at.abs_diff(granule))
            .filter(|&far| far <= REACH)
    };
    let middle = places.partition_point(|(_, place)| place.at < granule);
    let (mut from, mut to) = (middle, middle);
    let (mut weight, mut reach) = (0.0, 0);
    loop {
        let down = from.checked_sub(1).and_then(distance);
        let up = distance(to);
        let (next, far) = match (down, up) {
            (Some(down), up) if up.is_none_or(|up| down <= up) => {
                from -= 1;
                (from, down)
            }
            (_, Some(up)) => {
                to += 1;
                (to - 1, up)
            }
            _ => return &places[from..to],
        };
        // With all that are equally near.
        if weight >= ENOUGH && far > reach {
            return match next < middle {
                true => &places[from + 1..to],
                false => &places[from..to - 1],
            };
        }
        reach = far;
        let (other, place) = places[next];
        weight += place.part * falling(window.abs_diff(other));
    }
}

/// How much the laps of a window count behind so many others.
fn falling(between: usize) -> f64 {
    (1.0 + between as f64).powi(-2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loop_at(place: u64, samples: usize) -> Vec<u64> {
        (0..samples as u64).map(|i| place + 8 * (i % 10)).collect()
    }

    fn places(laps: &[(u64, f64)]) -> Vec<Place> {
        let ends = |&(ip, access_s): &(u64, f64)| {
            let end = Place {
                at: granule(0, ip),
                part: 0.5,
                access_s,
                stays: false,
            };
            [end, end]
        };
        laps.iter().flat_map(ends).collect()
    }

    fn seen_from(laps: &[Vec<Place>], window: usize, content: &Content) -> Speed {
        Speeds::new(laps.iter().map(Vec::as_slice).collect()).of(window, content, false)
    }

    fn of(laps: &[Vec<Place>], window: usize, ips: &[u64]) -> (f64, f64) {
        let speed = seen_from(laps, window, &Content::new(0, ips));
        (speed.covered, speed.access_s)
    }

    #[test]
    fn code_is_as_fast_as_the_laps_in_it() {
        // The laps of each window went on into the other's loop, 200 bytes away.
        let laps = [
            places(&[(0x1000, 1e-9), (0x1000, 1e-9), (0x10c8, 9e-9)]),
            places(&[(0x10c8, 9e-9), (0x10c8, 9e-9), (0x1000, 1e-9)]),
        ];
        let both = [loop_at(0x1000, 300), loop_at(0x10c8, 100)].concat();
        for window in 0..2 {
            for (ips, access_s) in [
                (loop_at(0x1000, 200), 1e-9),
                (loop_at(0x10c8, 200), 9e-9),
                (both.clone(), 3e-9),
            ] {
                let (covered, seen_s) = of(&laps, window, &ips);
                assert!((covered - 1.0).abs() < 1e-6, "{covered}");
                assert!((seen_s / access_s - 1.0).abs() < 1e-6, "{seen_s}");
            }
        }
        // Laps next to a hundredth of it say nothing of the rest.
        let mostly = [loop_at(0x1000, 4), loop_at(0x9000, 396)].concat();
        assert!(of(&laps, 0, &mostly).0 < 0.02);
        // The same addresses in another program, and nothing at all.
        let elsewhere = Content::new(1, &both);
        assert_eq!(seen_from(&laps, 0, &elsewhere).covered, 0.0);
        assert_eq!(seen_from(&laps, 0, &Content::default()).covered, 0.0);
    }

    /// A lap that led through a copy says little of the loop in front of it, and one of a `rep` instruction nothing.
    #[test]
    fn laps_that_stayed_where_they_began_are_heard_rather() {
        let place = |access_s, stays| Place {
            at: granule(0, 0x1000),
            part: 0.5,
            access_s,
            stays,
        };
        let led_on = [place(8e-9, false); 4];
        let repeats = [place(4e-11, true); 4];
        let stayed = [place(1e-9, true); 2];
        let code = Content::new(0, &loop_at(0x1000, 100));
        let seen_s = |places: &[Place], repeats| {
            let speeds = Speeds::new(vec![places]);
            speeds.of(0, &code, repeats).access_s
        };
        let close = |one: f64, other: f64| (one / other - 1.0).abs() < 1e-6;
        assert!(close(seen_s(&[&led_on[..], &stayed].concat(), false), 1e-9));
        assert!(close(seen_s(&led_on, false), 8e-9));
        let all = [&led_on[..], &stayed, &repeats].concat();
        assert!(close(seen_s(&all, false), 1e-9) && seen_s(&all, true) < 4e-10);
    }

    /// The same code may be faster at another time, or on other data.
    #[test]
    fn a_windows_own_laps_count_rather_than_others() {
        let mut laps = Vec::new();
        for window in 0..40 {
            let access_s = if window < 20 { 1e-9 } else { 4e-9 };
            laps.push(places(&[(0x1000, access_s); 4]));
        }
        let seen_s = |window| of(&laps, window, &loop_at(0x1000, 100)).1;
        assert!((seen_s(19) - 1e-9).abs() < 1e-15 && (seen_s(20) - 4e-9).abs() < 1e-15);
        // One without goes by near ones.
        laps[19].clear();
        laps[38].clear();
        let (middle, late) = (
            of(&laps, 19, &loop_at(0x1000, 100)),
            of(&laps, 38, &loop_at(0x1000, 100)),
        );
        assert!(
            middle.0 == 1.0 && middle.1 > 1.2e-9 && middle.1 < 2.5e-9,
            "{middle:?}"
        );
        assert!(late.1 > 3.5e-9, "{late:?}");
        // Nor is there anything in other code.
        assert_eq!(of(&laps, 38, &loop_at(0x9000, 100)).0, 0.0);
    }
}
