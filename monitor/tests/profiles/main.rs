//! Profiles, and what is made of them: reports, exports, names, on a synthetic program most of all.

mod common;

mod cli;
mod diff;
mod export;
mod export_page;
mod formats;
mod profile;
mod symbols;
mod threads;
mod top;
mod views;
