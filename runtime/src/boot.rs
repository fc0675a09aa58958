//! From trampoline/boot.S to the first task: reads the device tree and sets up the parts of the machine one by one.

use core::fmt;

use aarch64_cpu::registers::{MPIDR_EL1, Readable, TPIDRRO_EL0, Writeable};
use aarch64_kprobes::embedding;
use device_tree::{AFFINITY, DeviceTreeError, Hardware};

use crate::broadcom::{self, watchdog};
use crate::interrupt::InterruptError;
use crate::memory::descriptor::{Attributes, Descriptor, MAIR};
use crate::memory::layout;
use crate::memory::stack::Stack;
use crate::per_cpu::MAX_CPUS;
use crate::smp::{CpuEntry, SMP_ENTRIES};
use crate::{
    block, console, interrupt, machine, memory, network, power, println, recording, smp, task, time, uart, virtio,
};

/// SCTLR_EL1 with the MMU off (Arm ARM, D24.2). The bits that are RES1 in Armv8.0 are set, so that later CPUs behave as
/// Armv8.0 does: LSMAOE, nTLSMD, SPAN, EIS, TSCXT, EOS. WXN and the pointer authentication enables stay off.
const SCTLR_OFF: u64 = 1 << 29 | 1 << 28 | 1 << 23 | 1 << 22 | 1 << 20 | 1 << 11;
/// SCTLR_EL1 with the MMU on: M, C, SA and I are set in addition.
const SCTLR_ON: u64 = SCTLR_OFF | 1 << 0 | 1 << 2 | 1 << 3 | 1 << 12;
/// TCR_EL1 (Arm ARM, D24.2) without IPS. Both halves have 39 bits and a 4 KiB granule; table walks are write-back and
/// shareable.
const TCR: u64 = {
    let size = 64 - layout::VIRTUAL_BITS as u64;
    let tables = 0b01 << 8 | 0b01 << 10 | 0b11 << 12;
    (size | tables) | (size | tables) << 16 | 0b10 << 30
};
/// TCR_EL1.EPD0: no table walks through TTBR0.
const TCR_EPD0: u64 = 1 << 7;
/// HCR_EL2 (Arm ARM, D24.2): RW, and no traps of pointer authentication (API, APK).
const HCR: u64 = 1 << 31 | 1 << 41 | 1 << 40;
/// The number of level 3 tables for the image, 2 MiB each. linker.ld checks that they are enough.
const IMAGE_TABLES: usize = 8;

core::arch::global_asm!(
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../trampoline/boot.S")),
    IMAGE_BASE = const layout::IMAGE_BASE,
    VIRTUAL_BITS = const layout::VIRTUAL_BITS,
    TEXT = const Attributes::TEXT.bits(),
    RODATA = const Attributes::RODATA.bits(),
    DATA = const Attributes::DATA.bits(),
    TABLE = const Descriptor::TABLE,
    IMAGE_TABLES = const IMAGE_TABLES,
    MAIR = const MAIR,
    TCR = const TCR,
    TCR_EPD0 = const TCR_EPD0,
    SCTLR_OFF = const SCTLR_OFF,
    SCTLR_ON = const SCTLR_ON,
    HCR = const HCR,
    STACK_SIZE = const layout::STACK_SIZE,
    AFFINITY = const AFFINITY,
    MAX_CPUS = const MAX_CPUS,
    SMP_ENTRIES = sym SMP_ENTRIES,
    CPU_ENTRY_SIZE = const size_of::<CpuEntry>(),
    CPU_ENTRY_AFFINITY = const CpuEntry::AFFINITY,
    CPU_ENTRY_STACK = const CpuEntry::STACK,
    CPU_ENTRY_EMERGENCY_STACK = const CpuEntry::EMERGENCY_STACK,
);

/// The physical addresses of the UARTs of all boards, for reporting that there is no device tree.
pub(crate) const UARTS: &[u64] = include!(concat!(env!("OUT_DIR"), "/uarts.rs"));

unsafe extern "Rust" {
    /// The first task, defined by [`entry!`](crate::entry).
    safe fn runtime_main();
}

