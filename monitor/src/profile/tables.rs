//! What the records of one process come to: its tables, every reference checked.

use std::collections::{BTreeMap, HashMap};

use super::reader::{DataSymbol, Profile};
use super::types::{
    Estimate, Footer, Frame, Header, Instr, InstrId, Memory, Module, ModuleId, Outcome, Record,
    Unmet, Warning, WindowRecord,
};

/// What is known of one process.
pub(super) struct Tables {
    pub header: Header,
    modules: Vec<Module>,
    instrs: Vec<Instr>,
    windows: Vec<WindowRecord>,
    by_index: HashMap<u32, usize>,
    symbols: Vec<Vec<Frame>>,
    data_symbols: Vec<DataSymbol>,
    sites: Vec<Vec<InstrId>>,
    footer: Option<Footer>,
    /// Whether windows stand for what was known at the end.
    shared_out: bool,
    looks: BTreeMap<u32, f64>,
    unmet: Option<Unmet>,
}

impl Tables {
    pub fn new(header: Header) -> Self {
        Self {
            header,
            modules: Vec::new(),
            instrs: Vec::new(),
            windows: Vec::new(),
            by_index: HashMap::new(),
            symbols: Vec::new(),
            data_symbols: Vec::new(),
            sites: Vec::new(),
            footer: None,
            shared_out: false,
            looks: BTreeMap::new(),
            unmet: None,
        }
    }

    pub fn add(&mut self, record: Record) -> Result<(), String> {
        match record {
            Record::Header(_) | Record::Process(_) => {
                return Err("it has two headers".to_owned());
            }
            Record::Modules(m) => self.modules.extend(m),
            Record::Instrs(instrs) => {
                for i in instrs.iter().filter_map(|i| i.module) {
                    self.module(i)?;
                }
                self.instrs.extend(instrs);
            }
            Record::Window(w) => self.window(w)?,
            Record::Symbols(s) => {
                self.symbols.extend(s);
                if self.symbols.len() > self.instrs.len() {
                    return Err("it names more instructions than it has".to_owned());
                }
            }
            Record::DataSymbols(list) => {
                for (module, start, size, name) in list {
                    self.module(module)?;
                    let size = size.max(1);
                    self.data_symbols.push(DataSymbol {
                        module,
                        start,
                        size,
                        name,
                    });
                }
            }
            Record::Sites(sites) => {
                for &call in sites.iter().flatten() {
                    self.instr(call)?;
                }
                self.sites.extend(sites);
            }
            Record::Shares(factors) => self.share(&factors)?,
            Record::Looks(looks) => self.looks(looks)?,
            Record::Unmet(unmet) => self.unmet = Some(sensible(unmet)?),
            Record::Footer(f) => self.footer = Some(f),
        }
        Ok(())
    }

    fn window(&mut self, window: WindowRecord) -> Result<(), String> {
        if self
            .by_index
            .insert(window.index, self.windows.len())
            .is_some()
        {
            return Err(format!("it has two windows {}", window.index));
        }
        for taken in &window.samples {
            // A sample may be written with a later window than it was taken in, never an earlier.
            if taken.taken_in > window.index {
                return Err(format!(
                    "window {} holds a sample of window {}",
                    window.index, taken.taken_in
                ));
            }
            self.instr(taken.sample.ip)?;
            self.memory(taken.sample.memory)?;
            let shared = taken.sample.shared.as_deref();
            let all = shared.map_or(&[][..], |shared| &shared.all);
            for outcome in taken.sample.own.iter().chain(all) {
                if let Outcome::Reused { trigger, .. } = *outcome {
                    self.instr(trigger)?;
                }
            }
            if let Some((writer, _)) = shared.and_then(|shared| shared.writer) {
                self.instr(writer)?;
            }
        }
        let first = window.first_touches.iter();
        for touch in first.flat_map(|first| &first.touches) {
            self.instr(touch.ip)?;
            self.memory(touch.memory)?;
        }
        self.windows.push(window);
        Ok(())
    }

