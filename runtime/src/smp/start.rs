//! Starts the other CPUs as the device tree says: by PSCI CPU_ON or from a spin table.
//!
//! Each CPU is started after the previous one has come, or was given up. So the idle tasks have the same numbers at
//! every boot. A CPU enters at boot_secondary (trampoline/boot.S), finds its stacks in [`SMP_ENTRIES`] by its affinity,
//! sets up its own state, and reports that it runs. A CPU that comes too late, or is not expected, waits forever with
//! interrupts masked, because it must not join a kernel that goes on without it.
//!
//! **Spin table** (Linux, Documentation/arch/arm64/booting.rst): the CPU waits, by WFE, for an address to be stored at
//! the place that the tree names. It reads with its MMU and caches off, so from the point of coherency. The store is
//! cleaned to there and complete before the SEV ([`memory::store_for_uncached`]).
//!
//! **What the CPU sees.** While its MMU is off, the CPU reads only the image as it was loaded, and the boot protocol
//! requires that to be cleaned to the point of coherency. With its MMU on, the CPU is coherent with all CPUs of the
//! inner shareable domain. A DSB before it is started completes the stores that it has to find (Arm ARM, B2.3.12).

use core::fmt;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;

use aarch64_cpu::asm::{self, barrier};
use aarch64_kprobes::embedding::{self, EmbeddingError};
use device_tree::{Cpu, Hardware, Start};
use heapless::Vec;
use spin::Once;

use super::set_running;
use crate::interrupt::{self, InterruptError};
use crate::memory::stack::Stack;
use fallible::OutOfMemory;

use crate::memory;
use crate::per_cpu::{MAX_CPUS, PerCpu};
use crate::power::{self, PsciError};
use crate::{machine, println, task, time};

/// How long a CPU may take from its start until it enters `runtime_boot_secondary`.
const PATIENCE: Duration = Duration::from_secs(5);

/// The data that a CPU needs to enter. boot.S reads it.
#[repr(C)]
pub(crate) struct CpuEntry {
    affinity: AtomicU64,
    /// The virtual address of its stack's end; 0 if no CPU may enter with this entry.
    stack: AtomicU64,
    emergency_stack: AtomicU64,
}

impl CpuEntry {
    pub(crate) const AFFINITY: usize = offset_of!(Self, affinity);
    pub(crate) const STACK: usize = offset_of!(Self, stack);
    pub(crate) const EMERGENCY_STACK: usize = offset_of!(Self, emergency_stack);

    const fn closed() -> Self {
        Self { affinity: AtomicU64::new(0), stack: AtomicU64::new(0), emergency_stack: AtomicU64::new(0) }
    }
}

/// The entries by dense number.
pub(crate) static SMP_ENTRIES: [CpuEntry; MAX_CPUS] = [const { CpuEntry::closed() }; MAX_CPUS];

/// The states of a CPU during its start.
const OFF: u8 = 0;
const STARTING: u8 = 1;
/// The CPU has come, and runs code of the kernel, so it must be held with the others when that is changed. The boot CPU
/// therefore waits until it is ready, however long that takes.
const PREPARING: u8 = 2;
const RUNNING: u8 = 3;
/// The CPU cannot be used, and waits forever. [`FAILURES`] has the reason.
const FAILED: u8 = 4;
/// The boot CPU no longer waits for this CPU.
const TIMED_OUT: u8 = 5;

static STATES: PerCpu<AtomicU8> = PerCpu::new([const { AtomicU8::new(OFF) }; MAX_CPUS]);
static FAILURES: PerCpu<Once<StartError>> = PerCpu::new([const { Once::new() }; MAX_CPUS]);
static MISTAKES: PerCpu<Once<EmbeddingError>> = PerCpu::new([const { Once::new() }; MAX_CPUS]);
static CPUS: Once<Cpus> = Once::new();
static POSSIBLE: AtomicUsize = AtomicUsize::new(1);

/// The results of starting the CPUs, for later queries.
struct Cpus {
    list: Vec<CpuInfo, MAX_CPUS>,
    surplus: usize,
    unwanted: usize,
}

