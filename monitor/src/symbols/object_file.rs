//! What an ELF file says of itself: its build id and where its debug information is.

use std::path::PathBuf;

use object::{Object, ObjectSection};

/// Where an object's debug information is.
#[derive(Clone, Debug, Default)]
pub(super) struct Links {
    /// GNU build id, lower-case hexadecimal, empty when there is none.
    pub(super) build_id: String,
    /// Whether line numbers or functions are in this very file.
    pub(super) has_dwarf: bool,
    /// `.gnu_debuglink`: the file name of the separate debug file.
    pub(super) debug_link: Option<PathBuf>,
    /// The CRC-32 of that file.
    pub(super) debug_crc: Option<u32>,
    /// `.gnu_debugaltlink`: the file with the shared part (`dwz`).
    pub(super) supplement: Option<PathBuf>,
    /// Build id of that file.
    pub(super) supplement_id: String,
}

/// The GNU build id of an ELF file, lower-case hexadecimal.
#[must_use]
pub fn build_id(bytes: &[u8]) -> Option<String> {
    let file = object::File::parse(bytes).ok()?;
    file.build_id().ok()?.map(hex)
}

pub(super) fn links(bytes: &[u8]) -> Links {
    let Ok(file) = object::File::parse(bytes) else {
        return Links::default();
    };
    let path = |name: &[u8]| Some(PathBuf::from(std::str::from_utf8(name).ok()?));
    let debug = file.gnu_debuglink().ok().flatten();
    let alt = file.gnu_debugaltlink().ok().flatten();
    Links {
        build_id: file.build_id().ok().flatten().map(hex).unwrap_or_default(),
        has_dwarf: file
            .section_by_name(".debug_info")
            .is_some_and(|s| s.size() > 0),
        debug_link: debug.and_then(|(name, _)| path(name)),
        debug_crc: debug.map(|(_, crc)| crc),
        supplement: alt.and_then(|(name, _)| path(name)),
        supplement_id: alt.map(|(_, id)| hex(id)).unwrap_or_default(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
