//! stress-ng's stressors, which check themselves, pass under windows back to back as they do alone.
//!
//! Some of them here; with `STATCACHE_STRESS=all` every one of the classes interrupt, scheduler, cpu,
//! memory, vm and os (this takes half an hour), with a name that one. One that does not pass alone is skipped.

use crate::support::c;
use crate::support::cli::{
    WAYS, back_to_back, installed, lossy, native, shell_status, text, under,
};
use std::path::Path;
use std::process::{Command, Output};

/// Each stands for a kind of trouble.
const SOME: [&str; 9] = [
    "sigsegv",
    "sigrt",
    "clone",
    "vfork",
    "pthread",
    "usersyscall",
    "mprotect",
    "exit-group",
    "munmap",
];
const CLASSES: [&str; 6] = ["interrupt", "scheduler", "cpu", "memory", "vm", "os"];

/// Left out of `all`, and why.
const EXCLUDED: [(&[&str], &str); 4] = [
    (
        &[
            "cpu-online",
            "memhotplug",
            "reboot",
            "smi",
            "klog",
            "kvm",
            "tun",
            "ioport",
        ],
        "act on the machine itself",
    ),
    (
        &[
            "bigheap",
            "oom-pipe",
            "resources",
            "swap",
            "pageswap",
            "physpage",
            "ramfs",
            "memthrash",
            "forkheavy",
            "lockbus",
        ],
        "take all memory, disk or bus from everybody else",
    ),
    (
        &[
            "hdd",
            "iomix",
            "io",
            "sync-file",
            "readahead",
            "revio",
            "loop",
            "bind-mount",
            "umount",
            "dirmany",
            "dirdeep",
            "aiol",
            "icmp-flood",
            "udp-flood",
            "rawpkt",
            "rawsock",
            "rawudp",
        ],
        "measure disks and networks, and load them",
    ),
    (
        &["watchdog", "cyclic", "hrtimers", "vm-segv"],
        "need real-time rights, or end by a signal on purpose",
    ),
];

fn stress(before: &[&str], name: &str, place: &Path) -> Output {
    let words = [
        &format!("--{name}"),
        "1",
        "-t",
        "1",
        "--verify",
        "--vm-bytes",
        "64m",
        "--oomable",
        "--temp-path",
    ];
    let mut command = Command::new("timeout");
    command
        .args(["-k", "5", "60"])
        .args(before)
        .arg("stress-ng")
        .args(words)
        .arg(place);
    command.current_dir(place).output().expect("run")
}

fn names() -> Vec<String> {
    let wanted = std::env::var("STATCACHE_STRESS").unwrap_or_default();
    match wanted.as_str() {
        "" => SOME.map(str::to_owned).to_vec(),
        "all" => {
            let mut names: Vec<String> = Vec::new();
            for class in CLASSES {
                let found = Command::new("stress-ng")
                    .args(["--class", &format!("{class}?")])
                    .output();
                let found = found.expect("run");
                let text = lossy(&found.stdout) + &lossy(&found.stderr);
                let listed = text.split("stressors:").nth(1).unwrap_or_default();
                names.extend(listed.split_whitespace().map(str::to_owned));
            }
            names.sort();
            names.dedup();
            for (list, why) in EXCLUDED {
                println!("SKIP {}: {why}", list.join(", "));
                names.retain(|name| !list.contains(&name.as_str()));
            }
            names
        }
        one => vec![one.to_owned()],
    }
}

#[test]
fn stressors_pass_as_they_do_alone() {
    if installed("stress-ng").is_none() {
        return;
    }
    let place = tempfile::tempdir().expect("a temporary directory");
    let profile = place.path().join("p");
    let profile = profile.to_str().expect("text");
    let (mut passed, mut failed) = (0, Vec::new());
    for name in names() {
        let alone = stress(&[], &name, place.path());
        if !alone.status.success() {
            println!("SKIP {name}: does not pass alone here");
            continue;
        }
        let before = back_to_back(profile);
        let found = stress(&before, &name, place.path());
        if found.status.success() {
            passed += 1;
        } else {
            failed.push(format!("{name}: {} {}", found.status, lossy(&found.stderr)));
        }
    }
    println!("{passed} passed");
    assert!(passed > 0, "none was found that passes alone");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// A process stopped by another is no reason to wait for it: under `--full` that one waits for its own turn to let it go on
/// (found by the stressor `wait`).
#[test]
fn a_process_that_another_one_stops() {
    let Some((place, program)) = c::build("halted") else {
        return;
    };
    let program = text(&program);
    // Halted for ever it would keep us for ever.
    let words = ["timeout", "-k", "5", "120", &program, "5"];
    let alone = native(Path::new("/"), &words, b"");
    assert_eq!(shell_status(&alone), 8);
    for way in WAYS {
        let found = under(Path::new("/"), place.path(), way, &words, b"");
        assert_eq!(lossy(&found.stdout), lossy(&alone.stdout), "{way:?}");
        assert_eq!(shell_status(&found), 8, "{way:?}");
    }
}
