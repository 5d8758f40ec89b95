//! What the host says about itself: sysfs and, where it may be asked, CPUID.
//!
//! Nothing here is used to steer measuring; it is only set beside the measured values. CPUID is executed only
//! when the kernel does not make it fault for this process.
//!
//! Sources: Linux Documentation/ABI/testing/sysfs-devices-system-cpu; Intel SDM volume 2, CPUID leaves 2, 4, 18h;
//! AMD64 APM volume 3, leaves 8000_0005h, 8000_0006h, 8000_0019h, 8000_001Dh.
//!
//! Unsafe invariant: the one call, `arch_prctl(ARCH_GET_CPUID)`, takes numbers.

use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// One declared figure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The parameter, as in the report: `L1d.capacity` and so on.
    pub what: String,
    /// Who says it: `sysfs` or `cpuid 0x...`.
    pub source: String,
    /// The figure.
    pub value: u64,
}

/// Everything the host declares, and what kept a source silent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Declared {
    /// CPU model as the kernel prints it.
    pub cpu: String,
    /// Running under a hypervisor, as CPUID says.
    pub virtual_machine: Option<bool>,
    /// The figures.
    pub claims: Vec<Claim>,
    /// CPUs that share each level with the measuring one: (level, list as sysfs prints it).
    pub shared: Vec<(u32, String)>,
    /// Sources that could not be read, with the reason.
    pub silent: Vec<String>,
}

impl Declared {
    /// Claims about one parameter.
    pub fn about<'a>(&'a self, what: &'a str) -> impl Iterator<Item = &'a Claim> {
        self.claims.iter().filter(move |c| c.what == what)
    }

    fn add(&mut self, what: &str, source: &str, value: u64) {
        if value > 0 {
            self.claims.push(Claim {
                what: what.into(),
                source: source.into(),
                value,
            });
        }
    }
}

/// Reads all sources for one CPU. `root` is where `/sys` and `/proc` are found, `/` on a live host.
pub fn read(root: &Path, cpu: usize) -> Declared {
    let mut d = Declared::default();
    let info = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    let field = |name: &str| {
        info.lines()
            .find(|l| l.starts_with(name))
            .and_then(|l| l.split(':').nth(1))
            .map(|v| v.trim().to_string())
    };
    d.cpu = field("model name").unwrap_or_else(|| "unknown CPU".into());
    sysfs(root, cpu, &mut d);
    cpuid::read(&mut d);
    d
}

fn sysfs(root: &Path, cpu: usize, d: &mut Declared) {
    let dir = root.join(format!("sys/devices/system/cpu/cpu{cpu}/cache"));
    let mut seen = false;
    for index in 0..8 {
        let at = dir.join(format!("index{index}"));
        let text = |file: &str| {
            fs::read_to_string(at.join(file))
                .ok()
                .map(|t| t.trim().to_string())
        };
        let (Some(level), Some(kind)) = (text("level"), text("type")) else {
            continue;
        };
        seen = true;
        let name = match (level.as_str(), kind.as_str()) {
            ("1", "Data") => "L1d".to_string(),
            ("1", "Instruction") => "L1i".to_string(),
            ("1", _) => "L1d".to_string(),
            (l, _) => format!("L{l}"),
        };
        let number = |file: &str| text(file).and_then(|t| size(&t)).unwrap_or(0);
        d.add(&format!("{name}.capacity"), "sysfs", number("size"));
        d.add(
            &format!("{name}.ways"),
            "sysfs",
            number("ways_of_associativity"),
        );
        d.add(
            &format!("{name}.line"),
            "sysfs",
            number("coherency_line_size"),
        );
        if kind != "Instruction"
            && let (Ok(l), Some(list)) = (level.parse(), text("shared_cpu_list"))
        {
            d.shared.push((l, list));
        }
    }
    if !seen {
        d.silent.push(format!(
            "sysfs: no cache directory for CPU {cpu} ({})",
            dir.display()
        ));
    }
}

