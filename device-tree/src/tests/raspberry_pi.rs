//! Tests with the Raspberry Pi trees that Linux ships. They are not part of the repository: `cargo xtask setup`
//! downloads them.

use std::{format, fs, vec::Vec};

use super::*;

/// Reads the tree of this name. In the trees of the Raspberry Pi 3 and 4, the firmware fills in the memory, as QEMU
/// does.
pub(super) fn tree(name: &str) -> Vec<u8> {
    let path = format!("{}/../target/device-trees/{name}.dtb", env!("CARGO_MANIFEST_DIR"));
    fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}; `cargo xtask setup` gets it"))
}

pub(super) const NAMES: [&str; 3] = ["bcm2837-rpi-3-b", "bcm2711-rpi-4-b", "bcm2712-rpi-5-b"];

fn hardware(name: &str) -> Hardware {
    read_blob(&tree(name)).unwrap()
}

fn device(address: u64, length: u64, number: u32) -> Option<Device> {
    Some(Device {
        registers: registers(address, length),
        interrupt: Some(Interrupt { number, edge: false }),
        is_coherent: false,
    })
}

fn spin_table(core: u64) -> Cpu {
    Cpu { affinity: core, start: Some(Start::SpinTable(0xd8 + 8 * core)) }
}

const SPIN_TABLE_PAGE: ReservedMemory = ReservedMemory { range: 0..0x1000, mapped: true };

#[test]
fn raspberry_pi_3() {
    let mut hardware = hardware("bcm2837-rpi-3-b");
    assert!(hardware.is_raspberry_pi);
    assert_eq!(hardware.reserved, [SPIN_TABLE_PAGE]);
    // /chosen names the other UART, which this kernel does not support. The interrupt is number 25 of bank 2.
    assert_eq!(hardware.uart, device(0x3f20_1000, 0x200, 32 + 2 * 32 + 25));
    let local = registers(0x4000_0000, 0x100);
    let peripherals = Some(registers(0x3f00_b200, 0x200));
    assert_eq!(hardware.interrupt_controller, Some(InterruptController::Bcm2836 { local, peripherals }));
    assert_eq!(hardware.timer, Some(Interrupt { number: 16 + 3, edge: false }));
    assert_eq!(hardware.physical_timer, Some(Interrupt { number: 16 + 1, edge: false }));
    assert_eq!(hardware.counters, [Interrupt { number: 16 + 9, edge: false }]);
    assert_eq!((hardware.psci, hardware.wanted_cpus), (None, None));
    assert_eq!(hardware.cpus, [0, 1, 2, 3].map(spin_table));
    // The release address stays with its CPU, whichever CPU boots.
    hardware.put_boot_cpu_first(0x8000_0002).unwrap();
    assert_eq!(hardware.cpus, [2, 0, 1, 3].map(spin_table));
    let broadcom = Broadcom {
        pins: Some(Pins { registers: registers(0x3f20_0000, 0xb4), bcm2711: false }),
        mailbox: Some(registers(0x3f00_b880, 0x40)),
        power: Some(registers(0x3f10_0000, 0x114)),
    };
    assert_eq!(hardware.broadcom, broadcom);
}

#[test]
#[expect(clippy::single_range_in_vec_init, reason = "the memory is one range")]
fn raspberry_pi_4() {
    // The memory node is empty until the firmware fills it in.
    let name = "bcm2711-rpi-4-b";
    assert_eq!(read_blob(&tree(name)), Err(DeviceTreeError::Missing { what: "memory" }));
    let hardware = read_blob(&with_memory(&tree(name))).unwrap();
    assert!(hardware.is_raspberry_pi);
    assert_eq!(hardware.memory, [0..0x3b40_0000]);
    assert_eq!(hardware.reserved, [SPIN_TABLE_PAGE]);
    assert_eq!(hardware.uart, device(0xfe20_1000, 0x200, 32 + 121));
    let distributor = registers(0xff84_1000, 0x1000);
    let cpu_interface = registers(0xff84_2000, 0x2000);
    assert_eq!(hardware.interrupt_controller, Some(InterruptController::GicV2 { distributor, cpu_interface }));
    assert_eq!(hardware.timer, Some(Interrupt { number: 27, edge: false }));
    assert_eq!(hardware.physical_timer, Some(Interrupt { number: 30, edge: false }));
    assert_eq!(hardware.counters, [48, 49, 50, 51].map(|number| Interrupt { number, edge: false }));
    assert_eq!(hardware.psci, None);
    assert_eq!(hardware.cpus, [0, 1, 2, 3].map(spin_table));
    let broadcom = Broadcom {
        pins: Some(Pins { registers: registers(0xfe20_0000, 0xb4), bcm2711: true }),
        mailbox: Some(registers(0xfe00_b880, 0x40)),
        power: Some(registers(0xfe10_0000, 0x114)),
    };
    assert_eq!(hardware.broadcom, broadcom);
}

/// Returns the tree with the size of its memory node, the last of three cells, filled in.
pub(super) fn with_memory(tree: &[u8]) -> Vec<u8> {
    let mut tree = tree.to_vec();
    let empty = b"memory\0\0\0\0\0\x03\0\0\0\x0c";
    if let Some(at) = tree.windows(empty.len()).position(|window| window == empty) {
        tree[at + empty.len() + 12..][..4].copy_from_slice(&0x3b40_0000_u32.to_be_bytes());
    }
    tree
}

#[test]
#[expect(clippy::single_range_in_vec_init, reason = "the memory is one range")]
fn raspberry_pi_5() {
    let mut hardware = hardware("bcm2712-rpi-5-b");
    assert!(hardware.is_raspberry_pi);
    assert_eq!(hardware.memory, [0..0x2800_0000]);
    assert_eq!(hardware.reserved, [ReservedMemory { range: 0..0x8_0000, mapped: false }]);
    assert_eq!(hardware.uart, device(0x10_7d00_1000, 0x200, 32 + 121));
    let distributor = registers(0x10_7fff_9000, 0x1000);
    let cpu_interface = registers(0x10_7fff_a000, 0x2000);
    assert_eq!(hardware.interrupt_controller, Some(InterruptController::GicV2 { distributor, cpu_interface }));
    assert_eq!(hardware.timer, Some(Interrupt { number: 27, edge: false }));
    assert_eq!(hardware.physical_timer, Some(Interrupt { number: 30, edge: false }));
    assert_eq!(hardware.counters, []);
    assert_eq!(hardware.psci, Some(Conduit::Smc));
    // The core number is in Aff1. Whichever core boots is CPU 0, and the dense numbers have no gaps.
    let cpu = |core: u64| Cpu { affinity: core << 8, start: Some(Start::Psci) };
    assert_eq!(hardware.cpus, [0, 1, 2, 3].map(cpu));
    hardware.put_boot_cpu_first(0x8100_0300).unwrap();
    assert_eq!(hardware.cpus, [3, 0, 1, 2].map(cpu));
    assert_eq!(hardware.put_boot_cpu_first(1), Err(DeviceTreeError::BootCpu { affinity: 1 }));
    // The console has its own pins, and PSCI resets the board.
    assert_eq!((hardware.broadcom.pins, hardware.broadcom.power), (None, None));
}
