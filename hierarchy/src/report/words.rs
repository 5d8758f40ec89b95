//! Figures in the words of the table.

/// A bare number.
pub(super) fn plain(n: u64) -> String {
    n.to_string()
}

/// Rounded to two significant digits: what a curve can tell.
pub(super) fn two_digits(n: u64) -> u64 {
    let scale = 10u64.pow(n.max(1).ilog10().saturating_sub(1));
    (n + scale / 2) / scale * scale
}

/// Strides that prefetching hides, by direction: the least and the greatest.
pub(super) fn strides(found: &[(i64, f64)]) -> String {
    let side = |name: &str, up: bool| {
        let of = found.iter().filter(|x| (x.0 > 0) == up);
        let lengths = of.map(|x| x.0.unsigned_abs());
        let (a, b) = (lengths.clone().min()?, lengths.max()?);
        Some(format!("{name} {a}-{b} B"))
    };
    let sides: Vec<String> = [side("up", true), side("down", false)]
        .into_iter()
        .flatten()
        .collect();
    if sides.is_empty() {
        "none".into()
    } else {
        sides.join(", ")
    }
}

/// CPUs as the table names them.
pub(super) fn cpus(of: &[usize]) -> String {
    if of.is_empty() {
        "no other CPU".into()
    } else {
        format!("CPU {}", list(of))
    }
}

/// A list as sysfs prints it: `0-2,5`.
pub(super) fn cpu_list(text: &str) -> Vec<usize> {
    let mut out = Vec::new();
    for part in text.split(',') {
        let (a, b) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(a), Ok(b)) = (a.trim().parse::<usize>(), b.trim().parse::<usize>()) {
            out.extend(a..=b);
        }
    }
    out
}

/// CPUs, one after the other.
pub(super) fn list(cpus: &[usize]) -> String {
    cpus.iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(",")
}
