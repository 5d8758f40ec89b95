//! Which instruction's executions tell the native rate, and for how long they are counted.

use super::engine::Engine;
use super::rate::{HITS, Unit};

/// Native stretches over which the access rate may be measured after a window, in seconds: the
/// shortest is taken in which an instruction comes up some dozen times.
pub const STRETCHES_S: [f64; 4] = [0.004, 0.02, 0.1, 0.4];
/// They are at most this share of the run so far.
pub const SHARE: f64 = 0.05;
/// Fewest executions of the instruction in a window: between them lie about as many accesses each time.
const LEAST_EXECUTIONS: f64 = 12.0;
/// Instructions that the windows to come are to count, so that one of them has the right number.
const CANDIDATES: usize = 16;
/// Windows without an instruction to count, after which others are tried, and after which a window looks
/// at every address again.
const REMARK_AFTER: u32 = 3;
const LEAST_BLIND: u32 = 8;

/// The choice, window by window.
#[derive(Debug, Default)]
pub struct Units {
    /// Windows since one had an instruction fit for counting.
    without: u32,
}

impl Units {
    /// An instruction of the last window, which would have taken `native_s` seconds natively, and for
    /// how many seconds, `most_s` at the most, it is to be counted; prepares the engine for the next.
    pub fn pick(&mut self, engine: &mut Engine, native_s: f64, most_s: f64) -> Option<(Unit, f64)> {
        let wanted = |seconds: f64| (HITS * native_s / seconds).max(LEAST_EXECUTIONS);
        let most_s = most_s.max(STRETCHES_S[0]);
        let unit = STRETCHES_S
            .into_iter()
            .filter(|seconds| *seconds <= most_s)
            .find_map(|seconds| {
                let wanted = wanted(seconds);
                let range = (0.4 * wanted) as u64..=(3.0 * wanted) as u64;
                let (ip, executions) = engine.executed(&range, 1).pop()?;
                Some((Unit { ip, executions }, seconds))
            });
        self.without = match unit {
            Some(_) => 0,
            None => self.without + 1,
        };
        if engine.looked_everywhere() || self.without == REMARK_AFTER {
            // The next windows look at few addresses: they count these, so that one of them may do.
            let most = 12.0 * wanted(STRETCHES_S[0]);
            engine.count_executions(Some(engine.seldom(most as u64, CANDIDATES)));
        } else if self.without > LEAST_BLIND {
            self.without = 0;
            engine.count_executions(None);
        }
        unit
    }
}
