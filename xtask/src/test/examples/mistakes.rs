//! Kernels that embed the engine wrongly: the example `minimal` with one mistake each. Each must print the fault, and
//! end; or the compiler or the linker must say it.

use std::path::PathBuf;

use super::{
    EL2, QemuMachine, VIRT,
    derived::{File, Package, Replacement},
    pages, run,
};
use crate::test::{
    pool::{BuildContext, Pool},
    report::Outcome,
    wanted::Wanted,
};

/// A mistake: a replacement in a file of the example, and a part of the sentence that is then printed.
struct Mistake {
    name: &'static str,
    file: File,
    from: &'static str,
    to: &'static str,
    message: &'static str,
}

const INCLUDE: &str = "    INCLUDE kprobes.x";
const INSTALL: &str = "unsafe { CONTEXT.install(0) };";
const VECTOR: &str = "\"b kprobes_vector\",";
const TEXT: &str = "&raw const __text_start as usize..&raw const __text_end as usize";
const PLATFORM: &str = "unsafe impl Platform for Minimal {";

const HANDLER: &str = "    extern \"C\" fn entered(hit: &mut Hit<'_>) {";
const ALIAS_OF_OTHER_MEMORY: &str = "unsafe impl Platform for Minimal {
        fn with_writable(address: usize, _: usize, write: &mut dyn FnMut(*mut u8)) {
            write((address + 4096) as *mut u8);
        }";

/// Found by the kernel, before the first probe.
const MISTAKES: [Mistake; 18] = [
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
        name: "without_the_calls_of_a_task",
        file: File::Source,
        from: PLATFORM,
        to: "unsafe impl Platform for Minimal {
        const CALLS_OFFSET: usize = 8;",
        message: "at TPIDR_EL1 + `Platform::CALLS_OFFSET`, is 0x0, not a list of calls: make `CALLS_OFFSET` the offset",
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
        to: "    .early : { *(.text .text.*) }\n    INCLUDE kprobes.x",
        message: "runs while probes are handled, but lies outside of",
    },
    Mistake {
        name: "with_the_platform_outside_the_region",
        file: File::Script,
        from: INCLUDE,
        to: "    .early : { *(.kprobes.text) }\n    INCLUDE kprobes.x",
        message: "move `INCLUDE kprobes.x` in the linker script before the first pattern that matches `.kprobes.text.*`",
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
        to: ALIAS_OF_OTHER_MEMORY,
        message: "but they are different memory",
    },
    Mistake {
        name: "with_text_that_cannot_be_read",
        file: File::Source,
        from: "..&raw const __text_end as usize",
        to: "..0x4900_0000",
        message: "the instruction at 0x48fffffc, in the text that `Platform::text` returns, cannot be read",
    },
    Mistake {
        name: "with_executable_memory_out_of_reach",
        file: File::Source,
        from: PLATFORM,
        to: "unsafe impl Platform for Minimal {
        fn allocate_executable(_: usize, _: bool) -> Option<usize> {
            Some(0x6000_0000)
        }",
        message: "returns memory at 0x60000000, and no direct branch leads there from the text, at 0x40",
    },
    Mistake {
        name: "with_executable_memory_between_pages",
        file: File::Source,
        from: PLATFORM,
        to: "unsafe impl Platform for Minimal {
        fn allocate_executable(_: usize, _: bool) -> Option<usize> {
            Some(0x4100_0008)
        }",
        message: "returns memory at 0x41000008, which is not a multiple of 4096",
    },
    Mistake {
        name: "without_guarded_memory",
        file: File::Source,
        from: PLATFORM,
        to: "unsafe impl Platform for Minimal {
        fn is_guarded(_: usize) -> bool {
            true
        }",
        message: "but `Platform::allocate_executable` has returned no guarded memory",
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
        name: "with_an_event_outside_the_text",
        file: File::Source,
        from: HANDLER,
        to: "    aarch64_kprobes::event! { struct Entered = minimal:entered { sum: u64 } }
    #[unsafe(link_section = \".elsewhere\")]
    extern \"C\" fn entered(hit: &mut Hit<'_>) {
        aarch64_kprobes::emit!(Entered { sum: hit.frame().x[0] });",
        message: "the text that `Platform::text` returns: move its `emit!` to code inside",
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
        message: "cannot be registered or changed with interrupts masked",
    },
];
/// Found by the compiler or the linker.
const FAULTS: [Mistake; 5] = [
    Mistake {
        name: "without_the_fragment",
        file: File::Script,
        from: INCLUDE,
        to: "",
        message: "undefined symbol: __kprobes_text_start",
    },
    Mistake {
        name: "without_the_host_vector",
        file: File::Source,
        from: "\".global kprobes_host_vector; kprobes_host_vector:\",",
        to: "",
        message: "undefined symbol: kprobes_host_vector",
    },
    Mistake {
        name: "without_the_platform",
        file: File::Source,
        from: "aarch64_kprobes::platform!(Minimal);",
        to: "",
        message: "undefined symbol: kprobes_cpu_offset",
    },
    Mistake {
        name: "with_one_offset_for_two_words",
        file: File::Source,
        from: PLATFORM,
        to: "unsafe impl Platform for Minimal {
        const CALLS_OFFSET: usize = Self::CPU_OFFSET;",
        message: "CPU_OFFSET and CALLS_OFFSET are the offsets of two words",
    },
    Mistake {
        name: "with_several_cpus",
        file: File::Source,
        from: PLATFORM,
        to: "unsafe impl Platform for Minimal {
        const CPUS: usize = 2;",
        message: "a platform of several CPUs implements `hold_cpus`",
    },
];