/// Why a CPU does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartError {
    /// The device tree names no way to start it, or an unknown one.
    NoMethod,
    /// It needs PSCI to start, and the device tree does not describe PSCI.
    NoPsci,
    /// PSCI refused to start it.
    Psci(PsciError),
    /// The release address of its spin table, a physical address, cannot be written.
    ReleaseAddress(u64),
    /// There is no memory for its stacks.
    OutOfMemory,
    /// It was started, and has not come in time.
    Silent,
    /// It has come, but cannot take interrupts.
    Interrupts(InterruptError),
    /// It has come, but no probe can be hit on it.
    Embedding(&'static EmbeddingError),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::NoMethod => f.write_str("the device tree gives no start method, or an unsupported one"),
            Self::NoPsci => f.write_str("its start method is PSCI, which the device tree does not describe"),
            Self::Psci(error) => error.fmt(f),
            Self::ReleaseAddress(address) => write!(f, "its release address, {address:#x}, cannot be written to"),
            Self::OutOfMemory => f.write_str("there is no memory for its stacks"),
            Self::Silent => write!(f, "it was started, but did not report within {} s", PATIENCE.as_secs()),
            Self::Interrupts(error) => write!(f, "it cannot take interrupts: {error}"),
            Self::Embedding(error) => write!(f, "no probe can be hit on it: {error}"),
        }
    }
}

impl From<OutOfMemory> for StartError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

/// A CPU of the device tree. Its index in [`list`] is its dense number.
#[derive(Clone, Copy, Debug)]
pub struct CpuInfo {
    /// The affinity fields of its MPIDR_EL1.
    pub affinity: u64,
    /// How it is started; `None` for the boot CPU, and if the device tree names no known way.
    pub start: Option<Start>,
    /// Why it does not run, if it does not.
    pub error: Option<StartError>,
}

/// Returns the CPUs by dense number. The list is empty before the CPUs have been started.
#[must_use]
pub fn list() -> &'static [CpuInfo] {
    CPUS.get().map_or(&[], |cpus| &cpus.list)
}

/// Returns the number of CPUs that may ever run, which bounds their numbers. It is known before the first of the others
/// is started.
#[inline(always)]
#[must_use]
pub fn possible() -> usize {
    POSSIBLE.load(Ordering::Relaxed)
}

/// Returns how many CPUs of the device tree are not in [`list`] because there is no room for them. They stay off.
#[must_use]
pub fn surplus() -> usize {
    CPUS.get().map_or(0, |cpus| cpus.surplus)
}

/// Returns how many CPUs of the device tree are not in [`list`] because the boot arguments ask for fewer. They stay
/// off.
#[must_use]
pub fn unwanted() -> usize {
    CPUS.get().map_or(0, |cpus| cpus.unwanted)
}

/// Starts all CPUs except the boot CPU, which calls this, and reports those that do not start. Called once, after
/// interrupts are set up.
pub(crate) fn start_others(hardware: &Hardware) {
    let wanted = hardware.wanted_cpus.unwrap_or(MAX_CPUS).clamp(1, hardware.cpus.len());
    POSSIBLE.store(wanted, Ordering::Relaxed);
    let list = hardware.cpus[..wanted].iter().enumerate().map(|(number, cpu)| match number {
        0 => CpuInfo { affinity: cpu.affinity, start: None, error: None },
        _ => CpuInfo { affinity: cpu.affinity, start: cpu.start, error: start(number, cpu).err() },
    });
    let cpus = CPUS.call_once(|| Cpus {
        list: list.collect(),
        surplus: hardware.surplus_cpus,
        unwanted: hardware.cpus.len() - wanted,
    });
    let running = cpus.list.iter().filter(|cpu| cpu.error.is_none()).count();
    // CPUs that the boot arguments keep off are not counted as missing.
    println!("CPUs: {running} of {} run", cpus.list.len() + cpus.surplus);
    for (number, cpu) in cpus.list.iter().enumerate() {
        if let Some(error) = cpu.error {
            println!("CPU {number} (affinity {:#x}) does not run: {error}", cpu.affinity);
        }
    }
    if cpus.surplus > 0 {
        println!("CPUs that stay off, because the kernel has room for {MAX_CPUS}: {}", cpus.surplus);
    }
}