fn size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.find(|c: char| !c.is_ascii_digit()) {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    let scale = match unit {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(scale)
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod cpuid {
    //! CPUID leaves, decoded.

    use super::Declared;
    use std::arch::x86_64::{__cpuid_count, CpuidResult};

    /// `arch_prctl(ARCH_GET_CPUID)`: 0 when executing CPUID would fault.
    fn faults() -> bool {
        const ARCH_GET_CPUID: libc::c_int = 0x1011;
        // SAFETY: the call takes no pointer with this code.
        unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_GET_CPUID, 0) == 0 }
    }

    pub fn read(d: &mut Declared) {
        if faults() {
            d.silent.push(
                "cpuid: faulting is on for this process (arch_prctl ARCH_SET_CPUID), not executed"
                    .into(),
            );
            return;
        }
        decode(d, &|leaf, sub| __cpuid_count(leaf, sub));
    }

    /// Whatever the leaves hold is only set beside what is measured; figures that cannot be are left out.
    pub(super) fn decode(d: &mut Declared, leaf: &dyn Fn(u32, u32) -> CpuidResult) {
        let basic = leaf(0, 0).eax;
        let extended = leaf(0x8000_0000, 0).eax;
        if !(1..0x1000).contains(&basic) {
            d.silent
                .push(format!("cpuid: highest leaf {basic:#x} is not believable"));
            return;
        }
        d.virtual_machine = Some(leaf(1, 0).ecx >> 31 & 1 == 1);
        let amd = leaf(0, 0).ebx == u32::from_le_bytes(*b"Auth");
        if basic >= 4 && !amd {
            deterministic(d, &|sub| leaf(4, sub), "cpuid 0x4");
        }
        if amd && extended >= 0x8000_001d {
            deterministic(d, &|sub| leaf(0x8000_001d, sub), "cpuid 0x8000001D");
        }
        if basic >= 0x18 && !amd {
            translations(d, &|sub| leaf(0x18, sub));
        }
        if extended >= 0x8000_0006 && amd {
            legacy(d, leaf(0x8000_0005, 0), leaf(0x8000_0006, 0));
        }
    }

    /// Leaves 4 and 8000_001Dh share their format.
    fn deterministic(d: &mut Declared, leaf: &dyn Fn(u32) -> CpuidResult, source: &str) {
        for sub in 0..8 {
            let r = leaf(sub);
            let kind = r.eax & 31;
            if kind == 0 {
                break;
            }
            let level = r.eax >> 5 & 7;
            let name = match (level, kind) {
                (1, 2) => "L1i".to_string(),
                (1, _) => "L1d".to_string(),
                (l, _) => format!("L{l}"),
            };
            let ways = u64::from(r.ebx >> 22) + 1;
            let partitions = u64::from(r.ebx >> 12 & 0x3ff) + 1;
            let line = u64::from(r.ebx & 0xfff) + 1;
            let sets = u64::from(r.ecx) + 1;
            // All ones would be 2^64 bytes.
            let bytes = (ways * partitions * line).saturating_mul(sets);
            if bytes < 1 << 40 {
                d.add(&format!("{name}.capacity"), source, bytes);
            }
            d.add(
                &format!("{name}.ways"),
                source,
                if r.eax >> 9 & 1 == 1 { sets } else { ways },
            );
            d.add(&format!("{name}.line"), source, line);
        }
    }

    /// Leaf 18h: translation buffers of Intel processors.
    fn translations(d: &mut Declared, leaf: &dyn Fn(u32) -> CpuidResult) {
        let last = leaf(0).eax.min(32);
        for sub in 0..=last {
            let r = leaf(sub);
            let (kind, level) = (r.edx & 31, r.edx >> 5 & 7);
            let small_pages = r.ebx & 1 == 1;
            if kind == 0 || !small_pages {
                continue;
            }
            let entries = u64::from(r.ebx >> 16) * u64::from(r.ecx);
            let what = match (kind, level) {
                (1 | 4, 1) => "DTLB1.entries",
                (2, 1) => "ITLB1.entries",
                (1 | 3, 2) => "DTLB2.entries",
                _ => continue,
            };
            d.add(what, "cpuid 0x18", entries);
        }
    }

    /// Leaves 8000_0005h and 8000_0006h of AMD processors: 4 KiB translations and caches.
    fn legacy(d: &mut Declared, five: CpuidResult, six: CpuidResult) {
        d.add(
            "DTLB1.entries",
            "cpuid 0x80000005",
            u64::from(five.ebx >> 16 & 0xff),
        );
        d.add(
            "ITLB1.entries",
            "cpuid 0x80000005",
            u64::from(five.ebx & 0xff),
        );
        d.add(
            "L1d.capacity",
            "cpuid 0x80000005",
            u64::from(five.ecx >> 24) << 10,
        );
        d.add(
            "L1i.capacity",
            "cpuid 0x80000005",
            u64::from(five.edx >> 24) << 10,
        );
        d.add(
            "DTLB2.entries",
            "cpuid 0x80000006",
            u64::from(six.ebx >> 16 & 0xfff),
        );
        d.add(
            "L2.capacity",
            "cpuid 0x80000006",
            u64::from(six.ecx >> 16) << 10,
        );
        d.add(
            "L3.capacity",
            "cpuid 0x80000006",
            u64::from(six.edx >> 18) << 19,
        );
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod cpuid {
    //! No CPUID on this architecture.

    pub fn read(d: &mut super::Declared) {
        d.silent.push("cpuid: not an x86-64 build".into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_sysfs_prints_them() {
        assert_eq!(
            (size("48K"), size("2M"), size("64"), size("x"), size("3G")),
            (Some(49152), Some(2 << 20), Some(64), None, None)
        );
    }

    #[test]
    fn a_host_without_sysfs_is_silent_not_fatal() {
        let d = read(Path::new("/nonexistent"), 0);
        assert!(d.silent.iter().any(|s| s.starts_with("sysfs")));
        assert_eq!(d.cpu, "unknown CPU");
        assert_eq!(
            d.about("L1d.capacity")
                .filter(|c| c.source == "sysfs")
                .count(),
            0
        );
    }

    #[test]
    fn sysfs_is_read_by_level_and_type() -> std::io::Result<()> {
        let root = tempfile::tempdir()?;
        let at = root.path().join("sys/devices/system/cpu/cpu3/cache/index0");
        fs::create_dir_all(&at)?;
        for (file, text) in [
            ("level", "1"),
            ("type", "Data"),
            ("size", "48K"),
            ("ways_of_associativity", "12"),
            ("coherency_line_size", "64"),
            ("shared_cpu_list", "3"),
        ] {
            fs::write(at.join(file), text)?;
        }
        let d = read(root.path(), 3);
        let of = |what: &str| d.about(what).find(|c| c.source == "sysfs").map(|c| c.value);
        assert_eq!(
            (of("L1d.capacity"), of("L1d.ways"), of("L1d.line")),
            (Some(49152), Some(12), Some(64))
        );
        assert_eq!(d.shared, [(1, "3".to_string())]);
        Ok(())
    }

    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    #[test]
    fn a_cpuid_that_makes_no_sense_is_read_to_its_end() {
        use std::arch::x86_64::CpuidResult;
        let all = |x: u32| CpuidResult {
            eax: x,
            ebx: x,
            ecx: x,
            edx: x,
        };
        for x in [0, u32::MAX] {
            let mut d = Declared::default();
            cpuid::decode(&mut d, &|_, _| all(x));
            assert!(d.claims.is_empty());
            assert!(d.silent[0].contains("not believable"), "{:?}", d.silent);
        }
        // A believable number of leaves, and all ones in each of them, by either maker.
        for maker in [*b"Auth", *b"Genu"] {
            let mut d = Declared::default();
            let leaf = |leaf: u32, _| match leaf {
                0 => CpuidResult {
                    eax: 0x20,
                    ebx: u32::from_le_bytes(maker),
                    ..all(0)
                },
                _ => all(u32::MAX),
            };
            cpuid::decode(&mut d, &leaf);
            assert!(d.claims.iter().all(|c| c.value < 1 << 40), "{:?}", d.claims);
        }
    }
}
