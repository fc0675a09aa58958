//! Tests with the trees of real machines, as their firmware passes them, and with damaged trees.

mod builder;
mod damage;
mod oracle;
mod raspberry_pi;

use builder::{Tree, cells, text};

use super::*;

// Written by QEMU 10.0 with `-machine virt,gic-version=2,dumpdtb=FILE -cpu cortex-a72 -smp 2 -m 256`, the other one
// with gic-version=3; then packed by `dtc -I dtb -O dtb`.
const VIRT_GICV2: &[u8] = include_bytes!("testdata/virt-gicv2.dtb");
const VIRT_GICV3: &[u8] = include_bytes!("testdata/virt-gicv3.dtb");

fn registers(address: u64, length: u64) -> RegisterBlock {
    RegisterBlock { address, length }
}

fn read_blob(blob: &[u8]) -> Result<Hardware, DeviceTreeError> {
    Hardware::read(&mut blob.to_vec())
}

fn read(tree: Tree) -> Hardware {
    read_blob(&tree.blob()).unwrap()
}

#[test]
#[expect(clippy::single_range_in_vec_init, reason = "the memory is one range")]
fn qemu_virt() {
    let hardware = read_blob(VIRT_GICV2).unwrap();
    assert_eq!(hardware.memory, [0x4000_0000..0x5000_0000]);
    assert_eq!(hardware.reserved, []);
    assert_eq!(
        hardware.uart,
        Some(Device {
            registers: registers(0x900_0000, 0x1000),
            interrupt: Some(Interrupt { number: 33, edge: false }),
            is_coherent: false,
        })
    );
    assert_eq!(
        hardware.interrupt_controller,
        Some(InterruptController::GicV2 {
            distributor: registers(0x800_0000, 0x1_0000),
            cpu_interface: registers(0x801_0000, 0x1_0000),
        })
    );
    let slots = (0..32).map(|slot| Device {
        registers: registers(0xa00_0000 + 0x200 * slot, 0x200),
        interrupt: Some(Interrupt { number: 48 + slot as u32, edge: true }),
        is_coherent: true,
    });
    assert_eq!(hardware.virtio, slots.collect::<Vec<_, 32>>());
    assert_eq!(hardware.timer, Some(Interrupt { number: 27, edge: false }));
    assert_eq!(hardware.physical_timer, Some(Interrupt { number: 30, edge: false }));
    assert_eq!(hardware.counters, [Interrupt { number: 23, edge: false }]);
    assert_eq!((hardware.psci, hardware.is_raspberry_pi), (Some(Conduit::Hvc), false));
    assert_eq!(hardware.cpus, [0, 1].map(|affinity| Cpu { affinity, start: Some(Start::Psci) }));

    let other = read_blob(VIRT_GICV3).unwrap();
    let redistributors = [registers(0x80a_0000, 0xf6_0000)].into_iter().collect();
    let distributor = registers(0x800_0000, 0x1_0000);
    assert_eq!(other.interrupt_controller, Some(InterruptController::GicV3 { distributor, redistributors }));
    assert_eq!(Hardware { interrupt_controller: hardware.interrupt_controller.clone(), ..other }, hardware);
}

/// A board with features that none of the real trees has: a reservation, two ranges of memory, reserved memory that
/// stays mapped or has no place yet, a disabled UART before the one that an alias with a speed names, and an interrupt
/// controller that is not known.
fn board() -> Tree {
    let mut tree = Tree::new();
    tree.reserve(0, 0x8_0000);
    tree.property("#address-cells", cells([2])).property("#size-cells", cells([2]));
    tree.property("interrupt-parent", cells([1]));
    tree.node("aliases", |node| {
        node.property("serial10", text("/soc@107c000000/serial@7d001000"));
    });
    tree.node("chosen", |node| {
        node.property("stdout-path", text("serial10:115200n8"));
    });
    tree.node("memory@0", |node| {
        node.property("device_type", text("memory"));
        node.property("reg", cells([0, 0, 0, 0x3fc0_0000, 0, 0x4000_0000, 1, 0xc000_0000]));
    });
    tree.node("reserved-memory", |node| {
        node.property("#address-cells", cells([2])).property("#size-cells", cells([2])).property("ranges", []);
        node.node("atf@0", |node| {
            node.property("reg", cells([0, 0, 0, 0x8_0000])).property("no-map", []);
        });
        node.node("nvram@1", |node| {
            node.property("reg", cells([0, 0x3fd1_6e30, 0, 0x39]));
        });
        node.node("linux,cma", |node| {
            node.property("size", cells([0, 0x400_0000]));
        });
    });
    tree.node("cpus", |node| {
        node.property("#address-cells", cells([1])).property("#size-cells", cells([0]));
        for core in 0..2 {
            node.node(&format!("cpu@{core}"), |node| {
                node.property("device_type", text("cpu")).property("reg", cells([core << 8]));
                let release = cells([0, 0xd8 + 8 * core]);
                node.property("enable-method", text("spin-table")).property("cpu-release-addr", release);
            });
        }
        node.node("l3-cache", |_| {});
    });
    tree.node("soc@107c000000", |node| {
        node.property("#address-cells", cells([1])).property("#size-cells", cells([1]));
        node.property("ranges", cells([0, 0x10, 0, 0x8000_0000]));
        node.node("serial@7d001400", |node| {
            node.property("compatible", b"arm,pl011\0arm,primecell\0".to_vec());
            node.property("reg", cells([0x7d00_1400, 0x200])).property("status", text("disabled"));
        });
        node.node("serial@7d001000", |node| {
            node.property("compatible", b"arm,pl011\0arm,primecell\0".to_vec());
            // Two interrupts of two cells each, which are also enough cells for one interrupt of a GIC.
            node.property("reg", cells([0x7d00_1000, 0x200])).property("interrupts", cells([0, 25, 4, 26]));
        });
        node.node("interrupt-controller@7fff9000", |node| {
            node.property("phandle", cells([1])).property("#interrupt-cells", cells([2]));
        });
    });
    tree
}

