//! Programs that execute code they generated themselves: they do what they do alone, and that code is observed.

use crate::support::c::{build, build_with};
use crate::support::cli;
use crate::support::cli::{installed, lossy, native, readable, run, shell_status, text, under};
use crate::support::placed;
use statcache::profile::Profile;
use statcache::profile::types::Instr;
use std::path::Path;

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// Output and status are those of the program alone; the profile.
fn transparent(way: &[&str], words: &[&str]) -> Profile {
    let profiles = directory();
    let expected = native(Path::new("/"), words, b"");
    let found = under(Path::new("/"), profiles.path(), way, words, b"");
    let what = format!("{words:?} {way:?}: {}", lossy(&found.stderr));
    assert_eq!(shell_status(&found), shell_status(&expected), "{what}");
    assert_eq!(lossy(&found.stdout), lossy(&expected.stdout), "{what}");
    readable(&profiles.path().join("p"))
}

/// Samples made by code that lies in no file.
fn in_generated_code(profile: &Profile) -> usize {
    let generated = |ip: &Instr| {
        ip.module
            .is_none_or(|m| profile.modules[m as usize].path.starts_with("/memfd:"))
    };
    let samples = profile.windows.iter().flat_map(|w| &w.samples);
    samples
        .filter(|s| generated(&profile.instrs[s.sample.ip as usize]))
        .count()
}

/// At address 0, which is no mark of an empty place.
#[test]
fn called_at_address_zero() {
    let Some((_place, program)) = build("nowhere") else {
        return;
    };
    let program = text(&program);
    if lossy(&native(Path::new("/"), &[&program], b"").stdout) == "skip\n" {
        println!("SKIP called_at_address_zero: nothing may be mapped there");
        return;
    }
    for way in [&["--overhead", "400"][..], &[]] {
        transparent(way, &[&program]);
    }
    // Each call and return is seen: who came there unseen would go on natively.
    let profile = transparent(&["--full"], &[&program]);
    let seen: u64 = profile.windows.iter().map(|w| w.accesses).sum();
    assert!(seen >= 2 * 3_000_000, "{seen}");
}

/// In every way that just-in-time compilers do, never executed as it was before.
#[test]
fn written_in_every_way() {
    let Some((_place, program)) = build("generated") else {
        return;
    };
    let program = text(&program);
    for (way, rounds, least) in [
        // No more than is translated anew in one window, and then more.
        ("rewritten", "30", 4),
        ("rewritten", "600", 1),
        ("protected", "1000", 40),
        ("aliased", "60", 1),
        ("moved", "1000", 1),
        ("patched", "100", 0),
        ("recovered", "1000", 1),
        ("far", "20000", 40),
        ("hurried", "20000", 0),
        ("filed", "60", 1),
        // A file's, by its name.
        ("renamed", "60", 0),
    ] {
        let found = in_generated_code(&transparent(&["--full"], &[&program, rounds, way]));
        println!("{way}: {found} samples in generated code");
        assert!(found >= least, "{way}: {found}");
    }
    for (way, rounds) in [
        ("rewritten", "3000"),
        ("patched", "3000"),
        ("moved", "3000"),
        ("protected", "30000"),
        ("far", "300000"),
        ("filed", "30000"),
    ] {
        transparent(&["--overhead", "400"], &[&program, rounds, way]);
    }
    transparent(&[], &[&program, "300"]);
}

/// Real compilers. What they compile is most of what these programs do.
#[test]
fn just_in_time_compilers() {
    const JAVASCRIPT: &str = "const n = 1 << 18, a = new Float64Array(n), at = new Uint32Array(n);\n\
        for (let i = 0; i < n; i++) { a[i] = i % 1000; at[i] = (i * 7919) % n; }\n\
        let s = 0; for (let r = 0; r < 40; r++) for (let i = 0; i < n; i++) s += a[at[i]];\n\
        const o = []; for (let i = 0; i < 100000; i++) o.push({x: i, z: String(i)});\n\
        for (const p of o) s += p.x + p.z.length; console.log(s); process.exitCode = 3;";
    const LUA: &str = "local n, t, s, p = 100000, {}, 0, 1\n\
        for i = 1, n do t[i] = (i * 7919) % n + 1 end\n\
        for r = 1, 60 do for i = 1, n do p = t[p]; s = s + p end end\n\
        print(s) os.exit(3)";
    const JAVA: &str = "import java.util.*; class P { public static void main(String[] w) {\n\
        int n = 1 << 18; double[] a = new double[n]; double s = 0;\n\
        for (int i = 0; i < n; i++) a[i] = i % 1000;\n\
        for (int r = 0; r < 40; r++) for (int i = 0; i < n; i++) s += a[(int) (i * 7919L % n)];\n\
        HashMap<String, Integer> m = new HashMap<>();\n\
        for (int i = 0; i < 200000; i++) m.merge(\"k\" + i % 500, i, Integer::sum);\n\
        int caught = 0; for (int i = 0; i < 50000; i++) { String z = i % 3 == 0 ? null : \"a\" + i;\n\
        try { caught += z.length(); } catch (NullPointerException e) { caught--; } }\n\
        System.out.println(s + \" \" + m.get(\"k77\") + \" \" + caught); System.exit(3); } }";
    const PYTHON: &str = "n = 100000\nt = [(i * 7919) % n for i in range(n)]\ns = p = 0\n\
        for r in range(60):\n    for i in range(n):\n        p = t[p]; s += p\nprint(s); raise SystemExit(3)";
    let place = directory();
    for (compiler, file, source) in [
        ("luajit", "p.lua", LUA),
        ("node", "p.js", JAVASCRIPT),
        ("java", "P.java", JAVA),
        ("pypy3", "p.py", PYTHON),
    ] {
        if installed(compiler).is_none() {
            continue;
        }
        let file = place.path().join(file);
        std::fs::write(&file, source).expect("written");
        let words = [compiler, &text(&file)];
        let alone = native(Path::new("/"), &words, b"");
        if shell_status(&alone) != 3 {
            println!(
                "SKIP {compiler}: does not run here: {}",
                lossy(&alone.stderr)
            );
            continue;
        }
        transparent(&[], &words);
        // Whole runs of those with threads take long; where windows fall in a short run is chance.
        let way: &[&str] = match compiler {
            "luajit" => &["--full"],
            _ => &["--overhead", "300"],
        };
        let mut runs = (0..8).map(|_| in_generated_code(&transparent(way, &words)));
        let found = runs.find(|found| *found > 0);
        println!("{compiler} {way:?}: {found:?} samples in generated code");
        assert!(found.is_some(), "{compiler}");
    }
}

