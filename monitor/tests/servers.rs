//! A server is attached to and left while it serves: its clients notice nothing.
//!
//! Five times here; as often as `STATCACHE_ATTACHES` says.

#[path = "support/cli.rs"]
mod cli;

use cli::{installed, lossy, readable};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn redis(place: &Path) -> Child {
    let mut command = Command::new("redis-server");
    command.args([
        "--port",
        "0",
        "--save",
        "",
        "--appendonly",
        "no",
        "--unixsocket",
    ]);
    command
        .arg(place.join("s"))
        .current_dir(place)
        .stdout(Stdio::null());
    command.spawn().expect("started")
}

fn ask(place: &Path, words: &[&str]) -> String {
    let mut command = Command::new("redis-cli");
    let output = command
        .arg("-s")
        .arg(place.join("s"))
        .args(words)
        .output()
        .expect("run");
    lossy(&output.stdout)
}

#[test]
fn redis_serves_on() {
    if installed("redis-server").is_none() || installed("redis-benchmark").is_none() {
        return;
    }
    let times = std::env::var("STATCACHE_ATTACHES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(5);
    let place = tempfile::tempdir().expect("a temporary directory");
    let mut server = redis(place.path());
    while ask(place.path(), &["ping"]) != "PONG\n" {
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut load = Command::new("redis-benchmark");
    load.arg("-s").arg(place.path().join("s"));
    // Until it is ended.
    load.args([
        "-l",
        "-q",
        "-n",
        "100000",
        "-c",
        "10",
        "-t",
        "set,get,incr,lpush",
    ]);
    let mut load = load
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let (mut accesses, profile) = (0, place.path().join("p"));
    for turn in 0..times {
        let mut command = Command::new(env!("CARGO_BIN_EXE_statcache"));
        command
            .args(["attach", "-q", "--for", "0.3", "-o"])
            .arg(&profile);
        let found = command.arg(server.id().to_string()).output().expect("run");
        assert!(found.status.success(), "{turn}: {found:?}");
        accesses += readable(&profile)
            .windows
            .iter()
            .map(|w| w.accesses)
            .sum::<u64>();
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", server.id())).expect("alive");
        assert!(!maps.contains("statcache"), "{turn}: {maps}");
        let key = format!("key {turn}");
        assert_eq!(ask(place.path(), &["set", &key, "value"]), "OK\n");
        assert_eq!(ask(place.path(), &["get", &key]), "value\n");
        assert!(
            load.try_wait().expect("waited").is_none(),
            "{turn}: the load goes on"
        );
    }
    assert!(accesses > 1_000_000, "{accesses}");
    load.kill().expect("killed");
    let said = lossy(&load.wait_with_output().expect("waited").stderr);
    assert!(!said.to_lowercase().contains("error"), "{said}");
    ask(place.path(), &["shutdown", "nosave"]);
    assert!(server.wait().expect("waited").success());
}
