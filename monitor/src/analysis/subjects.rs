//! What figures can be asked about: lines, functions, instructions, objects, data, windows.
//!
//! Every instruction and every piece of data of a profile is given one subject of each kind once,
//! so that the arithmetic runs over small integers.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use super::allocated::Sites;
use super::callers::own_frame;
use crate::profile::Profile;
use crate::profile::types::{Frame, InstrId, Memory};
use crate::symbols::short_module_name;

/// A kind of subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum By {
    /// Source line of the innermost inlined function.
    Line,
    /// Source line of the innermost inlined function that is no library's; as `Line` where there is none.
    OwnLine,
    /// Function as it was compiled, inlined ones counted to it.
    Function,
    /// Machine instruction.
    Instruction,
    /// Executable or shared library.
    Object,
    /// Static object, heap, stack, mapping.
    Data,
    /// Sampling window.
    Window,
}

/// Kind of memory a datum lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DataKind {
    /// Static object of a module.
    Static,
    /// Heap.
    Heap,
    /// Stack of a thread.
    Stack,
    /// Other mapping.
    Mapping,
}

impl DataKind {
    /// The word of the exports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Heap => "heap",
            Self::Stack => "stack",
            Self::Mapping => "mapping",
        }
    }
}

/// Something figures are given for. Which fields are filled depends on [`By`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Subject {
    /// Source file; empty when unknown.
    pub file: String,
    /// Line, 0 when unknown.
    pub line: u32,
    /// Function; for a line the innermost one.
    pub function: String,
    /// The compiled functions that hold the line, in the order of their names, where it was inlined into any.
    pub inlined_into: Vec<String>,
    /// File name of the executable or library; empty for generated code.
    pub object: String,
    /// Instructions: address in the object file.
    pub offset: Option<u64>,
    /// Data: its kind.
    pub data: Option<DataKind>,
    /// Data: its name.
    pub name: String,
    /// Blocks of the heap, whose `file`, `line` and `function` are of the call that allocated them: who called that, nearest first, as
    /// far as it is the same for all of them.
    pub callers: Vec<String>,
    /// Windows: index into [`Profile::windows`].
    pub window: Option<usize>,
}

/// All subjects of one kind, and which of them each instruction belongs to.
#[derive(Clone, Debug)]
pub struct Subjects {
    /// The kind.
    pub by: By,
    /// The subjects; a key is an index into this.
    pub list: Vec<Subject>,
    /// Per instruction its subject (empty for data and windows).
    pub of_instr: Vec<u32>,
}

/// Distinct values numbered in the order they come.
pub(super) struct Interner<T> {
    ids: HashMap<T, u32>,
    list: Vec<T>,
}

impl<T: Clone + Eq + Hash> Interner<T> {
    pub(super) fn new() -> Self {
        Self {
            ids: HashMap::new(),
            list: Vec::new(),
        }
    }

    pub(super) fn id(&mut self, value: T) -> u32 {
        if let Some(&id) = self.ids.get(&value) {
            return id;
        }
        let id = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        self.list.push(value.clone());
        self.ids.insert(value, id);
        id
    }

    pub(super) fn into_list(self) -> Vec<T> {
        self.list
    }
}

impl Subjects {
    /// The subjects of `profile` by code: line, function, instruction or object.
    #[must_use]
    pub fn of_code(profile: &Profile, by: By) -> Self {
        // The same line may come from several instructions with different callers: a line keeps one subject.
        let mut ids: HashMap<Subject, u32> = HashMap::new();
        let mut list: Vec<Subject> = Vec::new();
        let mut within: Vec<BTreeSet<String>> = Vec::new();
        let of_instr = (0..profile.instrs.len() as InstrId)
            .map(|id| {
                let mut subject = code_subject(profile, by, id);
                let into = std::mem::take(&mut subject.inlined_into);
                let id = *ids.entry(subject).or_insert_with_key(|subject| {
                    list.push(subject.clone());
                    within.push(BTreeSet::new());
                    (list.len() - 1) as u32
                });
                within[id as usize].extend(into);
                id
            })
            .collect();
        for (subject, within) in list.iter_mut().zip(within) {
            if within.iter().any(|into| *into != subject.function) {
                subject.inlined_into = within.into_iter().collect();
            }
        }
        Self { by, list, of_instr }
    }

    /// Those of windows without their list: what numbers them.
    pub(super) fn windows() -> Self {
        Self {
            by: By::Window,
            list: Vec::new(),
            of_instr: Vec::new(),
        }
    }

    /// One subject a window.
    #[must_use]
    pub fn of_windows(profile: &Profile) -> Self {
        let list = (0..profile.windows.len())
            .map(|w| Subject {
                window: Some(w),
                ..Subject::default()
            })
            .collect();
        Self {
            list,
            ..Self::windows()
        }
    }
}

