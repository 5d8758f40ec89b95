//! Generated code: blocks of padding that end in a jump, for the instruction side.
//!
//! Every run through an indirect chase follows an order never seen before: branch predictors of today learn an order of
//! thousands of jumps by heart when it is run a few times, and a front end that knows the way hides the cache's misses.
//! The buffer is written while writable and run while executable, never both.
//! Unsafe invariant: a prepared run's table holds only starts of blocks written into this buffer and, last,
//! the exit; blocks change rax, rdi and flags and do not use the stack.

use crate::measure::{CodeChase, MeasureError};
use crate::rng::Rng;
use std::arch::asm;
use std::ptr;

const BYTES: usize = 64 << 20;
const NOP: u8 = 0x90;
/// `mov rax, [rdi]; add rdi, 8; jmp rax`
const JUMP_BY_TABLE: [u8; 9] = [0x48, 0x8b, 0x07, 0x48, 0x83, 0xc7, 0x08, 0xff, 0xe0];
/// `sub rdi, 1; jz rel32`
const COUNT: [u8; 6] = [0x48, 0x83, 0xef, 0x01, 0x0f, 0x84];

/// A mapping for generated code.
pub struct CodeBuffer {
    base: *mut u8,
    table: Vec<u64>,
    rng: Rng,
}

/// Code that is ready to run.
pub struct Run<'a> {
    entry: *const u8,
    table: &'a mut Vec<u64>,
    rng: &'a mut Rng,
    /// Addresses of the blocks of an indirect chase, in the last lap's order; empty for other code.
    order: Vec<u64>,
    exit: u64,
    laps: u64,
    events: u64,
}

impl CodeBuffer {
    /// Reserves the buffer.
    ///
    /// # Errors
    /// [`MeasureError::Unsupported`] when executable memory is not to be had.
    pub fn map() -> Result<Self, MeasureError> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new private anonymous mapping.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(MeasureError::System {
                operation: "mmap",
                cause: std::io::Error::last_os_error().to_string(),
            });
        }
        // SAFETY: advice on our own mapping.
        unsafe { libc::madvise(base, BYTES, libc::MADV_NOHUGEPAGE) };
        Ok(CodeBuffer {
            base: base.cast(),
            table: Vec::new(),
            rng: Rng::new(0x0c0d_e0f0),
        })
    }

    fn protect(&self, protection: libc::c_int) -> Result<(), MeasureError> {
        // SAFETY: our own whole mapping, nothing runs in it now.
        if unsafe { libc::mprotect(self.base.cast(), BYTES, protection) } == 0 {
            return Ok(());
        }
        let cause = std::io::Error::last_os_error();
        Err(MeasureError::Unsupported(format!(
            "generated code may not be made executable ({cause})"
        )))
    }

    /// Writes the blocks.
    ///
    /// # Errors
    /// [`MeasureError`] when a block lies outside or the pages cannot be made executable.
    pub fn prepare(&mut self, c: &CodeChase<'_>) -> Result<Run<'_>, MeasureError> {
        self.protect(libc::PROT_READ | libc::PROT_WRITE)?;
        let exit = BYTES - 64;
        self.write(exit, &[0xc3])?;
        let pad = vec![NOP; c.pad as usize];
        let mut starts = c.blocks.to_vec();
        starts.sort_unstable();
        let length = (COUNT.len() + 4 + pad.len() + JUMP_BY_TABLE.len()) as u64;
        if !c.indirect && starts.windows(2).any(|w| w[1] - w[0] < length) {
            return Err(MeasureError::Unsupported(
                "blocks of code this close to each other would overlap".into(),
            ));
        }
        for (i, &at) in c.blocks.iter().enumerate() {
            let mut at = at as usize;
            if c.indirect {
                self.write(at, &pad)?;
                self.write(at + pad.len(), &JUMP_BY_TABLE)?;
                continue;
            }
            if i == 0 {
                self.write(at, &COUNT)?;
                at += COUNT.len() + 4;
                self.write(at - 4, &relative(at, exit))?;
            }
            self.write(at, &pad)?;
            at += pad.len();
            let next = c.blocks[(i + 1) % c.blocks.len()] as usize;
            self.write(at, &[0xe9])?;
            self.write(at + 1, &relative(at + 5, next))?;
        }
        self.protect(libc::PROT_READ | libc::PROT_EXEC)?;
        let base = self.base as u64;
        // The direct form counts laps, in its first block.
        let n = c.blocks.len() as u64;
        let laps = (c.jumps / n).max(2);
        let (order, events) = if c.indirect {
            (c.blocks.iter().map(|b| base + b).collect(), c.jumps)
        } else {
            (Vec::new(), laps * n)
        };
        Ok(Run {
            entry: (base + c.blocks[0]) as *const u8,
            table: &mut self.table,
            rng: &mut self.rng,
            order,
            exit: base + exit as u64,
            laps,
            events,
        })
    }

    /// Writes a loop over `bytes` of no-operations, each of `length` bytes: 4 or 7.
    ///
    /// # Errors
    /// [`MeasureError`] when it does not fit or the pages cannot be made executable.
    pub fn prepare_straight(&mut self, bytes: u64, length: u64) -> Result<Run<'_>, MeasureError> {
        // `nop` with a memory operand and a displacement of one byte or of four.
        const SHORT: &[u8] = &[0x0f, 0x1f, 0x40, 0x00];
        const LONG: &[u8] = &[0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00];
        self.protect(libc::PROT_READ | libc::PROT_WRITE)?;
        let one = if length == 4 { SHORT } else { LONG };
        let count = bytes / one.len() as u64;
        self.write(0, &one.repeat(count as usize))?;
        let mut at = count as usize * one.len();
        // sub rdi, 1; jnz start; ret
        self.write(at, &[0x48, 0x83, 0xef, 0x01, 0x0f, 0x85])?;
        at += 10;
        self.write(at - 4, &relative(at, 0))?;
        self.write(at, &[0xc3])?;
        self.protect(libc::PROT_READ | libc::PROT_EXEC)?;
        let laps = (60_000 / count.max(1)).max(4);
        Ok(Run {
            entry: self.base,
            table: &mut self.table,
            rng: &mut self.rng,
            order: Vec::new(),
            exit: 0,
            laps,
            events: laps * count,
        })
    }

    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), MeasureError> {
        if at + bytes.len() > BYTES {
            return Err(MeasureError::Memory {
                needed: (at + bytes.len()) as u64,
                allowed: BYTES as u64,
            });
        }
        // SAFETY: the range was checked against the mapping, which is writable during prepare().
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.add(at), bytes.len()) };
        Ok(())
    }
}

