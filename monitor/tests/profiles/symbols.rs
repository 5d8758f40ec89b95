//! Symbols of real objects, built here with the host's compiler.

use std::path::{Path, PathBuf};
use std::process::Command;

use statcache::profile::types::{Frame, Instr, Module};
use statcache::symbols::{self, Resolver, SystemFiles, Wanted};

/// Runs a tool; `None` (and a line that says so) where this machine lacks it.
fn tool(test: &str, name: &str, args: &[&str]) -> Option<String> {
    match Command::new(name).args(args).output() {
        Ok(out) if out.status.success() => Some(String::from_utf8_lossy(&out.stdout).into_owned()),
        Ok(out) => panic!("{name} {args:?}: {}", String::from_utf8_lossy(&out.stderr)),
        Err(e) => {
            println!("SKIP {test}: {name}: {e}");
            None
        }
    }
}

/// `inline.c` as a PIE in `dir`, and the address of its first instruction of every source line.
fn build(test: &str, dir: &Path, extra: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/inline.c");
    let out = dir.join("app");
    let mut args = vec![
        "-O1",
        "-g",
        "-pie",
        "-fPIE",
        "-Wl,--build-id",
        "-Wl,-z,lazy",
        "-o",
    ];
    args.extend([out.to_str().unwrap(), source.to_str().unwrap()]);
    args.extend(extra);
    tool(test, "gcc", &args)?;
    Some(out)
}

fn module(path: &Path) -> Module {
    let build_id = symbols::build_id(&std::fs::read(path).unwrap()).unwrap_or_default();
    Module {
        path: path.to_str().unwrap().to_owned(),
        bias: 0x5555_0000_0000,
        build_id,
    }
}

fn at(offset: u64) -> Instr {
    Instr {
        module: Some(0),
        offset,
    }
}

/// Address and size of a symbol, by `nm -S`.
fn symbol(nm: &str, name: &str) -> (u64, u64) {
    let line = nm
        .lines()
        .find(|l| l.split_whitespace().last() == Some(name))
        .unwrap();
    let mut words = line.split_whitespace().map(|w| u64::from_str_radix(w, 16));
    (
        words.next().unwrap().unwrap(),
        words.next().unwrap().unwrap(),
    )
}

fn names(chain: &[Frame]) -> Vec<(&str, &str, u32)> {
    let base = |f: &'_ str| f.rsplit('/').next().map_or(0, |b| f.len() - b.len());
    chain
        .iter()
        .map(|f| (f.function.as_str(), &f.file[base(&f.file)..], f.line))
        .collect()
}

/// The chain at the first address of `walk` that has `load` inlined.
fn inlined(module: &Module, walk: (u64, u64)) -> Option<Vec<Frame>> {
    let instrs: Vec<Instr> = (walk.0..walk.0 + walk.1).map(at).collect();
    let chains = symbols::resolve(std::slice::from_ref(module), &instrs);
    chains.into_iter().find(|c| c.len() == 2)
}

#[test]
fn inline_chains_and_static_objects_of_a_pie() {
    const TEST: &str = "inline_chains_and_static_objects_of_a_pie";
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = build(TEST, dir.path(), &[]) else {
        return;
    };
    let Some(nm) = tool(TEST, "nm", &["-S", app.to_str().unwrap()]) else {
        return;
    };
    let module = module(&app);
    let chain = inlined(&module, symbol(&nm, "walk")).expect("an inlined load");
    assert_eq!(
        names(&chain),
        [("load", "inline.c", 9), ("walk", "inline.c", 16)]
    );

    let (table, size) = symbol(&nm, "table");
    assert_eq!(size, 4096);
    let (counter, _) = symbol(&nm, "counter");
    let found = symbols::resolve_data(&[module], [(0, counter), (0, table + 4095), (0, table)]);
    let mut found: Vec<_> = found
        .iter()
        .map(|(m, a, s, n)| (*m, *a, *s, n.as_str()))
        .collect();
    found.sort_by_key(|f| f.3);
    assert_eq!(
        found,
        [(0, counter, 8, "counter"), (0, table, 4096, "table")]
    );
}

