//! Kernels that embed the engine wrongly: the example `minimal` with one mistake each. Each must print the fault, and
//! end.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{read, run};
use crate::{
    setup,
    test::{
        capture::capture,
        pool::{BuildContext, Pool},
        report::Outcome,
        wanted::Wanted,
    },
    workspace,
};

/// A mistake: a replacement in a file of the example, and a part of the sentence that the kernel then prints.
struct Mistake {
    name: &'static str,
    file: File,
    from: &'static str,
    to: &'static str,
    message: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum File {
    Source,
    Script,
}

const INCLUDE: &str = "    INCLUDE kprobes.x                   /* probes */\n    .text :\n    {";
const INSTALL: &str = "unsafe { CONTEXT.install(0) };";
const VECTOR: &str = "\"b kprobes_vector\",";
const TEXT: &str = "&raw const __text_start as usize..&raw const __text_end as usize";
const PLATFORM: &str = "unsafe impl Platform for Minimal {";

const HANDLER: &str = "    extern \"C\" fn entered(hit: &mut Hit<'_>) {";

const MISTAKES: [Mistake; 11] = [
    Mistake {
        name: "without_a_context",
        file: File::Source,
        from: INSTALL,
        to: "",
        message: "TPIDR_EL1 is 0x0, which does not point to a `Context`: call `Context::install`",
    },
    Mistake {
        name: "without_the_state_of_a_cpu",
        file: File::Source,
        from: INSTALL,
        to: "unsafe { core::arch::asm!(\"msr tpidr_el1, {}\", in(reg) &raw const CONTEXT) };",
        message: "is 0x0, not the state of a CPU: call `Context::install`",
    },
    Mistake {
        name: "without_the_vector",
        file: File::Source,
        from: VECTOR,
        to: "\"b unexpected\",",
        message: "exception 0xf2000005 at ",
    },
    Mistake {
        name: "with_a_vector_that_goes_on",
        file: File::Source,
        from: VECTOR,
        to: "\"mrs x2, elr_el1\", \"add x2, x2, #4\", \"msr elr_el1, x2\", \"eret\",",
        message: "do not call the engine: make the vector of synchronous exceptions from EL1",
    },
    Mistake {
        name: "with_the_region_too_late",
        file: File::Script,
        from: INCLUDE,
        to: "    .text :\n    {",
        message: "runs while probes are handled, but lies outside of",
    },
    Mistake {
        name: "without_text",
        file: File::Source,
        from: TEXT,
        to: "0..0",
        message: "`Platform::text` returns 0x0..0x0, which is empty",
    },
    Mistake {
        name: "with_an_alias_that_cannot_be_written_to",
        file: File::Source,
        from: PLATFORM,
        to: "unsafe impl Platform for Minimal {
        fn with_writable(address: usize, _: usize, write: &mut dyn FnMut(*mut u8)) {
            write((address | 1 << 60) as *mut u8);
        }",
        message: "which cannot be written to: map the text writable there",
    },
    Mistake {
        name: "with_an_alias_of_other_memory",
        file: File::Source,
        from: PLATFORM,
        to: "unsafe impl Platform for Minimal {
        fn with_writable(address: usize, _: usize, write: &mut dyn FnMut(*mut u8)) {
            write((address + 4096) as *mut u8);
        }",
        message: "but they are different memory",
    },
    Mistake {
        name: "with_an_event_in_the_region",
        file: File::Source,
        from: HANDLER,
        to: "    aarch64_kprobes::event! { struct Entered = minimal:entered { sum: u64 } }
    #[unsafe(link_section = \".kprobes.text.handlers.entered\")]
    extern \"C\" fn entered(hit: &mut Hit<'_>) {
        aarch64_kprobes::emit!(Entered { sum: hit.frame().x[0] });",
        message: "which runs while probes are handled: move its `emit!` to code outside",
    },
    Mistake {
        name: "with_two_events_of_one_name",
        file: File::Source,
        from: HANDLER,
        to: "    aarch64_kprobes::event! { struct Entered = minimal:entered { sum: u64 } }
    aarch64_kprobes::event! { struct Again = minimal:entered { sum: u32 } }
    extern \"C\" fn entered(hit: &mut Hit<'_>) {",
        message: "two static events are named minimal:entered: rename one of them",
    },
    Mistake {
        name: "with_interrupts_masked",
        file: File::Source,
        from: "\"msr daifclr, #0b1111\", // probes",
        to: "",
        message: "cannot be registered with interrupts masked",
    },
];
/// The unchanged example, with the engine compiled without optimization.
const UNOPTIMIZED: &str = "unoptimized";
const UNOPTIMIZED_SAYS: &str = "the engine is compiled at opt-level 0";

const BUILD: &str = r#"//! Links each kernel by a script of its own.

fn main() {
    let directory = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    for name in std::fs::read_dir(format!("{directory}/src/bin")).unwrap() {
        let name = name.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned();
        println!("cargo::rustc-link-arg-bin={name}=-T{directory}/{name}.ld");
    }
}
"#;

/// Adds a test for each mistake.
pub fn add<'a>(pool: &Pool<'a>, wanted: &'a Wanted, is_listing: bool) {
    let all = MISTAKES.iter().map(|mistake| (mistake.name, mistake.message)).chain([(UNOPTIMIZED, UNOPTIMIZED_SAYS)]);
    let tests: Vec<_> = all
        .map(|(name, message)| (format!("examples::mistakes::{name}"), name, message))
        .filter(|(test, ..)| wanted.has(test))
        .collect();
    if tests.is_empty() {
        return;
    }
    pool.add("kernels with mistakes", move |context| {
        if is_listing {
            return tests.into_iter().for_each(|(test, ..)| context.results.list(test, 1));
        }
        match build(context) {
            Ok(directory) => tests.into_iter().for_each(|(test, name, message)| {
                let elf = directory.join(name);
                context.add(
                    test.clone(),
                    1,
                    Box::new(move |results| results.time(test, || prints_message(&elf, message))),
                );
            }),
            Err(error) => context.results.step_failed("build::mistakes", error),
        }
    });
}

