//! The screens of `top`, and the program in a terminal.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use crate::common::{Plan, records, write};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, poll};
use nix::pty::{Winsize, openpty};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use statcache::control::Status;
use statcache::profile::Profile;
use statcache::report::{Source, Sources, Style};
use statcache::top::{Answer, Content, Profiles, Request, State, View, draw, work};

/// The synthetic profile; of its sources one.
struct Synthetic {
    is_live: bool,
}

struct OneFile;

impl Sources for OneFile {
    fn read(&self, path: &str) -> Option<Source> {
        let line = |n: u32| format!("text of line {n}\n");
        path.ends_with("hash.h").then(|| Source {
            text: (1..60).map(line).collect(),
            newer: false,
        })
    }
}

impl Profiles for Synthetic {
    fn load(&self, request: &Request) -> Result<Profile, String> {
        if request.profile != Path::new("p.prof") {
            return Err(format!("{} is not there", request.profile.display()));
        }
        let mut profile = Profile::from_records(records(Plan::small())).unwrap();
        profile.is_live = self.is_live;
        Ok(profile)
    }

    fn sources<'p>(&self, _: &'p Profile) -> Box<dyn Sources + 'p> {
        Box::new(OneFile)
    }

    fn live(&self) -> Vec<Status> {
        vec![Status {
            pid: 77,
            command: vec!["redis-server".to_owned()],
            windows: 12,
            samples: 3456,
            ..Status::default()
        }]
    }
}

fn request(view: View) -> Request {
    let style = Style {
        width: 100,
        colour: false,
        unicode: true,
    };
    Request {
        view,
        ..Request::new("p.prof".into(), style)
    }
}

/// What a worker answers to these, one after the other.
fn answers(requests: Vec<Request>) -> Vec<Answer> {
    let (ask, asked) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || work(&Synthetic { is_live: false }, &asked, &tell));
        let one = |request: Request| {
            ask.send(request).unwrap();
            told.recv_timeout(Duration::from_secs(60)).unwrap()
        };
        let all = requests.into_iter().map(one).collect();
        drop(ask);
        all
    })
}

fn content(request: Request) -> Content {
    match answers(vec![request]).remove(0) {
        Answer::Content(content) => *content,
        Answer::Failed(error) => panic!("{error}"),
    }
}

fn screen(content: &Content, change: impl Fn(&mut State)) -> String {
    let mut state = State::new("p.prof".into(), content.request.style);
    state.request = content.request.clone();
    state.answered(content);
    change(&mut state);
    let mut terminal = Terminal::new(TestBackend::new(100, 30)).unwrap();
    terminal
        .draw(|frame| draw(frame, &mut state, Ok(Some(content))))
        .unwrap();
    terminal.backend().to_string()
}

#[test]
fn the_screens() {
    let misses = content(request(View::Misses));
    insta::assert_snapshot!("top_misses", screen(&misses, |state| state.selected = 1));
    let processes = content(request(View::Processes));
    insta::assert_snapshot!("top_processes", screen(&processes, |_| {}));
    let working_set = content(request(View::WorkingSet));
    insta::assert_snapshot!("top_working_set", screen(&working_set, |_| {}));
    let source = content(Request {
        source: Some("hash.h".to_owned()),
        ..request(View::Source)
    });
    insta::assert_snapshot!("top_source", screen(&source, |_| {}));
    for (columns, rows) in [(10, 3), (1, 1), (200, 60)] {
        for content in [&misses, &processes, &working_set, &source] {
            let mut state = State::new("p.prof".into(), content.request.style);
            state.help = true;
            let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
            terminal
                .draw(|frame| draw(frame, &mut state, Ok(Some(content))))
                .unwrap();
        }
    }
    let help = screen(&misses, |state| state.help = true);
    assert!(help.contains("the next line size"), "{help}");
}

#[test]
fn an_answer_is_of_the_last_request_and_a_failure_is_not_the_end() {
    let elsewhere = Request {
        profile: "nowhere".into(),
        ..request(View::Misses)
    };
    let lru = Request {
        policy: statcache_model::Policy::LRU,
        ..request(View::Misses)
    };
    let all = answers(vec![request(View::Misses), elsewhere, lru.clone()]);
    let [
        Answer::Content(random),
        Answer::Failed(error),
        Answer::Content(last),
    ] = &all[..]
    else {
        panic!("{all:?}");
    };
    assert_eq!(error, "nowhere is not there");
    assert_eq!(last.request, lru);
    assert_ne!(random.page, last.page, "another policy, other figures");
}

/// A live profile is read again without being asked.
#[test]
fn a_live_profile_is_looked_at_again() {
    let (ask, asked) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || work(&Synthetic { is_live: true }, &asked, &tell));
        ask.send(request(View::Misses)).unwrap();
        for _ in 0..2 {
            let answer = told.recv_timeout(Duration::from_secs(60)).unwrap();
            assert!(matches!(answer, Answer::Content(content) if content.is_live));
        }
        drop(ask);
    });
}

#[test]
fn without_a_terminal_it_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.prof");
    write(&path, &records(Plan::small()));
    let out = Command::new(env!("CARGO_BIN_EXE_statcache"))
        .arg("top")
        .arg(&path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(125), "{said}");
    assert!(
        said.contains("statcache report") && said.lines().count() == 1,
        "{said}"
    );
}

