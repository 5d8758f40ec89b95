//! Framing of records: a preamble, then one checksummed frame a record.
//!
//! ```text
//! preamble   magic (12 bytes) | schema version (u32)
//! frame      stored length (u32) | raw length (u32) | encoding (u8) | crc32 (u32) | stored bytes
//! ```
//! All integers little-endian. The checksum covers the frame's other header fields and its stored
//! bytes, so a frame is whole or it is not there: a reader stops at the first that does not check.
//! Does no IO.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

use super::columns;
use super::types::{OLDEST_SCHEMA_VERSION, Record, SCHEMA_VERSION};

/// First bytes of every profile. The high bit and the line ends reveal a file mangled as text.
pub(super) const MAGIC: [u8; 12] = *b"\x89statcache\r\n";
/// Bytes of magic and version.
pub(super) const PREAMBLE: usize = MAGIC.len() + 4;
/// Bytes of a frame before its payload.
const HEAD: usize = 13;
/// Below this a record is stored as it is: deflate would gain nothing (guessed).
const PLAIN_BELOW: usize = 256;
/// No record we write comes near this; a larger length is damage, not a reason to allocate.
const MAX_RECORD: usize = 1 << 30;

/// How hard deflate tries. (Two minutes of a compiler observed whole have 26.1 MB of windows: level 1 makes 16.4 of them in 0.16 s, 2 makes 15.7 in
/// 0.34, 3 15.5 in 0.41, 6 15.4 in 0.74.)
#[derive(Clone, Copy, Debug)]
pub(super) enum Effort {
    /// As little as can be.
    Low,
    /// Where the profile grows large: a twentieth less.
    High,
}

impl Effort {
    fn level(self) -> Compression {
        match self {
            Effort::Low => Compression::fast(),
            Effort::High => Compression::new(3),
        }
    }
}

const PLAIN: u8 = 0;
const DEFLATE: u8 = 1;

/// The preamble of this version.
pub(super) fn preamble() -> [u8; PREAMBLE] {
    let mut bytes = [0; PREAMBLE];
    bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
    bytes[MAGIC.len()..].copy_from_slice(&SCHEMA_VERSION.to_le_bytes());
    bytes
}

/// What the first bytes of a file say.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Preamble {
    /// A profile of this version.
    Ours,
    /// A profile of another version.
    Version(u32),
    /// The first bytes of a profile, cut off.
    Short,
    /// Something else.
    Foreign,
}

/// Judges the first bytes of a file.
pub(super) fn check_preamble(bytes: &[u8]) -> Preamble {
    if bytes.len() < PREAMBLE {
        return if !bytes.is_empty() && preamble().starts_with(bytes) {
            Preamble::Short
        } else {
            Preamble::Foreign
        };
    }
    if bytes[..MAGIC.len()] != MAGIC {
        return Preamble::Foreign;
    }
    match le_u32(&bytes[MAGIC.len()..]) {
        OLDEST_SCHEMA_VERSION..=SCHEMA_VERSION => Preamble::Ours,
        other => Preamble::Version(other),
    }
}

/// One record as a frame.
///
/// # Errors
/// A text of what could not be encoded.
pub(super) fn encode(record: &Record, effort: Effort) -> Result<Vec<u8>, String> {
    let raw = columns::encode_record(record)?;
    if raw.len() > MAX_RECORD {
        return Err(format!("a record of {} bytes", raw.len()));
    }
    let mut stored = raw;
    let raw_len = stored.len();
    let mut encoding = PLAIN;
    if raw_len >= PLAIN_BELOW {
        let mut z = DeflateEncoder::new(Vec::with_capacity(raw_len / 2), effort.level());
        z.write_all(&stored).map_err(|e| e.to_string())?;
        let packed = z.finish().map_err(|e| e.to_string())?;
        if packed.len() < raw_len {
            stored = packed;
            encoding = DEFLATE;
        }
    }
    let mut out = Vec::with_capacity(HEAD + stored.len());
    out.extend_from_slice(&len_u32(stored.len())?);
    out.extend_from_slice(&len_u32(raw_len)?);
    out.push(encoding);
    let crc = checksum(&out, &stored);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(&stored);
    Ok(out)
}

/// What lies at the start of `bytes`.
#[derive(Debug)]
pub(super) enum Decoded {
    /// A record, and the bytes its frame took.
    Record(Box<Record>, usize),
    /// No whole frame: the file ends inside one, or a checksum does not match.
    Torn,
    /// The frame checks, the record in it does not make sense.
    Damaged(String),
}

