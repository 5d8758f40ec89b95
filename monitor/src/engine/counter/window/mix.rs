//! What instructions are made of: accesses and references for each instruction, or for each that accesses memory.
//!
//! Source: StatCache (Berg & Hagersten 2005) section 3.7.

/// Sums over instructions drawn; older windows' count less.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mix {
    instructions: f64,
    /// Of these, with accesses.
    memory: f64,
    accesses: f64,
    /// References at each line size.
    refs: [f64; 5],
}

/// Weight that an instruction drawn in an earlier window keeps.
const MEMORY: f64 = 0.5;
/// References per instruction, and per memory instruction, before any is known.
const GUESSED: [f64; 2] = [0.4, 1.0];

impl Mix {
    /// Adds one instruction.
    pub fn add(&mut self, accesses: u64, refs: [u64; 5]) {
        self.instructions += 1.0;
        self.memory += f64::from(u8::from(accesses > 0));
        self.accesses += accesses as f64;
        for (all, refs) in self.refs.iter_mut().zip(refs) {
            *all += refs as f64;
        }
    }

    /// At the beginning of a window.
    pub fn fade(&mut self) {
        self.instructions *= MEMORY;
        self.memory *= MEMORY;
        self.accesses *= MEMORY;
        self.refs = self.refs.map(|refs| refs * MEMORY);
    }

    /// Accesses and references for each instruction, or each memory instruction.
    pub fn ratio(&self, by_memory: bool) -> (f64, [f64; 5]) {
        let all = if by_memory {
            self.memory
        } else {
            self.instructions
        };
        if all < 1.0 || self.accesses < 1.0 {
            let guessed = GUESSED[usize::from(by_memory)];
            return (guessed, [guessed; 5]);
        }
        (self.accesses / all, self.refs.map(|n| n / all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn for_each_instruction_and_for_each_that_accesses_memory() {
        let mut mix = Mix::default();
        assert_eq!(mix.ratio(false).0, GUESSED[0]);
        for _ in 0..4 {
            mix.add(0, [0; 5]);
            mix.add(2, [4, 3, 2, 2, 2]);
        }
        assert_eq!(mix.ratio(false), (1.0, [2.0, 1.5, 1.0, 1.0, 1.0]));
        assert_eq!(mix.ratio(true), (2.0, [4.0, 3.0, 2.0, 2.0, 2.0]));
        // What comes later counts twice as much.
        mix.fade();
        for _ in 0..4 {
            mix.add(1, [1; 5]);
        }
        assert_eq!(mix.ratio(true).0, 8.0 / 6.0);
    }
}