fn relative(from: usize, to: usize) -> [u8; 4] {
    (to as i64 - from as i64).to_le_bytes()[..4]
        .try_into()
        .unwrap_or_default()
}

impl Run<'_> {
    /// Jumps in one timed run.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Runs the code once untimed and once timed; ticks. Indirect jumps take another way each time.
    pub fn time(&mut self) -> f64 {
        self.once();
        self.once()
    }

    fn once(&mut self) -> f64 {
        if self.order.is_empty() {
            return self.call(self.entry, self.laps);
        }
        self.table.clear();
        while (self.table.len() as u64) < self.events {
            self.rng.shuffle(&mut self.order);
            self.table.extend_from_slice(&self.order);
        }
        self.table.truncate(self.events as usize);
        self.table.push(self.exit);
        self.call(self.table[0] as *const u8, self.table[1..].as_ptr() as u64)
    }

    fn call(&self, entry: *const u8, argument: u64) -> f64 {
        let (start, end): (u64, u64);
        // SAFETY: entry is a block of the executable buffer; blocks end at the exit, a plain return, and
        // change only rax, rdi and flags. `call` uses the stack, hence no nostack option.
        unsafe {
            asm!(
                "lfence", "rdtsc", "lfence",
                "shl rdx, 32", "or rax, rdx", "mov {s}, rax",
                "call {e}",
                "lfence", "rdtsc", "lfence",
                "shl rdx, 32", "or rax, rdx",
                e = in(reg) entry, s = out(reg) start,
                inout("rdi") argument => _, out("rax") end, out("rdx") _
            );
        }
        (end - start) as f64
    }
}

impl Drop for CodeBuffer {
    fn drop(&mut self) {
        // SAFETY: our own mapping; no Run can outlive the buffer it borrows.
        unsafe { libc::munmap(self.base.cast(), BYTES) };
    }
}
