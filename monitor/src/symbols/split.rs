//! Debug information that was left beside a program (`-gsplit-dwarf`): that of each unit in a file of its own, by the name that the program has for it.
//!
//! Source: DWARF 5, sections 3.1.2 and 7.3.2; GDB manual, "Separate Debug Files" (where they are looked for).

use super::files::Files;
use super::frames::Shared;
use crate::profile::types::Module;
use addr2line::SplitDwarfLoad;
use gimli::{Dwarf, DwarfSections, EndianReader, LittleEndian, Reader, Section, SectionId};
use object::{Object, ObjectSection};
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// Whether some of it is elsewhere.
pub(super) fn is_split<R: Reader<Offset = usize>>(dwarf: &Dwarf<R>) -> bool {
    // Units of that kind have the addresses that they need in the program.
    if dwarf.debug_addr.reader().is_empty() {
        return false;
    }
    let mut headers = dwarf.units();
    while let Ok(Some(header)) = headers.next() {
        let name = dwarf.unit(header).and_then(|unit| unit.dwo_name());
        if matches!(name, Ok(Some(_))) {
            return true;
        }
    }
    false
}

/// The debug information of a unit of `module`; `None` where its file is gone, or is another version's.
#[expect(
    clippy::arc_with_non_send_sync,
    reason = "addr2line wants one, and keeps it to itself"
)]
pub(super) fn load(
    files: &dyn Files,
    module: &Module,
    wanted: SplitDwarfLoad<Shared>,
) -> Option<Arc<Dwarf<Shared>>> {
    let text = |name: &Shared| Some(name.to_string().ok()?.into_owned());
    let name = PathBuf::from(text(wanted.path.as_ref()?)?);
    let built_in = wanted.comp_dir.as_ref().and_then(text);
    places(&name, built_in.as_deref(), &module.path)
        .iter()
        .find_map(|place| {
            let mut dwarf = read(&files.read(place)?)?;
            let header = dwarf.units().next().ok()??;
            // It may have been built again since.
            if dwarf.unit(header).ok()?.dwo_id != Some(wanted.dwo_id) {
                return None;
            }
            dwarf.make_dwo(&wanted.parent);
            Some(Arc::new(dwarf))
        })
}

/// Where the program was built, and beside it.
fn places(name: &Path, built_in: Option<&str>, module: &str) -> Vec<PathBuf> {
    let built = built_in.map_or(name.to_owned(), |directory| Path::new(directory).join(name));
    let beside = name.file_name().and_then(|last| {
        let directory = Path::new(module).parent()?;
        Some(directory.join(last))
    });
    [Some(built), beside].into_iter().flatten().collect()
}

fn read(bytes: &[u8]) -> Option<Dwarf<Shared>> {
    let file = object::File::parse(bytes).ok()?;
    let load = |id: SectionId| -> Result<Cow<'_, [u8]>, std::convert::Infallible> {
        let section = id.dwo_name().and_then(|name| file.section_by_name(name));
        Ok(section
            .and_then(|section| section.uncompressed_data().ok())
            .unwrap_or_default())
    };
    let sections = match DwarfSections::load(load) {
        Ok(sections) => sections,
        Err(never) => match never {},
    };
    Some(sections.borrow(|section| EndianReader::new(Rc::from(&**section), LittleEndian)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_looked_for_where_they_were_built_and_beside_the_program() {
        let found = places(Path::new("out/a.dwo"), Some("/src"), "/opt/bin/app");
        let expected = ["/src/out/a.dwo", "/opt/bin/a.dwo"];
        assert_eq!(found, expected.map(PathBuf::from));
        let found = places(Path::new("/b/a.dwo"), None, "app");
        assert_eq!(found, ["/b/a.dwo", "a.dwo"].map(PathBuf::from));
    }
}