    /// Thinning may have left windows out: others stand for them, drawn so that factors hold on average.
    fn share(&mut self, factors: &[(u32, Estimate)]) -> Result<(), String> {
        self.shared_out = true;
        for &(index, factor) in factors {
            let sensible = |factor: &f64| factor.is_finite() && *factor >= 0.0;
            let all = [factor.value, factor.low, factor.high];
            if let Some(bad) = all.into_iter().find(|factor| !sensible(factor)) {
                return Err(format!("window {index} stands for {bad} times as much"));
            }
            if let Some(&at) = self.by_index.get(&index) {
                let stands_for = &mut self.windows[at].stands_for;
                stands_for.value *= factor.value;
                stands_for.low *= factor.low;
                stands_for.high *= factor.high;
                // One that others were left out for stands for them by its own factors.
                stands_for.low = stands_for.low.min(stands_for.value);
                stands_for.high = stands_for.high.max(stands_for.value);
            }
        }
        Ok(())
    }

    fn looks(&mut self, looks: Vec<(u32, f64)>) -> Result<(), String> {
        let sensible = |count: f64| count.is_finite() && count >= 0.0;
        if let Some((index, bad)) = looks.iter().find(|(_, count)| !sensible(*count)) {
            return Err(format!("window {index} stands for {bad} looks"));
        }
        self.looks.extend(looks);
        Ok(())
    }

    fn memory(&self, memory: Memory) -> Result<(), String> {
        match memory {
            Memory::Static { module, .. } => self.module(module),
            Memory::Allocated { site } if site as usize >= self.sites.len() => {
                Err(format!("allocation site {site} of {}", self.sites.len()))
            }
            _ => Ok(()),
        }
    }

    fn module(&self, id: ModuleId) -> Result<(), String> {
        if (id as usize) < self.modules.len() {
            Ok(())
        } else {
            Err(format!("module {id} of {}", self.modules.len()))
        }
    }

    fn instr(&self, id: InstrId) -> Result<(), String> {
        if (id as usize) < self.instrs.len() {
            Ok(())
        } else {
            Err(format!("instruction {id} of {}", self.instrs.len()))
        }
    }

    /// Windows that were left out stood for their part too.
    fn make_up(&mut self) {
        let Some(footer) = self.footer.as_ref().filter(|_| self.shared_out) else {
            return;
        };
        let total: f64 = self.windows.iter().map(|w| w.stands_for.value).sum();
        let factor = footer.accesses_estimated.value / total;
        if factor.is_finite() && factor > 0.0 {
            for window in &mut self.windows {
                window.stands_for = window.stands_for.times(factor);
            }
        }
    }

    pub fn finish(mut self, torn: Option<(usize, usize)>) -> Profile {
        self.make_up();
        // Chance has had a part in what windows stand for, where some were left out.
        if self
            .looks
            .keys()
            .any(|window| !self.by_index.contains_key(window))
        {
            self.looks.clear();
            // Nor is all code that windows began with in the profile.
            self.unmet = None;
        }
        in_order(&mut self.data_symbols);
        let mut read_warnings = Vec::new();
        if let Some((at, length)) = torn {
            read_warnings.push(Warning {
                what: format!(
                    "the profile is cut off or damaged behind byte {at} of {length}; \
                     the {} complete windows before it are used",
                    self.windows.len()
                ),
                remedy: "profile again for the whole run; check for a full disk".to_owned(),
            });
        } else if self.footer.is_none() {
            read_warnings.push(Warning {
                what: format!(
                    "the profile has no end: the profiler still runs, was killed or could \
                     not write on; the {} windows written so far are used",
                    self.windows.len()
                ),
                remedy: "wait for the run to end, or profile again".to_owned(),
            });
        }
        Profile {
            header: self.header,
            modules: self.modules,
            instrs: self.instrs,
            windows: self.windows,
            looks: self.looks,
            unmet: self.unmet,
            symbols: self.symbols,
            data_symbols: self.data_symbols,
            sites: self.sites,
            footer: self.footer,
            is_live: false,
            read_warnings,
            others: Vec::new(),
        }
    }
}

