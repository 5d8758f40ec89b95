//! A real program to profile: compresses files as small as it can, expands them again and compares.
//!
//! `compress FILE...` prints one line a file. The work is done by the `miniz_oxide` library, so a
//! profile of it shows that library's source lines.

use std::error::Error;
use std::io::{Read, Write};
use std::{env, fs};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;

fn main() -> Result<(), Box<dyn Error>> {
    let files: Vec<String> = env::args().skip(1).collect();
    if files.is_empty() {
        return Err("usage: compress FILE...".into());
    }
    for file in files {
        let plain = fs::read(&file).map_err(|e| format!("cannot read {file}: {e}"))?;
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&plain)?;
        let small = encoder.finish()?;
        let mut again = Vec::with_capacity(plain.len());
        ZlibDecoder::new(small.as_slice()).read_to_end(&mut again)?;
        if again != plain {
            return Err(format!("{file}: expands to something else").into());
        }
        println!("{file}: {} -> {} bytes", plain.len(), small.len());
    }
    Ok(())
}
