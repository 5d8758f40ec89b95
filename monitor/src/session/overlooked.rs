//! Code that the program was seen in between windows, and no window saw an access of: what misses there is not in the profile.

use crate::profile::types::{Frame, InstrId, Warning};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Share of the looks that a function has to be one of these, how many they are then at least, and the share that all of these have to be told.
const NOTABLE: f64 = 0.03;
const ENOUGH: u32 = 5;
const TOLD: f64 = 0.1;
/// Functions that are named.
const NAMED: usize = 3;

/// Where the program was seen between windows.
#[derive(Debug, Default)]
pub struct Places {
    /// Instructions, and how many looks fell there.
    pub looks: Vec<(InstrId, u32)>,
    /// How many there were, those into code that is in no window besides.
    pub all: u32,
    /// From this number on instructions were seen there alone.
    pub first: InstrId,
}

impl Places {
    /// What is to be said of functions that no window saw, by the source positions of all instructions.
    pub fn overlooked(&self, frames: &[Vec<Frame>]) -> Option<Warning> {
        let sampled = frames.get(..self.first as usize)?;
        let seen: BTreeSet<&str> = sampled.iter().filter_map(|f| function(f)).collect();
        let mut unseen: BTreeMap<&str, u32> = BTreeMap::new();
        for &(id, looks) in &self.looks {
            let name = frames.get(id as usize).and_then(|f| function(f));
            if let Some(name) = name.filter(|name| !seen.contains(name)) {
                *unseen.entry(name).or_default() += looks;
            }
        }
        let share = |looks: u32| f64::from(looks) / f64::from(self.all.max(1));
        unseen.retain(|_, looks| *looks >= ENOUGH && share(*looks) >= NOTABLE);
        let missed = share(unseen.values().sum());
        if unseen.is_empty() || missed < TOLD {
            return None;
        }
        let mut worst: Vec<(&str, u32)> = unseen.into_iter().collect();
        worst.sort_by_key(|&(name, looks)| (Reverse(looks), name));
        let named = worst.iter().take(NAMED);
        let named: Vec<String> = named
            .map(|&(name, looks)| format!("{name} {:.0} %", 100.0 * share(looks)))
            .collect();
        Some(Warning {
            what: format!(
                "{:.0} % of the time between windows was spent in functions of which no window saw an access: {}{}",
                100.0 * missed,
                named.join(", "),
                if worst.len() > NAMED { ", ..." } else { "" }
            ),
            remedy: "they make next to none, or are not in these results: a larger --overhead or a longer run sees more, --full all"
                .into(),
        })
    }
}

/// The function that an instruction is in, whatever was inlined there; a symbol near it, or its object, where that is all that is known.
fn function(frames: &[Frame]) -> Option<&str> {
    let name = frames.last()?.function.as_str();
    let name = name.split("+0x").next().unwrap_or(name);
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(functions: &[&str]) -> Vec<Vec<Frame>> {
        let frame = |function: &str| Frame {
            function: function.to_owned(),
            file: String::new(),
            line: 0,
        };
        let chain = |names: &&str| names.split('<').map(frame).collect();
        functions.iter().map(chain).collect()
    }

    #[test]
    fn functions_without_an_access_are_named() {
        // Two sampled; one more place in one of them, and two functions that nobody saw.
        let frames = frames(&[
            "get<chase",
            "libz.so+0x10",
            "chase",
            "stream",
            "libz.so+0x99",
            "rare",
        ]);
        let told = |looks: &[(InstrId, u32)], beside| {
            let places = Places {
                looks: looks.to_vec(),
                all: looks.iter().map(|&(_, n)| n).sum::<u32>() + beside,
                first: 2,
            };
            places.overlooked(&frames).map(|warning| warning.what)
        };
        let said = told(&[(0, 50), (2, 10), (3, 30), (4, 8), (5, 2)], 0);
        let said = said.expect("a third of the time");
        assert!(
            said.starts_with("30 % of") && said.ends_with(": stream 30 %"),
            "{said}"
        );
        // Too little of it, too few, none.
        assert_eq!(told(&[(0, 95), (3, 5)], 0), None);
        assert_eq!(told(&[(0, 4), (3, 4)], 0), None);
        assert_eq!(told(&[(0, 90), (2, 10)], 0), None);
        assert_eq!(told(&[], 0), None);
        // All that is left is little of what there was.
        assert_eq!(told(&[(3, 5)], 95), None);
    }
}