/// What a compiler says about its code in `/tmp/perf-PID.map` names it.
#[test]
fn names_as_its_compiler_gives_them() {
    let Some((_place, program)) = build("generated") else {
        return;
    };
    let profiles = directory();
    let mut command = run(&profiles.path().join("p"), &["--full"]);
    command
        .arg(&program)
        .args(["30", "rewritten"])
        .env("PERF_MAP", "1");
    let found = cli::output(command, b"");
    assert_eq!(shell_status(&found), 6, "{}", lossy(&found.stderr));
    let profile = readable(&profiles.path().join("p"));
    let names = Path::new("/tmp").join(format!("perf-{}.map", profile.header.pid));
    std::fs::remove_file(names).expect("written by the program");
    assert_named(&profile);
}

/// All generated code has the name that its page was given.
fn assert_named(profile: &Profile) {
    let ids = 0..profile.instrs.len() as u32;
    let generated = ids.filter(|id| profile.instrs[*id as usize].module.is_none());
    let named: Vec<_> = generated.map(|id| profile.frames(id)).collect();
    assert!(!named.is_empty());
    for frames in named {
        assert_eq!(frames.first().map(|f| f.function.as_str()), Some("summed"));
    }
}

/// The same in a container, where `/tmp` is another directory, the process has another number, and all is gone when it
/// has ended.
#[test]
fn names_in_a_container() {
    let Some((_place, program)) = build("generated") else {
        return;
    };
    // Not below /tmp, which is another one there.
    let place = match env!("CARGO_TARGET_TMPDIR") {
        below if below.starts_with("/tmp/") => "/var/tmp",
        elsewhere => elsewhere,
    };
    let visible = tempfile::tempdir_in(place).expect("a directory");
    let inside = visible.path().join("generated");
    placed::copied(&program, &inside, 0o755);
    let unshare = ["unshare", "-mpf", "--mount-proc"];
    let mount = "mount -t tmpfs none /tmp";
    let possible = [&unshare[..], &["sh", "-c", mount]].concat();
    if shell_status(&native(
        Path::new("/"),
        &["sh", "-c", "command -v unshare"],
        b"",
    )) != 0
        || shell_status(&native(Path::new("/"), &possible, b"")) != 0
    {
        println!("SKIP names_in_a_container: no namespaces are to be had here");
        return;
    }
    for when in ["now", "end"] {
        let line = format!("{mount} && {} 30 rewritten; exit $?", inside.display());
        let profiles = directory();
        let mut command = run(&profiles.path().join("p"), &["--full"]);
        command
            .args(unshare)
            .args(["sh", "-c", &line])
            .env("PERF_MAP", when);
        let found = cli::output(command, b"");
        assert_eq!(shell_status(&found), 6, "{}", lossy(&found.stderr));
        let profile = readable(&profiles.path().join("p"));
        let is_program = |p: &&Profile| p.header.command[0].ends_with("/generated");
        let its = std::iter::once(&profile)
            .chain(&profile.others)
            .find(is_program);
        assert_named(its.expect("its own profile"));
    }
}

/// A library that is loaded where another one was is told by its own name.
#[test]
fn libraries_at_one_address_are_told_apart() {
    let built = |options: &[&str]| build_with("library", options);
    let library = |name: &str| built(&["-shared", "-fPIC", &format!("-DWORK={name}")]);
    let (Some(program), Some(first), Some(second)) =
        (built(&[]), library("first"), library("second"))
    else {
        return;
    };
    let words = [&program, &first, &second].map(|(_, file)| file.display().to_string());
    let words = [words[0].as_str(), &words[1], &words[2], "40"];
    let found = under(program.0.path(), program.0.path(), &["--full"], &words, b"");
    let said = lossy(&found.stdout);
    assert!(found.status.success(), "{}", lossy(&found.stderr));
    if said.ends_with(" 0\n") {
        println!("SKIP libraries_at_one_address_are_told_apart: they lie apart here");
        return;
    }
    let profile = readable(&program.0.path().join("p"));
    let samples = profile.windows.iter().flat_map(|window| &window.samples);
    let mut counts = [0_usize; 2];
    for taken in samples {
        let function = profile
            .frames(taken.sample.ip)
            .last()
            .map(|f| f.function.as_str());
        counts[0] += usize::from(function == Some("first"));
        counts[1] += usize::from(function == Some("second"));
    }
    let [first, second] = counts;
    assert!(
        first > 1000 && 4 * first > 3 * second && 4 * second > 3 * first,
        "{counts:?}"
    );
}
