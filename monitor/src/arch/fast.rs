//! Instructions that some processors interpret, so that others take their place there.

use std::arch::{is_x86_feature_detected, x86_64::__cpuid};

/// What a processor is fast at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fast {
    /// `pext`. AMD's first processors with the instruction interpret it (Software Optimization Guide for family 17h, table of
    /// instruction latencies: 18 cycles and more; 19h: 3).
    pub pext: bool,
    /// `loop`: one operation on AMD's since Bulldozer, as `dec` and a jump that are fused, and seven on Intel's since Sandy Bridge (A. Fog's
    /// instruction tables; on Zen 4 it took as long as `dec` and `jnz`).
    pub looping: bool,
}

impl Fast {
    /// At neither.
    pub const NOTHING: Fast = Fast {
        pext: false,
        looping: false,
    };

    /// This processor.
    pub fn here() -> Fast {
        // The first four letters of the vendor's name; Hygon's are AMD's by design.
        let vendor = __cpuid(0).ebx.to_le_bytes();
        let amd = [*b"Auth", *b"Hygo"].contains(&vendor);
        let signature = __cpuid(1).eax;
        let family = (signature >> 8 & 0xf) + (signature >> 20 & 0xff);
        Fast {
            pext: is_x86_feature_detected!("bmi2") && !(amd && family < 0x19),
            looping: amd && family >= 0x17,
        }
    }
}
