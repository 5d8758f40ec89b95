//! Instructions as found in the thread's memory, decoded once for as long as their bytes stay the same.

use super::flags::FlagsWord;
use crate::arch::{Access, Flow, Gpr, accesses, classify};
use crate::tracee::Stopped;
use iced_x86::{Decoder as IcedDecoder, DecoderOptions, InstructionInfoFactory, Mnemonic};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use rustc_hash::FxHashMap;
use std::io::IoSliceMut;
use std::rc::Rc;

/// Longest x86 instruction, bytes.
pub(super) const LONGEST: usize = 15;
/// Smallest page, bytes: what lies in one can be read as a whole or not at all.
const PAGE: u64 = 4096;

/// What the engine has to know of one instruction.
#[derive(Debug)]
pub struct Decoded {
    bytes: [u8; LONGEST],
    /// Length in bytes.
    pub len: u64,
    /// Its accesses in program order.
    pub accesses: Vec<Access>,
    /// Where control goes.
    pub flow: Flow,
    /// The register an indirect jump or call goes through.
    pub target: Option<Gpr>,
    /// For `pushf` and `popf`.
    pub flags_word: Option<FlagsWord>,
    refused: Option<&'static str>,
}

/// Decodes and remembers.
pub struct Decoder {
    known: FxHashMap<u64, Rc<Decoded>>,
    factory: InstructionInfoFactory,
}

impl Decoder {
    /// Knows nothing yet.
    pub fn new() -> Decoder {
        Decoder {
            known: FxHashMap::default(),
            factory: InstructionInfoFactory::new(),
        }
    }

    /// The instruction at `ip`. The bytes are read every time, as they may have changed.
    ///
    /// # Errors
    /// Why the instruction cannot be stepped.
    pub fn at(&mut self, stopped: &Stopped, ip: u64) -> Result<Rc<Decoded>, &'static str> {
        let mut bytes = [0; LONGEST];
        let read = read_code(stopped, ip, &mut bytes);
        if read == 0 {
            return Err("code that cannot be read");
        }
        let stale = |known: &Rc<Decoded>| {
            let len = known.len as usize;
            len > read || known.bytes[..len] != bytes[..len]
        };
        if self.known.get(&ip).is_none_or(stale) {
            let decoded = decode(bytes, read, ip, &mut self.factory);
            self.known.insert(ip, Rc::new(decoded));
        }
        let decoded = &self.known[&ip];
        match decoded.refused {
            Some(reason) => Err(reason),
            None => Ok(Rc::clone(decoded)),
        }
    }
}

fn decode(
    bytes: [u8; LONGEST],
    read: usize,
    ip: u64,
    factory: &mut InstructionInfoFactory,
) -> Decoded {
    let instruction = IcedDecoder::with_ip(64, &bytes[..read], ip, DecoderOptions::NONE).decode();
    let mut list = Vec::new();
    let unsupported = accesses(&instruction, factory, &mut list).err();
    let flow = classify(&instruction);
    use Mnemonic::*;
    let refused = match (flow, unsupported) {
        (_, Some(unsupported)) => Some(unsupported.reason),
        // These outlive the instruction, which troubles a code cache, not a stepper.
        (Flow::Decline(_), _)
            if matches!(
                instruction.mnemonic(),
                Popf | Std | Rdgsbase | Wrgsbase | Wrfsbase
            ) =>
        {
            None
        }
        (Flow::Decline(reason), _) => Some(reason),
        _ => None,
    };
    Decoded {
        bytes,
        len: instruction.len() as u64,
        accesses: list,
        flow,
        target: match flow {
            Flow::IndirectJump | Flow::IndirectCall => Gpr::containing(instruction.op0_register()),
            _ => None,
        },
        flags_word: match instruction.mnemonic() {
            Pushfq => Some(FlagsWord::Push(8)),
            Pushf => Some(FlagsWord::Push(2)),
            Popfq => Some(FlagsWord::Pop(8)),
            Popf => Some(FlagsWord::Pop(2)),
            _ => None,
        },
        refused,
    }
}

/// Reads up to [`LONGEST`] bytes of code, fewer before a page that cannot be read. Returns how many.
pub(super) fn read_code(stopped: &Stopped, ip: u64, bytes: &mut [u8; LONGEST]) -> usize {
    let remote = [RemoteIoVec {
        base: ip as usize,
        len: LONGEST,
    }];
    if let Ok(read @ 1..) = process_vm_readv(stopped.tid(), &mut [IoSliceMut::new(bytes)], &remote)
    {
        return read;
    }
    // Execute-only pages are closed to that call but not to ptrace.
    let in_page = ((PAGE - ip % PAGE) as usize).min(LONGEST);
    if stopped.read(ip, bytes).is_ok() {
        LONGEST
    } else if stopped.read(ip, &mut bytes[..in_page]).is_ok() {
        in_page
    } else {
        0
    }
}
