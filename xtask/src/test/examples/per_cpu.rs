//! The example `kernel`, changed to a kernel whose TPIDR_EL1 leads to memory of the CPU, as docs/embedding.md describes
//! it: `TaskCalls::switch` moves the calls of a task where the stacks are changed.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{VIRT, derived, kernel};
use crate::{
    setup,
    test::{capture::capture, pool::Pool, wanted::Wanted},
    workspace,
};

const TEST: &str = "examples::kernel_with_tpidr_of_the_cpu";
const NAME: &str = "per_cpu";

const TASK: &str = "src/kernel/task.rs";
const PROBES: &str = "src/probes.rs";

/// A file of the example, a text of it, and its replacement.
const REPLACEMENTS: [(&str, &str, &str); 10] = [
    (TASK, "    \"msr tpidr_el1, x1\",\n", ""),
    // No function that a return probe follows is entered or left between the change of the lists and that of the
    // stacks.
    (TASK, ".section .text.task_switch,", ".section .kprobes.text.task_switch,"),
    (
        TASK,
        "    let task: *const Task;
    // SAFETY: `adopt` and `task_switch` keep the address of a static in the register.
    unsafe {
        asm!(\"mrs {}, tpidr_el1\", out(reg) task, options(nomem, nostack, preserves_flags));
        &*task
    }
",
        "    probes::current()
",
    ),
    (TASK, "    ALL[cpu].probes.runs_on(cpu); // probes\n", ""),
    (TASK, "in(reg) &ALL[cpu],", "in(reg) probes::adopt_cpu(cpu),"),
    (TASK, "        next.probes.runs_on(cpu); // probes\n", "        probes::switch(cpu, this, next);\n"),
    (PROBES, "    /// The engine's state of the CPU that the task runs on.\n    cpu: AtomicUsize,\n", ""),
    (PROBES, "Self { cpu: AtomicUsize::new(0), calls", "Self { calls"),
    (
        PROBES,
        "
    /// Records that the task is about to run on this CPU.
    pub fn runs_on(&self, cpu: usize) {
        self.cpu.store(&raw const *CpuState::of(cpu) as usize, Ordering::Relaxed);
    }
}
",
        "}

/// What each CPU has. TPIDR_EL1 has the address of the CPU's own.
pub struct Cpu {
    state: AtomicUsize,
    calls: TaskCalls,
    /// The address of the task that runs.
    task: AtomicUsize,
}

static OF_CPUS: [Cpu; CPUS] = [const {
    Cpu { state: AtomicUsize::new(0), calls: TaskCalls::new(), task: AtomicUsize::new(0) }
}; CPUS];

/// Returns what TPIDR_EL1 is to be on this CPU, which runs its idle task.
pub fn adopt_cpu(cpu: usize) -> &'static Cpu {
    OF_CPUS[cpu].state.store(&raw const *CpuState::of(cpu) as usize, Ordering::Relaxed);
    OF_CPUS[cpu].task.store(&raw const task::ALL[cpu] as usize, Ordering::Relaxed);
    &OF_CPUS[cpu]
}

/// Returns the task that runs. Called with interrupts masked.
pub fn current() -> &'static Task {
    let cpu: *const Cpu;
    // SAFETY: `adopt_cpu` has returned the address of a static for the register, and set the address of a task there.
    unsafe {
        core::arch::asm!(\"mrs {}, tpidr_el1\", out(reg) cpu, options(nomem, nostack, preserves_flags));
        &*((*cpu).task.load(Ordering::Relaxed) as *const Task)
    }
}

/// Gives this CPU to the task `next`. The caller changes to its stack right after.
#[inline(always)]
pub fn switch(cpu: usize, this: &Task, next: &Task) {
    // SAFETY: masking is always allowed, and the scheduler unmasks when the task goes on. The lock of the scheduler is
    // held, and `task_switch` is called next, which lies in `.kprobes.text.*`.
    unsafe {
        core::arch::asm!(\"msr daifset, #0b1111\", options(nostack, preserves_flags));
        OF_CPUS[cpu].calls.switch(&this.probes.calls, &next.probes.calls);
    }
    OF_CPUS[cpu].task.store(&raw const *next as usize, Ordering::Relaxed);
}
",
    ),
    (
        PROBES,
        "    const CPU_OFFSET: usize = offset_of!(Task, probes.cpu);
    const CALLS_OFFSET: usize = offset_of!(Task, probes.calls);
",
        "    const CPU_OFFSET: usize = offset_of!(Cpu, state);
    const CALLS_OFFSET: usize = offset_of!(Cpu, calls);
",
    ),
];

/// Adds the test.
pub fn add(pool: &Pool<'_>, wanted: &Wanted) {
    pool.add_for(wanted.among([TEST]), "a kernel with data of CPUs", |context| {
        if let Some(elf) = context.results.step(format!("build::{NAME}"), build().and_then(|elf| super::fill_in(&elf)))
        {
            context.add_test(TEST, move || kernel::counts("kernel", &elf, VIRT));
        }
    });
}

/// Builds the changed example. Returns the path of the program.
fn build() -> Result<PathBuf, String> {
    let (example, directory) = (workspace::root().join("examples/kernel"), workspace::root().join("target").join(NAME));
    let mut files = super::sources(&example.join("src"))?;
    for (file, from, to) in REPLACEMENTS {
        let path = example.join(file);
        let found = files.iter_mut().find(|(other, text)| *other == path && text.contains(from));
        let (_, text) = found.ok_or_else(|| format!("{file} of the example has no {from:?}"))?;
        *text = text.replacen(from, to, 1);
    }
    let manifest = format!(
        "[package]\nname = \"{NAME}\"\nedition = \"2024\"\n[workspace]\n[profile.release]\nopt-level = 2\n\
         [features]\nraspi3b = []\n[dependencies]\n\
         aarch64-kprobes = {{ path = {:?} }}\nkprobes-symbols = {{ path = {:?} }}\n\
         spin = {{ version = \"*\", default-features = false, features = [\"spin_mutex\", \"lock_api\"] }}\n\
         talc = {{ version = \"*\", default-features = false }}\n",
        workspace::root(),
        workspace::root().join("symbols")
    );
    let link = format!("cargo::rustc-link-arg-bins=-T{}", example.join("kernel.ld").display());
    files.push((example.join("Cargo.toml"), manifest));
    files.push((example.join("build.rs"), format!("fn main() {{\n    println!({link:?});\n}}\n")));
    write(&files, &example, &directory)
        .map_err(|error| format!("{} cannot be written: {error}", directory.display()))?;
    let manifest = directory.join("Cargo.toml").display().to_string();
    let mut cargo = workspace::cargo(&["build", "--release", "--manifest-path", &manifest]);
    cargo.env("CARGO_TARGET_DIR", derived::shared());
    capture(&mut cargo, |_| {}).output()?;
    Ok(derived::shared().join(setup::TARGET).join("release").join(NAME))
}

/// Writes these files of the directory `from` to the same places in `to`.
fn write(files: &[(PathBuf, String)], from: &Path, to: &Path) -> io::Result<()> {
    for (path, text) in files {
        let path = to.join(path.strip_prefix(from).map_err(io::Error::other)?);
        fs::create_dir_all(path.parent().unwrap_or(to))?;
        derived::write_once(&path, text)?;
    }
    fs::copy(workspace::root().join("Cargo.lock"), to.join("Cargo.lock")).map(drop)
}
