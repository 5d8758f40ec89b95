//! Lines of libraries that were inlined, and the program's own lines that they were inlined into: what a programmer can change.

use super::subjects::{Interner, Subject};
use crate::profile::Profile;
use crate::profile::types::{Frame, InstrId};

/// Whether a source file belongs to a compiler's library, to system headers or to a package of others, by where it lies.
pub(super) fn is_of_library(file: &str) -> bool {
    const BEGINNINGS: [&str; 6] = [
        "/rustc/",
        "/rust/deps/",
        "/usr/src/rustc-",
        "/usr/include/",
        "/usr/lib/",
        "/usr/local/include/",
    ];
    const PARTS: [&str; 6] = [
        "/lib/gcc/",
        "/.cargo/registry/",
        "/.cargo/git/",
        "/cargo/registry/",
        "/lib/rustlib/src/",
        "/include/c++/",
    ];
    BEGINNINGS.iter().any(|b| file.starts_with(b)) || PARTS.iter().any(|p| file.contains(p))
}

/// Of an inline chain, innermost first, that begins in a library: the first frame of the program's own.
pub(super) fn own_frame(chain: &[Frame]) -> Option<&Frame> {
    let known = |frame: &&Frame| frame.line > 0 && !frame.file.is_empty();
    let inner = chain.first().filter(known)?;
    let own = |frame: &&Frame| known(frame) && !is_of_library(&frame.file);
    is_of_library(&inner.file).then(|| chain.iter().find(own))?
}

/// The program's own lines that lines of libraries were inlined into.
#[derive(Clone, Debug, Default)]
pub struct Callers {
    /// File, line and function of each.
    pub list: Vec<Subject>,
    /// Per instruction its line in the list.
    pub of_instr: Vec<Option<u32>>,
}

impl Callers {
    /// Those of `profile`.
    #[must_use]
    pub fn of(profile: &Profile) -> Callers {
        let mut sites = Interner::new();
        let mut site = |frame: &Frame| {
            sites.id(Subject {
                file: frame.file.clone(),
                line: frame.line,
                function: frame.function.clone(),
                ..Subject::default()
            })
        };
        let of_instr = (0..profile.instrs.len() as InstrId)
            .map(|id| own_frame(profile.frames(id)).map(&mut site))
            .collect();
        Callers {
            list: sites.into_list(),
            of_instr,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_code_is_put_down_to_the_nearest_own_line() {
        let frame = |file: &str, line| Frame {
            function: "f".to_owned(),
            file: file.to_owned(),
            line,
        };
        let vec = "/usr/include/c++/12/bits/stl_vector.h";
        let core = "/rustc/0a1b/library/core/src/ptr/mod.rs";
        let own = |files: &[(&str, u32)]| {
            let chain: Vec<Frame> = files
                .iter()
                .map(|(file, line)| frame(file, *line))
                .collect();
            own_frame(&chain).map(|frame| frame.line)
        };
        assert_eq!(
            own(&[(vec, 9), ("/home/me/a.cc", 7), ("/home/me/b.cc", 8)]),
            Some(7)
        );
        assert_eq!(own(&[(core, 1), (core, 2), ("src/main.rs", 3)]), Some(3));
        // Own code has its own line; of some nothing is known.
        assert_eq!(
            own(&[("/home/me/a.cc", 7), (vec, 9), ("/home/me/b.cc", 8)]),
            None
        );
        assert_eq!(own(&[(core, 1), ("", 0)]), None);
        assert_eq!(own(&[(core, 1)]), None);
        assert_eq!(
            own(&[(core, 1), ("", 0), (vec, 5), ("src/main.rs", 7)]),
            Some(7)
        );
        assert_eq!(own(&[(core, 1), ("src/main.rs", 0), (vec, 5)]), None);
        assert_eq!(own(&[]), None);
    }
}
