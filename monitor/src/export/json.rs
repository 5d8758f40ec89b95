//! The JSON document: one object, indented, a newline at its end.

use std::io::Write;

use super::{ExportError, Exporter, Options, fill};
use crate::analysis::Analysis;

pub(super) struct Json;

impl Exporter for Json {
    fn export(
        &self,
        analysis: &Analysis<'_>,
        options: &Options<'_>,
        out: &mut dyn Write,
    ) -> Result<(), ExportError> {
        let document = fill::document(analysis, options)?;
        serde_json::to_writer_pretty(&mut *out, &document).map_err(std::io::Error::from)?;
        out.write_all(b"\n")?;
        Ok(())
    }
}