#[test]
fn a_board_with_what_the_real_ones_lack() {
    let hardware = read(board());
    assert_eq!(hardware.memory, [0..0x3fc0_0000, 0x4000_0000..0x2_0000_0000]);
    let reserved = |range, mapped| ReservedMemory { range, mapped };
    assert_eq!(
        hardware.reserved,
        [reserved(0..0x8_0000, true), reserved(0..0x8_0000, false), reserved(0x3fd1_6e30..0x3fd1_6e69, true)]
    );
    let registers = registers(0x10_7d00_1000, 0x200);
    assert_eq!(hardware.uart, Some(Device { registers, interrupt: None, is_coherent: false }));
    assert_eq!(hardware.interrupt_controller, None);
    let cpu = |core: u64| Cpu { affinity: core << 8, start: Some(Start::SpinTable(0xd8 + 8 * core)) };
    assert_eq!(hardware.cpus, [0, 1].map(cpu));
}

/// Returns the start method of a CPU. `describe` fills the node of the CPU.
fn start_of(describe: impl FnOnce(&mut Tree)) -> Option<Start> {
    let mut tree = Tree::new();
    tree.node("cpus", |node| {
        node.property("#address-cells", cells([2])).property("#size-cells", cells([0]));
        node.node("cpu", |node| {
            node.property("device_type", text("cpu")).property("reg", cells([1, 0x203]));
            describe(node);
        });
    });
    tree.node("memory", |node| {
        node.property("device_type", text("memory")).property("reg", cells([0, 0, 0x10_0000]));
    });
    let [Cpu { affinity: 0x1_0000_0203, start }] = read(tree).cpus[..] else { panic!("the CPU is another one") };
    start
}

#[test]
fn a_cpu_starts_as_its_node_says_or_not_at_all() {
    let release = |node: &mut Tree, value: std::vec::Vec<u8>| {
        node.property("enable-method", text("spin-table")).property("cpu-release-addr", value);
    };
    assert_eq!(start_of(|node| release(node, cells([8, 0x1000]))), Some(Start::SpinTable(0x8_0000_1000)));
    // The address has one cell, or none.
    assert_eq!(start_of(|node| release(node, cells([0x1000]))), None);
    assert_eq!(start_of(|node| release(node, std::vec::Vec::new())), None);
    assert_eq!(start_of(|node| _ = node.property("enable-method", text("spin-table"))), None);
    assert_eq!(start_of(|node| _ = node.property("cpu-release-addr", cells([0, 0x1000]))), None);
    assert_eq!(start_of(|node| _ = node.property("enable-method", text("psci"))), Some(Start::Psci));
    assert_eq!(start_of(|node| _ = node.property("enable-method", text("nobody-knows"))), None);
}