/// An object built with these options, its debug information in a file of its own; where `walk` is, and that file.
fn stripped(test: &str, dir: &Path, options: &[&str]) -> Option<(Module, (u64, u64), String)> {
    let app = build(test, dir, options)?;
    let path = app.to_str().unwrap();
    let debug = format!("{path}.debug");
    let nm = tool(test, "nm", &["-S", path])?;
    tool(test, "objcopy", &["--only-keep-debug", path, &debug])?;
    tool(test, "strip", &["--strip-all", path])?;
    let link = format!("--add-gnu-debuglink={debug}");
    tool(test, "objcopy", &[&link, path])?;
    Some((module(&app), symbol(&nm, "walk"), debug))
}

#[test]
fn a_separate_debug_file_gives_the_same_and_a_foreign_one_nothing() {
    const TEST: &str = "a_separate_debug_file_gives_the_same_and_a_foreign_one_nothing";
    let dir = tempfile::tempdir().unwrap();
    let Some((module, walk, _)) = stripped(TEST, dir.path(), &[]) else {
        return;
    };
    let chain = inlined(&module, walk).expect("names from the debug file");
    assert_eq!(
        names(&chain),
        [("load", "inline.c", 9), ("walk", "inline.c", 16)]
    );

    // The object replaced since the run: no names of another build.
    let replaced = Module {
        build_id: "00".repeat(20),
        ..module
    };
    let chains = symbols::resolve(&[replaced], &[at(walk.0)]);
    assert_eq!(
        names(&chains[0]),
        [(format!("app+{:#x}", walk.0).as_str(), "", 0)]
    );
}

/// Of each unit in a file beside the program, in either version and compressed, as long as it is of this one.
#[test]
fn split_debug_information_gives_the_same() {
    const TEST: &str = "split_debug_information_gives_the_same";
    for version in [&["-gdwarf-5", "-gz"][..], &["-gdwarf-4"]] {
        let dir = tempfile::tempdir().unwrap();
        let options = [&["-gsplit-dwarf"], version].concat();
        let Some(app) = build(TEST, dir.path(), &options) else {
            return;
        };
        let path = app.to_str().unwrap();
        let Some(nm) = tool(TEST, "nm", &["-S", path]) else {
            return;
        };
        let walk = symbol(&nm, "walk");
        let module = module(&app);
        let chain = inlined(&module, walk).expect("names from the unit's file");
        assert_eq!(
            names(&chain),
            [("load", "inline.c", 9), ("walk", "inline.c", 16)]
        );
        let entries = std::fs::read_dir(dir.path()).unwrap().flatten();
        let unit = |path: &PathBuf| path.extension().is_some_and(|ext| ext == "dwo");
        let unit = entries.map(|entry| entry.path()).find(unit).expect("one");
        std::fs::remove_file(unit).unwrap();
        let chains = symbols::resolve(std::slice::from_ref(&module), &[at(walk.0)]);
        assert_eq!(chains[0][0].function, "walk", "by its symbol");
    }
}

/// Where there are no build ids the debug file's checksum tells.
#[test]
fn a_debug_file_of_another_version_gives_nothing() {
    const TEST: &str = "a_debug_file_of_another_version_gives_nothing";
    let dir = tempfile::tempdir().unwrap();
    let found = stripped(TEST, dir.path(), &["-Wl,--build-id=none"]);
    let Some((module, walk, debug)) = found else {
        return;
    };
    assert_eq!(module.build_id, "");
    assert!(inlined(&module, walk).is_some());
    let mut bytes = std::fs::read(&debug).unwrap();
    bytes.push(0);
    std::fs::write(&debug, bytes).unwrap();
    let chains = symbols::resolve(&[module], &[at(walk.0)]);
    let nameless = format!("app+{:#x}", walk.0);
    assert_eq!(names(&chains[0]), [(nameless.as_str(), "", 0)]);
}