/// A mistake of several replacements, or on a machine of its own.
struct OnMachine {
    name: &'static str,
    machine: QemuMachine,
    replacements: &'static [Replacement<'static>],
    /// What is added to the source.
    more: &'static str,
    message: &'static str,
}

/// A module that starts CPU 1 by PSCI's CPU_ON, and checks it with the number 0.
const SECOND_CPU: &str = r#"
#[cfg(target_os = "none")]
mod second {
    use core::sync::atomic::AtomicU64;

    use aarch64_kprobes::{Context, embedding};

    const SIZE: usize = 1 << 16;
    #[repr(align(16))]
    struct Stack([AtomicU64; SIZE / 8]);
    static STACK: Stack = Stack([const { AtomicU64::new(0) }; SIZE / 8]);

    core::arch::global_asm!(
        ".section .text.second, \"ax\"",
        "second_cpu:",
        // The argument of CPU_ON: the vectors of the first CPU.
        "msr vbar_el1, x0",
        "adrp x0, {stack}",
        "add x0, x0, :lo12:{stack}",
        "add x0, x0, {size}",
        "mov sp, x0",
        "b {run}",
        ".global second_cpu",
        stack = sym STACK,
        size = const SIZE,
        run = sym run,
    );

    pub fn start() -> ! {
        unsafe extern "C" {
            safe static second_cpu: u8;
        }
        // SAFETY: the second CPU runs in memory of its own.
        unsafe {
            core::arch::asm!(
                "mrs x3, vbar_el1", "hvc #0",
                inout("x0") 0xc400_0003_u64 => _, in("x1") 1, in("x2") &raw const second_cpu, out("x3") _,
            );
        }
        loop {
            core::hint::spin_loop();
        }
    }

    extern "C" fn run() -> ! {
        static CONTEXT: Context = Context::new();
        // SAFETY: the mistake: the first CPU has the number.
        unsafe { CONTEXT.install(0) };
        embedding::check().unwrap_or_else(|error| panic!("{error}"));
        panic!("nothing is wrong")
    }
}
"#;

const AS_HOST: Replacement<'_> = pages::AT_EL2[0];
const BY_SMC: Replacement<'_> = pages::AT_EL2[1];

