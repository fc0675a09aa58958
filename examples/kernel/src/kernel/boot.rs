//! The first instructions of each CPU, and the translation tables.
//!
//! The kernel is mapped at its physical addresses, with a granule of 4 KiB and 39 bits of virtual address, so that the
//! walk starts at level 1: a block of devices, then the table of level 2 for the RAM (Arm ARM, D8.3).

use core::arch::global_asm;

use super::exception::vectors;
use super::start_cpu;
use super::task::{STACK_SIZE, STACKS};
use crate::patching::ALIASES; // patching

/// MAIR_EL1: attribute 0 is Device-nGnRnE, attribute 1 is Normal, write-back, allocating.
const MAIR: u64 = 0xff << 8;
/// TCR_EL1: 39 bits by TTBR0_EL1 and none by TTBR1_EL1 (EPD1); walks are cached and inner shareable; physical addresses
/// have 36 bits.
const TCR: u64 = 1 << 32 | 1 << 23 | 0b11 << 12 | 0b01 << 10 | 0b01 << 8 | (64 - 39);
/// SCTLR_EL1.M, C and I; and WXN, by which memory that can be written to is not executed.
const SCTLR: u64 = 1 << 19 | 1 << 12 | 1 << 2 | 1;

// Descriptors (Arm ARM, D8.3): the type, AF, and for Normal memory its attribute and SH.
const TABLE: u64 = 0b11;
const DEVICE_BLOCK: u64 = 1 << 10 | 0b01;
const BLOCK: u64 = 1 << 10 | 0b11 << 8 | 1 << 2 | 0b01;
const READ_ONLY: u64 = 0b10 << 6;
const NEVER_EXECUTE: u64 = 0b11 << 53;
const TEXT: u64 = BLOCK | READ_ONLY;
const RODATA: u64 = BLOCK | READ_ONLY | NEVER_EXECUTE;
const DATA: u64 = BLOCK | NEVER_EXECUTE;
/// The descriptor of a page of data, without its address.
pub const DATA_PAGE: u64 = DATA | 0b11; // patching

const IS_RASPI3B: bool = cfg!(feature = "raspi3b");
/// The first address of the GiB that the RAM and the kernel are in.
const RAM: usize = if IS_RASPI3B { 0 } else { 0x4000_0000 };
/// The virtual address of [`ALIASES`]: the last 2 MiB of the same GiB.
pub const ALIASES_START: usize = RAM + 0x3fe0_0000; // patching

global_asm!(
    // In: EL1, the MMU off, PSTATE.DAIF masked. QEMU has loaded the image, and zeroed what the file leaves out.
    ".section .text.start, \"ax\"",
    ".global start",
    "start:",
    "adrp x0, {vectors}",
    "add x0, x0, :lo12:{vectors}",
    "msr vbar_el1, x0",
    "adrp x0, level_1",
    "msr ttbr0_el1, x0",
    "ldr x0, ={MAIR}",
    "msr mair_el1, x0",
    "ldr x0, ={TCR}",
    "msr tcr_el1, x0",
    // After a reset the TLBs and the instruction caches may hold anything (Arm ARM, D8.17 and D7.5). The ISB orders the
    // registers above before the MMU.
    "ic iallu",
    "tlbi vmalle1",
    "dsb nsh",
    "isb",
    "mrs x0, sctlr_el1",
    "ldr x1, ={SCTLR}",
    "orr x0, x0, x1",
    "msr sctlr_el1, x0",
    "isb",
    // CPUs are numbered by MPIDR_EL1.Aff0. The idle task of CPU n has stack n.
    "mrs x0, mpidr_el1",
    "and x0, x0, #0xff",
    "adrp x1, {STACKS}",
    "add x1, x1, :lo12:{STACKS}",
    "mov x2, #{STACK_SIZE}",
    "madd x1, x0, x2, x1",
    "add sp, x1, x2",
    "mov x29, xzr",
    "mov x30, xzr",
    "b {start_cpu}",
    ".ltorg",
    ".section .rodata.tables, \"a\"",
    ".balign 4096",
    "level_1:",
    // A Raspberry Pi 3 has more devices in the second GiB, and QEMU's virt machine has its devices in the first.
    ".if {IS_RASPI3B}",
    ".quad level_2 + {TABLE}",
    ".quad {DEVICES} + 0x40000000",
    ".else",
    ".quad {DEVICES}",
    ".quad level_2 + {TABLE}",
    ".endif",
    ".balign 4096, 0",
    "level_2:",
    ".quad 0",
    ".quad {TEXT} + {RAM} + 0x200000",
    ".quad {RODATA} + {RAM} + 0x400000",
    ".set address, {RAM} + 0x600000",
    ".rept 13",
    ".quad {DATA} + address",
    ".set address, address + 0x200000",
    ".endr",
    // The other devices of a Raspberry Pi 3.
    ".fill 504 - 16, 8, 0",
    ".set address, 0x3f000000",
    ".rept 7",
    ".quad ({DEVICES} + address) * {IS_RASPI3B}",
    ".set address, address + 0x200000",
    ".endr",
    ".quad {ALIASES} + {TABLE}", // patching
    ".balign 4096, 0",
    vectors = sym vectors,
    start_cpu = sym start_cpu,
    STACKS = sym STACKS,
    STACK_SIZE = const STACK_SIZE,
    ALIASES = sym ALIASES, // patching
    MAIR = const MAIR,
    TCR = const TCR,
    SCTLR = const SCTLR,
    IS_RASPI3B = const IS_RASPI3B as u32,
    RAM = const RAM,
    DEVICES = const DEVICE_BLOCK | NEVER_EXECUTE,
    TABLE = const TABLE,
    TEXT = const TEXT,
    RODATA = const RODATA,
    DATA = const DATA,
);

#[cfg(feature = "raspi3b")]
global_asm!(include_str!("../../../raspi3b.S"));
