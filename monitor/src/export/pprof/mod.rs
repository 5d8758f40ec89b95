//! pprof's format: a gzip-compressed protocol buffer, which `pprof` and `go tool pprof` open.
//!
//! Each value of a sample is a count of one event: references to 64-byte lines, and the misses in each cache. Samples are tagged with the
//! data they go to (`data`, `memory`) and with their process, so that `-tagfocus` and `-tagroot` tell these apart. Addresses are those in
//! the object files, which is how pprof finds instructions to disassemble.

mod proto;

use std::collections::HashMap;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use super::flat::{self, HOMELESS, Levels};
use super::{ExportError, Exporter, Options};
use crate::analysis::{Analysis, Apart};
use crate::profile::types::{Frame, InstrId, Module};
use crate::symbols::short_module_name;
use proto::{Function, Label, Line, Location, Mapping, Profile, Sample, ValueType};

pub(super) struct Pprof;

impl Exporter for Pprof {
    fn export(
        &self,
        analysis: &Analysis<'_>,
        options: &Options,
        out: &mut dyn Write,
    ) -> Result<(), ExportError> {
        let levels = Levels::new(analysis, options)?;
        let header = &analysis.profile.header;
        let mut tables = Tables::default();
        let unit = tables.string("count");
        let labels = levels.labels(header);
        let events = labels
            .iter()
            .map(|label| format!("misses_{}", label.replace(' ', "_")));
        for event in ["references".to_owned()].into_iter().chain(events) {
            let r#type = tables.string(&event);
            tables.profile.sample_type.push(ValueType { r#type, unit });
        }
        tables.profile.default_sample_type = tables.profile.sample_type[1 + levels.first].r#type;
        tables.profile.time_nanos = nanos(header.start_unix_s);
        let footer = analysis.profile.footer.as_ref();
        tables.profile.duration_nanos = nanos(footer.map_or(0.0, |footer| footer.wall_s));
        flat::each_process(analysis, options, |analysis| {
            let command = tables.string(&analysis.profile.header.command.join(" "));
            tables.profile.comment.push(command);
            tables.add(analysis, &levels)
        })?;
        let mut gzip = GzEncoder::new(out, Compression::default());
        gzip.write_all(&tables.profile.encode_to_vec())?;
        gzip.finish()?;
        Ok(())
    }
}

/// The message in the making, and where what it has already is in it.
#[derive(Default)]
struct Tables {
    profile: Profile,
    strings: HashMap<String, i64>,
    functions: HashMap<(String, String), u64>,
    mappings: HashMap<(String, String), u64>,
    /// By mapping, address and process.
    locations: HashMap<(u64, u64, i32), u64>,
}

impl Tables {
    fn string(&mut self, text: &str) -> i64 {
        let table = &mut self.profile.string_table;
        if table.is_empty() {
            table.push(String::new());
            self.strings.insert(String::new(), 0);
        }
        *self.strings.entry(text.to_owned()).or_insert_with(|| {
            table.push(text.to_owned());
            table.len() as i64 - 1
        })
    }

    fn label(&mut self, key: &str, text: &str) -> Label {
        Label {
            key: self.string(key),
            str: self.string(text),
            num: 0,
        }
    }

    fn add(&mut self, analysis: &Analysis<'_>, levels: &Levels) -> Result<(), ExportError> {
        let costs = analysis.costs(&levels.sizes, Apart::Data)?;
        let header = &analysis.profile.header;
        // The first mapping is the program's, by which pprof calls a profile.
        if self.profile.mapping.is_empty() {
            let modules = &analysis.profile.modules;
            let name = |module: &&Module| short_module_name(&module.path) == header.program();
            if let Some(module) = modules.iter().find(name) {
                self.mapping(&module.path, &module.build_id);
            }
        }
        let process = [
            self.label("process", header.program()),
            Label {
                key: self.string("pid"),
                str: 0,
                num: header.pid.into(),
            },
        ];
        for place in &costs.places {
            let location = self.location(analysis, place.instr);
            let datum = analysis.datum(place.part);
            let mut label = process.to_vec();
            label.push(self.label("data", &datum.name));
            if let Some(kind) = datum.data {
                label.push(self.label("memory", kind.name()));
            }
            self.sample(location, (place.references, &place.misses), label);
        }
        let (references, misses) = costs.homeless();
        let nowhere = Frame {
            function: HOMELESS.to_owned(),
            file: String::new(),
            line: 0,
        };
        let location = self.place((0, 0, header.pid), &[nowhere]);
        self.sample(location, (references, &misses), process.to_vec());
        Ok(())
    }

    /// One that counts nothing is left out.
    fn sample(&mut self, location: u64, counts: (f64, &[f64]), label: Vec<Label>) {
        let (references, misses) = counts;
        let counts = std::iter::once(references).chain(misses.iter().copied());
        let value: Vec<i64> = counts.map(|count| flat::count(count) as i64).collect();
        if value.iter().any(|&count| count > 0) {
            self.profile.sample.push(Sample {
                location_id: vec![location],
                value,
                label,
            });
        }
    }

    fn location(&mut self, analysis: &Analysis<'_>, instr: InstrId) -> u64 {
        let profile = analysis.profile;
        let at = profile.instrs[instr as usize];
        let module = at.module.map(|module| &profile.modules[module as usize]);
        let mapping = module.map_or(0, |module| self.mapping(&module.path, &module.build_id));
        // Generated code of two processes is at the same addresses.
        let pid = if mapping == 0 { profile.header.pid } else { 0 };
        self.place((mapping, at.offset, pid), &flat::frames(profile, instr))
    }

    fn place(&mut self, key: (u64, u64, i32), frames: &[Frame]) -> u64 {
        if let Some(&id) = self.locations.get(&key) {
            return id;
        }
        let id = self.profile.location.len() as u64 + 1;
        let (mapping_id, address, _) = key;
        let line = frames.iter().map(|frame| Line {
            function_id: self.function(frame),
            line: frame.line.into(),
        });
        let line = line.collect();
        self.profile.location.push(Location {
            id,
            mapping_id,
            address,
            line,
        });
        self.locations.insert(key, id);
        id
    }

    fn function(&mut self, frame: &Frame) -> u64 {
        let key = (frame.function.clone(), frame.file.clone());
        if let Some(&id) = self.functions.get(&key) {
            return id;
        }
        let id = self.profile.function.len() as u64 + 1;
        let (name, filename) = (self.string(&frame.function), self.string(&frame.file));
        self.profile.function.push(Function {
            id,
            name,
            system_name: name,
            filename,
        });
        self.functions.insert(key, id);
        id
    }

    fn mapping(&mut self, path: &str, build_id: &str) -> u64 {
        let key = (path.to_owned(), build_id.to_owned());
        if let Some(&id) = self.mappings.get(&key) {
            return id;
        }
        let id = self.profile.mapping.len() as u64 + 1;
        let (filename, build_id) = (self.string(path), self.string(build_id));
        self.profile.mapping.push(Mapping {
            id,
            memory_limit: u64::MAX,
            filename,
            build_id,
            // All that can be told of names is told; pprof need not look for more.
            has_functions: true,
            has_filenames: true,
            has_line_numbers: true,
            has_inline_frames: true,
        });
        self.mappings.insert(key, id);
        id
    }
}

fn nanos(seconds: f64) -> i64 {
    (seconds * 1e9).round() as i64
}
