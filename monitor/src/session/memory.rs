//! How much memory we may have together with what we start, and how much is left of it.
//!
//! Source: cgroups(7); Documentation/admin-guide/cgroup-v2.rst (`memory.max`) and cgroup-v1/memory.rst
//! (`memory.limit_in_bytes`) of the kernel; proc_meminfo(5).

use procfs::process::{MountInfos, Process};
use procfs::{Current, Meminfo, ProcessCGroups};
use std::fs;
use std::path::{Path, PathBuf};

/// From here on it is no limit: version 1 has no other word for that.
const UNLIMITED: u64 = 1 << 60;

/// Memory of a control group that is limited, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Group {
    limit: u64,
    /// Used, without what the kernel takes back first where it runs short: files that were read.
    used: u64,
}

/// The names of its files.
struct Files {
    limit: &'static str,
    used: &'static str,
    /// In `memory.stat`, of the groups below too.
    of_files: [&'static str; 2],
}

const SECOND: Files = Files {
    limit: "memory.max",
    used: "memory.current",
    of_files: ["inactive_file", "active_file"],
};
const FIRST: Files = Files {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    of_files: ["total_inactive_file", "total_active_file"],
};

/// The least limit of our control groups, in bytes; `None` without one, or where the kernel does not tell.
pub fn limit() -> Option<u64> {
    groups().into_iter().map(|group| group.limit).min()
}

/// Bytes that are left to us, by our control groups and of this machine's; `None` where the kernel does not tell.
pub fn left() -> Option<u64> {
    let of_groups = groups().into_iter();
    let of_groups = of_groups.map(|group| group.limit.saturating_sub(group.used));
    let of_all = Meminfo::current().ok().and_then(|all| all.mem_available);
    of_groups.chain(of_all).min()
}

fn groups() -> Vec<Group> {
    let told = || {
        let this = Process::myself().ok()?;
        let read = |file: &Path| fs::read_to_string(file).ok();
        Some(limited(
            &this.cgroups().ok()?,
            &this.mountinfo().ok()?,
            read,
        ))
    };
    told().unwrap_or_default()
}

/// Those with a limit, by what is told of the groups, what is mounted, and the files there.
fn limited(
    groups: &ProcessCGroups,
    mounts: &MountInfos,
    read: impl Fn(&Path) -> Option<String>,
) -> Vec<Group> {
    let mut found = Vec::new();
    for mount in mounts {
        let files = match mount.fs_type.as_str() {
            "cgroup2" => SECOND,
            "cgroup" if mount.super_options.contains_key("memory") => FIRST,
            _ => continue,
        };
        let ours = groups
            .into_iter()
            .find(|group| match mount.fs_type.as_str() {
                "cgroup2" => group.hierarchy == 0,
                _ => group.controllers.iter().any(|name| name == "memory"),
            });
        let Some(ours) = ours else { continue };
        // In a container what is mounted may begin at the group itself.
        let inside = Path::new(&ours.pathname)
            .strip_prefix(&mount.root)
            .unwrap_or(Path::new(""));
        let mut directory: PathBuf = mount.mount_point.join(inside);
        // Those above limit it, too.
        while directory.starts_with(&mount.mount_point) {
            found.extend(group(&files, |name| read(&directory.join(name))));
            if !directory.pop() {
                break;
            }
        }
    }
    found
}

/// A group by its files; `None` without a limit.
fn group(files: &Files, read: impl Fn(&str) -> Option<String>) -> Option<Group> {
    let number = |text: String| text.trim().parse::<u64>().ok();
    let limit = read(files.limit).and_then(number)?;
    let used = read(files.used).and_then(number).unwrap_or(0);
    let stat = read("memory.stat").unwrap_or_default();
    let lines = stat.lines().filter_map(|line| line.split_once(' '));
    let of_files = lines.filter(|(name, _)| files.of_files.contains(name));
    let of_files: u64 = of_files
        .filter_map(|(_, bytes)| number(bytes.to_owned()))
        .sum();
    (limit < UNLIMITED).then(|| Group {
        limit,
        used: used.saturating_sub(of_files),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::FromBufRead;

    /// By lines of /proc/self/cgroup and /proc/self/mountinfo, and the files that there are: limit, and used, of each group.
    fn told(groups: &str, mounts: &str, files: &[(&str, &str)]) -> Vec<(u64, u64)> {
        let groups = ProcessCGroups::from_buf_read(groups.as_bytes()).expect("groups");
        let mounts = MountInfos::from_buf_read(mounts.as_bytes()).expect("mounts");
        let limited = limited(&groups, &mounts, |path| {
            let file = files.iter().find(|(name, _)| Path::new(name) == path);
            file.map(|(_, text)| (*text).to_owned())
        });
        limited.into_iter().map(|g| (g.limit, g.used)).collect()
    }

    const MOUNT: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn groups_above_limit_it_too() {
        let files = [
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/memory.max", "134217728\n"),
            ("/sys/fs/cgroup/a/memory.current", "1000000\n"),
            (
                "/sys/fs/cgroup/a/memory.stat",
                "anon 7\ninactive_file 200000\nactive_file 100000\n",
            ),
            ("/sys/fs/cgroup/memory.max", "268435456\n"),
        ];
        let all = [(128 << 20, 700_000), (256 << 20, 0)];
        assert_eq!(told("0::/a/b\n", MOUNT, &files), all);
        assert_eq!(told("0::/c\n", MOUNT, &files), [(256 << 20, 0)]);
        assert_eq!(told("0::/a/b\n", MOUNT, &files[..1]), []);
        assert_eq!(told("0::/a/b\n", "", &files), []);
    }

    #[test]
    fn a_container_sees_its_own_group_only() {
        let files = [("/sys/fs/cgroup/memory.max", "134217728\n")];
        assert_eq!(told("0::/\n", MOUNT, &files), [(128 << 20, 0)]);
        // Mounted from the group on, which is told by the host's name.
        let mounts = "30 23 0:26 /docker/1f /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n\
                      31 23 0:27 /docker/1f /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu,cpuacct\n";
        let groups = "4:cpu,cpuacct:/docker/1f\n3:memory:/docker/1f\n0::/docker/1f\n";
        let limit = "/sys/fs/cgroup/memory/memory.limit_in_bytes";
        let used = "/sys/fs/cgroup/memory/memory.usage_in_bytes";
        let files = [(limit, "67108864\n"), (used, "4096\n")];
        assert_eq!(told(groups, mounts, &files), [(64 << 20, 4096)]);
        let files = [(limit, "9223372036854771712\n")];
        assert_eq!(told(groups, mounts, &files), []);
    }

    #[test]
    fn something_is_left_here() {
        match fs::read_to_string("/proc/meminfo") {
            Ok(told) if told.contains("MemAvailable:") => {
                assert!(left().is_some_and(|left| left > 0))
            }
            _ => println!("SKIP something_is_left_here: the kernel does not tell"),
        }
    }
}
