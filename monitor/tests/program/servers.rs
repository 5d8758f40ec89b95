//! Servers are attached to and left while they serve: their clients notice nothing.
//!
//! Five times here; as often as `STATCACHE_ATTACHES` says.

use crate::support::cli::{installed, lossy, readable};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

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

/// Attaches to a process and leaves it, again and again, as often as is wanted or `usual`; each time `serves` must hold behind it.
/// Accesses observed.
fn attach_again_and_again(pid: u32, place: &Path, usual: u32, mut serves: impl FnMut(u32)) -> u64 {
    let times = std::env::var("STATCACHE_ATTACHES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(usual);
    let (mut accesses, profile) = (0, place.join("profile"));
    for turn in 0..times {
        let mut command = Command::new(env!("CARGO_BIN_EXE_statcache"));
        command
            .args(["attach", "-q", "--for", "0.3", "-o"])
            .arg(&profile);
        let found = command.arg(pid.to_string()).output().expect("run");
        assert!(found.status.success(), "{turn}: {found:?}");
        accesses += readable(&profile)
            .windows
            .iter()
            .map(|w| w.accesses)
            .sum::<u64>();
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("alive");
        assert!(!maps.contains("statcache"), "{turn}: {maps}");
        serves(turn);
    }
    accesses
}

#[test]
fn redis_serves_on() {
    if installed("redis-server").is_none() || installed("redis-benchmark").is_none() {
        return;
    }
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
    // Five are 0.2 to 1.5 million accesses where this was tried, fifteen 0.04 beside four busy processes.
    let accesses = attach_again_and_again(server.id(), place.path(), 15, |turn| {
        let key = format!("key {turn}");
        assert_eq!(ask(place.path(), &["set", &key, "value"]), "OK\n");
        assert_eq!(ask(place.path(), &["get", &key]), "value\n");
        let ended = load.try_wait().expect("waited");
        assert_eq!(ended, None, "{turn}: the load goes on");
    });
    assert!(accesses > 5_000, "{accesses}");
    load.kill().expect("killed");
    let said = lossy(&load.wait_with_output().expect("waited").stderr);
    assert!(!said.to_lowercase().contains("error"), "{said}");
    ask(place.path(), &["shutdown", "nosave"]);
    assert!(server.wait().expect("waited").success());
}

/// A port of this host that nobody listens at.
fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    listener.local_addr().expect("its address").port()
}

/// The body that a server answers with on a connection kept open.
///
/// # Errors
/// What went wrong where there is no such answer.
fn get(connection: &mut BufReader<TcpStream>) -> Result<Vec<u8>, String> {
    let at = |what: &'static str| move |error: std::io::Error| format!("{what}: {error}");
    let request = b"GET /file HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let sent = connection.get_mut().write_all(request);
    sent.map_err(at("sent"))?;
    let (mut length, mut line) = (0, String::new());
    connection.read_line(&mut line).map_err(at("status"))?;
    if !line.starts_with("HTTP/1.1 200") {
        return Err(format!("status {line:?}"));
    }
    while line.trim_end() != "" {
        line.clear();
        connection.read_line(&mut line).map_err(at("header"))?;
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            let told = value.trim().parse();
            length = told.map_err(|_| format!("length {value:?}"))?;
        }
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body).map_err(at("body"))?;
    Ok(body)
}

/// Two connections ask a server for the same without a pause while it is attached to: every answer is the first one.
fn http_serves_on(pid: u32, port: u16, place: &Path) {
    let connect = || {
        let begun = Instant::now();
        loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(stream) => return BufReader::new(stream),
                Err(e) => assert!(begun.elapsed() < Duration::from_secs(60), "{e}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let expected = get(&mut connect()).expect("an answer");
    assert!(expected.len() > 10_000);
    let over = AtomicBool::new(false);
    /// Ends the clients, also where a test has failed.
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        let end = Over(&over);
        let client = || {
            let (mut connection, mut answers) = (connect(), 0);
            while !over.load(Ordering::Relaxed) {
                let answer = get(&mut connection).unwrap_or_else(|wrong| {
                    let log = std::fs::read_to_string(place.join("error")).unwrap_or_default();
                    panic!("answer {answers} on the same connection: {wrong}; its log: {log}");
                });
                assert!(answer == expected, "answer {answers} differs");
                answers += 1;
            }
            answers
        };
        let clients = [scope.spawn(client), scope.spawn(client)];
        let accesses = attach_again_and_again(pid, place, 5, |turn| {
            assert!(!clients.iter().any(|c| c.is_finished()), "{turn}");
        });
        drop(end);
        let answers = clients.map(|client| client.join().expect("no error"));
        println!("{answers:?} answers, {accesses} accesses observed");
        assert!(accesses > 1_000, "{accesses}");
    });
}

#[test]
fn nginx_serves_on() {
    let Some(nginx) = installed("nginx") else {
        return;
    };
    let place = tempfile::tempdir().expect("a temporary directory");
    let (root, port) = (place.path().display(), free_port());
    let lines = format!(
        "daemon off; master_process off; pid {root}/pid; error_log {root}/error;\n\
         events {{}}\n\
         http {{ access_log off; client_body_temp_path {root}/b; proxy_temp_path {root}/p;\n\
         fastcgi_temp_path {root}/f; uwsgi_temp_path {root}/u; scgi_temp_path {root}/s;\n\
         keepalive_requests 100000000; server {{ listen 127.0.0.1:{port}; root {root}; }} }}\n"
    );
    std::fs::write(place.path().join("conf"), lines).expect("written");
    std::fs::write(place.path().join("file"), "a line of text\n".repeat(4000)).expect("written");
    let mut command = Command::new(nginx);
    command.arg("-c");
    command.arg(place.path().join("conf")).stderr(Stdio::null());
    let mut server = command.spawn().expect("started");
    http_serves_on(server.id(), port, place.path());
    assert_eq!(server.try_wait().expect("waited"), None);
    server.kill().expect("killed");
    server.wait().expect("waited");
}

/// A just-in-time compiler at work, with threads of its own.
#[test]
fn node_serves_on() {
    if installed("node").is_none() {
        return;
    }
    let place = tempfile::tempdir().expect("a temporary directory");
    let (file, port) = (place.path().join("server.js"), free_port());
    let source = format!(
        "const http = require('http');\n\
         function work(n) {{ let s = 0; const o = [];\n\
           for (let i = 0; i < n; i++) {{ o.push({{a: i, b: String(i)}}); s += o[i >> 1].a; }} return s; }}\n\
         http.createServer((q, r) => {{ r.end(`${{work(3000)}} `.repeat(3000)); }}).listen({port}, '127.0.0.1');\n"
    );
    std::fs::write(&file, source).expect("written");
    let mut server = Command::new("node").arg(&file).spawn().expect("started");
    http_serves_on(server.id(), port, place.path());
    assert_eq!(server.try_wait().expect("waited"), None);
    server.kill().expect("killed");
    server.wait().expect("waited");
}
