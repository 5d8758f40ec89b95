//! The shim in a program that is about to start: named in the environment on its stack, where the dynamic linker finds it.
//!
//! Not in the environment that `execve` is given: that would pass to the program's children, whose linker complains on their standard
//! error where the descriptors have been closed, as many programs do for their children. So each new image of a process that is
//! watched is given it at the stop behind its `execve`, and the shim takes it out again once it is loaded: the program never sees it.
//!
//! Source: System V ABI for x86-64, section 3.4.1 "Initial Stack and Register State"; ld.so(8).

use crate::tracee::maps::Maps;
use crate::tracee::{CODE_64, Stopped, TraceError};
use nix::unistd::Pid;

const LD_PRELOAD: &str = "LD_PRELOAD";
const AT_BASE: u64 = 7;
const AT_SECURE: u64 = 23;
const WORD: usize = 8;

/// Adds `variables`, which name the shim, to the environment of the image that `stopped` is about to start. Statically linked and
/// set-user-id programs and those of other architectures are left as they are.
///
/// # Errors
/// [`TraceError`]; the image is as it was, unless the last write failed.
pub fn into(stopped: &Stopped, variables: &[(&str, String)]) -> Result<(), TraceError> {
    let mut regs = stopped.regs()?;
    let maps = Maps::read(stopped.tid()).unwrap_or_default();
    let Some(end) = maps.find(regs.rsp).map(|mapping| mapping.end) else {
        return Ok(());
    };
    if regs.cs != CODE_64 {
        return Ok(());
    }
    let mut bytes = vec![0; (end - regs.rsp) as usize];
    stopped.read(regs.rsp, &mut bytes)?;
    if let Some((rsp, start)) = with_preload(regs.rsp, &bytes, variables) {
        stopped.write(rsp, &start)?;
        regs.rsp = rsp;
        stopped.set_regs(&regs)?;
    }
    Ok(())
}

/// Whether the process's image was started by a dynamic linker (`AT_BASE` in proc(5), `/proc/pid/auxv`), so that a shim named in its
/// environment may yet come to it. Where that cannot be read it is taken to be one.
pub fn is_linked(pid: Pid) -> bool {
    std::fs::read(format!("/proc/{pid}/auxv")).map_or(true, |auxiliary| names_linker(&auxiliary))
}

/// [`is_linked`] of these words, pairs of a kind and its value.
fn names_linker(auxiliary: &[u8]) -> bool {
    let words = auxiliary.as_chunks::<WORD>().0;
    words
        .as_chunks::<2>()
        .0
        .iter()
        .map(|pair| pair.map(u64::from_le_bytes))
        .any(|[kind, value]| kind == AT_BASE && value != 0)
}