/// File name of the object that holds an instruction; empty for generated code.
fn object(profile: &Profile, id: InstrId) -> &str {
    let module = profile.instrs[id as usize].module;
    module.map_or("", |m| short_module_name(&profile.modules[m as usize].path))
}

/// What an instruction without source positions is called by: its object and address.
#[must_use]
pub fn nameless(profile: &Profile, id: InstrId) -> Frame {
    let instr = profile.instrs[id as usize];
    Frame {
        function: match instr.module {
            Some(_) => format!("{}+{:#x}", object(profile, id), instr.offset),
            None => "[generated code]".to_owned(),
        },
        file: String::new(),
        line: 0,
    }
}

fn code_subject(profile: &Profile, by: By, id: InstrId) -> Subject {
    let instr = profile.instrs[id as usize];
    let object = object(profile, id).to_owned();
    let frames = profile.frames(id);
    let unknown = nameless(profile, id);
    let inner = match by {
        By::OwnLine => own_frame(frames).or(frames.first()),
        _ => frames.first(),
    };
    let inner = inner.unwrap_or(&unknown);
    let outer = frames.last().unwrap_or(&unknown);
    let mut subject = Subject {
        object,
        ..Subject::default()
    };
    match by {
        By::Line | By::OwnLine | By::Instruction => {
            inner.file.clone_into(&mut subject.file);
            subject.line = inner.line;
            inner.function.clone_into(&mut subject.function);
            subject.inlined_into.push(outer.function.clone());
            if by == By::Instruction {
                subject.offset = Some(instr.offset);
            }
        }
        By::Function => {
            outer.function.clone_into(&mut subject.function);
            outer.file.clone_into(&mut subject.file);
        }
        By::Object | By::Data | By::Window => {}
    }
    subject
}

/// The datum in a piece of memory; a stack is that of the thread given, where there are several.
pub(super) fn data_subject(
    profile: &Profile,
    sites: &Sites,
    memory: Memory,
    thread: Option<i32>,
) -> Subject {
    let (kind, name, object) = match (memory, thread) {
        (Memory::Static { module, offset }, _) => {
            let of = &profile.modules[module as usize];
            let object = short_module_name(&of.path);
            let (kind, name) = match profile.data_symbol(module, offset) {
                Some(symbol) => (DataKind::Static, symbol.name.clone()),
                // Objects have a build id, as a rule.
                None if of.build_id.is_empty() => (DataKind::Mapping, format!("data of {object}")),
                None => (DataKind::Static, format!("data of {object}")),
            };
            (kind, name, object.to_owned())
        }
        (Memory::Allocated { site }, _) => return sites.subject(site),
        (Memory::Heap, _) => {
            // The allocator's own, and what came before it was seen.
            let name = if sites.any() {
                "heap, in no known block"
            } else {
                "heap"
            };
            (DataKind::Heap, name.to_owned(), String::new())
        }
        (Memory::Stack, Some(tid)) => (
            DataKind::Stack,
            format!("stack of thread {tid}"),
            String::new(),
        ),
        (Memory::Stack, None) => (DataKind::Stack, "stack".to_owned(), String::new()),
        (Memory::Mapping, _) => (
            DataKind::Mapping,
            "other mappings".to_owned(),
            String::new(),
        ),
    };
    Subject {
        data: Some(kind),
        name,
        object,
        ..Subject::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::example;
    use crate::profile::types::{Instr, Record};

    /// The lines of instructions with these inline chains, functions innermost first.
    fn lines(chains: &[&[&str]]) -> Vec<Subject> {
        let frame = |(depth, function): (usize, &&str)| Frame {
            function: (*function).to_owned(),
            file: "object.h".to_owned(),
            line: 500 + depth as u32,
        };
        let frames = |chain: &&[&str]| chain.iter().enumerate().map(frame).collect();
        let more = |offset| Instr {
            module: Some(0),
            offset,
        };
        let mut records = example::beginning();
        records.push(Record::Instrs(
            (1..chains.len() as u64).map(|n| more(16 + n)).collect(),
        ));
        records.push(Record::Symbols(chains.iter().map(frames).collect()));
        let profile = Profile::from_records(records).unwrap();
        Subjects::of_code(&profile, By::Line).list
    }

    #[test]
    fn a_line_has_all_functions_that_it_was_inlined_into() {
        let of = |chains: &[&[&str]]| {
            let lines = lines(chains);
            assert_eq!(lines.len(), 1);
            lines.into_iter().next().unwrap().inlined_into
        };
        assert_eq!(of(&[&["f"], &["f"]]), Vec::<String>::new());
        assert_eq!(of(&[&["f", "g"], &["f", "h", "g"]]), ["g"]);
        assert_eq!(of(&[&["f", "h"], &["f", "g"], &["f"]]), ["f", "g", "h"]);
        assert_eq!(lines(&[&["f", "g"], &["g"]]).len(), 2);
    }
}