/// `top` in a terminal of its own, and what it has written there.
struct Screen {
    child: std::process::Child,
    master: Option<std::fs::File>,
    told: mpsc::Receiver<Vec<u8>>,
    stop: Arc<AtomicBool>,
    reading: Option<std::thread::JoinHandle<()>>,
    seen: Vec<u8>,
    _dir: tempfile::TempDir,
}

impl Screen {
    fn new() -> Self {
        Self::under(Command::new(env!("CARGO_BIN_EXE_statcache")))
    }

    /// Begun by `command`, to which its arguments are added.
    fn under(mut command: Command) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.prof");
        write(&path, &records(Plan::small()));
        let size = Winsize {
            ws_row: 30,
            ws_col: 100,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pty = openpty(&size, None).unwrap();
        // The other end is not to be kept open by who draws on this one.
        fcntl(&pty.master, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
        let side = |fd: &OwnedFd| Stdio::from(fd.try_clone().unwrap());
        let child = command
            .arg("top")
            .arg(&path)
            .env("TERM", "xterm-256color")
            .stdin(side(&pty.slave))
            .stdout(side(&pty.slave))
            .stderr(side(&pty.slave))
            .spawn()
            .unwrap();
        drop(pty.slave);
        let master = std::fs::File::from(pty.master);
        let mut reader = master.try_clone().unwrap();
        let (tell, told) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let reading = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while !stopped.load(Ordering::Relaxed) {
                let mut fds = [PollFd::new(reader.as_fd(), PollFlags::POLLIN)];
                if poll(&mut fds, 20u16) == Ok(0) {
                    continue;
                }
                match reader.read(&mut bytes) {
                    Ok(n @ 1..) if tell.send(bytes[..n].to_vec()).is_ok() => {}
                    _ => break,
                }
            }
        });
        Self {
            child,
            master: Some(master),
            told,
            stop,
            reading: Some(reading),
            seen: Vec::new(),
            _dir: dir,
        }
    }

    fn press(&mut self, key: &[u8]) {
        self.master.as_mut().unwrap().write_all(key).unwrap();
    }

    /// The terminal goes.
    fn close(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.reading.take().unwrap().join().unwrap();
        self.master = None;
    }

    /// Waits until it has written this.
    fn until(&mut self, what: &str) {
        let begun = Instant::now();
        while !String::from_utf8_lossy(&self.seen).contains(what) {
            let left = Duration::from_secs(60).saturating_sub(begun.elapsed());
            let Ok(bytes) = self.told.recv_timeout(left) else {
                let seen = String::from_utf8_lossy(&self.seen);
                panic!(
                    "no {what:?}: {}",
                    seen.chars().take(2000).collect::<String>()
                );
            };
            self.seen.extend(bytes);
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Over already, where the test passed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Out of a screen of one's own.
const LEAVES: &str = "\x1b[?1049l";

/// Draws, hears keys, and leaves the terminal as it was.
#[test]
fn in_a_terminal_it_draws_and_ends_with_q() {
    let mut screen = Screen::new();
    screen.until("hash.h:31");
    screen.press(b"2");
    screen.until("certainty");
    screen.press(b"1");
    screen.press(b"q");
    screen.until(LEAVES);
    let status = screen.child.wait().unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn a_signal_ends_it_once_the_terminal_is_as_it_was() {
    let mut screen = Screen::new();
    screen.until("hash.h:31");
    let pid = nix::unistd::Pid::from_raw(screen.child.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    screen.until(LEAVES);
    let status = screen.child.wait().unwrap();
    assert_eq!(status.signal(), Some(15), "{status}");
}

/// As where a window of a desktop is closed, or a connection breaks off: with the signal that tells of it, without it, and where it is
/// ignored. (Who waits for keys in the library that reads them never comes back, at full speed.)
#[test]
fn without_its_terminal_it_ends() {
    let statcache = env!("CARGO_BIN_EXE_statcache");
    let mut own = Command::new("setsid");
    own.args(["--ctty", statcache]);
    let mut ignoring = Command::new("sh");
    ignoring.args([
        "-c",
        "trap '' HUP; exec setsid --ctty \"$0\" \"$@\"",
        statcache,
    ]);
    if Command::new("setsid").arg("--version").output().is_err() {
        println!("SKIP without_its_terminal_it_ends: no setsid here");
        return;
    }
    for command in [Command::new(statcache), own, ignoring] {
        let name = format!("{command:?}");
        let mut screen = Screen::under(command);
        screen.until("hash.h:31");
        screen.close();
        let begun = Instant::now();
        while screen.child.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < Duration::from_secs(60), "goes on: {name}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A profile that cannot be read at first, as that of a run that has just begun.
struct Late(std::sync::atomic::AtomicU32);

impl Profiles for Late {
    fn load(&self, request: &Request) -> Result<Profile, String> {
        match self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => Err("it holds nothing yet".to_owned()),
            _ => Synthetic { is_live: false }.load(request),
        }
    }

    fn sources<'p>(&self, _: &'p Profile) -> Box<dyn Sources + 'p> {
        Box::new(OneFile)
    }

    fn live(&self) -> Vec<Status> {
        Vec::new()
    }
}

#[test]
fn what_could_not_be_read_is_looked_at_again() {
    let (ask, asked) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || work(&Late(0.into()), &asked, &tell));
        ask.send(request(View::Misses)).unwrap();
        let next = || told.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(matches!(next(), Answer::Failed(_)));
        assert!(matches!(next(), Answer::Content(_)));
        drop(ask);
    });
}
