//! Profile files: round trip, size, speed.

use std::time::Instant;

use crate::common::{Plan, records, write};
use statcache::profile::Profile;
use statcache::profile::types::Record;

#[test]
fn what_is_written_is_read() {
    for full in [true, false] {
        let plan = Plan {
            accesses: 1_000_000,
            window: 60_000,
            full,
            ..Plan::small()
        };
        let records = records(plan);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.prof");
        write(&path, &records);
        let read = Profile::read(&path).unwrap();
        assert_eq!(read, Profile::from_records(records.clone()).unwrap());
        let windows = records
            .iter()
            .filter(|r| matches!(r, Record::Window(_)))
            .count();
        assert_eq!(read.windows.len(), windows);
        assert_eq!(read.symbols.len(), read.instrs.len());
    }
}

/// At most 16 MiB: 1e5 samples here, 5e5 by proportion (samples are nearly all of a file).
#[test]
fn a_profile_stays_small() {
    let plan = Plan {
        accesses: 6_000_000,
        period: 60,
        window: 200_000,
        ..Plan::small()
    };
    let records = records(plan);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.prof");
    let started = Instant::now();
    let bytes = write(&path, &records);
    let written = started.elapsed();
    let started = Instant::now();
    let samples: usize = Profile::read(&path)
        .unwrap()
        .windows
        .iter()
        .map(|w| w.samples.len())
        .sum();
    let each = bytes as f64 / samples as f64;
    println!(
        "{samples} samples, {bytes} bytes, {each:.1} a sample; written in {written:?}, read in {:?}",
        started.elapsed()
    );
    assert!((95_000..105_000).contains(&samples), "{samples}");
    assert!(
        each * 500_000.0 <= (16 << 20) as f64,
        "{each} bytes a sample"
    );
}
