//! One table in long form, so that a spreadsheet or a data frame filters it by its first column.
//!
//! Source: RFC 4180 for quoting; a line feed ends a row, as every Unix tool expects.

use std::io::Write;

use super::dto::{Figures, Process};
use super::{ExportError, Exporter, Options, fill};
use crate::analysis::{Analysis, DEFAULT_LINE_BYTES};

const COLUMNS: &str = "section,file,line,function,object,offset,kind,name,start_s,line_size,policy,\
cache_bytes,samples,access_share,miss_ratio,low,high,miss_share,weak,stream,pid";

pub(super) struct Csv;

/// The columns that say what a row is about.
#[derive(Default)]
struct What<'a> {
    section: &'a str,
    file: &'a str,
    line: u32,
    function: &'a str,
    object: &'a str,
    offset: Option<u64>,
    kind: &'a str,
    name: &'a str,
    start_s: Option<f64>,
}

impl Exporter for Csv {
    fn export(
        &self,
        analysis: &Analysis<'_>,
        options: &Options<'_>,
        out: &mut dyn Write,
    ) -> Result<(), ExportError> {
        writeln!(out, "{COLUMNS}")?;
        let document = fill::document(analysis, options)?;
        for process in &document.processes {
            // Whose misses the lists have beside those in one cache of all threads.
            let own = match process.sharing {
                Some(_) => "private",
                None => "own",
            };
            let pid = process.pid;
            Table { out, own, pid }.write(process)?;
        }
        Ok(())
    }
}

/// The rows of one process.
struct Table<'a> {
    out: &'a mut dyn Write,
    own: &'static str,
    pid: i32,
}

impl Table<'_> {
    fn write(&mut self, process: &Process) -> Result<(), ExportError> {
        let pid = self.pid;
        for curve in &process.curves {
            let what = What {
                section: "curve",
                ..What::default()
            };
            for p in &curve.points {
                write!(self.out, "{}", what.text())?;
                writeln!(
                    self.out,
                    ",{},{},{},,,{},{},{},,{},{},{pid}",
                    curve.line_size,
                    curve.policy,
                    p.cache_bytes,
                    p.miss_ratio,
                    p.low,
                    p.high,
                    p.weak,
                    curve.stream
                )?;
                if let Some(private) = &p.private {
                    write!(self.out, "{}", what.text())?;
                    writeln!(
                        self.out,
                        ",{},{},{},,,{},{},{},,{},private,{pid}",
                        curve.line_size,
                        curve.policy,
                        p.cache_bytes,
                        private.private_miss_ratio,
                        private.private_low,
                        private.private_high,
                        p.weak
                    )?;
                }
            }
        }
        for l in &process.lines {
            let what = What {
                section: "line",
                file: &l.file,
                line: l.line,
                function: &l.function,
                object: &l.object,
                ..What::default()
            };
            self.rows(&what, &l.figures)?;
        }
        for f in &process.functions {
            let what = What {
                section: "function",
                file: &f.file,
                function: &f.function,
                object: &f.object,
                ..What::default()
            };
            self.rows(&what, &f.figures)?;
        }
        for i in &process.instructions {
            let what = What {
                section: "instruction",
                file: &i.file,
                line: i.line,
                function: &i.function,
                object: &i.object,
                offset: Some(i.offset),
                ..What::default()
            };
            self.rows(&what, &i.figures)?;
        }
        for d in &process.data {
            let at = d.allocated.as_ref();
            let what = What {
                section: "data",
                file: at.map_or("", |at| &at.file),
                line: at.map_or(0, |at| at.line),
                function: at.map_or("", |at| &at.function),
                object: &d.object,
                kind: d.kind,
                name: &d.name,
                ..What::default()
            };
            self.rows(&what, &d.figures)?;
        }
        for w in &process.windows {
            let what = What {
                section: "window",
                start_s: Some(w.start_s),
                ..What::default()
            };
            self.rows(&what, &w.figures)?;
        }
        Ok(())
    }

    /// One row for each cache size and stream.
    fn rows(&mut self, what: &What<'_>, figures: &Figures) -> Result<(), ExportError> {
        let text = what.text();
        let of_own = figures.miss.iter().map(|m| (m, self.own));
        for (m, stream) in of_own.chain(figures.miss_all.iter().map(|m| (m, "all"))) {
            writeln!(
                self.out,
                "{text},{DEFAULT_LINE_BYTES},random,{},{},{},{},{},{},{},{},{stream},{}",
                m.cache_bytes,
                figures.samples,
                figures.access_share,
                m.miss_ratio,
                m.low,
                m.high,
                m.miss_share,
                m.weak,
                self.pid
            )?;
        }
        Ok(())
    }
}

impl What<'_> {
    fn text(&self) -> String {
        let number = |n: u32| if n == 0 { String::new() } else { n.to_string() };
        let fields = [
            self.section.to_owned(),
            quote(self.file),
            number(self.line),
            quote(self.function),
            quote(self.object),
            self.offset.map(|o| o.to_string()).unwrap_or_default(),
            self.kind.to_owned(),
            quote(self.name),
            self.start_s.map(|s| s.to_string()).unwrap_or_default(),
        ];
        fields.join(",")
    }
}

fn quote(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::quote;

    #[test]
    fn names_with_commas_stay_one_field() {
        assert_eq!(quote("f(int, char)"), "\"f(int, char)\"");
        assert_eq!(quote("operator\"\""), "\"operator\"\"\"\"\"");
        assert_eq!(quote("plain"), "plain");
    }
}
