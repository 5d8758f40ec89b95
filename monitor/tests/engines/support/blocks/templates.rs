//! Instructions by example: one encoding each, of which the operands are then drawn.

/// What may stand where the example has a memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// Memory, or a general register of the same size.
    General,
    /// Memory, or a vector register of the size of the other one.
    Vector,
    /// Memory alone.
    Memory,
    /// Memory alone, at a multiple of 64 bytes.
    Aligned,
    /// As `Vector`, memory at a multiple of 64 bytes.
    VectorAligned,
    /// Nothing is drawn.
    Fixed,
}

use Operand::*;

/// Instructions every x86-64 processor has, in their 32-bit form; the flag says that 8-bit (opcode
/// less one), 16-bit and 64-bit forms exist too.
pub const INTEGER: &[(&[u8], Operand, bool)] = &[
    (&[0x01, 0x00], General, true),                    // add rm, r
    (&[0x09, 0x00], General, true),                    // or
    (&[0x11, 0x00], General, true),                    // adc
    (&[0x19, 0x00], General, true),                    // sbb
    (&[0x21, 0x00], General, true),                    // and
    (&[0x29, 0x00], General, true),                    // sub
    (&[0x31, 0x00], General, true),                    // xor
    (&[0x39, 0x00], General, true),                    // cmp
    (&[0x03, 0x00], General, true),                    // add r, rm
    (&[0x0b, 0x00], General, true),                    // or
    (&[0x13, 0x00], General, true),                    // adc
    (&[0x1b, 0x00], General, true),                    // sbb
    (&[0x23, 0x00], General, true),                    // and
    (&[0x2b, 0x00], General, true),                    // sub
    (&[0x33, 0x00], General, true),                    // xor
    (&[0x3b, 0x00], General, true),                    // cmp
    (&[0x81, 0x00, 1, 2, 3, 4], General, false),       // add rm, imm32
    (&[0x81, 0x10, 1, 2, 3, 4], General, false),       // adc
    (&[0x81, 0x38, 1, 2, 3, 4], General, false),       // cmp
    (&[0x83, 0x00, 1], General, false),                // add rm, imm8
    (&[0x83, 0x18, 1], General, false),                // sbb
    (&[0x83, 0x28, 1], General, false),                // sub
    (&[0x48, 0x83, 0x00, 1], General, false),          // add
    (&[0x48, 0x83, 0x28, 1], General, false),          // sub
    (&[0x48, 0x81, 0x20, 1, 2, 3, 4], General, false), // and
    (&[0x80, 0x30, 1], General, false),                // xor rm8, imm8
    (&[0x85, 0x00], General, true),                    // test
    (&[0xf6, 0x00, 1], General, false),                // test rm8, imm8
    (&[0x87, 0x00], General, true),                    // xchg
    (&[0x89, 0x00], General, true),                    // mov rm, r
    (&[0x8b, 0x00], General, true),                    // mov r, rm
    (&[0xc7, 0x00, 1, 2, 3, 4], General, false),       // mov rm, imm32
    (&[0x48, 0xc7, 0x00, 1, 2, 3, 4], General, false),
    (&[0x8d, 0x00], Memory, false), // lea
    (&[0x48, 0x8d, 0x00], Memory, false),
    (&[0xf7, 0x10], General, true),              // not
    (&[0xf7, 0x18], General, true),              // neg
    (&[0xff, 0x00], General, true),              // inc
    (&[0xff, 0x08], General, true),              // dec
    (&[0xd1, 0x00], General, true),              // rol 1
    (&[0xd1, 0x10], General, true),              // rcl 1
    (&[0xd1, 0x18], General, true),              // rcr 1
    (&[0xd1, 0x20], General, true),              // shl 1
    (&[0xd1, 0x38], General, true),              // sar 1
    (&[0xc1, 0x00, 9], General, true),           // rol imm
    (&[0xc1, 0x08, 9], General, true),           // ror imm
    (&[0xc1, 0x10, 9], General, true),           // rcl imm
    (&[0xc1, 0x20, 9], General, true),           // shl imm
    (&[0xc1, 0x28, 9], General, true),           // shr imm
    (&[0xc1, 0x38, 9], General, true),           // sar imm
    (&[0xd3, 0x00], General, true),              // rol cl
    (&[0xd3, 0x18], General, true),              // rcr cl
    (&[0xd3, 0x20], General, true),              // shl cl
    (&[0xd3, 0x28], General, true),              // shr cl
    (&[0xd3, 0x38], General, true),              // sar cl
    (&[0x0f, 0xa4, 0x00, 9], General, false),    // shld imm
    (&[0x0f, 0xa5, 0x00], General, false),       // shld cl
    (&[0x48, 0x0f, 0xad, 0x00], General, false), // shrd cl
    (&[0x0f, 0xaf, 0x00], General, false),       // imul r, rm
    (&[0x48, 0x0f, 0xaf, 0x00], General, false),
    (&[0x69, 0x00, 1, 2, 3, 4], General, false), // imul r, rm, imm
    (&[0xf7, 0x20], General, true),              // mul
    (&[0xf7, 0x28], General, true),              // imul
    (&[0x0f, 0xb6, 0x00], General, false),       // movzx r32, rm8
    (&[0x0f, 0xb7, 0x00], General, false),       // movzx r32, rm16
    (&[0x48, 0x0f, 0xbe, 0x00], General, false), // movsx r64, rm8
    (&[0x48, 0x63, 0x00], General, false),       // movsxd
    (&[0x0f, 0xc1, 0x00], General, true),        // xadd
    (&[0x0f, 0xb1, 0x00], General, true),        // cmpxchg
    (&[0x0f, 0xbc, 0x00], General, false),       // bsf
    (&[0x0f, 0xbd, 0x00], General, false),       // bsr
    (&[0xf3, 0x0f, 0xb8, 0x00], General, false), // popcnt
    (&[0x0f, 0xba, 0x20, 7], General, false),    // bt imm
    (&[0x0f, 0xba, 0x28, 7], General, false),    // bts imm
    (&[0x48, 0x0f, 0xba, 0x38, 7], General, false), // btc imm
    (&[0x0f, 0x90, 0x00], General, false),       // seto
    (&[0x0f, 0x92, 0x00], General, false),       // setb
    (&[0x0f, 0x94, 0x00], General, false),       // sete
    (&[0x0f, 0x9a, 0x00], General, false),       // setp
    (&[0x0f, 0x9c, 0x00], General, false),       // setl
    (&[0x0f, 0x40, 0x00], General, false),       // cmovo
    (&[0x0f, 0x42, 0x00], General, false),       // cmovb
    (&[0x48, 0x0f, 0x44, 0x00], General, false), // cmove
    (&[0x48, 0x0f, 0x47, 0x00], General, false), // cmova
    (&[0x0f, 0x4f, 0x00], General, false),       // cmovg
    (&[0x0f, 0x38, 0xf0, 0x00], Memory, false),  // movbe
    (&[0x0f, 0xc8], Fixed, false),               // bswap eax
    (&[0x49, 0x0f, 0xca], Fixed, false),         // bswap r10
    (&[0x0f, 0x0d, 0x08], Memory, false),        // prefetchw
    (&[0x0f, 0x18, 0x08], Memory, false),        // prefetcht0
    (&[0x0f, 0x1f, 0x00], Memory, false),        // nop
    (&[0x0f, 0xc3, 0x00], Memory, false),        // movnti
    (&[0x9c, 0x58], Fixed, false),               // pushf; pop rax follows by itself below
    (&[0x9f], Fixed, false),                     // lahf
    (&[0x9e], Fixed, false),                     // sahf
    (&[0x98], Fixed, false),                     // cwde
    (&[0x48, 0x98], Fixed, false),               // cdqe
    (&[0x99], Fixed, false),                     // cdq
    (&[0x48, 0x99], Fixed, false),               // cqo
    (&[0xf5], Fixed, false),                     // cmc
    (&[0xf8], Fixed, false),                     // clc
    (&[0xf9], Fixed, false),                     // stc
    (&[0xfc], Fixed, false),                     // cld
    (&[0xf3, 0x90], Fixed, false),               // pause
    (&[0x88, 0xe1], Fixed, false),               // mov cl, ah
    (&[0x00, 0xf7], Fixed, false),               // add bh, dh
    (&[0xf0, 0x01, 0x00], Memory, true),         // lock add
    (&[0xf0, 0x31, 0x00], Memory, true),         // lock xor
    (&[0xf0, 0x11, 0x00], Memory, true),         // lock adc
    (&[0xf0, 0xff, 0x00], Memory, true),         // lock inc
    (&[0xf0, 0xff, 0x08], Memory, true),         // lock dec
    (&[0xf0, 0xf7, 0x18], Memory, true),         // lock neg
    (&[0xf0, 0x0f, 0xc1, 0x00], Memory, true),   // lock xadd
    (&[0xf0, 0x0f, 0xb1, 0x00], Memory, true),   // lock cmpxchg
    (&[0xf0, 0x0f, 0xba, 0x30, 7], Memory, false), // lock btr imm
    (&[0xf0, 0x0f, 0xc7, 0x08], Memory, false),  // lock cmpxchg8b
    (&[0xf0, 0x48, 0x0f, 0xc7, 0x08], Aligned, false), // lock cmpxchg16b
];

