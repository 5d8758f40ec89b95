//! Blocks of the heap by the call that allocated them.
//!
//! Few calls of the allocator say what a block is for: most are made by functions that allocate for others. So a site is told by the
//! innermost call that is none of these: a runtime library's, one that is named as such, and, in stripped programs, one that many call.

use super::callers::is_of_library;
use super::subjects::{DataKind, Subject};
use crate::profile::Profile;
use crate::profile::types::{Frame, InstrId, SiteId};
use crate::symbols::short_module_name;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Callers from which on a function without a name is one that allocates for others. (Chosen: by what z3 and bwa show.)
const MANY: usize = 8;
/// Callers that are told.
const TOLD: usize = 3;

/// The allocation sites of a profile as subjects.
#[derive(Debug, Default)]
pub(super) struct Sites(Vec<Subject>);

impl Sites {
    /// Those of `profile`.
    pub fn of(profile: &Profile) -> Sites {
        let chains: Vec<Vec<Call<'_>>> = profile
            .sites
            .iter()
            .map(|calls| calls.iter().map(|&call| Call::of(profile, call)).collect())
            .collect();
        let mut by: HashMap<&str, HashSet<&str>> = HashMap::new();
        for pair in chains.iter().flat_map(|chain| chain.windows(2)) {
            by.entry(pair[0].function)
                .or_default()
                .insert(pair[1].function);
        }
        let for_others = |call: &Call<'_>| {
            let nameless = call.place.is_some_and(|_| call.nameless);
            let many = by.get(call.function).is_some_and(|by| by.len() >= MANY);
            call.place.is_none() || nameless && many
        };
        let told = |chain: &Vec<Call<'_>>| {
            let at = chain.iter().position(|call| !for_others(call)).unwrap_or(0);
            let subject = chain.get(at).map(Call::subject).unwrap_or_default();
            let callers = chain.iter().skip(at + 1).take_while(|call| !call.runtime);
            let callers = callers.map(|call| call.function.to_owned()).take(TOLD);
            (subject, callers.collect::<Vec<String>>())
        };
        let told: Vec<(Subject, Vec<String>)> = chains.iter().map(told).collect();
        // What all sites of a subject have in common.
        let mut common: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
        for (subject, callers) in &told {
            let known = common
                .entry(key(subject))
                .or_insert_with(|| callers.clone());
            let same = known.iter().zip(callers).take_while(|(a, b)| a == b);
            known.truncate(same.count());
        }
        let subjects = told.into_iter().map(|(subject, _)| {
            let callers = common.get(&key(&subject)).cloned().unwrap_or_default();
            Subject { callers, ..subject }
        });
        Sites(subjects.collect())
    }

    /// What is allocated there.
    pub fn subject(&self, site: SiteId) -> Subject {
        self.0.get(site as usize).cloned().unwrap_or_default()
    }

    /// Whether any were looked for.
    pub fn any(&self) -> bool {
        !self.0.is_empty()
    }
}

fn key(subject: &Subject) -> (String, String) {
    (subject.name.clone(), subject.object.clone())
}

/// One of the calls that led to the allocator.
struct Call<'a> {
    /// The function as it was compiled.
    function: &'a str,
    object: &'a str,
    /// The innermost of its inline chain that does more than allocate for others.
    place: Option<&'a Frame>,
    /// Its function is told by an address.
    nameless: bool,
    /// Of the C or C++ library.
    runtime: bool,
}

