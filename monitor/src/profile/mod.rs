//! The profile: its data types, its file, and the tables that make it self-contained.

pub mod types;