#[test]
fn a_stripped_program_is_divided_by_its_unwind_table_and_its_plt_is_named() {
    const TEST: &str = "a_stripped_program_is_divided_by_its_unwind_table_and_its_plt_is_named";
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = build(TEST, dir.path(), &[]) else {
        return;
    };
    let path = app.to_str().unwrap();
    let Some(nm) = tool(TEST, "nm", &["-S", path]) else {
        return;
    };
    let walk = symbol(&nm, "walk");
    tool(TEST, "strip", &["--strip-all", path]).unwrap();
    let module = module(&app);
    let chains = symbols::resolve(
        std::slice::from_ref(&module),
        &[at(walk.0), at(walk.0 + walk.1 - 1)],
    );
    let expected = format!("app+{:#x}", walk.0);
    for chain in &chains {
        assert_eq!(names(chain), [(expected.as_str(), "", 0)]);
    }
    // Some 16-byte slot of the PLT calls atol (or what the C library's header makes of it).
    let instrs: Vec<Instr> = (0x1000..0x1100).step_by(16).map(at).collect();
    let chains = symbols::resolve(std::slice::from_ref(&module), &instrs);
    let plt: Vec<&str> = chains
        .iter()
        .map(|c| c[0].function.as_str())
        .filter(|f| f.ends_with("@plt"))
        .collect();
    assert!(
        plt.contains(&"strtol@plt") || plt.contains(&"atol@plt"),
        "{plt:?}"
    );
    let found = symbols::resolve_data(&[module], [(0, symbol(&nm, "table").0)]);
    assert_eq!(found[0].3, ".bss");
}

#[test]
fn the_c_library_has_names_and_a_missing_object_has_its_own() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let Some(libc) = maps
        .lines()
        .filter_map(|l| l.split_whitespace().nth(5))
        .find(|p| p.contains("libc.so"))
    else {
        println!("SKIP the_c_library_has_names_and_a_missing_object_has_its_own: static libc");
        return;
    };
    let gone = Module {
        path: "/gone/lib.so (deleted)".into(),
        bias: 0,
        build_id: String::new(),
    };
    let modules = [module(Path::new(libc)), gone];
    // Enough addresses over the whole library that a slow path shows.
    let mut instrs: Vec<Instr> = (0x30000..0x150000).step_by(256).map(at).collect();
    let n = instrs.len();
    instrs.push(Instr {
        module: Some(1),
        offset: 0x42,
    });
    instrs.push(Instr {
        module: None,
        offset: 0x7000_0000,
    });
    let chains = symbols::resolve(&modules, &instrs);
    let named = chains[..n]
        .iter()
        .filter(|c| !c[0].function.contains("+0x"))
        .count();
    assert!(named * 10 > n * 6, "{named} of {n} named");
    assert_eq!(names(&chains[n]), [("lib.so+0x42", "", 0)]);
    assert!(chains[n + 1].is_empty());
}

/// What is looked up while a program runs is what would be found at its end, whatever was asked before.
#[test]
fn names_found_ahead_are_the_same() {
    let test = "names_found_ahead_are_the_same";
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = build(test, dir.path(), &["-gz"]) else {
        return;
    };
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let library = maps.lines().find_map(|l| {
        l.split_whitespace()
            .nth(5)
            .filter(|p| p.contains("libc.so"))
    });
    let paths = std::iter::once(app.as_path()).chain(library.map(Path::new));
    for path in paths {
        let module = module(path);
        let end = std::fs::metadata(path).unwrap().len();
        let step = end / 3000 + 1;
        let spread = |n: u64| {
            (0..end)
                .step_by(step as usize)
                .map(|a| a + n)
                .collect::<Vec<_>>()
        };
        let (mut resolver, _) = Resolver::open(&module, 1 << 30).unwrap();
        assert_eq!(resolver.learn(&spread(1)), spread(1).len());
        assert_eq!(resolver.learn(&spread(1)[..100]), 0);
        let wanted = Wanted {
            instrs: [spread(0), spread(1)].concat(),
            touched: spread(2),
        };
        let found = symbols::name(&SystemFiles::default(), &[(&module, wanted.clone())]);
        let named = |f: &&Vec<Frame>| {
            !f[0]
                .function
                .starts_with(symbols::short_module_name(&module.path))
        };
        assert!(
            found[0].frames.iter().filter(named).count() > 20,
            "{}",
            path.display()
        );
        assert!(!found[0].objects.is_empty());
        assert!(resolver.name(wanted) == found[0], "{}", path.display());
        assert!(Resolver::open(&module, 1).is_err() || path != app);
    }
}
