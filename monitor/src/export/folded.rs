//! Folded stacks: a line for each stack, frames from the root on, and the misses there, for flame graphs.
//!
//! Source: the input of `flamegraph.pl` and `inferno-flamegraph` (frames separated by semicolons, a space, a count); speedscope reads it
//! too. The count is of misses in one cache: the first of `--cache`, or the level that reports rank by.

use std::collections::BTreeMap;
use std::io::Write;

use super::flat::{self, HOMELESS, Levels};
use super::{ExportError, Exporter, Options};
use crate::analysis::{Analysis, Apart};
use crate::symbols::short_module_name;

pub(super) struct Folded;

impl Exporter for Folded {
    fn export(
        &self,
        analysis: &Analysis<'_>,
        options: &Options,
        out: &mut dyn Write,
    ) -> Result<(), ExportError> {
        let levels = Levels::new(analysis, options)?;
        let mut stacks: BTreeMap<String, f64> = BTreeMap::new();
        flat::each_process(analysis, options, |analysis| {
            let profile = analysis.profile;
            let program = profile.header.program();
            let costs = analysis.costs(&levels.sizes[levels.first..][..1], Apart::Nothing)?;
            for cost in &costs.places {
                let mut stack = vec![program.to_owned()];
                let object = flat::object(profile, cost.instr).map(short_module_name);
                stack.extend(object.map(str::to_owned));
                let frames = flat::frames(profile, cost.instr);
                stack.extend(frames.iter().rev().map(|frame| frame.function.clone()));
                stack.extend(flat::place(&frames[0]));
                *stacks.entry(joined(&stack)).or_default() += cost.misses[0];
            }
            let homeless = [program.to_owned(), HOMELESS.to_owned()];
            *stacks.entry(joined(&homeless)).or_default() += costs.homeless().1[0];
            Ok(())
        })?;
        for (stack, misses) in stacks {
            match flat::count(misses) {
                0 => {}
                misses => writeln!(out, "{stack} {misses}")?,
            }
        }
        Ok(())
    }
}

/// Frames in one line; what would end one is put otherwise.
fn joined(stack: &[String]) -> String {
    let frames = stack.iter().map(|frame| {
        let plain = frame.replace(';', ",");
        plain.split_whitespace().collect::<Vec<_>>().join(" ")
    });
    frames.collect::<Vec<_>>().join(";")
}

#[cfg(test)]
mod tests {
    use super::joined;

    #[test]
    fn what_would_end_a_frame_or_a_line_is_put_otherwise() {
        let stack = ["app", "core::array<[u8; 4]>::f", "a\nb  c "].map(str::to_owned);
        assert_eq!(joined(&stack), "app;core::array<[u8, 4]>::f;a b c");
    }
}
