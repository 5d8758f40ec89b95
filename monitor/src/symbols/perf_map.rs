//! Names of generated code, as just-in-time compilers leave them for profilers: one line each of first address,
//! size (both hexadecimal) and name in `/tmp/perf-PID.map` (Linux, tools/perf/Documentation/jit-interface.txt).

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Most bytes that are read of one.
const MOST: u64 = 256 << 20;

/// The functions of a file, by address.
#[derive(Debug, Default)]
pub struct PerfMap(Vec<Function>);

#[derive(Debug)]
struct Function {
    start: u64,
    end: u64,
    name: String,
}

impl PerfMap {
    /// Reads a file, if it is one that user `uid` or root has written: others may write to `/tmp` too.
    #[must_use]
    pub fn read(path: &Path, uid: u32) -> Option<PerfMap> {
        let mut options = OpenOptions::new();
        // Somebody's pipe of that name keeps nobody waiting.
        options.read(true).custom_flags(libc::O_NONBLOCK);
        let file = options.open(path).ok()?;
        let data = file.metadata().ok()?;
        if !data.is_file() || data.uid() != uid && data.uid() != 0 {
            return None;
        }
        let mut bytes = Vec::new();
        file.take(MOST).read_to_end(&mut bytes).ok()?;
        Some(PerfMap::parse(&String::from_utf8_lossy(&bytes)))
    }

    /// From a file's text; lines that say nothing are left out. Where functions overlap the later one is meant: it has
    /// taken the other's place.
    #[must_use]
    pub fn parse(text: &str) -> PerfMap {
        let function = |line: &str| {
            let mut fields = line.splitn(3, ' ');
            let mut number = || {
                let field = fields.next()?;
                u64::from_str_radix(field.trim_start_matches("0x"), 16).ok()
            };
            let (start, size) = (number()?, number()?);
            let name = fields.next()?.trim();
            let end = start.checked_add(size.max(1))?;
            let name = name.chars().filter(|c| !c.is_control()).collect();
            Some(Function { start, end, name })
        };
        let mut kept: std::collections::BTreeMap<u64, Function> = std::collections::BTreeMap::new();
        for new in text.lines().filter_map(function) {
            // What it overlaps is gone.
            let before = kept.range(..new.start).next_back();
            let first = before
                .filter(|(_, old)| old.end > new.start)
                .map_or(new.start, |(start, _)| *start);
            let gone: Vec<u64> = kept
                .range(first..new.end)
                .map(|(start, _)| *start)
                .collect();
            for start in gone {
                kept.remove(&start);
            }
            kept.insert(new.start, new);
        }
        PerfMap(kept.into_values().collect())
    }

    /// The function that an address lies in.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<&str> {
        let after = self.0.partition_point(|f| f.start <= address);
        let function = self.0[..after].last()?;
        (address < function.end).then_some(function.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_by_address() {
        let map = PerfMap::parse(
            "7f00 10 LazyCompile:*sum /a/b.js:3\n\n0x7f20 0x8 Interpreter\nnonsense\n7f30 zz x\n7f40 4\n",
        );
        assert_eq!(map.find(0x7f00), Some("LazyCompile:*sum /a/b.js:3"));
        assert_eq!(map.find(0x7f0f), Some("LazyCompile:*sum /a/b.js:3"));
        assert_eq!(map.find(0x7f10), None);
        assert_eq!(map.find(0x7f27), Some("Interpreter"));
        assert_eq!(map.find(0x7f41), None);
        assert_eq!(map.find(0), None);
    }

    #[test]
    fn later_code_takes_the_place_of_earlier() {
        let map = PerfMap::parse("100 40 old\n200 10 other\n120 8 new\n");
        assert_eq!(map.find(0x100), None);
        assert_eq!(map.find(0x121), Some("new"));
        assert_eq!(map.find(0x200), Some("other"));
        let map = PerfMap::parse("100 10 a\n110 10 b\n100 20 both\n");
        assert_eq!([0x100, 0x11f].map(|a| map.find(a)), [Some("both"); 2]);
    }

    #[test]
    fn others_may_not_name_our_code() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("perf-1.map");
        std::fs::write(&path, "10 10 x\n").unwrap();
        let uid = std::fs::metadata(&path).unwrap().uid();
        assert!(PerfMap::read(&path, uid).is_some());
        assert_eq!(PerfMap::read(&path, uid + 1).is_some(), uid == 0);
        assert!(PerfMap::read(place.path(), uid).is_none());
        assert!(PerfMap::read(&place.path().join("none"), uid).is_none());
    }
}
