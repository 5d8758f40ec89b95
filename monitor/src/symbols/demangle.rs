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
        let found = match name.is_ascii() {
            true => demangle_cpp(name),
            false => Letters::of(name).and_then(|letters| {
                let text = demangle_cpp(&letters.hide(name))?;
                Some(letters.show(&text))
            }),
        };
        if let Some(text) = found {
            return text;
        }
        return without_arguments(name).unwrap_or_else(|| name.to_owned());
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

fn demangle_cpp(name: &str) -> Option<String> {
    let symbol = cpp_demangle::Symbol::new(name).ok()?;
    symbol.demangle(&cpp_demangle::DemangleOptions::new()).ok()
}

/// Letters that are no ASCII, which the library does not know in names, as as many bytes that are: one that the name does not have, one that says which,
/// and `_`.
struct Letters {
    escape: char,
    letters: Vec<char>,
}

impl Letters {
    /// Of what mangled names seldom have.
    const ESCAPES: [char; 8] = ['Q', 'W', 'Y', 'H', 'G', 'U', 'j', 'q'];
    const WHICH: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

    fn of(name: &str) -> Option<Letters> {
        let escape = Self::ESCAPES.into_iter().find(|c| !name.contains(*c))?;
        let mut letters: Vec<char> = name.chars().filter(|c| !c.is_ascii()).collect();
        letters.sort_unstable();
        letters.dedup();
        (letters.len() <= Self::WHICH.len()).then_some(Letters { escape, letters })
    }

    fn hidden(&self, which: usize) -> String {
        let more = self.letters[which].len_utf8() - 2;
        let which = char::from(Self::WHICH[which]);
        format!("{}{which}{}", self.escape, "_".repeat(more))
    }

    fn hide(&self, name: &str) -> String {
        let all = 0..self.letters.len();
        all.fold(name.to_owned(), |name, which| {
            name.replace(self.letters[which], &self.hidden(which))
        })
    }

    fn show(&self, text: &str) -> String {
        let all = 0..self.letters.len();
        all.fold(text.to_owned(), |text, which| {
            text.replace(&self.hidden(which), &self.letters[which].to_string())
        })
    }
}

/// The scopes and the name that a mangled C++ name begins with, without template arguments and types, for those that the library does not know
/// (Itanium C++ ABI, 5.1.2 to 5.1.4: `std::swap`, whose type asks for what `__and_` says of others).
fn without_arguments(name: &str) -> Option<String> {
    let mut rest = name.trim_start_matches('_').strip_prefix('Z')?;
    if let Some(nested) = rest.strip_prefix('N') {
        rest = nested.trim_start_matches(['r', 'V', 'K', 'R', 'O']);
    }
    let mut scopes = Vec::new();
    if let Some(in_std) = rest.strip_prefix("St") {
        scopes.push("std");
        rest = in_std;
    }
    loop {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let Ok(length) = rest[..digits].parse::<usize>() else {
            break;
        };
        scopes.push(rest.get(digits..digits.checked_add(length)?)?);
        rest = &rest[digits + length..];
    }
    let is_named = scopes.iter().any(|scope| *scope != "std");
    is_named.then(|| scopes.join("::"))
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
            ("_ZN5MüllIdE7spaltenEv", "Müll<double>::spalten()"),
            ("_Z10größe漢i", "größe漢(int)"),
            ("main", "main"),
            ("memcpy@@GLIBC_2.14", "memcpy"),
            ("strtol@plt", "strtol@plt"),
            ("walk.constprop.0", "walk"),
            ("hot.part.3.cold", "hot"),
            ("slices.partitionOrdered", "slices.partitionOrdered"),
            ("camlList.partition_7.part.0", "camlList.partition_7"),
            ("_Zbroken", "_Zbroken"),
            ("_Z99short", "_Z99short"),
            (
                "_ZSt4swapIiENSt9enable_ifIXsrSt6__and_IJSt6__not_ISt15__is_tuple_likeIT_EE\
                 St21is_move_constructibleIS3_ESt18is_move_assignableIS3_EEE5valueEvE4typeERS3_SC_",
                "std::swap",
            ),
            (".hidden", ".hidden"),
        ] {
            assert_eq!(demangle(raw), expected, "{raw}");
        }
    }
}