/// x87 and MMX.
pub const FLOATING: &[(&[u8], Operand)] = &[
    (&[0xd9, 0x00], Memory),       // fld m32
    (&[0xdd, 0x00], Memory),       // fld m64
    (&[0xdb, 0x28], Memory),       // fld m80
    (&[0xd9, 0x10], Memory),       // fst m32
    (&[0xdd, 0x18], Memory),       // fstp m64
    (&[0xdb, 0x38], Memory),       // fstp m80
    (&[0xdb, 0x00], Memory),       // fild m32
    (&[0xdf, 0x28], Memory),       // fild m64
    (&[0xdb, 0x18], Memory),       // fistp m32
    (&[0xdf, 0x38], Memory),       // fistp m64
    (&[0xdf, 0x20], Memory),       // fbld
    (&[0xd8, 0x00], Memory),       // fadd m32
    (&[0xdc, 0x08], Memory),       // fmul m64
    (&[0xda, 0x00], Memory),       // fiadd m32
    (&[0xd9, 0x38], Memory),       // fnstcw
    (&[0xdd, 0x38], Memory),       // fnstsw m16
    (&[0xd8, 0xc1], Fixed),        // fadd st, st1
    (&[0xd9, 0xc9], Fixed),        // fxch
    (&[0xd9, 0xfa], Fixed),        // fsqrt
    (&[0xd9, 0xe8], Fixed),        // fld1
    (&[0xdf, 0xe0], Fixed),        // fnstsw ax
    (&[0xdb, 0xf1], Fixed),        // fcomi
    (&[0xda, 0xc1], Fixed),        // fcmovb
    (&[0xd9, 0xf7], Fixed),        // fincstp
    (&[0x0f, 0x6f, 0x00], Memory), // movq mm, m64
    (&[0x0f, 0x7f, 0x00], Memory), // movq m64, mm
    (&[0x0f, 0xfe, 0x00], Memory), // paddd mm, m64
    (&[0x0f, 0x77], Fixed),        // emms
];