/// The stack of a new image from `rsp` on, with variables added or, if they are there, put in front of what they hold: its stack
/// pointer, and what is to be written there. `None` where the linker would not look at them.
fn with_preload(rsp: u64, stack: &[u8], added: &[(&str, String)]) -> Option<(u64, Vec<u8>)> {
    let word = |n: usize| {
        let bytes = stack.get(n * WORD..(n + 1) * WORD)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let environment = word(0)? as usize + 2;
    let mut auxiliary = environment;
    while word(auxiliary)? != 0 {
        auxiliary += 1;
    }
    let strings = environment..auxiliary;
    auxiliary += 1;
    let mut after = auxiliary;
    let (mut linker, mut secure) = (0, 0);
    loop {
        match word(after)? {
            0 => break,
            AT_BASE => linker = word(after + 1)?,
            AT_SECURE => secure = word(after + 1)?,
            _ => {}
        }
        after += 2;
    }
    after += 2;
    if linker == 0 || secure != 0 {
        return None;
    }
    let string = |at: u64| {
        let bytes = stack.get(at.checked_sub(rsp)? as usize..)?;
        bytes.split(|byte| *byte == 0).next()
    };
    let mut words: Vec<u64> = (0..after).map(word).collect::<Option<_>>()?;
    let mut text = Vec::new();
    let mut places = Vec::new();
    for (name, value) in added {
        let prefix = format!("{name}=");
        let found = strings.clone().find_map(|n| {
            let held = string(word(n)?)?.strip_prefix(prefix.as_bytes())?;
            Some((n, held))
        });
        places.push((found.map(|(n, _)| n), text.len()));
        text.extend(format!("{prefix}{value}").bytes());
        if let Some((_, held)) = found.filter(|(_, held)| *name == LD_PRELOAD && !held.is_empty()) {
            text.push(b':');
            text.extend(held);
        }
        text.push(0);
    }
    text.resize(text.len().next_multiple_of(WORD), 0);
    // The strings go where the auxiliary vector ended, all else right below.
    let strings_at = rsp + (after * WORD) as u64 - text.len() as u64;
    // Those that are there first, as insertion moves them.
    places.sort_by_key(|(place, _)| place.is_none());
    for (place, offset) in places {
        let at = strings_at + offset as u64;
        match place {
            Some(place) => words[place] = at,
            None => words.insert(environment, at),
        }
    }
    let rsp = (strings_at - (words.len() * WORD) as u64) & !15;
    let mut start: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    start.resize((strings_at - rsp) as usize, 0);
    start.extend(text);
    Some((rsp, start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use statcache_abi::ENV_FD;

    const RSP: u64 = 0x7fff_0000_1000;

    /// One argument, these variables, and an auxiliary vector that names a linker.
    fn stack(variables: &[&str], linker: u64) -> Vec<u8> {
        let head = 3 + variables.len() + 1 + 4;
        let mut text = b"program\0".to_vec();
        let text_at = RSP + (head * WORD) as u64;
        let mut words = vec![1, text_at, 0];
        for variable in variables {
            words.push(text_at + text.len() as u64);
            text.extend(variable.bytes().chain([0]));
        }
        words.extend([0, AT_BASE, linker, 0, 0]);
        let mut bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        bytes.extend(text);
        bytes
    }

    /// Arguments, variables and auxiliary vector of the changed stack.
    fn changed(old: &[u8]) -> Option<(Vec<String>, Vec<u64>)> {
        let added = [
            (LD_PRELOAD, "/proc/self/fd/900".to_owned()),
            (ENV_FD, "901".to_owned()),
        ];
        let (rsp, start) = with_preload(RSP, old, &added)?;
        assert_eq!(rsp % 16, 0);
        let mut whole = start.clone();
        let kept = (rsp + start.len() as u64)
            .checked_sub(RSP)
            .expect("no hole");
        whole.extend(&old[kept as usize..]);
        let word = |n: usize| u64::from_le_bytes(whole[n * 8..][..8].try_into().expect("a word"));
        let string = |at: u64| {
            let bytes = whole[(at - rsp) as usize..].split(|b| *b == 0).next();
            String::from_utf8(bytes.expect("a string").to_vec()).expect("text")
        };
        let mut strings = Vec::new();
        let mut n = 1;
        for _ in 0..2 {
            while word(n) != 0 {
                strings.push(string(word(n)));
                n += 1;
            }
            n += 1;
        }
        Some((strings, (n..n + 4).map(word).collect()))
    }

    #[test]
    fn added_to_an_environment() {
        for variables in [&[][..], &["A=1"], &["A=1", "PATH=/bin:/usr/bin"]] {
            let (strings, auxiliary) = changed(&stack(variables, 5)).expect("changed");
            let mut wanted = vec![
                "program",
                "STATCACHE_SHIM_FD=901",
                "LD_PRELOAD=/proc/self/fd/900",
            ];
            wanted.extend(variables);
            assert_eq!(strings, wanted);
            assert_eq!(auxiliary, [AT_BASE, 5, 0, 0]);
        }
    }

    #[test]
    fn put_in_front_of_what_is_preloaded() {
        let old = stack(&["LD_PRELOAD=a.so b.so", "STATCACHE_SHIM_FD=7"], 5);
        let (strings, _) = changed(&old).expect("changed");
        let wanted = [
            "program",
            "LD_PRELOAD=/proc/self/fd/900:a.so b.so",
            "STATCACHE_SHIM_FD=901",
        ];
        assert_eq!(strings, wanted);
    }

    #[test]
    fn linkers_are_told_by_the_auxiliary_vector() {
        let vector = |words: &[u64]| -> Vec<u8> {
            words.iter().flat_map(|word| word.to_le_bytes()).collect()
        };
        assert!(names_linker(&vector(&[3, 0, AT_BASE, 5, 0, 0])));
        // Of a static program; a value that looks like the kind.
        assert!(!names_linker(&vector(&[3, 0, AT_BASE, 0, 0, 0])));
        assert!(!names_linker(&vector(&[3, AT_BASE, 4, AT_BASE, 0, 0])));
        // A test is linked as the host's programs are: by its linker, where its mappings show one.
        let maps = std::fs::read_to_string("/proc/self/maps").expect("read");
        assert_eq!(is_linked(Pid::this()), maps.contains("/ld-"));
    }

    #[test]
    fn without_a_linker_nothing_changes() {
        assert!(changed(&stack(&["A=1"], 0)).is_none());
        // Cut short: not what the kernel makes.
        assert!(changed(&stack(&["A=1"], 5)[..40]).is_none());
    }
}
