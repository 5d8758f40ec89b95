//! A program that dumps core leaves the dump that it would have left alone: the threads at their own registers, and
//! nothing of ours in it.

use crate::support::c;
use crate::support::cli;
use crate::support::cli::{awaited, lossy, program_of, run, shell_status, text};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use object::elf::{FileHeader64, NT_FILE, NT_PRSTATUS, PT_NOTE};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, pod};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// A thread as the dump has it. Source: `struct elf_prstatus` of linux/elfcore.h with x86-64's `user_regs_struct`.
#[derive(Debug)]
struct Thread {
    signal: u16,
    rip: u64,
    gs_base: u64,
}

/// What a dump says.
#[derive(Debug)]
struct Core {
    /// The one that got the signal first.
    threads: Vec<Thread>,
    /// First address, one past the last, and name of what was mapped from files.
    files: Vec<(u64, u64, String)>,
    bytes: u64,
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The table of a NT_FILE note: a count, a page size, then first, last and offset of each, then the names.
fn mapped_files(note: &[u8]) -> Vec<(u64, u64, String)> {
    let count = word(note, 0) as usize;
    let names = note[16 + 24 * count..].split(|&byte| byte == 0);
    let at = |i: usize| 16 + 24 * i;
    (0..count)
        .zip(names)
        .map(|(i, name)| (word(note, at(i)), word(note, at(i) + 8), lossy(name)))
        .collect()
}

fn read(path: &Path) -> Core {
    const SIGNAL: usize = 12;
    const REGISTERS: usize = 112;
    const RIP: usize = REGISTERS + 16 * 8;
    const GS_BASE: usize = REGISTERS + 22 * 8;
    let data = std::fs::read(path).expect("a core file");
    let (header, _) = pod::from_bytes::<FileHeader64<Endianness>>(&data).expect("an ELF file");
    let endian = header.endian().expect("an ELF file");
    let segments = header.program_headers(endian, &*data).expect("segments");
    let (mut threads, mut files) = (Vec::new(), Vec::new());
    for segment in segments.iter().filter(|s| s.p_type(endian) == PT_NOTE) {
        let mut notes = segment
            .notes(endian, &*data)
            .expect("notes")
            .expect("notes");
        while let Some(note) = notes.next().expect("a note") {
            let bytes = note.desc();
            match note.n_type(endian) {
                NT_PRSTATUS => threads.push(Thread {
                    signal: u16::from_le_bytes([bytes[SIGNAL], bytes[SIGNAL + 1]]),
                    rip: word(bytes, RIP),
                    gs_base: word(bytes, GS_BASE),
                }),
                NT_FILE => files = mapped_files(bytes),
                _ => {}
            }
        }
    }
    Core {
        threads,
        files,
        bytes: data.len() as u64,
    }
}

/// The one dump in a directory, under whatever name the kernel gave it.
fn dump(place: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(place).expect("a directory");
    let mut paths = entries.map(|entry| entry.expect("an entry").path());
    paths.find(|path| text(path).contains("core"))
}

/// `command` with dumps as large as they may be, in a directory of its own.
fn dumping(command: &Command, place: &Path) -> Command {
    // Who runs tests in the background has SIGQUIT ignored.
    let mut shell = Command::new("env");
    shell
        .args(["--default-signal=QUIT", "sh", "-c"])
        .arg("ulimit -c unlimited && exec \"$0\" \"$@\"")
        .arg(command.get_program())
        .args(command.get_args())
        .current_dir(place)
        .stdout(Stdio::piped());
    shell
}

/// Runs it to its end; with `quit` it is sent SIGQUIT once it works. The status, and the dump if there is one.
fn ended(command: &Command, quit: bool, monitored: bool) -> (ExitStatus, Option<Core>) {
    let place = tempfile::tempdir().expect("a temporary directory");
    let mut child = dumping(command, place.path()).spawn().expect("started");
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    lines.read_line(&mut line).expect("read");
    assert_eq!(line, "here\n");
    if quit {
        let pid = match monitored {
            true => program_of(child.id(), "cores").expect("its child"),
            false => child.id() as i32,
        };
        let threads = || std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        assert!(awaited(|| threads() == 3));
        // Whatever is done to it by then: into a window as a rule, or between two.
        std::thread::sleep(std::time::Duration::from_millis(100));
        kill(Pid::from_raw(pid), Signal::SIGQUIT).expect("sent");
    }
    let status = child.wait().expect("waited");
    (status, dump(place.path()).map(|path| read(&path)))
}

/// What each dump must be like beside the one that the program leaves alone.
fn compare(found: &Core, alone: &Core, what: &str) {
    assert_eq!(found.threads.len(), alone.threads.len(), "{what}");
    assert_eq!(found.threads[0].signal, alone.threads[0].signal, "{what}");
    if let ([found], [alone]) = (&found.threads[..], &alone.threads[..]) {
        // Loaded elsewhere, by whole pages.
        assert_eq!(found.rip & 0xfff, alone.rip & 0xfff, "{what}");
    }
    for thread in &found.threads {
        let inside = |f: &&(u64, u64, String)| (f.0..f.1).contains(&thread.rip);
        let file = found.files.iter().find(inside).map(|f| f.2.as_str());
        let own = file.is_some_and(|name| name.starts_with('/') && !name.starts_with("/memfd:"));
        assert!(own && thread.gs_base == 0, "{what}: {thread:x?} {file:?}");
    }
    // A page or two of the program's that we have written to and put back, but no code cache.
    assert!(
        found.bytes < alone.bytes + (1 << 20),
        "{what}: {}",
        found.bytes
    );
}

#[test]
fn dumps_are_the_program_s_own() {
    let Some((_place, program)) = c::build("cores") else {
        return;
    };
    let profiles = tempfile::tempdir().expect("a temporary directory");
    let full: &[&str] = &["-q", "--full"];
    let sampled: &[&str] = &["-q", "--overhead", "400"];
    for (how, rounds, ways) in [
        // In a window; natively, with windows before; natively, without any.
        ("segv", "300000", vec![full]),
        ("segv", "200000000", vec![sampled]),
        ("segv", "1", vec![&["-q"][..]]),
        ("abort", "300000", vec![full, &["-q"]]),
        // Mostly with one of its threads in a window.
        ("quit", "0", vec![full, full, full, sampled, sampled]),
    ] {
        let mut native = Command::new(&program);
        native.args([how, rounds]);
        let quit = how == "quit";
        let (status, Some(alone)) = ended(&native, quit, false) else {
            let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern");
            println!("SKIP {how}: no core file is left here: core_pattern {pattern:?}");
            continue;
        };
        for way in ways {
            let what = format!("{how} {rounds} {way:?}");
            let mut command = run(&profiles.path().join("p"), way);
            command.arg(&program).args([how, rounds]);
            let (found, core) = ended(&command, quit, true);
            let as_shell = |status| {
                shell_status(&std::process::Output {
                    status,
                    stdout: Vec::new(),
                    stderr: Vec::new(),
                })
            };
            assert_eq!(found.code(), Some(as_shell(status)), "{what}");
            compare(&core.expect("a core file"), &alone, &what);
            cli::readable(&profiles.path().join("p"));
        }
    }
}
