//! The border between inference and machine: what can be asked of a host, real or simulated.
//!
//! Everything above this trait is pure: it decides what to ask and what the answers mean. Addresses are
//! byte offsets into a buffer of the backend, so that no pointer crosses the border.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why a backend could not answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MeasureError {
    /// The host has no way to do it (an instruction, a permission); the text says which.
    #[error("not possible on this host: {0}")]
    Unsupported(String),
    /// The buffer would need more memory than the backend may take.
    #[error("needs {needed} bytes of memory, {allowed} allowed")]
    Memory {
        /// Bytes asked for.
        needed: u64,
        /// Bytes the backend may use.
        allowed: u64,
    },
    /// A system call failed.
    #[error("{operation} failed: {cause}")]
    System {
        /// The call.
        operation: &'static str,
        /// The kernel's answer.
        cause: String,
    },
}

/// Which buffer a chase runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum Buffer {
    /// Ordinary pages, huge pages advised against.
    #[default]
    Small,
    /// Memory for which huge pages were asked.
    Huge,
}

/// A pointer chase: every load's address comes from the load before it.
///
/// One window is: flush, then `prep`, stores, then the timed loads. With nothing but `timed` the chain
/// is a circle, walked `warm` loads and then timed for `loads`. Otherwise it is a line, walked once per
/// window, of which only `timed` is timed.
/// A line may be visited several times if each visit uses another 8-byte slot of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Chase<'a> {
    /// Where the offsets point to.
    pub buffer: Buffer,
    /// Lines flushed from all caches at the start of each window.
    pub flush: &'a [u64],
    /// Loads before the timed ones, in this order.
    pub prep: &'a [u64],
    /// Plain stores after `prep`; distinct 8-byte slots from the chain's.
    pub stores: &'a [u64],
    /// Non-temporal stores after `prep`.
    pub nt_stores: &'a [u64],
    /// The timed loads, in this order.
    pub timed: &'a [u64],
    /// Untimed loads before the first window (circle only).
    pub warm: u64,
    /// Timed loads per window (circle only).
    pub loads: u64,
    /// Number of windows.
    pub windows: u32,
}

/// A chase through code: lines of padding ended by an indirect jump to the next.
#[derive(Debug, Clone, Copy)]
pub struct CodeChase<'a> {
    /// Start of each block, as offsets into the code buffer.
    pub blocks: &'a [u64],
    /// One-byte no-operations before the jump in each block.
    pub pad: u32,
    /// The next block comes from a table in random order (each jump mispredicts); otherwise each block
    /// ends in a direct jump to the next.
    pub indirect: bool,
    /// Timed jumps per window.
    pub jumps: u64,
    /// Number of windows.
    pub windows: u32,
}

/// One timed stretch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Timer ticks for all events, the timer's own cost already taken off.
    pub ticks: f64,
    /// Loads (or jumps) in it.
    pub events: u32,
    /// Core cycles per tick measured just before and just after.
    pub clock: (f32, f32),
    /// The kernel switched the thread away meanwhile, or moved it.
    pub switched: bool,
}

impl Window {
    /// Core cycles per event.
    pub fn cycles(&self) -> f64 {
        let clock = f64::from(self.clock.0 + self.clock.1) / 2.0;
        self.ticks * clock / f64::from(self.events.max(1))
    }

    /// Timer ticks per event.
    pub fn per_event(&self) -> f64 {
        self.ticks / f64::from(self.events.max(1))
    }

    /// No switch was seen and the clock held still within 3 %.
    pub fn clean(&self) -> bool {
        let (a, b) = self.clock;
        !self.switched && (a - b).abs() <= 0.03 * a.max(b)
    }
}

/// What is known of a backend before measuring.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Nanoseconds per timer tick.
    pub ns_per_tick: f64,
    /// Smallest step the timer makes, in ticks.
    pub timer_step: f64,
    /// Core cycles per tick at the start.
    pub clock: f64,
    /// Page size the operating system gives, in bytes.
    pub page_bytes: u64,
    /// Largest buffer the backend will give, in bytes.
    pub memory_bytes: u64,
    /// Lines can be flushed by an unprivileged instruction.
    pub can_flush: bool,
}

/// A machine that can be timed.
pub trait Measure {
    /// What is known beforehand.
    fn facts(&self) -> &Facts;

    /// Nanoseconds since the backend was made; simulated backends give simulated time.
    fn now_ns(&self) -> u64;