/// Starts the CPU with the dense number `number`, and waits until it runs.
fn start(number: usize, cpu: &Cpu) -> Result<(), StartError> {
    let method = cpu.start.ok_or(StartError::NoMethod)?;
    let entry = &SMP_ENTRIES[number];
    let (stack, emergency_stack) = (Stack::allocate()?, Stack::allocate()?);
    entry.affinity.store(cpu.affinity, Ordering::Relaxed);
    entry.emergency_stack.store(emergency_stack.range().end as u64, Ordering::Relaxed);
    entry.stack.store(stack.range().end as u64, Ordering::Relaxed);
    // The CPU may come late, so it keeps its stacks forever.
    core::mem::forget((stack, emergency_stack));
    STATES.of(number).store(STARTING, Ordering::Release);
    barrier::dsb(barrier::SY);
    release(method, cpu.affinity).inspect_err(|_| entry.stack.store(0, Ordering::Relaxed))?;
    wait_for(number)?;
    // The boot CPU marks it, so that the set is complete when the boot goes on.
    set_running(number);
    Ok(())
}

/// Makes the CPU enter at boot_secondary.
fn release(method: Start, affinity: u64) -> Result<(), StartError> {
    unsafe extern "C" {
        safe static boot_secondary: u8;
    }
    // The image is mapped, so this does not fail.
    let address = memory::translate((&raw const boot_secondary).addr()).ok_or(StartError::NoMethod)?;
    match method {
        Start::Psci => match power::start_cpu(affinity, address) {
            None => Err(StartError::NoPsci),
            Some(result) => result.map_err(StartError::Psci),
        },
        Start::SpinTable(place) => {
            // SAFETY: the device tree says that the CPU polls this word, and memory setup keeps it out of the
            // allocators.
            unsafe { memory::store_for_uncached(place, address) }.map_err(|_| StartError::ReleaseAddress(place))?;
            asm::sev();
            Ok(())
        }
    }
}

fn wait_for(number: usize) -> Result<(), StartError> {
    let state = STATES.of(number);
    let deadline = time::counter().saturating_add(time::ticks(PATIENCE));
    while matches!(state.load(Ordering::Acquire), STARTING | PREPARING) {
        if time::counter() >= deadline
            && state.compare_exchange(STARTING, TIMED_OUT, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            return Err(StartError::Silent);
        }
        core::hint::spin_loop();
    }
    FAILURES.of(number).get().map_or(Ok(()), |error| Err(*error))
}

/// Prepares this CPU, whose number is `cpu`, for interrupts and for hits.
fn prepare(cpu: usize) -> Result<(), StartError> {
    interrupt::initialize_cpu().and_then(|()| time::initialize_cpu()).map_err(StartError::Interrupts)?;
    embedding::check().map_err(|mistake| StartError::Embedding(MISTAKES.of(cpu).call_once(|| mistake)))
}

/// The first Rust code of a CPU that was started. It runs with interrupts masked, on its stack, at link addresses.
/// `cpu` is its dense number.
#[unsafe(no_mangle)]
extern "C" fn runtime_boot_secondary(cpu: usize) -> ! {
    let state = STATES.of(cpu);
    if state.compare_exchange(STARTING, PREPARING, Ordering::Acquire, Ordering::Relaxed).is_err() {
        machine::park();
    }
    // SAFETY: boot.S passes this CPU's number, this is its first Rust code, and it runs on the stack that `start`
    // allocated for it.
    unsafe { task::adopt_cpu(cpu) };
    let outcome = prepare(cpu);
    if let Err(error) = outcome {
        FAILURES.of(cpu).call_once(|| error);
    }
    if outcome.is_ok() {
        // The CPU is not included in `on_each_cpu` yet, but no task has run that could enable a watchpoint.
        // SAFETY: `adopt_cpu` has led TPIDR_EL1 to a task with the address of this CPU's state, which was checked.
        unsafe { aarch64_kprobes::probe::initialize_cpu() };
    }
    state.store(if outcome.is_ok() { RUNNING } else { FAILED }, Ordering::Release);
    if outcome.is_err() {
        machine::park();
    }
    task::run_idle()
}