/// SSE to SSE4.2.
pub const SSE: &[(&[u8], Operand)] = &[
    (&[0x66, 0x0f, 0xfe, 0x00], VectorAligned),       // paddd
    (&[0x0f, 0x58, 0x00], VectorAligned),             // addps
    (&[0x0f, 0x10, 0x00], Vector),                    // movups
    (&[0x0f, 0x11, 0x00], Vector),                    // movups store
    (&[0x66, 0x0f, 0x6f, 0x00], VectorAligned),       // movdqa
    (&[0x66, 0x0f, 0x7f, 0x00], VectorAligned),       // movdqa store
    (&[0xf3, 0x0f, 0x6f, 0x00], Vector),              // movdqu
    (&[0xf3, 0x0f, 0x7f, 0x00], Vector),              // movdqu store
    (&[0x66, 0x0f, 0x70, 0x00, 7], VectorAligned),    // pshufd
    (&[0x66, 0x0f, 0xd6, 0x00], Memory),              // movq store
    (&[0xf3, 0x0f, 0x7e, 0x00], Vector),              // movq load
    (&[0xf2, 0x0f, 0x10, 0x00], Memory),              // movsd
    (&[0xf2, 0x0f, 0x58, 0x00], Vector),              // addsd
    (&[0xf3, 0x0f, 0x5e, 0x00], Vector),              // divss
    (&[0xf2, 0x0f, 0x2c, 0x00], Vector),              // cvttsd2si
    (&[0xf2, 0x0f, 0x2a, 0x00], General),             // cvtsi2sd
    (&[0x66, 0x0f, 0x6e, 0x00], General),             // movd
    (&[0x66, 0x48, 0x0f, 0x7e, 0x00], General),       // movq to gpr or memory
    (&[0x0f, 0x12, 0x00], Memory),                    // movlps
    (&[0x0f, 0x17, 0x00], Memory),                    // movhps store
    (&[0x66, 0x0f, 0x2f, 0x00], Vector),              // comisd
    (&[0x66, 0x0f, 0x38, 0x17, 0x00], VectorAligned), // ptest
    (&[0x66, 0x0f, 0x38, 0x00, 0x00], VectorAligned), // pshufb
    (&[0x66, 0x0f, 0x3a, 0x16, 0x00, 2], General),    // pextrd
    (&[0x66, 0x0f, 0xe7, 0x00], Aligned),             // movntdq
    (&[0xf2, 0x0f, 0xf0, 0x00], Memory),              // lddqu
    (&[0x66, 0x0f, 0x38, 0x30, 0x00], Vector),        // pmovzxbw
    (&[0x0f, 0xae, 0x18], Memory),                    // stmxcsr
    (&[0xf2, 0x0f, 0x38, 0xf1, 0x00], General),       // crc32
];