/// Brings them into the order in which [`Profile::data_symbol`] searches. Objects of one name, which several files have for themselves, get their
/// addresses as well; pieces of a section, whose names begin with a dot, are one.
pub(super) fn in_order(symbols: &mut [DataSymbol]) {
    symbols.sort_by_key(|a| (a.module, a.start, a.size));
    let mut starts: HashMap<(ModuleId, &str), (u64, bool)> = HashMap::new();
    for s in symbols.iter().filter(|s| !s.name.starts_with('.')) {
        let first = starts
            .entry((s.module, &s.name))
            .or_insert((s.start, false));
        first.1 |= first.0 != s.start;
    }
    let is_shared = |s: &DataSymbol| {
        starts
            .get(&(s.module, s.name.as_str()))
            .is_some_and(|of| of.1)
    };
    let shared: Vec<bool> = symbols.iter().map(is_shared).collect();
    for (symbol, _) in symbols.iter_mut().zip(shared).filter(|(_, shared)| *shared) {
        symbol.name = format!("{} at {:#x}", symbol.name, symbol.start);
    }
}

fn sensible(unmet: Unmet) -> Result<Unmet, String> {
    let Unmet {
        looks,
        unmet_s,
        of,
        of_s,
        all_s,
    } = unmet;
    let grows = 0.0 <= unmet_s && unmet_s <= of_s && of_s <= all_s && all_s.is_finite();
    match grows && looks <= of {
        true => Ok(unmet),
        false => Err(format!(
            "{looks} looks of {of}, {unmet_s} s of {of_s} of {all_s}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::example::{self, beginning};
    use crate::profile::types::{FirstTouch, FirstTouches, Since};

    #[test]
    fn static_objects_of_one_name_are_told_apart() {
        let mut symbols: Vec<DataSymbol> = [
            (0, 0x40, "buf"),
            (1, 0x40, "buf"),
            (0, 0x20, "buf"),
            (0, 0x60, ".bss"),
            (0, 0x10, ".bss"),
        ]
        .map(|(module, start, name)| DataSymbol {
            module,
            start,
            size: 8,
            name: name.to_owned(),
        })
        .into();
        // However often they are brought into order.
        in_order(&mut symbols);
        in_order(&mut symbols);
        let names: Vec<&str> = symbols.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, [".bss", "buf at 0x20", "buf at 0x40", ".bss", "buf"]);
    }

    fn read(records: impl IntoIterator<Item = Record>) -> Result<Profile, String> {
        Profile::from_records(records)
    }

    fn estimate(low: f64, value: f64, high: f64) -> Estimate {
        Estimate { value, low, high }
    }

    /// A window that stands for so much.
    fn window(index: u32, stands_for: Estimate) -> Record {
        Record::Window(example::window(index, 10, stands_for))
    }

    fn footer(accesses_estimated: f64) -> Record {
        Record::Footer(Footer {
            accesses_estimated: estimate(0.0, accesses_estimated, f64::INFINITY),
            ..Footer::default()
        })
    }

    fn stand_for(profile: &Profile) -> Vec<Estimate> {
        profile.windows.iter().map(|w| w.stands_for).collect()
    }

    #[test]
    fn references_to_nothing_are_damage() {
        let mut records = beginning();
        records.push(Record::Instrs(vec![Instr {
            module: Some(1),
            offset: 0,
        }]));
        assert_eq!(read(records).unwrap_err(), "module 1 of 1");
        let mut records = beginning();
        records.push(Record::Sites(vec![vec![0], vec![0, 1]]));
        assert_eq!(read(records).unwrap_err(), "instruction 1 of 1");
        let mut records = beginning();
        records.push(Record::Sites(vec![vec![0]]));
        let mut window = example::window(0, 10, estimate(1.0, 1.0, 1.0));
        window.first_touches = Some(FirstTouches {
            touches: vec![FirstTouch {
                ip: 0,
                position: 0,
                memory: Memory::Allocated { site: 1 },
                tid: 1,
                of_all: true,
                since: Since::AtLeast(0),
            }],
            seen: 1,
            one_in: 1,
            epochs: Vec::new(),
        });
        records.push(Record::Window(window));
        assert_eq!(read(records).unwrap_err(), "allocation site 1 of 1");
    }

    /// Three windows of 100 accesses, the second of which stands for twice as much as it said, the third for half.
    fn shared_out() -> Vec<Record> {
        let mut records = beginning();
        records.extend((0..3).map(|n| window(n, estimate(80.0, 100.0, 150.0))));
        let twice = estimate(1.5, 2.0, 3.0);
        records.push(Record::Shares(vec![(1, twice), (2, twice.times(0.25))]));
        records
    }

    #[test]
    fn windows_stand_for_what_the_end_of_the_run_said() {
        let mut records = shared_out();
        records.push(footer(350.0));
        let as_it_was = estimate(80.0, 100.0, 150.0);
        let twice = estimate(120.0, 200.0, 450.0);
        let half = estimate(30.0, 50.0, 112.5);
        assert_eq!(stand_for(&read(records).unwrap()), [as_it_was, twice, half]);
        // As they were written, where a run broke off before that was known.
        let mut records = shared_out();
        records.pop();
        assert_eq!(stand_for(&read(records).unwrap()), [as_it_was; 3]);
    }

    #[test]
    fn looks_are_those_of_the_end_and_sensible() {
        let with = |count: f64| {
            let mut records = shared_out();
            records.push(Record::Looks(vec![(0, 12.5), (2, count)]));
            read(records)
        };
        assert_eq!(with(3.0).unwrap().looks, [(0, 12.5), (2, 3.0)].into());
        assert!(read(shared_out()).unwrap().looks.is_empty());
        // Of a window that the writer left out.
        let mut records = shared_out();
        records.push(Record::Looks(vec![(0, 12.5), (9, 1.0)]));
        assert!(read(records).unwrap().looks.is_empty());
        assert_eq!(with(-1.0).unwrap_err(), "window 2 stands for -1 looks");
        assert!(with(f64::NAN).is_err());
        let unmet = Unmet {
            looks: 2,
            unmet_s: 0.2,
            of: 9,
            of_s: 0.9,
            all_s: 1.0,
        };
        let with = |window, unmet| {
            let mut records = shared_out();
            records.push(Record::Looks(vec![(window, 1.0)]));
            records.push(Record::Unmet(unmet));
            read(records)
        };
        assert_eq!(with(2, unmet).unwrap().unmet, Some(unmet));
        assert_eq!(with(9, unmet).unwrap().unmet, None);
        for bad in [
            Unmet { looks: 10, ..unmet },
            Unmet {
                unmet_s: 0.95,
                ..unmet
            },
            Unmet { of_s: 1.5, ..unmet },
            Unmet {
                all_s: f64::INFINITY,
                ..unmet
            },
            Unmet {
                unmet_s: f64::NAN,
                ..unmet
            },
        ] {
            assert!(with(2, bad).is_err(), "{bad:?}");
        }
    }

    /// A window that others were left out for has been multiplied: its bounds may not hold its value any more.
    #[test]
    fn bounds_hold_the_value_after_factors_of_their_own() {
        let mut records = beginning();
        records.push(window(0, estimate(100.0, 100.0, 100.0)));
        records.push(Record::Shares(vec![(0, estimate(1.2, 1.0, 0.9))]));
        let read = read(records).unwrap();
        assert_eq!(stand_for(&read), [estimate(100.0, 100.0, 100.0)]);
    }

    #[test]
    fn windows_that_the_writer_left_out_are_made_up_for() {
        // The fourth, which stood for 100, is not in the file, but its factor and the total are.
        let mut records = shared_out();
        let factors = vec![(3, estimate(1.0, 1.0, 1.0))];
        records.extend([Record::Shares(factors), footer(450.0)]);
        let made_up = read(records).unwrap();
        let total: f64 = stand_for(&made_up).iter().map(|e| e.value).sum();
        assert!((total / 450.0 - 1.0).abs() < 1e-12, "{total}");
        // Each in proportion, its bounds too.
        let [first, second, _] = stand_for(&made_up)[..] else {
            panic!("{made_up:?}")
        };
        assert!((second.value / first.value - 2.0).abs() < 1e-12);
        assert!((first.low / first.value - 0.8).abs() < 1e-12);
        // A run that was not gone through at its end: the total is nothing to go by.
        let mut records = beginning();
        records.extend([window(0, estimate(80.0, 100.0, 150.0)), footer(450.0)]);
        let read = read(records).unwrap();
        assert_eq!(stand_for(&read), [estimate(80.0, 100.0, 150.0)]);
    }
}