#[test]
fn addresses_pass_through_every_bus() {
    let mut tree = Tree::smallest();
    tree.node("outer", |node| {
        node.property("#address-cells", cells([2])).property("#size-cells", cells([1]));
        node.property("ranges", cells([0, 0x1_0000, 0, 0x9_0000, 0x1_0000]));
        node.node("inner", |node| {
            node.property("#address-cells", cells([1])).property("#size-cells", cells([1]));
            node.property("ranges", cells([0, 0, 0x0, 0x100, 0x5000, 0, 0x1_2000, 0x1000]));
            node.node("outside", |node| {
                node.property("compatible", text("arm,pl011")).property("reg", cells([0x80, 0x80]));
            });
            node.node("inside", |node| {
                node.property("compatible", text("arm,pl011")).property("reg", cells([0x5200, 0x100]));
            });
        });
    });
    // The address 0x80 on the inner bus is 0x80 on the outer bus, which does not lead to the CPUs.
    assert_eq!(read(tree).uart.map(|uart| uart.registers), Some(registers(0x9_2200, 0x100)));
}

#[test]
fn a_device_is_not_used_by_its_second_block_of_registers() {
    let uart = |blocks: std::vec::Vec<u8>| {
        let mut tree = Tree::smallest();
        tree.node("bus", |node| {
            node.property("#address-cells", cells([1])).property("#size-cells", cells([1]));
            node.property("ranges", cells([0, 0, 0x1_0000, 0x1000]));
            node.node("uart", |node| {
                node.property("compatible", text("arm,pl011")).property("reg", blocks);
            });
        });
        read(tree).uart.map(|uart| uart.registers)
    };
    assert_eq!(uart(cells([0x108, 0x80, 0x204, 0x80])), Some(registers(0x1_0108, 0x80)));
    // The first one is misaligned, or CPUs do not reach it.
    assert_eq!(uart(cells([0x104, 0x80, 0x208, 0x80])), None);
    assert_eq!(uart(cells([0x2000, 0x80, 0x208, 0x80])), None);
}

/// Returns the console of a machine with two UARTs, for this `stdout-path` in /chosen.
fn two_uarts(stdout: Option<&str>, second_compatible: &str) -> Option<u64> {
    let mut tree = Tree::smallest();
    if let Some(stdout) = stdout {
        tree.node("chosen", |node| {
            node.property("stdout-path", text(stdout));
        });
    }
    for (address, compatible) in [(0x1000, "arm,pl011"), (0x2000, second_compatible)] {
        tree.node(&format!("uart@{address:x}"), |node| {
            node.property("compatible", text(compatible)).property("reg", cells([0, address, 0x1000]));
        });
    }
    read(tree).uart.map(|uart| uart.registers.address)
}

#[test]
fn boot_arguments_may_ask_for_fewer_cpus() {
    let wanted = |arguments: &str| {
        let mut tree = Tree::smallest();
        tree.node("chosen", |node| {
            node.property("bootargs", text(arguments));
        });
        read(tree).wanted_cpus
    };
    assert_eq!(wanted("quiet maxcpus=2"), Some(2));
    assert_eq!(wanted("maxcpus=2 maxcpus=3 maxcpus=x xmaxcpus=4"), Some(3));
    assert_eq!(wanted("nothing"), None);
    assert_eq!(read(Tree::smallest()).wanted_cpus, None);
}

#[test]
fn the_console_is_what_chosen_says() {
    assert_eq!(two_uarts(Some("/uart@2000"), "arm,pl011"), Some(0x2000));
    assert_eq!(two_uarts(Some("/uart@2000:115200n8"), "arm,pl011"), Some(0x2000));
}

#[test]
fn without_a_usable_choice_the_first_pl011_is_the_console() {
    assert_eq!(two_uarts(None, "arm,pl011"), Some(0x1000));
    assert_eq!(two_uarts(Some("/uart@2000"), "ns16550a"), Some(0x1000));
    assert_eq!(two_uarts(Some("/uart@3000"), "arm,pl011"), Some(0x1000));
    assert_eq!(two_uarts(Some("serial0"), "arm,pl011"), Some(0x1000));
}

#[test]
fn a_device_that_is_described_twice_is_listed_once() {
    let mut tree = Tree::smallest();
    for (name, address) in [("first", 0x1000), ("second", 0x1200), ("again", 0x1000)] {
        tree.node(name, |node| {
            node.property("compatible", text("virtio,mmio")).property("reg", cells([0, address, 0x200]));
        });
    }
    let addresses: std::vec::Vec<u64> = read(tree).virtio.iter().map(|device| device.registers.address).collect();
    assert_eq!(addresses, [0x1000, 0x1200]);
}

#[test]
fn a_disabled_device_is_not_used() {
    let mut tree = Tree::smallest();
    tree.node("chosen", |node| {
        node.property("stdout-path", text("/uart@1000"));
    });
    for (address, status) in [(0x1000, "disabled"), (0x2000, "fail"), (0x3000, "okay")] {
        tree.node(&format!("uart@{address:x}"), |node| {
            node.property("compatible", text("arm,pl011")).property("reg", cells([0, address, 0x1000]));
            node.property("status", text(status));
        });
    }
    assert_eq!(read(tree).uart.map(|uart| uart.registers.address), Some(0x3000));
}