/// Builds all of these kernels, in a workspace of their own in the target directory. Returns the directory of the
/// programs.
fn build(context: &BuildContext<'_, '_>) -> Result<PathBuf, String> {
    let directory = workspace::root().join("target/mistakes");
    write(&directory).map_err(|error| format!("{} cannot be written: {error}", directory.display()))?;
    let (source, script) = (read("examples/minimal/src/main.rs")?, read("examples/minimal/minimal.ld")?);
    for Mistake { name, file, from, to, .. } in &MISTAKES {
        let replace = |text: &str, of: File| match (of == *file, text.contains(from)) {
            (true, true) => Ok(text.replacen(from, to, 1)),
            (true, false) => Err(format!("the example has no {from:?} for the mistake {name}")),
            (false, _) => Ok(text.to_string()),
        };
        let mut script = replace(&script, File::Script)?;
        if *file == File::Script {
            script = script.replacen("    .rodata", "    INCLUDE kprobes.x\n    .rodata", 1);
        }
        put(&directory, name, &replace(&source, File::Source)?, &script)?;
    }
    put(&directory, UNOPTIMIZED, &source, &script)?;
    let jobs = context.cargo_jobs().to_string();
    let manifest = directory.join("Cargo.toml").display().to_string();
    let common = ["build", "--release", "--manifest-path", &manifest, "--jobs", &jobs];
    let names: Vec<&str> = MISTAKES.iter().flat_map(|mistake| ["--bin", mistake.name]).collect();
    let level = ["--config", "profile.release.package.aarch64-kprobes.opt-level=0"];
    for arguments in [[&common[..], &names].concat(), [&common[..], &level, &["--bin", UNOPTIMIZED]].concat()] {
        let mut cargo = workspace::cargo(&arguments);
        cargo.env("CARGO_TARGET_DIR", directory.join("target"));
        let captured = capture(&mut cargo, |_| {});
        captured.result.map_err(|sentence| captured.text + &sentence)?;
    }
    Ok(directory.join("target").join(setup::TARGET).join("release"))
}

/// Writes the package, without its programs.
fn write(directory: &Path) -> std::io::Result<()> {
    fs::create_dir_all(directory.join("src/bin"))?;
    let manifest = format!(
        "[package]\nname = \"mistakes\"\nedition = \"2024\"\n[workspace]\n[profile.release]\nopt-level = 2\n\
         [dependencies]\naarch64-kprobes = {{ path = {:?} }}\n",
        workspace::root()
    );
    fs::write(directory.join("Cargo.toml"), manifest)?;
    fs::write(directory.join("build.rs"), BUILD)?;
    fs::copy(workspace::root().join("Cargo.lock"), directory.join("Cargo.lock")).map(drop)
}

/// Writes a program and its linker script.
fn put(directory: &Path, name: &str, source: &str, script: &str) -> Result<(), String> {
    for (path, text) in [(format!("src/bin/{name}.rs"), source), (format!("{name}.ld"), script)] {
        fs::write(directory.join(&path), text).map_err(|error| format!("{path} cannot be written: {error}"))?;
    }
    Ok(())
}

/// Runs a kernel, and checks that it prints `message`.
fn prints_message(elf: &Path, message: &str) -> Result<Outcome, String> {
    let printed = run(elf, "max", 1)?;
    if printed.contains(message) {
        Ok(Outcome::Passed)
    } else {
        Err(format!("it prints\n{printed}\nwithout {message:?}"))
    }
}
