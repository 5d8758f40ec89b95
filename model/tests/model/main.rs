//! The model against exact simulation, closed forms, and the truth of real programs.

mod common;

mod accuracy;
mod attribution;
mod bad_input;
mod behaviours;
mod censoring;
mod closed_forms;
mod coherence;
mod coverage;
mod estimators;
mod first_touches;
mod footprint;
mod given_up;
mod in_turn;
mod properties;
mod returns;
mod start;
mod truth_floor;
