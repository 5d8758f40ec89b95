//! Threads that panic, unwind and catch it; prints sums, exits 6.

use std::panic;
use std::thread;

fn deep(depth: u32, value: u64) -> u64 {
    let words = vec![value; depth as usize + 1];
    if depth == 0 {
        if value % 3 == 0 {
            panic!("at {value}");
        }
        return value;
    }
    deep(depth - 1, value) + words.iter().sum::<u64>()
}

fn sum(of: u64, rounds: u64) -> u64 {
    let one = |i: u64| match panic::catch_unwind(|| deep((i % 20) as u32, i + of)) {
        Ok(value) => value,
        Err(thrown) => thrown.downcast_ref::<String>().map_or(0, |text| text.len() as u64),
    };
    (0..rounds).map(one).fold(0, u64::wrapping_add)
}

fn main() {
    panic::set_hook(Box::new(|_| {}));
    let rounds = std::env::args().nth(1).map_or(2000, |word| word.parse().expect("a number"));
    let threads: Vec<_> = (0..3).map(|k| thread::spawn(move || sum(k, rounds))).collect();
    let sums: Vec<u64> = threads.into_iter().map(|thread| thread.join().expect("caught")).collect();
    println!("{sums:?}");
    std::process::exit(6)
}