/// Found by the kernel, as those of [`MISTAKES`].
const ON_MACHINES: [OnMachine; 5] = [
    OnMachine {
        name: "with_two_cpus_of_one_number",
        machine: QemuMachine { cpus: 2, ..VIRT },
        replacements: &[(
            File::Source,
            "probes::run(); // probes",
            "probes::run(); // probes
        crate::second::start();",
        )],
        more: SECOND_CPU,
        message: "the CPUs with the affinities 0x0 and 0x1 in MPIDR_EL1 have one number, 0: number the CPUs from 0",
    },
    OnMachine {
        name: "with_a_watchpoint_at_el2",
        machine: EL2,
        replacements: &[
            AS_HOST,
            BY_SMC,
            (
                File::Source,
                "sum(black_box(3));",
                "extern \"C\" fn stored(_: &aarch64_kprobes::probe::WatchHit<'_>) {}
        let watchpoint = aarch64_kprobes::probe::Watchpoint::at(0x4100_0000, 8, stored).stores().register();
        watchpoint.unwrap_or_else(|error| panic!(\"{error}\"));",
            ),
        ],
        more: "",
        message: "the kernel runs at EL2, and watchpoints report accesses at EL1 only",
    },
    OnMachine {
        name: "with_sp_el0",
        machine: VIRT,
        replacements: &[(File::Source, "\"mov sp, x0\",", "\"mov sp, x0\", \"msr spsel, #0\", \"mov sp, x0\",")],
        more: "",
        message: "the kernel runs with SP_EL0 (PSTATE.SP is 0), where an exception changes the stack",
    },
    OnMachine {
        name: "at_el2_without_vhe",
        machine: EL2,
        replacements: &[BY_SMC],
        more: "",
        message: "the kernel runs at EL2 with HCR_EL2.E2H clear",
    },
    OnMachine {
        name: "with_an_alias_of_other_memory_at_el2",
        machine: EL2,
        replacements: &[AS_HOST, BY_SMC, (File::Source, PLATFORM, ALIAS_OF_OTHER_MEMORY)],
        more: "",
        message: "but they are different memory",
    },
];

/// The unchanged example, with the engine compiled without optimization.
const UNOPTIMIZED: (&str, &str) = ("unoptimized", "the engine is compiled at opt-level 0");
/// The unchanged example, compiled with the compiler's own mangling of names.
const MANGLED: (&str, &str) = ("without_v0_mangling", "compile with `-Csymbol-mangling-version=v0`");
/// The unchanged example, compiled for SIMD registers.
const SIMD: (&str, &str) = ("with_simd_registers", "so the image must not use them");
/// The unchanged example, compiled as if for a big-endian target, for which there is no `core` to link.
const BIG_ENDIAN: (&str, &str) = ("for_a_big_endian_target", "so data must be little-endian, too");
/// The example with pages, and executable memory in pages from which nothing is executed: each, or only the guarded
/// ones, which are not the first.
const NOT_EXECUTABLE: (&str, &str) =
    ("with_memory_that_is_not_executable", "from which no instruction can be executed");
const LATER_NOT_EXECUTABLE: (&str, &str) =
    ("with_later_memory_that_is_not_executable", "from which no instruction can be executed");

/// Adds a test for each mistake.
pub fn add<'a>(pool: &Pool<'a>, wanted: &'a Wanted) {
    let names = MISTAKES.iter().chain(&FAULTS).map(|mistake| mistake.name);
    let names = names.chain(ON_MACHINES.iter().map(|mistake| mistake.name));
    let names = names
        .chain([UNOPTIMIZED, MANGLED, SIMD, BIG_ENDIAN, NOT_EXECUTABLE, LATER_NOT_EXECUTABLE].map(|(name, _)| name));
    pool.add_for(wanted.among(names.map(test_name)), "kernels with mistakes", move |context| {
        context.results.step("build::mistakes", add_all(context, wanted));
    });
}

fn test_name(name: &str) -> String {
    format!("examples::mistakes::{name}")
}

/// Builds the wanted kernels, and adds their tests.
fn add_all(context: &BuildContext<'_, '_>, wanted: &Wanted) -> Result<(), String> {
    let package = Package::new("mistakes")?;
    let is_wanted = |name: &str| wanted.has(&test_name(name));
    // All are written before one is built, because Cargo looks at the whole package each time.
    let (mut built, mut faults) = (Vec::new(), Vec::new());
    for Mistake { name, file, from, to, message } in MISTAKES.iter().chain(&FAULTS).filter(|one| is_wanted(one.name)) {
        package.put(name, &[(*file, *from, *to)], "")?;
        match FAULTS.iter().any(|fault| fault.name == *name) {
            true => faults.push((*name, *message)),
            false => built.push((*name, VIRT, *message)),
        }
    }
    for one in ON_MACHINES.iter().filter(|one| is_wanted(one.name)) {
        package.put(one.name, one.replacements, one.more)?;
        built.push((one.name, one.machine, one.message));
    }
    for (name, _) in [UNOPTIMIZED, MANGLED, SIMD, BIG_ENDIAN] {
        package.put(name, &[], "")?;
    }
    for ((name, message), platform) in [
        (NOT_EXECUTABLE, "fn allocate_executable(_: usize, _: bool) -> Option<usize> { let guarded = true;"),
        (
            LATER_NOT_EXECUTABLE,
            "fn is_guarded(_: usize) -> bool { true }
        fn allocate_executable(_: usize, guarded: bool) -> Option<usize> {",
        ),
    ] {
        if !is_wanted(name) {
            continue;
        }
        let pages = pages::replacements(pages::SMALLEST);
        // The writable alias of the memory, which is mapped so that nothing in it is executed.
        let memory = "fn with_writable(";
        let alias = format!(
            "{platform}
            unsafe extern \"C\" {{
                safe static __kprobes_pool_start: u8;
            }}
            let start = &raw const __kprobes_pool_start as usize;
            Some(if guarded {{ start | paging::BLOCK }} else {{ start }})
        }}
        {memory}"
        );
        package.put(name, &[&pages.each()[..], &[(File::Source, memory, &alias)]].concat(), &pages.module)?;
        built.push((name, VIRT, message));
    }
    // Adds the run of a kernel, which must print `message`.
    let add_run = |name: &str, elf: PathBuf, machine: QemuMachine, message: &'static str| {
        context.add_test(test_name(name), move || contains(&run(&elf, machine)?, message));
    };
    if !built.is_empty() {
        let names: Vec<&str> = built.iter().map(|(name, ..)| *name).collect();
        let directory = package.build(&names, &[])?;
        built.into_iter().for_each(|(name, machine, message)| add_run(name, directory.join(name), machine, message));
    }
    if is_wanted(UNOPTIMIZED.0) {
        let level = ["--config", "profile.release.package.aarch64-kprobes.opt-level=0"];
        let directory = package.build(&[UNOPTIMIZED.0], &level)?;
        add_run(UNOPTIMIZED.0, directory.join(UNOPTIMIZED.0), VIRT, UNOPTIMIZED.1);
    }
    if is_wanted(MANGLED.0) {
        add_run(MANGLED.0, package.build_with_flags(MANGLED.0, "-Cforce-frame-pointers=yes")?, VIRT, MANGLED.1);
    }
    for (name, message) in faults {
        let package = package.clone();
        context.add_test(test_name(name), move || contains(&package.fail_to_build(name)?, message));
    }
    let of_targets = [
        (SIMD, "-Ctarget-feature=+neon"),
        (BIG_ENDIAN, "--cfg target_endian=\"big\" -Aexplicit_builtin_cfgs_in_flags"),
    ];
    for ((name, message), flags) in of_targets {
        if is_wanted(name) {
            let package = package.clone();
            context.add_test(test_name(name), move || match package.build_with_flags(name, flags) {
                Ok(elf) => Err(format!("{} is built", elf.display())),
                Err(text) => contains(&text, message),
            });
        }
    }
    Ok(())
}

/// Checks that `printed` contains `message`.
fn contains(printed: &str, message: &str) -> Result<Outcome, String> {
    // The compiler wraps the text of an error.
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    if words(printed).contains(&words(message)) {
        Ok(Outcome::Passed)
    } else {
        Err(format!("it prints\n{printed}\nwithout {message:?}"))
    }
}
