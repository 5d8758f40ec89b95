//! Names of generated code, as just-in-time compilers leave them for profilers: one line each of first address,
//! size (both hexadecimal) and name in `/tmp/perf-PID.map` (Linux, tools/perf/Documentation/jit-interface.txt).

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Most bytes that are read of one.
const MOST: u64 = 1 << 30;

/// Opens a file at a place where others may write too: an ordinary one, no link elsewhere, and nobody's pipe that would
/// keep us waiting.
#[must_use]
pub fn open_ordinary(path: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW | libc::O_NOCTTY);
    let file = options.open(path).ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}

/// Names of the functions that addresses lie in, from a file that user `user` or root has written. Of several functions
/// at an address the last one is meant: it has taken the others' place.
#[must_use]
pub fn names_of_generated(file: File, user: u32, addresses: &[u64]) -> Vec<Option<String>> {
    let owner = file.metadata().map(|data| data.uid());
    if !owner.is_ok_and(|owner| owner == user || owner == 0) {
        return vec![None; addresses.len()];
    }
    names_in(BufReader::new(file.take(MOST)), addresses)
}

/// The same from its text; lines that say nothing are left out.
fn names_in(mut text: impl BufRead, addresses: &[u64]) -> Vec<Option<String>> {
    let mut names = vec![None; addresses.len()];
    let mut order: Vec<usize> = (0..addresses.len()).collect();
    order.sort_unstable_by_key(|&i| addresses[i]);
    let mut line = Vec::new();
    while text.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let Some((start, end, name)) = function(&line) else {
            line.clear();
            continue;
        };
        let first = order.partition_point(|&i| addresses[i] < start);
        for &i in order[first..].iter().take_while(|&&i| addresses[i] < end) {
            names[i] = Some(name.clone());
        }
        line.clear();
    }
    names
}

/// First address, one past the last, and the name.
fn function(line: &[u8]) -> Option<(u64, u64, String)> {
    let line = String::from_utf8_lossy(line);
    let mut fields = line.splitn(3, ' ');
    let mut number = || {
        let field = fields.next()?;
        u64::from_str_radix(field.trim_start_matches("0x"), 16).ok()
    };
    let (start, size) = (number()?, number()?);
    let name = fields.next()?.trim();
    let name = name.chars().filter(|c| !c.is_control()).collect();
    Some((start, start.checked_add(size.max(1))?, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(text: &str, addresses: &[u64]) -> Vec<Option<String>> {
        names_in(text.as_bytes(), addresses)
    }

    #[test]
    fn functions_are_found_by_address() {
        let text = "7f00 10 LazyCompile:*sum /a/b.js:3\n\n0x7f20 0x8 Interpreter\nnonsense\n7f30 zz x\n7f40 4\n";
        let names = find(text, &[0x7f27, 0, 0x7f00, 0x7f0f, 0x7f10, 0x7f41]);
        let sum = "LazyCompile:*sum /a/b.js:3";
        let names: Vec<_> = names.iter().map(Option::as_deref).collect();
        assert_eq!(
            names,
            [Some("Interpreter"), None, Some(sum), Some(sum), None, None]
        );
    }

    #[test]
    fn later_code_takes_the_place_of_earlier() {
        let names = find("100 40 old\n200 10 other\n120 8 new\n", &[0x121, 0x200]);
        assert_eq!(names, [Some("new".to_owned()), Some("other".to_owned())]);
    }

    #[test]
    fn others_may_not_name_our_code() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("perf-1.map");
        std::fs::write(&path, "10 10 x\n").unwrap();
        let mut user = std::fs::metadata(&path).unwrap().uid();
        if user == 0 {
            user = 65_534;
            std::os::unix::fs::chown(&path, Some(user), None).unwrap();
        }
        let read = |user| names_of_generated(open_ordinary(&path).unwrap(), user, &[0x11]);
        assert_eq!(read(user), [Some("x".to_owned())]);
        assert_eq!(read(user + 1), [None]);
        let link = place.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        for other in [&link, place.path(), &place.path().join("none")] {
            assert!(open_ordinary(other).is_none(), "{}", other.display());
        }
    }
}
