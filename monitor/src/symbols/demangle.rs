//! Names as their author wrote them: Rust and C++ symbols demangled, others left alone.

/// A readable name. Rust loses its hash, a clone suffix (`.part.0`) and a version (`@GLIBC_2.2`) go.
pub(super) fn demangle(name: &str) -> String {
    if name.ends_with("@plt") {
        return name.to_owned();
    }
    let name = name.split_once('@').map_or(name, |(base, _)| base);
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    if name.starts_with("_Z") || name.starts_with("__Z") {
        if let Ok(symbol) = cpp_demangle::Symbol::new(name)
            && let Ok(text) = symbol.demangle(&cpp_demangle::DemangleOptions::new())
        {
            return text;
        }
        return name.to_owned();
    }
    for suffix in [".constprop", ".isra", ".part", ".cold", ".lto_priv"] {
        // `slices.partitionOrdered` of Go has its own dots.
        let is_clone =
            |at: usize| matches!(name.as_bytes().get(at + suffix.len()), None | Some(b'.'));
        if let Some((at, _)) = name
            .match_indices(suffix)
            .find(|&(at, _)| at > 0 && is_clone(at))
        {
            return name[..at].to_owned();
        }
    }
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::demangle;

    #[test]
    fn names_of_every_language() {
        for (raw, expected) in [
            (
                "_ZN4core3fmt9Formatter3pad17h0123456789abcdefE",
                "core::fmt::Formatter::pad",
            ),
            ("_RNvCs1234_7mycrate4main", "mycrate::main"),
            (
                "_ZNSt6vectorIiSaIiEE9push_backEOi",
                "std::vector<int, std::allocator<int> >::push_back(int&&)",
            ),
            ("_ZZ4mainE6buffer", "main::buffer"),
            ("main", "main"),
            ("memcpy@@GLIBC_2.14", "memcpy"),
            ("strtol@plt", "strtol@plt"),
            ("walk.constprop.0", "walk"),
            ("hot.part.3.cold", "hot"),
            ("slices.partitionOrdered", "slices.partitionOrdered"),
            ("camlList.partition_7.part.0", "camlList.partition_7"),
            ("_Zbroken", "_Zbroken"),
            (".hidden", ".hidden"),
        ] {
            assert_eq!(demangle(raw), expected, "{raw}");
        }
    }
}