impl<'a> Call<'a> {
    fn of(profile: &'a Profile, call: InstrId) -> Call<'a> {
        let module = profile.instrs[call as usize].module;
        let path = module.map_or("", |m| profile.modules[m as usize].path.as_str());
        let object = short_module_name(path);
        let frames = profile.frames(call);
        let function = frames.last().map_or("", |frame| frame.function.as_str());
        let runtime = is_runtime(object);
        let beyond = function.strip_prefix(object);
        Call {
            function,
            object,
            place: frames.iter().find(|f| !runtime && !allocates(f)),
            nameless: beyond.is_some_and(|rest| rest.starts_with("+0x")),
            runtime,
        }
    }

    fn subject(&self) -> Subject {
        let (file, line, function) = match self.place {
            Some(frame) => (frame.file.as_str(), frame.line, frame.function.as_str()),
            None => ("", 0, self.function),
        };
        let name = match (line, file, function) {
            (_, _, "") => "heap of generated code".to_owned(),
            (0, _, _) | (_, "", _) => format!("heap of {function}"),
            _ => format!("heap of {function} ({}:{line})", short_module_name(file)),
        };
        Subject {
            file: file.to_owned(),
            line,
            function: function.to_owned(),
            object: self.object.to_owned(),
            data: Some(DataKind::Heap),
            name,
            ..Subject::default()
        }
    }
}

/// Whether a function is a library's, which may have been inlined, or named as one that allocates.
fn allocates(frame: &Frame) -> bool {
    const NAMED: [&str; 3] = ["alloc", "operator new", "strdup"];
    let (path, name) = names(&frame.function);
    let name = name.to_ascii_lowercase();
    // Without lines its name alone says so.
    is_of_library(&frame.file)
        || frame.file.is_empty() && is_library_path(path)
        || NAMED.iter().any(|word| name.contains(word))
}

/// Whether a function is one of the libraries of C++ and Rust: `<Vec<T> as Trait>::f` where both are.
fn is_library_path(path: &str) -> bool {
    const LIBRARIES: [&str; 4] = ["std::", "alloc::", "core::", "__gnu_cxx::"];
    let is_one = |path: &str| LIBRARIES.iter().any(|library| path.starts_with(library));
    let Some(of) = path.strip_prefix('<') else {
        return is_one(path);
    };
    let mut depth = 0;
    let implements = of.char_indices().find_map(|(at, c)| {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ => {}
        }
        of[at..].strip_prefix(" as ").filter(|_| depth == 0)
    });
    is_one(of) && implements.is_none_or(is_one)
}

/// A function without the type that it returns, and its own name: without what it is in, and what it takes (`std::allocator<Cell*>` is an
/// argument of many that do not allocate).
fn names(function: &str) -> (&str, &str) {
    let bytes = function.as_bytes();
    // Where both begin, and where the name ends.
    let (mut path, mut from, mut end) = (0, 0, None);
    let mut depth = 0;
    for (at, byte) in bytes.iter().enumerate() {
        // Else it is what the name is in: `<Vec<T> as Trait>::f`, `(anonymous namespace)::f`, and Go's `main.(*Pool).f`.
        let is_own = depth == 0 && at > from && bytes[at - 1] != b'.';
        match byte {
            b'(' if is_own => {
                end = end.or(Some(at));
                break;
            }
            b'<' | b'(' | b'{' => {
                if is_own {
                    end = end.or(Some(at));
                }
                depth += 1;
            }
            b'>' | b')' | b'}' if depth > 0 => depth -= 1,
            b':' if depth == 0 && bytes.get(at + 1) == Some(&b':') => {
                (from, end) = (at + 2, None);
            }
            b' ' if depth == 0 && !function[from..at].ends_with("operator") => {
                (path, from, end) = (at + 1, at + 1, None);
            }
            _ => {}
        }
    }
    let end = end.unwrap_or(function.len()).max(from);
    (&function[path..], &function[from..end])
}

