//! How much memory we may have together with what we start, by control groups.
//!
//! Source: cgroups(7); Documentation/admin-guide/cgroup-v2.rst (`memory.max`) and cgroup-v1/memory.rst
//! (`memory.limit_in_bytes`) of the kernel.

use procfs::ProcessCGroups;
use procfs::process::{MountInfos, Process};
use std::fs;
use std::path::{Path, PathBuf};

/// From here on it is no limit: version 1 has no other word for that.
const UNLIMITED: u64 = 1 << 60;

/// The least limit of our control groups, in bytes; `None` without one, or where the kernel does not tell.
pub(super) fn limit() -> Option<u64> {
    let this = Process::myself().ok()?;
    least(&this.cgroups().ok()?, &this.mountinfo().ok()?, |file| {
        fs::read_to_string(file).ok()
    })
}

/// The same by what is told of the groups, what is mounted, and the files there.
fn least(
    groups: &ProcessCGroups,
    mounts: &MountInfos,
    read: impl Fn(&Path) -> Option<String>,
) -> Option<u64> {
    let mut limits = Vec::new();
    for mount in mounts {
        let (first, file) = match mount.fs_type.as_str() {
            "cgroup2" => (true, "memory.max"),
            "cgroup" if mount.super_options.contains_key("memory") => {
                (false, "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let ours = groups.into_iter().find(|group| match first {
            true => group.hierarchy == 0,
            false => group.controllers.iter().any(|name| name == "memory"),
        });
        let Some(ours) = ours else { continue };
        // In a container what is mounted may begin at the group itself.
        let inside = Path::new(&ours.pathname)
            .strip_prefix(&mount.root)
            .unwrap_or(Path::new(""));
        let mut directory: PathBuf = mount.mount_point.join(inside);
        // Those above limit it, too.
        while directory.starts_with(&mount.mount_point) {
            let text = read(&directory.join(file)).unwrap_or_default();
            limits.extend(text.trim().parse::<u64>().ok());
            if !directory.pop() {
                break;
            }
        }
    }
    limits.into_iter().filter(|&limit| limit < UNLIMITED).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::FromBufRead;

    /// By lines of /proc/self/cgroup and /proc/self/mountinfo, and the files that there are.
    fn told(groups: &str, mounts: &str, files: &[(&str, &str)]) -> Option<u64> {
        let groups = ProcessCGroups::from_buf_read(groups.as_bytes()).expect("groups");
        let mounts = MountInfos::from_buf_read(mounts.as_bytes()).expect("mounts");
        least(&groups, &mounts, |path| {
            let file = files.iter().find(|(name, _)| Path::new(name) == path);
            file.map(|(_, text)| (*text).to_owned())
        })
    }

    const SECOND: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn groups_above_limit_it_too() {
        let files = [
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/memory.max", "134217728\n"),
            ("/sys/fs/cgroup/memory.max", "268435456\n"),
        ];
        assert_eq!(told("0::/a/b\n", SECOND, &files), Some(128 << 20));
        assert_eq!(told("0::/c\n", SECOND, &files), Some(256 << 20));
        assert_eq!(told("0::/a/b\n", SECOND, &files[..1]), None);
        assert_eq!(told("0::/a/b\n", "", &files), None);
    }

    #[test]
    fn a_container_sees_its_own_group_only() {
        let files = [("/sys/fs/cgroup/memory.max", "134217728\n")];
        assert_eq!(told("0::/\n", SECOND, &files), Some(128 << 20));
        // Mounted from the group on, which is told by the host's name.
        let mounts = "30 23 0:26 /docker/1f /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n\
                      31 23 0:27 /docker/1f /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu,cpuacct\n";
        let groups = "4:cpu,cpuacct:/docker/1f\n3:memory:/docker/1f\n0::/docker/1f\n";
        let file = "/sys/fs/cgroup/memory/memory.limit_in_bytes";
        assert_eq!(
            told(groups, mounts, &[(file, "67108864\n")]),
            Some(64 << 20)
        );
        assert_eq!(
            told(groups, mounts, &[(file, "9223372036854771712\n")]),
            None
        );
    }
}