/// Reads the frame at the start of `bytes` (not empty).
pub(super) fn decode(bytes: &[u8]) -> Decoded {
    if bytes.len() < HEAD {
        return Decoded::Torn;
    }
    let stored_len = le_u32(bytes) as usize;
    let raw_len = le_u32(&bytes[4..]) as usize;
    let encoding = bytes[8];
    let Some(stored) = bytes.get(HEAD..HEAD + stored_len) else {
        return Decoded::Torn;
    };
    if le_u32(&bytes[9..]) != checksum(&bytes[..9], stored) {
        return Decoded::Torn;
    }
    // Deflate makes no more of a byte (zlib, "Technical Details", "Maximum Compression Factor").
    const MOST_OF_A_BYTE: usize = 1032;
    if raw_len > MAX_RECORD || raw_len > stored_len.saturating_mul(MOST_OF_A_BYTE) {
        return Decoded::Damaged(format!("a record of {raw_len} bytes"));
    }
    let unpacked;
    let raw = match encoding {
        PLAIN => stored,
        DEFLATE => {
            let mut buffer = Vec::with_capacity(raw_len);
            // One byte more than announced is enough to notice a lie.
            let limit = raw_len as u64 + 1;
            if let Err(e) = DeflateDecoder::new(stored)
                .take(limit)
                .read_to_end(&mut buffer)
            {
                return Decoded::Damaged(e.to_string());
            }
            unpacked = buffer;
            &unpacked
        }
        other => return Decoded::Damaged(format!("unknown encoding {other}")),
    };
    if raw.len() != raw_len {
        return Decoded::Damaged(format!(
            "a record of {} bytes instead of {raw_len}",
            raw.len()
        ));
    }
    match columns::decode_record(raw) {
        Ok(record) => Decoded::Record(Box::new(record), HEAD + stored_len),
        Err(what) => Decoded::Damaged(what),
    }
}

fn checksum(head: &[u8], stored: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(stored);
    hasher.finalize()
}

fn le_u32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn len_u32(n: usize) -> Result<[u8; 4], String> {
    u32::try_from(n)
        .map(u32::to_le_bytes)
        .map_err(|_| format!("a record of {n} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::types::{Estimate, Footer, Unmet};

    fn footer() -> Record {
        Record::Footer(Footer {
            exit_status: Some(3),
            ..Footer::default()
        })
    }

    #[test]
    fn what_is_said_of_windows_at_the_end_is_read_as_it_was() {
        let estimate = Estimate {
            value: 2.0,
            low: 1.0,
            high: 3.0,
        };
        for record in [
            Record::Shares(vec![(3, estimate)]),
            Record::Looks(vec![(0, 12.5), (3, 0.0)]),
            Record::Unmet(Unmet {
                looks: 3,
                unmet_s: 0.1,
                of: 900,
                of_s: 1.8,
                all_s: 2.0,
            }),
            Record::Sites(vec![vec![4, 9], Vec::new(), vec![0]]),
        ] {
            let bytes = encode(&record, Effort::High).unwrap();
            let Decoded::Record(read, _) = decode(&bytes) else {
                panic!("{record:?} is torn");
            };
            assert_eq!(*read, record);
        }
    }

    /// Nothing is made room for that cannot come.
    #[test]
    fn lengths_that_cannot_be_are_noticed() {
        let mut frame = encode(&footer(), Effort::Low).unwrap();
        frame[4..8].copy_from_slice(&(1_u32 << 29).to_le_bytes());
        frame[8] = DEFLATE;
        let sum = checksum(&frame[..9], &frame[HEAD..]);
        frame[9..HEAD].copy_from_slice(&sum.to_le_bytes());
        let Decoded::Damaged(what) = decode(&frame) else {
            panic!("not noticed");
        };
        assert!(what.contains("536870912 bytes"), "{what}");
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_noticed() {
        let frame = encode(&footer(), Effort::Low).unwrap();
        for n in 1..frame.len() {
            assert!(matches!(decode(&frame[..n]), Decoded::Torn), "cut at {n}");
        }
        for i in 0..frame.len() * 8 {
            let mut bad = frame.clone();
            bad[i / 8] ^= 1 << (i % 8);
            assert!(!matches!(decode(&bad), Decoded::Record(..)), "bit {i}");
        }
        match decode(&frame) {
            Decoded::Record(r, n) => assert_eq!((*r, n), (footer(), frame.len())),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn preamble_tells_foreign_from_older_from_cut() {
        assert_eq!(check_preamble(&preamble()), Preamble::Ours);
        assert_eq!(check_preamble(&preamble()[..7]), Preamble::Short);
        assert_eq!(check_preamble(b""), Preamble::Foreign);
        assert_eq!(check_preamble(b"\x7fELF"), Preamble::Foreign);
        assert_eq!(
            check_preamble(b"#!/bin/sh\necho hello\n"),
            Preamble::Foreign
        );
        let mut other = preamble();
        other[MAGIC.len()] = 77;
        assert_eq!(check_preamble(&other), Preamble::Version(77));
    }
}