/// Whether an object is the C or C++ library, whose functions allocate for whoever calls them.
fn is_runtime(object: &str) -> bool {
    const NAMES: [&str; 5] = [
        "libc.so",
        "libc-2",
        "libstdc++.so",
        "libc++.so",
        "libc++abi.so",
    ];
    NAMES.iter().any(|library| object.starts_with(library))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::example;
    use crate::profile::types::{Instr, Record};

    #[test]
    fn functions_that_take_containers_do_not_allocate() {
        let allocates = |function: &str, file: &str| {
            allocates(&Frame {
                function: function.to_owned(),
                file: file.to_owned(),
                line: 7,
            })
        };
        for function in [
            "load_users(std::vector<Cell*, std::allocator<Cell*> >&, int)",
            "void (anonymous namespace)::fill<std::allocator<int> >(int)",
            "std::vector<int, std::allocator<int> > make<int>(int)",
            "ns::Table<int, std::allocator<int> >::grow(int) const",
            "<alloc::vec::Vec<T> as app::Trait>::fill",
            "<app::List as core::iter::Iterator>::next",
            "app::load::{{closure}}",
            "operator<<(std::ostream&, Cell const&)",
            "f[abi:cxx11](int)",
            "main.(*Pool).Take",
            "größe<alloc>(int)",
            "main",
            "",
        ] {
            assert!(!allocates(function, "/src/a.cpp"), "{function}");
            assert!(!allocates(function, ""), "{function}");
        }
        for function in [
            "operator new(unsigned long)",
            "Pool::operator new[](unsigned long)",
            "xmalloc",
            "Arena<int>::allocate(unsigned long)",
            "__rust_alloc_zeroed",
            "main.(*Pool).Alloc",
            "my_strdup",
        ] {
            assert!(allocates(function, "/src/a.cpp"), "{function}");
        }
        // Where there is no line, else they may be the program's own.
        for function in [
            "void std::vector<int, A>::push_back(int const&)",
            "core::World::spawn(int)",
            "alloc::raw_vec::RawVec<T,A>::grow_one",
            "<alloc::vec::Vec<T> as alloc::vec::spec_from_iter::SpecFromIter<T,I>>::from_iter",
        ] {
            assert!(allocates(function, ""), "{function}");
            assert!(!allocates(function, "/src/world.cpp"), "{function}");
        }
    }

    /// Names of the sites with these chains of functions, the allocator's caller first, and their callers. A function is in
    /// a file of its own name; "lib" ones in system headers.
    fn told(chains: &[&[&str]]) -> Vec<(String, Vec<String>)> {
        let mut functions: Vec<&str> = Vec::new();
        let mut id = |function| {
            let known = functions.iter().position(|f| *f == function);
            known.unwrap_or_else(|| {
                functions.push(function);
                functions.len() - 1
            }) as InstrId
                + 1
        };
        let sites: Vec<Vec<InstrId>> = chains
            .iter()
            .map(|chain| chain.iter().map(|f| id(f)).collect())
            .collect();
        let frame = |function: &&str| {
            let line = if function.contains('+') { 0 } else { 7 };
            vec![Frame {
                function: (*function).to_owned(),
                file: match (line, function.starts_with("lib")) {
                    (0, _) => String::new(),
                    (_, true) => "/usr/include/lib.h".to_owned(),
                    (_, false) => format!("/src/{function}.c"),
                },
                line,
            }]
        };
        let mut records = example::beginning();
        let instrs = (1..=functions.len() as u64).map(|n| Instr {
            module: Some(0),
            offset: 0x9000 + n,
        });
        records.push(Record::Instrs(instrs.collect()));
        records.push(Record::Sites(sites));
        let frames = functions.iter().map(frame);
        records.push(Record::Symbols(
            std::iter::once(Vec::new()).chain(frames).collect(),
        ));
        let profile = Profile::from_records(records).unwrap();
        let sites = Sites::of(&profile);
        let subject = |site| sites.subject(site as SiteId);
        let told = (0..chains.len()).map(subject).map(|s| (s.name, s.callers));
        told.collect()
    }

    #[test]
    fn a_block_is_of_whom_it_was_allocated_for() {
        let of = |chain: &[&str]| told(&[chain]).remove(0);
        let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            of(&["node", "list", "main"]),
            (
                "heap of node (node.c:7)".to_owned(),
                words(&["list", "main"])
            )
        );
        assert_eq!(
            of(&["xmalloc", "node", "main"]).0,
            "heap of node (node.c:7)"
        );
        assert_eq!(
            of(&["operator new(unsigned long)", "libvector", "node"]).0,
            "heap of node (node.c:7)"
        );
        // Nobody else: as it is.
        assert_eq!(of(&["xmalloc"]).0, "heap of xmalloc");
    }

    #[test]
    fn callers_are_told_as_far_as_all_blocks_have_them() {
        let told = told(&[
            &["node", "list", "main"],
            &["node", "list", "other"],
            &["node", "list"],
        ]);
        assert!(told.iter().all(|(_, callers)| callers == &["list"]));
    }

    #[test]
    fn what_has_no_name_and_many_callers_allocates_for_them() {
        let object = short_module_name(&example_module()).to_owned();
        let wrapper = format!("{object}+0x100");
        let callers: Vec<String> = (0..MANY).map(|n| format!("{object}+0x2{n}0")).collect();
        let chains: Vec<Vec<&str>> = callers
            .iter()
            .map(|c| vec![wrapper.as_str(), c.as_str()])
            .collect();
        let chains: Vec<&[&str]> = chains.iter().map(Vec::as_slice).collect();
        let names = |chains: &[&[&str]]| {
            told(chains)
                .into_iter()
                .map(|(name, _)| name)
                .collect::<HashSet<_>>()
        };
        assert_eq!(names(&chains).len(), MANY);
        assert_eq!(names(&chains[1..]), [format!("heap of {wrapper}")].into());
    }

    fn example_module() -> String {
        Profile::from_records(example::beginning()).unwrap().modules[0]
            .path
            .clone()
    }
}