/// The board, with the nodes of a machine that are read by their `compatible`.
fn whole_board() -> Tree {
    let mut tree = board();
    tree.node("intc@ff841000", |node| {
        node.property("compatible", text("arm,gic-400")).property("interrupt-controller", []);
        node.property("#interrupt-cells", cells([3])).property("phandle", cells([7]));
        node.property("reg", cells([0, 0xff84_1000, 0, 0x1000, 0, 0xff84_2000, 0, 0x2000]));
    });
    tree.node("timer", |node| {
        node.property("compatible", text("arm,armv8-timer")).property("interrupt-parent", cells([7]));
        node.property("interrupts", cells([1, 13, 8, 1, 14, 8, 1, 11, 8, 1, 10, 8]));
    });
    tree.node("psci", |node| {
        node.property("compatible", text("arm,psci-1.0")).property("method", text("smc"));
    });
    tree
}

#[test]
fn tokens_that_say_nothing_may_be_anywhere() {
    let plain = whole_board();
    let mut padded = whole_board();
    padded.pad_with_nops();
    assert!(padded.blob().len() > plain.blob().len());
    assert_eq!(read(padded), read(plain));
}

/// Returns the numbers of the interrupts of the physical and of the virtual timer, on a machine with a GICv3 whose
/// specifiers have `length` cells each.
fn timers(length: u32, interrupts: std::vec::Vec<u8>) -> [Option<u32>; 2] {
    let mut tree = Tree::smallest();
    tree.node("intc", |node| {
        node.property("compatible", text("arm,gic-v3")).property("interrupt-controller", []);
        node.property("#interrupt-cells", cells([length])).property("phandle", cells([7]));
        node.property("reg", cells([0, 0x1_0000, 0x1_0000, 0, 0x2_0000, 0x2_0000]));
    });
    tree.node("timer", |node| {
        node.property("compatible", text("arm,armv8-timer")).property("interrupt-parent", cells([7]));
        node.property("interrupts", interrupts);
    });
    let Hardware { physical_timer, timer, .. } = read(tree);
    [physical_timer, timer].map(|timer| timer.map(|interrupt| interrupt.number))
}

/// On some machines with a GICv3, a fourth cell names the CPUs of a private interrupt.
#[test]
fn interrupts_have_as_many_cells_as_their_controller_says() {
    assert_eq!(timers(3, cells([1, 13, 8, 1, 14, 8, 1, 11, 8])), [Some(30), Some(27)]);
    assert_eq!(timers(4, cells([1, 13, 8, 0, 1, 14, 8, 0, 1, 11, 8, 0])), [Some(30), Some(27)]);
    assert_eq!(timers(2, cells([1, 13, 1, 14, 1, 11])), [None, None]);
}

#[test]
fn an_interrupt_that_cpus_share_is_not_that_of_a_timer() {
    assert_eq!(timers(3, cells([1, 13, 8, 0, 14, 8, 1, 11, 8])), [None, Some(27)]);
    assert_eq!(timers(3, cells([1, 13, 8, 1, 14, 8, 0, 0, 8])), [Some(30), None]);
}

#[test]
fn a_cpu_too_many_is_counted() {
    let mut tree = Tree::smallest();
    tree.node("cpus", |node| {
        node.property("#address-cells", cells([1])).property("#size-cells", cells([0]));
        for core in 0..MAX_CPUS as u32 + 2 {
            node.node(&format!("cpu@{core}"), |node| {
                node.property("device_type", text("cpu")).property("reg", cells([core]));
            });
        }
    });
    let hardware = read(tree);
    assert_eq!((hardware.cpus.len(), hardware.surplus_cpus), (MAX_CPUS, 3));
}

#[test]
fn a_reservation_too_many_is_not_ignored() {
    let mut tree = Tree::smallest();
    for page in 1..66 {
        tree.reserve(page * 0x1000, 0x1000);
    }
    assert_eq!(read_blob(&tree.blob()), Err(DeviceTreeError::TooMany { what: "reservations" }));
}

#[test]
fn a_tree_without_memory_or_cpus_is_refused() {
    let mut tree = Tree::new();
    assert_eq!(read_blob(&tree.blob()), Err(DeviceTreeError::Missing { what: "memory" }));
    tree.node("memory", |node| {
        node.property("device_type", text("memory")).property("reg", cells([0, 0, 0x1000]));
    });
    assert_eq!(read_blob(&tree.blob()), Err(DeviceTreeError::Missing { what: "CPU" }));
}