/// AVX, AVX2, FMA and BMI.
pub const AVX: &[(&[u8], Operand)] = &[
    (&[0xc5, 0xfd, 0xfe, 0x00], Vector),           // vpaddd ymm
    (&[0xc5, 0xf9, 0xfe, 0x00], Vector),           // vpaddd xmm
    (&[0xc5, 0xfc, 0x59, 0x00], Vector),           // vmulps ymm
    (&[0xc5, 0xfb, 0x58, 0x00], Vector),           // vaddsd
    (&[0xc5, 0xfe, 0x6f, 0x00], Vector),           // vmovdqu load
    (&[0xc5, 0xfe, 0x7f, 0x00], Vector),           // vmovdqu store
    (&[0xc5, 0xfd, 0x6f, 0x00], VectorAligned),    // vmovdqa load
    (&[0xc5, 0xfd, 0x7f, 0x00], VectorAligned),    // vmovdqa store
    (&[0xc4, 0xe2, 0x7d, 0x8c, 0x00], Memory),     // vpmaskmovd load
    (&[0xc4, 0xe2, 0x7d, 0x8e, 0x00], Memory),     // vpmaskmovd store
    (&[0xc4, 0xe2, 0x7d, 0x18, 0x00], Memory),     // vbroadcastss
    (&[0xc4, 0xe2, 0x7d, 0x5a, 0x00], Memory),     // vbroadcasti128
    (&[0xc4, 0xe3, 0x7d, 0x39, 0x00, 1], Memory),  // vextracti128
    (&[0xc4, 0xe3, 0x7d, 0x38, 0x00, 1], Memory),  // vinserti128
    (&[0xc4, 0xe2, 0x7d, 0xb8, 0x00], Vector),     // vfmadd231ps
    (&[0xc5, 0xf8, 0x77], Fixed),                  // vzeroupper
    (&[0xc4, 0xe2, 0xf8, 0xf2, 0x00], General),    // andn
    (&[0xc4, 0xe2, 0xf8, 0xf7, 0x00], General),    // bextr
    (&[0xc4, 0xe2, 0xf9, 0xf7, 0x00], General),    // shlx
    (&[0xc4, 0xe2, 0xfb, 0xf6, 0x00], General),    // mulx
    (&[0xc4, 0xe2, 0xfb, 0xf5, 0x00], General),    // pdep
    (&[0xc4, 0xe3, 0xfb, 0xf0, 0x00, 5], General), // rorx
    (&[0xc4, 0xe2, 0xf8, 0xf3, 0x08], General),    // blsr
    (&[0x66, 0x0f, 0x38, 0xf6, 0x00], General),    // adcx
    (&[0xf3, 0x0f, 0x38, 0xf6, 0x00], General),    // adox
    (&[0xf3, 0x0f, 0xbd, 0x00], General),          // lzcnt
    (&[0xf3, 0x0f, 0xbc, 0x00], General),          // tzcnt
];