/// Makes a function of type `fn()` the first task of the kernel and defines the global allocator:
/// `runtime::entry!(main);`.
///
/// Use it once in an image. A kernel with its own allocator, a unit struct, names it after the function. That allocator
/// takes its memory from [`memory::Heap`].
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        $crate::entry!($main, $crate::memory::Heap);
    };
    ($main:path, $heap:path) => {
        #[global_allocator]
        static HEAP: $heap = $heap;

        #[unsafe(no_mangle)]
        fn runtime_main() {
            $main()
        }
    };
}

/// The first Rust code. It runs at link addresses, on the boot stack, with only the image mapped.
#[unsafe(no_mangle)]
extern "C" fn runtime_boot(device_tree: u64, image: u64) -> ! {
    // SAFETY: this is the boot CPU, this is its first Rust code, and linker.ld has laid out its stack as `adopt_cpu`
    // requires.
    unsafe { task::adopt_cpu(0) };
    memory::set_image(image);
    time::initialize();
    // SAFETY: boot calls `map_device_tree` here and nowhere else.
    let tree = unsafe { memory::map_device_tree(device_tree) }.unwrap_or_else(|error| stop_without_tree(error));
    let mut hardware = Hardware::read(tree).unwrap_or_else(|error| stop_without_tree(error));
    if let Some(uart) = &hardware.uart {
        let clock = or_stop("UART", broadcom::connect_uart(&hardware, uart));
        or_stop("UART", uart::initialize(uart, clock));
    }
    if let Some(conduit) = hardware.psci {
        power::initialize(conduit, hardware.is_raspberry_pi);
    }
    if let Some(registers) = &hardware.broadcom.power {
        or_stop("watchdog", watchdog::initialize(registers));
    }
    or_stop("CPUs", hardware.put_boot_cpu_first(MPIDR_EL1.get()));
    or_stop("memory", memory::initialize(&hardware, tree));
    or_stop("emergency stack", set_emergency_stack());
    console::init();
    or_stop("interrupts", start_interrupts(&hardware));
    let mut devices = virtio::find(&hardware, |error| println!("a device is ignored: {error}"));
    block::initialize(&mut devices, |error| println!("a disk is ignored: {error}"));
    network::initialize(&mut devices, |error| println!("a network card is ignored: {error}"));
    recording::initialize(&mut devices, |error| println!("the channel to the host is ignored: {error}"));
    drop(devices);
    // The first probe reports the mistake again. Here, this CPU joins the others before one of them is started.
    if let Err(mistake) = embedding::check() {
        println!("no probe can be hit: {mistake}");
    }
    smp::start_others(&hardware);
    task::start("main", runtime_main)
}

fn start_interrupts(hardware: &Hardware) -> Result<(), InterruptError> {
    let controller = hardware.interrupt_controller.as_ref().ok_or(InterruptError::NoController)?;
    interrupt::initialize(controller, hardware.physical_timer, &hardware.counters)?;
    interrupt::initialize_cpu()?;
    time::set_interrupt(hardware.timer.ok_or(InterruptError::None("timer"))?);
    time::initialize_cpu()?;
    match &hardware.uart {
        Some(uart) => uart::enable_receive(uart),
        None => Ok(()),
    }
}

/// Gives this CPU its emergency stack, on which the overflow of any other stack is reported. The stack is never freed.
fn set_emergency_stack() -> Result<(), fallible::OutOfMemory> {
    let stack = Stack::allocate()?;
    TPIDRRO_EL0.set(stack.range().end as u64);
    core::mem::forget(stack);
    Ok(())
}

/// Returns the value of `result`, or stops the machine with a message that `what` cannot be set up.
fn or_stop<T, E: fmt::Display>(what: &str, result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| machine::stop(format_args!("cannot set up {what}: {error}")))
}

/// Stops the machine because its device tree cannot be used. Looks for a UART at the addresses of the supported
/// machines first. If nothing answers at an address, the access may raise an exception, and the exception's report ends
/// the boot.
fn stop_without_tree(error: DeviceTreeError) -> ! {
    machine::write_epitaph(format_args!("{error}"));
    let _ = UARTS.iter().any(|address| uart::probe(*address));
    machine::stop(format_args!("{error}"))
}
