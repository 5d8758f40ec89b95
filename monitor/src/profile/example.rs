//! Records for the tests of whoever writes or reads profiles.

use super::types::{Estimate, Header, Instr, Module, Record, WindowRecord};

/// What a profile begins with: a header, a module, an instruction in it.
pub(crate) fn beginning() -> Vec<Record> {
    vec![
        Record::Header(Header::example(&["./app", "x"])),
        Record::Modules(vec![Module {
            path: "/bin/app".to_owned(),
            bias: 0x1000,
            build_id: "ab".to_owned(),
        }]),
        Record::Instrs(vec![Instr {
            module: Some(0),
            offset: 16,
        }]),
    ]
}

/// A window of thread 1 without samples, `index` seconds into the run.
pub(crate) fn window(index: u32, accesses: u64, stands_for: Estimate) -> WindowRecord {
    WindowRecord {
        index,
        start_s: f64::from(index),
        cpu_start_s: 0.0,
        wall_s: 0.01,
        contiguous_with_previous: false,
        tid: 1,
        accesses,
        refs: [accesses; 5],
        threads: Vec::new(),
        stands_for,
        samples: Vec::new(),
        declined: 0,
        first_touches: None,
    }
}
