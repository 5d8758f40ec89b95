//! Golden tables: instruction bytes against what this module says of them. The expectations were written by hand from
//! the manuals; where an assembler is at hand it checks that the bytes are the instruction that the table names.

use super::*;
use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory, RflagsBits};
use std::process::Command;

const ADDRESS: u64 = 0x1000;

struct Row {
    bytes: Vec<u8>,
    asm: &'static str,
    expected: String,
}

fn rows(table: &'static str) -> Vec<Row> {
    table
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let mut columns = line.splitn(3, '|').map(str::trim);
            let mut column = || columns.next().expect("three columns");
            let bytes = column()
                .split(' ')
                .map(|byte| u8::from_str_radix(byte, 16).expect("hexadecimal byte"))
                .collect();
            Row {
                bytes,
                asm: column(),
                expected: column().to_string(),
            }
        })
        .collect()
}

fn decode(bytes: &[u8]) -> Instruction {
    let mut decoder = Decoder::with_ip(64, bytes, ADDRESS, DecoderOptions::NONE);
    let instruction = decoder.decode();
    assert_eq!(decoder.position(), bytes.len(), "{bytes:02x?}");
    instruction
}

/// Compares every row with what `actual` makes of its instruction, and reports all that differ.
fn check(table: &'static str, mut actual: impl FnMut(&Instruction) -> String) {
    let rows = rows(table);
    assert!(!rows.is_empty());
    let wrong: Vec<String> = rows
        .iter()
        .filter_map(|row| {
            let actual = actual(&decode(&row.bytes));
            // Both formats are as long where no state lies beyond a gap (without AVX-512 and protection keys, say).
            let same = xsave_bytes(false) == xsave_bytes(true);
            let restored = match xrstor_bytes() == xsave_bytes(true) {
                true => "XC [",
                false => "XS [",
            };
            let expected = row.expected.replace("XR [", restored);
            let expected = match same {
                true => expected.replace("XC [", "XS ["),
                false => expected,
            };
            (actual != expected).then(|| format!("{}: {actual}, expected {expected}", row.asm))
        })
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

fn show_address(address: &AddressExpr) -> String {
    let mut terms = Vec::new();
    terms.extend(address.base.map(|base| base.to_string()));
    terms.extend(address.index.map(|index| match address.scale {
        1 => index.to_string(),
        scale => format!("{index}*{scale}"),
    }));
    let mut text = terms.join("+");
    match address.disp {
        disp if text.is_empty() => text = format!("{disp:#x}"),
        0 => {}
        disp if disp < 0 => text += &format!("-{:#x}", -disp),
        disp => text += &format!("+{disp:#x}"),
    }
    let fs = if address.fs { "fs " } else { "" };
    let addr32 = if address.addr32 { "a32 " } else { "" };
    format!("{fs}{addr32}[{text}]")
}

fn show_shape(shape: &Shape) -> String {
    match shape {
        Shape::Plain => String::new(),
        Shape::Xlat => " xlat".into(),
        Shape::MaskMov => " maskmov".into(),
        Shape::BitOffset {
            offset,
            operand_bytes,
        } => format!(" bit({offset},{operand_bytes})"),
        Shape::Rep {
            counter32,
            condition,
            step,
        } => {
            let counter = if *counter32 { "ecx" } else { "rcx" };
            let condition = match condition {
                RepCondition::None => "none",
                RepCondition::WhileEqual => "repe",
                RepCondition::WhileNotEqual => "repne",
            };
            format!(" rep({counter},{condition},{step})")
        }
        Shape::Gather {
            index,
            lanes,
            index_bytes,
            element_bytes,
            scale,
            mask,
            scatter,
        } => {
            let mask = match mask {
                Mask::Vector(number) => format!("v{number}"),
                Mask::K(number) => format!("k{number}"),
            };
            let scatter = if *scatter { ",scatter" } else { "" };
            format!(
                " gather(v{index},{lanes},i{index_bytes},e{element_bytes},*{scale},{mask}{scatter})"
            )
        }
    }
}

fn show_accesses(result: Result<(), Unsupported>, accesses: &[Access]) -> String {
    if let Err(Unsupported { reason }) = result {
        assert!(accesses.is_empty());
        return format!("! {reason}");
    }
    if accesses.is_empty() {
        return "-".into();
    }
    let show = |access: &Access| {
        let kind = match access.kind {
            Kind::Load => 'L',
            Kind::Store => 'S',
            Kind::ReadWrite => 'M',
        };
        let size = match access.size {
            bytes if bytes > 512 && bytes == xsave_bytes(false) => "XS".to_string(),
            bytes if bytes > 512 && bytes == xsave_bytes(true) => "XC".to_string(),
            bytes => bytes.to_string(),
        };
        let (address, shape) = (show_address(&access.address), show_shape(&access.shape));
        format!("{kind}{size} {address}{shape}")
    };
    accesses.iter().map(show).collect::<Vec<_>>().join("; ")
}

#[test]
fn accesses_of_every_class_of_instruction() {
    let mut factory = InstructionInfoFactory::new();
    let mut out = Vec::new();
    check(include_str!("golden/accesses.txt"), |instruction| {
        let result = accesses(instruction, &mut factory, &mut out);
        show_accesses(result, &out)
    });
}

#[test]
fn flow_of_every_class_of_instruction() {
    check(
        include_str!("golden/flow.txt"),
        |instruction| match classify(instruction) {
            Flow::Next => "next".into(),
            Flow::Jump { target } => format!("jump {target:#x}"),
            Flow::CondJump { target } => format!("cond {target:#x}"),
            Flow::LoopOrJrcxz { target } => format!("rcx {target:#x}"),
            Flow::Call { target } => format!("call {target:#x}"),
            Flow::IndirectJump => "indirect jump".into(),
            Flow::IndirectCall => "indirect call".into(),
            Flow::Ret { pop } => format!("ret {pop}"),
            Flow::PopFlags => "pop flags".into(),
            Flow::Syscall => "syscall".into(),
            Flow::Decline(reason) => format!("decline {reason}"),
        },
    );
}

#[test]
fn registers_and_flags_used_and_overwritten() {
    let gprs = |set: GprSet| match set {
        GprSet::ALL => "ALL".to_string(),
        GprSet::EMPTY => "-".to_string(),
        set => {
            let names: Vec<String> = set.iter().map(|gpr| gpr.to_string()).collect();
            names.join(",")
        }
    };
    let flags = |bits: u32| {
        let names = [
            (RflagsBits::OF, 'O'),
            (RflagsBits::SF, 'S'),
            (RflagsBits::ZF, 'Z'),
            (RflagsBits::AF, 'A'),
            (RflagsBits::CF, 'C'),
            (RflagsBits::PF, 'P'),
            (RflagsBits::DF, 'D'),
            (RflagsBits::IF, 'I'),
            (RflagsBits::AC, 'a'),
        ];
        let set = names.iter().filter(|(bit, _)| bits & bit != 0);
        let text: String = set.map(|(_, name)| name).collect();
        if text.is_empty() {
            "-".to_string()
        } else {
            text
        }
    };
    let mut factory = InstructionInfoFactory::new();
    check(include_str!("golden/liveness.txt"), |instruction| {
        let read = gprs_read(instruction, &mut factory);
        let written = gprs_written(instruction, &mut factory);
        format!(
            "r:{} w:{} fr:{} fk:{}",
            gprs(read),
            gprs(written),
            flags(flags_read(instruction)),
            flags(flags_killed(instruction))
        )
    });
}

#[test]
fn liveness_flows_backwards() {
    let mut factory = InstructionInfoFactory::new();
    let compare = decode(&[0x48, 0x39, 0xc8]); // cmp rax, rcx
    let adc = decode(&[0x48, 0x11, 0xc8]); // adc rax, rcx
    let shift = decode(&[0xd3, 0xe0]); // shl eax, cl
    let load = decode(&[0x48, 0x8b, 0x07]); // mov rax, [rdi]
    assert_eq!(flags_live_before(&compare, STATUS_FLAGS), 0);
    assert_eq!(flags_live_before(&adc, STATUS_FLAGS), RflagsBits::CF);
    assert_eq!(flags_live_before(&shift, RflagsBits::ZF), RflagsBits::ZF);
    let live: GprSet = [Gpr::Rax, Gpr::Rbx].into_iter().collect();
    let before = gprs_live_before(&load, &mut factory, live);
    assert_eq!(before, [Gpr::Rbx, Gpr::Rdi].into_iter().collect());
    assert_eq!(
        gprs_killed(&load, &mut factory),
        [Gpr::Rax].into_iter().collect()
    );
}

#[test]
fn tables_name_the_instruction_they_hold() {
    let all: Vec<Row> = [
        include_str!("golden/accesses.txt"),
        include_str!("golden/flow.txt"),
        include_str!("golden/liveness.txt"),
    ]
    .into_iter()
    .flat_map(rows)
    .collect();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| directory.path().join(name);
    // One section for each row, so that `.` and rip-relative operands mean the same as in the table.
    let source: String = all
        .iter()
        .enumerate()
        .map(|(row, Row { asm, .. })| format!(".section .row{row},\"ax\"\n{asm}\n"))
        .collect();
    std::fs::write(path("rows.s"), format!(".intel_syntax noprefix\n{source}")).expect("written");
    let assembled = Command::new("as")
        .args([path("rows.s"), "-o".into(), path("rows.o")])
        .output();
    let output = match assembled {
        Ok(output) if output.status.success() => output,
        other => {
            // An old assembler does not know every instruction in the tables.
            println!("SKIP tables_name_the_instruction_they_hold: as: {other:?}");
            return;
        }
    };
    drop(output);
    let data = std::fs::read(path("rows.o")).expect("object file");
    let sections = elf_sections(&data);
    for (row, Row { bytes, asm, .. }) in all.iter().enumerate() {
        assert_eq!(sections[&format!(".row{row}")], bytes, "{asm}");
    }
}

/// Name and content of the sections of a 64-bit little-endian object file.
fn elf_sections(data: &[u8]) -> std::collections::HashMap<String, &[u8]> {
    let u64_at = |at: usize| u64::from_le_bytes(data[at..at + 8].try_into().expect("8 bytes"));
    let u16_at = |at: usize| u16::from_le_bytes(data[at..at + 2].try_into().expect("2 bytes"));
    let (headers, count, names) = (u64_at(0x28) as usize, u16_at(0x3c), u16_at(0x3e));
    let header = |index: usize| headers + index * 64;
    let content = |index: usize| {
        let (start, size) = (
            u64_at(header(index) + 24) as usize,
            u64_at(header(index) + 32),
        );
        data.get(start..start + size as usize).unwrap_or(&[])
    };
    let strings = content(usize::from(names));
    (0..usize::from(count))
        .map(|index| {
            let at = header(index);
            let name = u32::from_le_bytes(data[at..at + 4].try_into().expect("4 bytes")) as usize;
            let end = strings[name..].iter().position(|byte| *byte == 0);
            let text = &strings[name..name + end.expect("terminated")];
            (String::from_utf8_lossy(text).into_owned(), content(index))
        })
        .collect()
}

/// Register values for [`evaluate`].
#[derive(Clone)]
struct Values {
    gprs: [u64; 16],
    rflags: u64,
    vectors: Vec<[u8; 64]>,
    masks: [u64; 8],
}

impl Values {
    fn new() -> Self {
        Values {
            gprs: [0; 16],
            rflags: 0x202,
            vectors: vec![[0; 64]; 32],
            masks: [0; 8],
        }
    }

    fn set(mut self, gpr: Gpr, value: u64) -> Self {
        self.gprs[gpr.number()] = value;
        self
    }

    fn dwords(mut self, vector: usize, values: &[i32]) -> Self {
        for (lane, value) in values.iter().enumerate() {
            self.vectors[vector][lane * 4..lane * 4 + 4].copy_from_slice(&value.to_le_bytes());
        }
        self
    }
}

impl Registers for Values {
    fn gpr(&self, gpr: Gpr) -> u64 {
        self.gprs[gpr.number()]
    }
    fn rflags(&self) -> u64 {
        self.rflags
    }
    fn fs_base(&self) -> u64 {
        0x7000_0000_0000
    }
    fn vector(&self, number: u8) -> [u8; 64] {
        self.vectors[usize::from(number)]
    }
    fn mask(&self, number: u8) -> u64 {
        self.masks[usize::from(number)]
    }
}

fn check_addresses(bytes: &[u8], values: &Values, expected: &[(u64, u32)]) {
    let mut out = Vec::new();
    accesses(&decode(bytes), &mut InstructionInfoFactory::new(), &mut out).expect("supported");
    let found: Vec<_> = out
        .iter()
        .flat_map(|access| evaluate(access, values))
        .collect();
    assert_eq!(found, expected, "{bytes:02x?}");
}

#[test]
fn plain_addresses_wrap_and_truncate() {
    let values = Values::new()
        .set(Gpr::Rdi, 0xffff_ffff_ffff_fff8)
        .set(Gpr::Rcx, 4);
    check_addresses(&[0x8b, 0x44, 0x8f, 0x10], &values, &[(0x18, 4)]); // mov eax, [rdi+rcx*4+0x10]
    check_addresses(&[0x67, 0x8b, 0x07], &values, &[(0xffff_fff8, 4)]); // mov eax, [edi]
    check_addresses(
        &[0x64, 0x67, 0x8b, 0x07], // mov eax, fs:[edi]
        &values,
        &[(0x7000_ffff_fff8, 4)],
    );
    let tls = [0x64, 0x48, 0x8b, 0x04, 0x25, 0xf8, 0xff, 0xff, 0xff]; // mov rax, fs:[-8]
    check_addresses(&tls, &values, &[(0x6fff_ffff_fff8, 8)]);
}

#[test]
fn bit_offsets_move_the_address_by_signed_operands() {
    let at = |bits: i64| {
        Values::new()
            .set(Gpr::Rdi, 0x1000)
            .set(Gpr::Rax, bits as u64)
    };
    let (bt16, bt32, bt64) = (
        [0x66, 0x0f, 0xa3, 0x07],
        [0x0f, 0xa3, 0x07],
        [0x48, 0x0f, 0xa3, 0x07],
    );
    check_addresses(&bt32, &at(31), &[(0x1000, 4)]);
    check_addresses(&bt32, &at(32), &[(0x1004, 4)]);
    check_addresses(&bt32, &at(-1), &[(0xffc, 4)]);
    check_addresses(&bt32, &at(0x1_0000_0000), &[(0x1000, 4)]);
    check_addresses(&bt64, &at(-65), &[(0xff0, 8)]);
    check_addresses(&bt16, &at(0xffff), &[(0xffe, 2)]);
    check_addresses(&bt16, &at(17), &[(0x1002, 2)]);
}

#[test]
fn rep_is_evaluated_one_iteration_at_a_time() {
    let movsb = [0xf3, 0xa4];
    let values = Values::new()
        .set(Gpr::Rsi, 0x100)
        .set(Gpr::Rdi, 0x200)
        .set(Gpr::Rcx, 5);
    check_addresses(&movsb, &values, &[(0x100, 1), (0x200, 1)]);
    check_addresses(&movsb, &values.clone().set(Gpr::Rcx, 0), &[]);
    let addr32 = [0x67, 0xf3, 0xa4];
    let high = values.set(Gpr::Rcx, 0x1_0000_0000);
    check_addresses(&addr32, &high, &[]);
    check_addresses(&movsb, &high, &[(0x100, 1), (0x200, 1)]);
    let rep = Shape::Rep {
        counter32: false,
        condition: RepCondition::None,
        step: 8,
    };
    assert_eq!(rep.rep_stride(0x202), 8);
    assert_eq!(rep.rep_stride(0x602), -8);
}

#[test]
fn xlat_adds_al_alone() {
    let values = Values::new()
        .set(Gpr::Rbx, 0x1000)
        .set(Gpr::Rax, 0xffff_ff80);
    check_addresses(&[0xd7], &values, &[(0x1080, 1)]);
}

#[test]
fn gathers_take_active_lanes_and_merge_adjoining_ones() {
    let vector_masked = [0xc4, 0xe2, 0x6d, 0x90, 0x04, 0x8f]; // vpgatherdd ymm0, [rdi+ymm1*4], ymm2
    let values = Values::new()
        .set(Gpr::Rdi, 0x1000)
        .dwords(1, &[0, 1, 2, 10, -1, 0, 7, 8])
        .dwords(2, &[-1, -1, 0, -1, -1, -1, -1, i32::MAX]);
    let expected = [(0x1000, 8), (0x1028, 4), (0xffc, 8), (0x101c, 4)];
    check_addresses(&vector_masked, &values, &expected);
    let none = values.clone().dwords(2, &[0; 8]);
    check_addresses(&vector_masked, &none, &[]);

    let scatter = [0x62, 0xf2, 0x7d, 0x49, 0xa0, 0x04, 0x8f]; // vpscatterdd [rdi+zmm1*4]{k1}, zmm0
    let mut values = values.dwords(1, &[0, 2, 4, 6, 8, 10, 12, 14, 3, 4, 5, 6, 20, 20, 20, 21]);
    values.masks[1] = 0b1111_1111_0000_0001;
    let expected = [
        (0x1000, 4),
        (0x100c, 16),
        (0x1050, 4),
        (0x1050, 4),
        (0x1050, 8),
    ];
    check_addresses(&scatter, &values, &expected);
}

#[test]
fn save_areas_hold_at_least_the_legacy_region() {
    assert!(xsave_bytes(false) >= 576 && xsave_bytes(true) >= 576);
    assert!(xsave_bytes(false) < 16 << 10);
}
