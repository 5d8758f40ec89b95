//! Profiles, and what is made of them: reports, exports, names, on a synthetic program most of all.

mod common;

mod cli;
mod export;
mod formats;
mod profile;
mod symbols;
mod threads;
mod top;
mod views;