/// AVX-512 F, BW, DQ and VL; those with a mask register get another one.
pub const AVX512: &[(&[u8], Operand)] = &[
    (&[0x62, 0xf1, 0x7d, 0x48, 0xfe, 0x00], Vector), // vpaddd zmm
    (&[0x62, 0xf1, 0x7d, 0x49, 0xfe, 0x00], Vector), // vpaddd zmm{k1}
    (&[0x62, 0xf1, 0x7d, 0xc9, 0xfe, 0x00], Vector), // vpaddd zmm{k1}{z}
    (&[0x62, 0xf1, 0x7d, 0x58, 0xfe, 0x00], Memory), // vpaddd zmm, m32{1to16}
    (&[0x62, 0xf1, 0xfe, 0x48, 0x6f, 0x00], Vector), // vmovdqu64 load
    (&[0x62, 0xf1, 0xfe, 0x48, 0x7f, 0x00], Vector), // vmovdqu64 store
    (&[0x62, 0xf1, 0x7e, 0x49, 0x7f, 0x00], Vector), // vmovdqu32 store{k1}
    (&[0x62, 0xf1, 0x7e, 0xa9, 0x6f, 0x00], Vector), // vmovdqu32 ymm{k1}{z}
    (&[0x62, 0xf1, 0x7f, 0x49, 0x7f, 0x00], Vector), // vmovdqu8 store{k1}
    (&[0x62, 0xf1, 0x7d, 0x48, 0x76, 0x00], Vector), // vpcmpeqd k, zmm
    (&[0x62, 0xf2, 0xfd, 0x48, 0xb8, 0x00], Vector), // vfmadd231pd zmm
    (&[0x62, 0xf3, 0x7d, 0x48, 0x25, 0x00, 0x96], Vector), // vpternlogd
    (&[0x62, 0xf2, 0x7d, 0x48, 0x58, 0x00], Vector), // vpbroadcastd
    (&[0x62, 0xf1, 0xfd, 0x48, 0x7f, 0x00], VectorAligned), // vmovdqa64 store
    (&[0xc5, 0xf8, 0x90, 0x00], Memory),             // kmovw k, m16
    (&[0xc5, 0xf8, 0x91, 0x00], Memory),             // kmovw m16, k
];
