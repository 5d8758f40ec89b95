//! Finding the program to run, and refusing what cannot be profiled before anything is started.

use crate::exit::Exit;
use std::ffi::{CString, OsStr};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A program that will not be run, with the exit code that says so.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// One line: what, why, and what to do.
    pub message: String,
    /// 126 or 127.
    pub exit: Exit,
}

fn cannot(message: String) -> Refused {
    Refused {
        message,
        exit: Exit::CannotExecute,
    }
}

/// The file that executing `program` would run, looked up in `PATH` as execvp(3) does.
///
/// # Errors
/// [`Refused`] when there is none or it cannot be profiled.
pub fn find(program: &OsStr) -> Result<PathBuf, Refused> {
    let shown = program.to_string_lossy();
    let path = if program.as_bytes().contains(&b'/') {
        PathBuf::from(program)
    } else {
        let dirs = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
        let candidates = std::env::split_paths(&dirs).map(|dir| dir.join(program));
        let mut existing = candidates.filter(|p| p.is_file());
        let first = existing.next();
        let executable = first
            .iter()
            .cloned()
            .chain(existing)
            .find(|p| may_execute(p));
        executable.or(first).ok_or_else(|| Refused {
            message: format!("{shown}: no such program in PATH"),
            exit: Exit::NotFound,
        })?
    };
    check(&path, &shown)?;
    Ok(path)
}

fn may_execute(path: &Path) -> bool {
    nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_ok()
}

fn check(path: &Path, shown: &str) -> Result<(), Refused> {
    let metadata = std::fs::metadata(path).map_err(|e| Refused {
        message: format!("{shown}: {e}"),
        exit: if e.kind() == std::io::ErrorKind::NotFound {
            Exit::NotFound
        } else {
            Exit::CannotExecute
        },
    })?;
    if metadata.is_dir() {
        return Err(cannot(format!("{shown}: is a directory")));
    }
    if !may_execute(path) {
        return Err(cannot(format!(
            "{shown}: not executable (chmod +x it, or name its interpreter)"
        )));
    }
    const SET_ID: u32 = 0o6000;
    if metadata.mode() & SET_ID != 0 && !nix::unistd::geteuid().is_root() {
        return Err(cannot(format!(
            "{shown}: set-user-id or set-group-id; the kernel takes its rights away under trace (run statcache as root)"
        )));
    }
    let mut head = Vec::new();
    let file = std::fs::File::open(path);
    // An executable that cannot be read is left to the kernel to judge.
    if let Ok(file) = file {
        let _ = file.take(4096).read_to_end(&mut head);
        check_format(&head, shown)?;
    }
    Ok(())
}

/// Refuses what is neither a 64-bit x86-64 program nor a script, by the first bytes of its file.
///
/// # Errors
/// [`Refused`].
pub fn check_format(head: &[u8], shown: &str) -> Result<(), Refused> {
    if head.starts_with(b"#!") {
        let line = head[2..].split(|&b| b == b'\n').next().unwrap_or_default();
        let interpreter = line
            .split(|b| b.is_ascii_whitespace())
            .find(|w| !w.is_empty());
        let interpreter = Path::new(OsStr::from_bytes(interpreter.unwrap_or_default()));
        return if interpreter.is_file() {
            Ok(())
        } else {
            Err(cannot(format!(
                "{shown}: its interpreter {} does not exist",
                interpreter.display()
            )))
        };
    }
    if !head.starts_with(b"\x7fELF") {
        return Err(cannot(format!(
            "{shown}: neither an ELF program nor a script with a #! line (for a shell script: statcache run sh {shown})"
        )));
    }
    // ELF identification and e_machine (System V ABI, "ELF Header").
    const CLASS_64: u8 = 2;
    const MACHINE_X86_64: [u8; 2] = [62, 0];
    match (head.get(4), head.get(18..20)) {
        (Some(&CLASS_64), Some(machine)) if machine == MACHINE_X86_64 => Ok(()),
        (Some(1), _) => Err(cannot(format!(
            "{shown}: a 32-bit program; statcache profiles 64-bit x86-64 programs only"
        ))),
        _ => Err(cannot(format!(
            "{shown}: built for another architecture than x86-64"
        ))),
    }
}

/// As a C string.
///
/// # Errors
/// [`Refused`] when it contains a NUL.
pub fn c_string(text: &OsStr) -> Result<CString, Refused> {
    CString::new(text.as_bytes())
        .map_err(|_| cannot(format!("{}: contains a NUL byte", text.to_string_lossy())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(head: &[u8]) -> String {
        check_format(head, "x").map_or_else(|r| r.message, |()| String::new())
    }

    #[test]
    fn formats_are_told_apart() {
        let mut elf = [0u8; 64];
        elf[..5].copy_from_slice(b"\x7fELF\x02");
        elf[18] = 62;
        assert_eq!(refusal(&elf), "");
        elf[18] = 183;
        assert!(refusal(&elf).contains("another architecture"));
        elf[4] = 1;
        assert!(refusal(&elf).contains("32-bit"));
        assert!(refusal(b"echo hi\n").contains("#!"));
        assert_eq!(refusal(b"#!/bin/sh\n"), "");
        assert!(refusal(b"#!/no/such\n").contains("/no/such"));
    }

    #[test]
    fn missing_programs_are_127() {
        assert_eq!(
            find(OsStr::new("no-such-program-here")).unwrap_err().exit,
            Exit::NotFound
        );
        assert_eq!(
            find(OsStr::new("/no/such")).unwrap_err().exit,
            Exit::NotFound
        );
        assert_eq!(
            find(OsStr::new("/etc/passwd")).unwrap_err().exit,
            Exit::CannotExecute
        );
    }
}