    /// Nanoseconds of processor time among them: less than [`Measure::now_ns`] where others take their turn.
    fn cpu_ns(&self) -> u64 {
        self.now_ns()
    }

    /// Times a chase.
    ///
    /// # Errors
    /// [`MeasureError`] when the host cannot do it.
    fn chase(&mut self, chase: &Chase<'_>) -> Result<Vec<Window>, MeasureError>;

    /// Times a chase through code.
    ///
    /// # Errors
    /// [`MeasureError::Unsupported`] where code cannot be generated.
    fn code(&mut self, _chase: &CodeChase<'_>) -> Result<Vec<Window>, MeasureError> {
        Err(MeasureError::Unsupported(
            "this backend runs no generated code".into(),
        ))
    }

    /// Times flushing lines that were loaded before, and stored to as well when `dirty`; events are lines.
    ///
    /// # Errors
    /// [`MeasureError::Unsupported`] where lines cannot be flushed.
    fn flush(
        &mut self,
        _lines: &[u64],
        _dirty: bool,
        _windows: u32,
    ) -> Result<Vec<Window>, MeasureError> {
        Err(MeasureError::Unsupported(
            "this backend cannot time a flush".into(),
        ))
    }

    /// Times plain stores to lines that were loaded before, some laps over them; events are stores.
    ///
    /// # Errors
    /// [`MeasureError::Unsupported`] where the backend cannot time a store.
    fn stores(&mut self, _lines: &[u64], _windows: u32) -> Result<Vec<Window>, MeasureError> {
        Err(MeasureError::Unsupported(
            "this backend cannot time a store".into(),
        ))
    }

    /// Walks `lines` in a circle, runs code, then times one more lap over the lines; events are lines.
    ///
    /// # Errors
    /// [`MeasureError::Unsupported`] where code cannot be generated.
    fn after_code(
        &mut self,
        _lines: &[u64],
        _code: &CodeChase<'_>,
        _windows: u32,
    ) -> Result<Vec<Window>, MeasureError> {
        Err(MeasureError::Unsupported(
            "this backend runs no generated code".into(),
        ))
    }

    /// Times a loop over `bytes` of straight code that does nothing, made of instructions of `length` bytes, 4 or 7;
    /// events are instructions.
    ///
    /// # Errors
    /// [`MeasureError::Unsupported`] where code cannot be generated.
    fn straight(
        &mut self,
        _bytes: u64,
        _length: u64,
        _windows: u32,
    ) -> Result<Vec<Window>, MeasureError> {
        Err(MeasureError::Unsupported(
            "this backend runs no generated code".into(),
        ))
    }

    /// Times `chains` independent chases of the same flushed lines at once; events are loads of all chains.
    ///
    /// # Errors
    /// [`MeasureError::Unsupported`] where the backend has no parallel chase.
    fn parallel(
        &mut self,
        _lines: &[u64],
        _chains: usize,
        _windows: u32,
    ) -> Result<Vec<Window>, MeasureError> {
        Err(MeasureError::Unsupported(
            "this backend has no parallel chase".into(),
        ))
    }
}

impl<M: Measure + ?Sized> Measure for &mut M {
    fn facts(&self) -> &Facts {
        (**self).facts()
    }
    fn now_ns(&self) -> u64 {
        (**self).now_ns()
    }
    fn cpu_ns(&self) -> u64 {
        (**self).cpu_ns()
    }
    fn chase(&mut self, chase: &Chase<'_>) -> Result<Vec<Window>, MeasureError> {
        (**self).chase(chase)
    }
    fn code(&mut self, chase: &CodeChase<'_>) -> Result<Vec<Window>, MeasureError> {
        (**self).code(chase)
    }
    fn flush(
        &mut self,
        lines: &[u64],
        dirty: bool,
        windows: u32,
    ) -> Result<Vec<Window>, MeasureError> {
        (**self).flush(lines, dirty, windows)
    }
    fn after_code(
        &mut self,
        lines: &[u64],
        code: &CodeChase<'_>,
        windows: u32,
    ) -> Result<Vec<Window>, MeasureError> {
        (**self).after_code(lines, code, windows)
    }
    fn straight(
        &mut self,
        bytes: u64,
        length: u64,
        windows: u32,
    ) -> Result<Vec<Window>, MeasureError> {
        (**self).straight(bytes, length, windows)
    }
    fn parallel(
        &mut self,
        lines: &[u64],
        chains: usize,
        windows: u32,
    ) -> Result<Vec<Window>, MeasureError> {
        (**self).parallel(lines, chains, windows)
    }
}
