//! Programs that may trace others themselves: debuggers, `strace`, and browsers, which do so when a part of theirs crashes. Of a process with a
//! tracer, nobody else can become one (ptrace(2), `EPERM`); so the first calls of what they start are looked at, and who is
//! to be traced is left to them (`hub/serve.rs`).

use nix::unistd::Pid;
use object::read::elf::ElfFile64;
use object::{Object, ObjectSymbol, ReadCache};
use rustc_hash::FxHashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;

/// Which programs trace, by file: device, inode and time of change.
#[derive(Debug, Default)]
pub struct Tracers(FxHashMap<(u64, u64, i64), bool>);

/// Files remembered; a system that executes more of them is looked at anew.
const MOST: usize = 10_000;

impl Tracers {
    /// Whether the program that `pid` executes calls `ptrace` by that name, of the C library. False where that cannot be told.
    pub fn is_one(&mut self, pid: Pid) -> bool {
        let Ok(file) = File::open(format!("/proc/{pid}/exe")) else {
            return false;
        };
        let Ok(of) = file.metadata() else {
            return false;
        };
        if self.0.len() >= MOST {
            self.0.clear();
        }
        let known = self.0.entry((of.dev(), of.ino(), of.ctime()));
        *known.or_insert_with(|| imports(file, "ptrace").unwrap_or(false))
    }
}

/// Whether a dynamic symbol of this name is to come from elsewhere.
fn imports(file: File, name: &str) -> Option<bool> {
    let cache = ReadCache::new(file);
    let file: ElfFile64<'_, object::Endianness, _> = ElfFile64::parse(&cache).ok()?;
    let mut symbols = file.dynamic_symbols();
    Some(symbols.any(|symbol| symbol.is_undefined() && symbol.name() == Ok(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_told_from_what_a_program_has() {
        let own = || File::open("/proc/self/exe").expect("this program");
        assert_eq!(imports(own(), "__libc_start_main"), Some(true));
        assert_eq!(imports(own(), "main"), Some(false));
        assert_eq!(
            imports(File::open("/proc/self/maps").expect("maps"), "ptrace"),
            None
        );
        let mut tracers = Tracers::default();
        let first = tracers.is_one(Pid::this());
        assert_eq!(tracers.is_one(Pid::this()), first);
        assert_eq!(tracers.0.len(), 1);
    }
}
