//! Room for what we map into a process whose address space is limited (setrlimit(2), `RLIMIT_AS`; `ulimit -v`): the limit is
//! raised by as much, so that the program can map as much as it could alone, and lowered again when it is gone.

use nix::unistd::Pid;
use procfs::process::{LimitValue, Process};
use rustix::process::{Resource, Rlimit};
use std::io;

/// What is mapped into one process, and what its limit was before.
#[derive(Clone, Debug, Default)]
pub struct Space {
    mapped: u64,
    raised: Option<Raised>,
}

/// A limit that was raised.
#[derive(Clone, Copy, Debug)]
struct Raised {
    /// The program's own, and what we have made of it.
    own: Rlimit,
    ours: Rlimit,
}

/// The limit with room for so many bytes; the hard one moves only where it has to.
fn with_room(own: &Rlimit, bytes: u64) -> Rlimit {
    let current = own.current.map(|soft| soft.saturating_add(bytes));
    Rlimit {
        current,
        maximum: own
            .maximum
            .map(|hard| current.map_or(hard, |soft| hard.max(soft))),
    }
}

fn read(pid: Pid) -> io::Result<Rlimit> {
    let limits = Process::new(pid.as_raw()).and_then(|process| process.limits());
    let limit = limits.map_err(io::Error::other)?.max_address_space;
    let bytes = |value| match value {
        LimitValue::Unlimited => None,
        LimitValue::Value(bytes) => Some(bytes),
    };
    Ok(Rlimit {
        current: bytes(limit.soft_limit),
        maximum: bytes(limit.hard_limit),
    })
}

fn set(pid: Pid, limit: &Rlimit) -> io::Result<()> {
    let pid = rustix::process::Pid::from_raw(pid.as_raw());
    rustix::process::prlimit(pid, Resource::As, *limit)?;
    Ok(())
}

impl Space {
    /// Makes room for `bytes` more in process `pid`, and for what is mapped already if the program has set the limit
    /// itself meanwhile.
    ///
    /// # Errors
    /// That the limit may not be raised (`EPERM`: the hard one, without `CAP_SYS_RESOURCE`), or of a process that is gone.
    pub fn take(&mut self, pid: Pid, bytes: u64) -> io::Result<()> {
        let now = read(pid)?;
        let own = match self.raised {
            Some(raised) if raised.ours == now => raised.own,
            _ => now,
        };
        let mapped = self.mapped + bytes;
        let ours = with_room(&own, mapped);
        if ours != now {
            set(pid, &ours)?;
        }
        self.mapped = mapped;
        self.raised = (ours != own).then_some(Raised { own, ours });
        Ok(())
    }

    /// `bytes` are mapped no more: lowers the limit again, unless the program has set it itself meanwhile.
    pub fn give_back(&mut self, pid: Pid, bytes: u64) {
        self.mapped = self.mapped.saturating_sub(bytes);
        let Some(raised) = self.raised.take() else {
            return;
        };
        let ours = with_room(&raised.own, self.mapped);
        // Fails where the process is gone, or has other rights than when it was raised.
        if read(pid).is_ok_and(|now| now == raised.ours) && set(pid, &ours).is_ok() {
            let own = raised.own;
            self.raised = (ours != own).then_some(Raised { own, ours });
        }
    }

    /// As [`Space::give_back`], of all there is.
    pub fn give_all_back(&mut self, pid: Pid) {
        self.give_back(pid, self.mapped);
    }

    /// Whether nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.mapped == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    const GB: u64 = 1 << 30;

    fn limit(soft: u64, hard: Option<u64>) -> Rlimit {
        Rlimit {
            current: Some(soft),
            maximum: hard,
        }
    }

    /// A process that sleeps under a limit of its own; ended by the test.
    fn limited(own: &Rlimit) -> (Child, Pid) {
        let child = Command::new("sleep").arg("60").spawn().expect("spawn");
        let pid = Pid::from_raw(child.id() as i32);
        set(pid, own).expect("limit");
        (child, pid)
    }

    #[test]
    fn the_hard_limit_moves_only_where_it_has_to() {
        assert_eq!(with_room(&limit(GB, None), GB), limit(2 * GB, None));
        let wide = limit(GB, Some(8 * GB));
        assert_eq!(with_room(&wide, GB), limit(2 * GB, Some(8 * GB)));
        let tight = limit(GB, Some(GB));
        assert_eq!(with_room(&tight, GB), limit(2 * GB, Some(2 * GB)));
        let none = Rlimit {
            current: None,
            maximum: None,
        };
        assert_eq!(with_room(&none, GB), none);
    }

    #[test]
    fn a_limit_is_raised_and_lowered_again() {
        let own = limit(GB, Some(8 * GB));
        let (mut child, pid) = limited(&own);
        let mut space = Space::default();
        space.take(pid, GB).expect("room");
        space.take(pid, GB).expect("room");
        assert_eq!(read(pid).expect("limit"), limit(3 * GB, Some(8 * GB)));
        space.give_back(pid, GB);
        assert_eq!(read(pid).expect("limit"), limit(2 * GB, Some(8 * GB)));
        space.give_all_back(pid);
        assert_eq!(read(pid).expect("limit"), own);
        assert!(space.is_empty());
        child.kill().and_then(|()| child.wait()).expect("end");
    }

    #[test]
    fn what_the_program_sets_itself_is_its_own() {
        let (mut child, pid) = limited(&limit(GB, Some(8 * GB)));
        let mut space = Space::default();
        space.take(pid, GB).expect("room");
        set(pid, &limit(4 * GB, Some(8 * GB))).expect("limit");
        space.take(pid, 0).expect("room");
        assert_eq!(read(pid).expect("limit"), limit(5 * GB, Some(8 * GB)));
        set(pid, &limit(3 * GB, Some(8 * GB))).expect("limit");
        space.give_all_back(pid);
        assert_eq!(read(pid).expect("limit"), limit(3 * GB, Some(8 * GB)));
        child.kill().and_then(|()| child.wait()).expect("end");
    }
}
