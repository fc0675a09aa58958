//! From trampoline/boot.S to the first task: finds out what machine this is, and sets its parts up one by one.

use core::fmt;

use aarch64_cpu::registers::{MPIDR_EL1, Readable, TPIDRRO_EL0, Writeable};

use crate::broadcom::{self, watchdog};
use crate::device_tree::{AFFINITY, DeviceTreeError, Machine};
use crate::interrupt::InterruptError;
use crate::memory::descriptor::{Attributes, Descriptor, MAIR};
use crate::memory::layout;
use crate::memory::stack::Stack;
use crate::per_cpu::MAX_CPUS;
use crate::smp::{Entry, SMP_ENTRIES};
use crate::{
    block, console, interrupt, machine, memory, network, power, println, recording, smp, task, time, uart, virtio,
};

/// SCTLR_EL1 (Arm ARM, D24.2). The RES1 bits of Armv8.0 are those that keep the behaviour of Armv8.0 later on:
/// LSMAOE, nTLSMD, SPAN, EIS, TSCXT, EOS. WXN and the pointer authentication enables stay off.
const SCTLR_OFF: u64 = 1 << 29 | 1 << 28 | 1 << 23 | 1 << 22 | 1 << 20 | 1 << 11;
/// M, C, SA and I besides.
const SCTLR_ON: u64 = SCTLR_OFF | 1 << 0 | 1 << 2 | 1 << 3 | 1 << 12;
/// TCR_EL1 (Arm ARM, D24.2), IPS aside: 39 bits and a 4 KiB granule on both sides; tables write-back and shared.
const TCR: u64 = {
    let size = 64 - layout::VIRTUAL_BITS as u64;
    let tables = 0b01 << 8 | 0b01 << 10 | 0b11 << 12;
    (size | tables) | (size | tables) << 16 | 0b10 << 30
};
/// No translation through TTBR0.
const TCR_EPD0: u64 = 1 << 7;
/// HCR_EL2 (Arm ARM, D24.2): RW, and no traps of pointer authentication (API, APK).
const HCR: u64 = 1 << 31 | 1 << 41 | 1 << 40;
/// Level 3 tables for the image, 2 MiB each; linker.ld checks that it is enough.
const IMAGE_TABLES: usize = 4;

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
    CPU_ENTRY_SIZE = const size_of::<Entry>(),
    CPU_ENTRY_AFFINITY = const Entry::AFFINITY,
    CPU_ENTRY_STACK = const Entry::STACK,
    CPU_ENTRY_EMERGENCY_STACK = const Entry::EMERGENCY_STACK,
);

/// Where a UART may be that can say that there is no device tree to tell where it is, by physical address.
const UARTS: [u64; 4] = [
    0x0900_0000,    // QEMU virt
    0x3f20_1000,    // Raspberry Pi 3
    0xfe20_1000,    // Raspberry Pi 4
    0x10_7d00_1000, // Raspberry Pi 5
];

unsafe extern "Rust" {
    /// Defined by [`entry!`](crate::entry).
    safe fn runtime_main();
}

/// Makes a function, `fn()`, the first task of a kernel, and gives it the heap: `runtime::entry!(main);`, once in an image. A
/// kernel with an allocator of its own, a unit struct, names it after the function; it takes its memory from [`memory::Heap`].
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

/// The first Rust code: at link addresses, with nothing mapped but the image, on the boot stack.
#[unsafe(no_mangle)]
extern "C" fn runtime_boot(device_tree: u64, image: u64) -> ! {
    // SAFETY: this is the CPU that boots, here for the first time, on a stack that linker.ld has laid out.
    unsafe { task::adopt_cpu(0) };
    memory::set_image(image);
    time::initialize();
    // SAFETY: the only call.
    let tree = unsafe { memory::map_device_tree(device_tree) }.unwrap_or_else(|error| stop_without_tree(error));
    let mut machine = Machine::read(tree).unwrap_or_else(|error| stop_without_tree(error));
    if let Some(uart) = &machine.uart {
        let clock = or_stop("UART", broadcom::connect_uart(&machine, uart));
        or_stop("UART", uart::initialize(uart, clock));
    }
    if let Some(conduit) = machine.psci {
        power::initialize(conduit, machine.is_raspberry_pi);
    }
    if let Some(registers) = &machine.broadcom.power {
        or_stop("watchdog", watchdog::initialize(registers));
    }
    or_stop("CPUs", machine.put_boot_cpu_first(MPIDR_EL1.get()));
    or_stop("memory", memory::initialize(&machine, tree));
    or_stop("emergency stack", set_emergency_stack());
    console::init();
    or_stop("interrupts", start_interrupts(&machine));
    let mut devices = virtio::find(&machine, |error| println!("a device is not used: {error}"));
    block::initialize(&mut devices, |error| println!("a disk is not used: {error}"));
    network::initialize(&mut devices, |error| println!("a network card is not used: {error}"));
    recording::initialize(&mut devices, |error| println!("the channel to the host is not used: {error}"));
    drop(devices);
    smp::start_others(&machine);
    task::start("main", runtime_main)
}

fn start_interrupts(machine: &Machine) -> Result<(), InterruptError> {
    let controller = machine.interrupt_controller.as_ref().ok_or(InterruptError::NoController)?;
    interrupt::initialize(controller, machine.physical_timer)?;
    interrupt::initialize_cpu()?;
    time::set_interrupt(machine.timer.ok_or(InterruptError::None("timer"))?);
    time::initialize_cpu()?;
    match &machine.uart {
        Some(uart) => uart::enable_receive(uart),
        None => Ok(()),
    }
}

/// Gives this CPU the stack on which the overflow of another is reported. For ever.
fn set_emergency_stack() -> Result<(), fallible::OutOfMemory> {
    let stack = Stack::allocate()?;
    TPIDRRO_EL0.set(stack.range().end as u64);
    core::mem::forget(stack);
    Ok(())
}

/// Says what cannot be set up, and stops.
fn or_stop<T, E: fmt::Display>(what: &str, result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| machine::stop(format_args!("cannot set up {what}: {error}")))
}

/// Nothing is known of this machine: looks for a UART where the supported ones have it. If there is nothing at one of
/// these addresses, the access may end in an exception, and the report with it.
fn stop_without_tree(error: DeviceTreeError) -> ! {
    machine::write_epitaph(format_args!("{error}"));
    let _ = UARTS.iter().any(|address| uart::probe(*address));
    machine::stop(format_args!("{error}"))
}
