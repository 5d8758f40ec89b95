//! What the kernel tells about the host's processor and caches (sysfs, `/proc/cpuinfo`).

use crate::profile::types::HostCache;
use crate::sizes::parse_size;
use std::fs;

/// Data and unified caches of this host, nearest first: each level as `statcache machine` measured it, where that decided on a capacity; else
/// as sysfs declares it, else the middle of what was measured; empty where all are silent.
pub fn caches() -> Vec<HostCache> {
    let levels = statcache_hierarchy::cached().map(|report| report.levels());
    let (decided, guessed): (Vec<_>, Vec<_>) =
        levels.iter().flatten().partition(|level| level.decided);
    let measured = |levels: Vec<_>| levels.into_iter().map(measured).collect();
    completed([measured(decided), declared(), measured(guessed)])
}

/// Each level as the first of these has it.
fn completed(sources: [Vec<HostCache>; 3]) -> Vec<HostCache> {
    let mut caches: Vec<HostCache> = Vec::new();
    for source in sources {
        let missing = |c: &HostCache| caches.iter().all(|known| known.level != c.level);
        let missing: Vec<HostCache> = source.into_iter().filter(missing).collect();
        caches.extend(missing);
    }
    caches.sort_by_key(|c| c.level);
    caches
}

fn measured(level: &statcache_hierarchy::LevelSummary) -> HostCache {
    HostCache {
        level: level.level as u8,
        bytes: legible(level.bytes),
        line_bytes: level.line as u32,
        ways: level.ways.unwrap_or(0),
    }
}

/// A capacity read off a curve is known to some per cent: rounded to an eighth of its power of two.
fn legible(bytes: u64) -> u64 {
    const PAGE: u64 = 4096;
    if bytes.is_multiple_of(PAGE) || bytes < 8 {
        return bytes;
    }
    let step = 1 << (bytes.ilog2() - 3);
    (bytes + step / 2) / step * step
}

fn declared() -> Vec<HostCache> {
    let base = "/sys/devices/system/cpu/cpu0/cache";
    let mut caches: Vec<HostCache> = (0..10)
        .filter_map(|i| {
            let read = |name: &str| {
                let text = fs::read_to_string(format!("{base}/index{i}/{name}")).ok()?;
                Some(text.trim().to_owned())
            };
            if read("type")? == "Instruction" {
                return None;
            }
            Some(HostCache {
                level: read("level")?.parse().ok()?,
                bytes: parse_size(&read("size")?).ok()?,
                line_bytes: read("coherency_line_size")
                    .and_then(|s| s.parse().ok())
                    .unwrap_or(64),
                ways: read("ways_of_associativity")
                    .and_then(|s| s.parse().ok())
                    .unwrap_or(0),
            })
        })
        .collect();
    caches.sort_by_key(|c| c.level);
    caches
}

/// The processor's name.
pub fn cpu_name() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    name.unwrap_or("unknown processor").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_that_was_not_decided_is_as_declared() {
        let level = |level, bytes| HostCache {
            level,
            bytes,
            line_bytes: 64,
            ways: 0,
        };
        let declared = vec![level(1, 32 << 10), level(2, 1 << 20), level(3, 32 << 20)];
        let none = Vec::new;
        assert_eq!(completed([none(), declared.clone(), none()]), declared);
        let measured = vec![level(1, 48 << 10), level(3, 30 << 20)];
        let guessed = vec![level(2, 1664 << 10)];
        assert_eq!(completed([none(), none(), guessed.clone()]), guessed);
        let found = completed([measured, declared, guessed]);
        assert_eq!(
            found,
            [level(1, 48 << 10), level(2, 1 << 20), level(3, 30 << 20)]
        );
    }

    #[test]
    fn sizes_with_units() {
        assert_eq!(legible(2_045_772), 2 << 20);
        assert_eq!(legible(6_161_461), 6 << 20);
        assert_eq!(legible(33 << 20), 33 << 20);
    }
}
