//! A fast hash for tables keyed by small numbers: attribution looks one up three times a sample.
//!
//! Not for keys that an adversary chooses. Multiply and rotate, as in the SplitMix finaliser.

use std::hash::{BuildHasherDefault, Hasher};

/// Tables hashed by [`Fast`].
pub(crate) type FastMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<Fast>>;

/// The hasher.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fast(u64);

impl Fast {
    fn mix(&mut self, x: u64) {
        let y = (self.0 ^ x).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = y ^ (y >> 29);
    }
}

impl Hasher for Fast {
    fn finish(&self) -> u64 {
        // Tables take the top bits for tags and the low ones for places: both must vary.
        let y = self.0.wrapping_mul(0xBF58_476D_1CE4_E5B9);
        y ^ (y >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, x: u8) {
        self.mix(u64::from(x));
    }

    fn write_u32(&mut self, x: u32) {
        self.mix(u64::from(x));
    }

    fn write_u64(&mut self, x: u64) {
        self.mix(x);
    }

    fn write_usize(&mut self, x: usize) {
        self.mix(x as u64);
    }
}
