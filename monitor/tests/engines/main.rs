//! Engines called as a library, held against one another and against programs whose accesses are known.

mod support;

mod counter;
mod shim;
mod shim_kernel;
mod step;
mod step_programs;
mod translate_blocks;
mod translate_quiet;
mod translate_step;
