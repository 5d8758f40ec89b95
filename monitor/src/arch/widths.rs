//! Widths that the encoding of an instruction does not tell: the save area of `xsave` and its kin.
//!
//! Unsafe invariant: `xgetbv` is executed only behind CPUID's OSXSAVE, and reads no memory.

use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
use std::sync::OnceLock;

/// Legacy region plus header of every XSAVE area, bytes. Source: Intel SDM volume 1, 13.4.
const LEGACY_AND_HEADER: u32 = 576;
/// XCR0 bits of the AMX tile state: 8 KiB that processes do not have unless they ask the kernel for it, so
/// that save areas are not sized for it.
const AMX: u64 = 0b11 << 17;

/// Bytes of the XSAVE area for all state that this host's operating system enables (XCR0), but for AMX tiles: in the
/// standard format, or in the compacted one of `xsavec` and `xsaves`.
///
/// The instruction may be asked (edx:eax) for less, and leaves out state in its initial configuration; the profile
/// counts the operand's full width all the same, as its definition says. The host is the monitor's own, which
/// is also the program's.
///
/// Source: Intel SDM volume 1, 13.4; CPUID leaf 0DH.
pub fn xsave_bytes(compacted: bool) -> u32 {
    static BYTES: OnceLock<[u32; 2]> = OnceLock::new();
    BYTES.get_or_init(measure)[usize::from(compacted)]
}

/// Bytes that `xrstor` reads. Of which format the area is stands in the area itself: taken to be the compacted one where the processor can write
/// it, as the dynamic loader's lazy binding does. (The standard one has holes, over which an area would seem to reach 1.5 KiB
/// too far where there is no AVX-512.)
///
/// Source: Intel SDM volume 1, 13.8; CPUID leaf 0DH.
pub fn xrstor_bytes() -> u32 {
    const XSAVEC: u32 = 1 << 1;
    static COMPACTS: OnceLock<bool> = OnceLock::new();
    xsave_bytes(*COMPACTS.get_or_init(|| __cpuid_count(0xd, 1).eax & XSAVEC != 0))
}

fn measure() -> [u32; 2] {
    const OSXSAVE: u32 = 1 << 27;
    if __cpuid(1).ecx & OSXSAVE == 0 {
        return [LEGACY_AND_HEADER; 2];
    }
    // SAFETY: OSXSAVE was just seen, so `xgetbv` exists and register 0 (XCR0) is readable.
    let enabled = unsafe { read_xcr0() } & !AMX;
    let (mut standard, mut compacted) = (LEGACY_AND_HEADER, LEGACY_AND_HEADER);
    for component in (2..63).filter(|bit| enabled >> bit & 1 != 0) {
        let leaf = __cpuid_count(0xd, component);
        let (size, offset, aligned) = (leaf.eax, leaf.ebx, leaf.ecx & 2 != 0);
        standard = standard.max(offset + size);
        if aligned {
            compacted = compacted.next_multiple_of(64);
        }
        compacted += size;
    }
    [standard, compacted]
}

/// XCR0.
///
/// # Safety
/// CPUID must show OSXSAVE.
#[target_feature(enable = "xsave")]
unsafe fn read_xcr0() -> u64 {
    // SAFETY: by this function's contract the operating system enabled xsave, and XCR0 always exists then.
    unsafe { _xgetbv(0) }
}
