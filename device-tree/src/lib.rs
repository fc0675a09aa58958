//! The device tree, read once at boot into a plain description of the machine, and sets of its memory.
//!
//! The crate needs no kernel and no machine, so it is tested on the host with thousands of damaged trees.
//!
//! The `fdt` crate reads the tree, after `blob` has checked it. The meaning of some properties depends on other nodes,
//! and is worked out here: addresses on buses (`node`), and the controllers of interrupts (`interrupts`).

#![cfg_attr(not(test), no_std)]

mod blob;
mod error;
mod interrupts;
mod node;
pub mod regions;
#[cfg(test)]
mod tests;

use core::ops::Range;

use heapless::Vec;

pub use blob::{HEADER_SIZE, check_address, total_size};
pub use error::DeviceTreeError;
pub use interrupts::{Interrupt, InterruptController};

use fdt::Fdt;
use interrupts::Domains;
use node::Node;

/// The mask of Aff3, Aff2, Aff1 and Aff0 in MPIDR_EL1 (Arm ARM, D24.2).
pub const AFFINITY: u64 = 0xff_00ff_ffff;

/// The number of CPUs that the kernel has room for.
pub const MAX_CPUS: usize = 32;

/// The parts of a machine that the kernel uses. All addresses are physical.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hardware {
    /// The ranges of RAM.
    pub memory: Vec<Range<u64>, 16>,
    /// The parts of RAM that are reserved for firmware or other CPUs.
    pub reserved: Vec<ReservedMemory, 64>,
    /// The UART of the console.
    pub uart: Option<Device>,
    /// The places where virtio devices may be, in the order of the tree. Each is listed once.
    pub virtio: Vec<Device, 32>,
    /// The interrupt controller.
    pub interrupt_controller: Option<InterruptController>,
    /// The interrupt of the EL1 virtual timer, a private one.
    pub timer: Option<Interrupt>,
    /// The interrupt of the EL1 physical timer, a private one.
    pub physical_timer: Option<Interrupt>,
    /// The interrupts of the event counters: a private one for all CPUs, or one for each.
    pub counters: Vec<Interrupt, MAX_CPUS>,
    /// How PSCI is called.
    pub psci: Option<Conduit>,
    /// Whether this is a Raspberry Pi of any generation.
    pub is_raspberry_pi: bool,
    /// The devices that only a Raspberry Pi has.
    pub broadcom: Broadcom,
    /// The CPUs in the order of the tree, except for [`put_boot_cpu_first`](Self::put_boot_cpu_first). After that call,
    /// the index of a CPU is its dense number.
    pub cpus: Vec<Cpu, MAX_CPUS>,
    /// The number of CPUs that are left out because there is no room for them.
    pub surplus_cpus: usize,
    /// The most CPUs that are to run: `maxcpus` in the boot arguments (Linux,
    /// Documentation/admin-guide/kernel-parameters.txt).
    pub wanted_cpus: Option<usize>,
}

/// The performance monitors of the cores that this kernel runs on (Linux, bindings of arm,pmu).
const MONITORS: [&str; 4] = ["arm,armv8-pmuv3", "arm,cortex-a53-pmu", "arm,cortex-a72-pmu", "arm,cortex-a76-pmu"];

/// Bytes of the widest register of any device here, to which blocks of registers are aligned.
const REGISTER_MAX: u64 = 8;

/// RAM that the kernel must not use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservedMemory {
    /// The physical addresses.
    pub range: Range<u64>,
    /// Whether the kernel may map it, because the tree does not say no-map.
    pub mapped: bool,
}

/// A device with one block of registers and at most one interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// The first block of its registers.
    pub registers: RegisterBlock,
    /// Its first interrupt, if it goes to a supported controller.
    pub interrupt: Option<Interrupt>,
    /// Whether the device sees the contents of the CPUs' caches (`dma-coherent`).
    pub is_coherent: bool,
}

/// A block of registers in physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterBlock {
    /// Physical address.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
}

/// The devices of the BCM2835 and its successors, the chips of the Raspberry Pi, with which the kernel sets up other
/// devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Broadcom {
    /// The GPIO controller.
    pub pins: Option<Pins>,
    /// The mailbox for requests to the firmware.
    pub mailbox: Option<RegisterBlock>,
    /// Power management: watchdog and reset.
    pub power: Option<RegisterBlock>,
}

/// A GPIO controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pins {
    /// Its registers.
    pub registers: RegisterBlock,
    /// Whether pull-ups are set as on the BCM2711; otherwise they are set as on the BCM2835.
    pub bcm2711: bool,
}

/// The instruction that calls PSCI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conduit {
    /// HVC: a hypervisor answers.
    Hvc,
    /// SMC: EL3 firmware answers.
    Smc,
}

/// A CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// The affinity fields of its MPIDR_EL1.
    pub affinity: u64,
    /// How to start it; `None` if the tree names no supported way.
    pub start: Option<Start>,
}

/// How a CPU starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// By PSCI CPU_ON.
    Psci,
    /// By writing the address of its first instruction to this physical address.
    SpinTable(u64),
}

impl Hardware {
    /// Reads a device tree blob. Ignores bytes after its end. Moves the tokens of a tree that has NOPs.
    pub fn read(blob: &mut [u8]) -> Result<Self, DeviceTreeError> {
        let tree = blob::parse(blob)?;
        let root = Node::root(&tree).ok_or(DeviceTreeError::Missing { what: "root" })?;
        let mut hardware = Self {
            memory: Vec::new(),
            reserved: Vec::new(),
            uart: None,
            virtio: Vec::new(),
            interrupt_controller: None,
            timer: None,
            physical_timer: None,
            counters: Vec::new(),
            psci: None,
            is_raspberry_pi: root.is_of("raspberrypi"),
            broadcom: Broadcom::default(),
            cpus: Vec::new(),
            surplus_cpus: 0,
            wanted_cpus: wanted_cpus(&root),
        };
        hardware.read_memory(&tree, &root)?;
        hardware.read_cpus(&root);
        let domains = Domains::read(&root);
        hardware.interrupt_controller = domains.controller.clone();
        hardware.read_devices(&root, &domains);
        hardware.broadcom = Broadcom::read(&root);
        if hardware.memory.is_empty() {
            return Err(DeviceTreeError::Missing { what: "memory" });
        }
        if hardware.cpus.is_empty() {
            return Err(DeviceTreeError::Missing { what: "CPU" });
        }
        Ok(hardware)
    }

    /// Moves the boot CPU, which has this MPIDR_EL1, to the front.
    pub fn put_boot_cpu_first(&mut self, mpidr: u64) -> Result<(), DeviceTreeError> {
        let affinity = mpidr & AFFINITY;
        let place = self.cpus.iter().position(|cpu| cpu.affinity == affinity);
        let place = place.ok_or(DeviceTreeError::BootCpu { affinity })?;
        self.cpus[..=place].rotate_right(1);
        Ok(())
    }

    fn read_memory(&mut self, tree: &Fdt, root: &Node) -> Result<(), DeviceTreeError> {
        let range = |(address, size): (u64, u64)| address..address + size;
        root.each_child(|node| {
            if node.text("device_type") == Some("memory") && node.is_enabled() {
                // RAM ranges for which there is no room are not used.
                let room = self.memory.capacity() - self.memory.len();
                let ranges = node.registers().flatten().map(range);
                self.memory.extend(ranges.filter(|range| !range.is_empty()).take(room));
            }
            None::<()>
        });
        let mut surplus = false;
        let mut reserve = |range: Range<u64>, mapped| {
            if !range.is_empty() && self.reserved.push(ReservedMemory { range, mapped }).is_err() {
                surplus = true;
            }
        };
        for reservation in tree.memory_reservations() {
            let address = reservation.address().addr() as u64;
            reserve(address..address.saturating_add(reservation.size() as u64), true);
        }
        root.at("reserved-memory", &mut |node| {
            node.each_child(|child| {
                let mapped = child.property("no-map").is_none();
                child.registers().flatten().for_each(|entry| reserve(range(entry), mapped));
                None::<()>
            })
        });
        if surplus { Err(DeviceTreeError::TooMany { what: "reservations" }) } else { Ok(()) }
    }

    fn read_cpus(&mut self, root: &Node) {
        root.at("cpus", &mut |node| {
            node.each_child(|cpu| {
                if cpu.text("device_type") != Some("cpu") || !cpu.is_enabled() {
                    return None::<()>;
                }
                let (affinity, _) = cpu.raw_registers().next()?;
                let start = match cpu.text("enable-method") {
                    Some("psci") => Some(Start::Psci),
                    Some("spin-table") => cpu.property("cpu-release-addr").and_then(long).map(Start::SpinTable),
                    _ => None,
                };
                if self.cpus.push(Cpu { affinity, start }).is_err() {
                    self.surplus_cpus += 1;
                }
                None
            })
        });
    }

    fn read_devices(&mut self, root: &Node, domains: &Domains) {
        let pl011 = &mut |node: &Node| {
            let usable = node.is_compatible(&["arm,pl011"]) && node.is_enabled();
            if usable { device(node, domains) } else { None }
        };
        self.uart = stdout(root, pl011).or_else(|| root.each_enabled(pl011));
        root.each_enabled(&mut |node| {
            if node.is_compatible(&["virtio,mmio"]) {
                // Devices for which there is no room are not used. Two with the same registers are one device.
                let address = |device: &Device| device.registers.address;
                let is_new = |found: &Device| self.virtio.iter().all(|known| address(known) != address(found));
                let found = device(node, domains).filter(is_new).filter(|_| !self.virtio.is_full());
                self.virtio.extend(found);
            }
            None::<()>
        });
        // The order of the timers' interrupts: secure physical, non-secure physical, virtual, hypervisor.
        let timer = |index: usize| {
            root.each_enabled(&mut |node| {
                let found = node.is_compatible(&["arm,armv8-timer", "arm,armv7-timer"]);
                // Each CPU has its own timers, so an interrupt that CPUs share is not theirs.
                if found { domains.interrupt(node, index).filter(Interrupt::is_private) } else { None }
            })
        };
        (self.physical_timer, self.timer) = (timer(1), timer(2));
        // CPUs of different kinds have a node for each kind.
        root.each_enabled(&mut |node| {
            if node.is_compatible(&MONITORS) {
                for interrupt in (0..MAX_CPUS).filter_map(|index| domains.interrupt(node, index)) {
                    if !self.counters.contains(&interrupt) {
                        // A CPU without room for its interrupt is not interrupted by its counters.
                        let _ = self.counters.push(interrupt);
                    }
                }
            }
            None::<()>
        });
        self.psci = root.each_enabled(&mut |node| {
            let found = node.is_compatible(&["arm,psci-1.0", "arm,psci-0.2"]);
            match node.text("method").filter(|_| found)? {
                "hvc" => Some(Conduit::Hvc),
                "smc" => Some(Conduit::Smc),
                _ => None,
            }
        });
    }
}

impl Broadcom {
    fn read(root: &Node) -> Self {
        let device = |names: &[&str]| {
            root.each_enabled(&mut |node| registers(node).next().filter(|_| node.is_compatible(names)))
        };
        let pins = |name, bcm2711| device(&[name]).map(|registers| Pins { registers, bcm2711 });
        Self {
            pins: pins("brcm,bcm2711-gpio", true).or_else(|| pins("brcm,bcm2835-gpio", false)),
            mailbox: device(&["brcm,bcm2835-mbox"]),
            power: device(&["brcm,bcm2835-pm-wdt"]),
        }
    }
}

/// Calls `visit` with the node that /chosen names as the console, by a path or an alias, perhaps with options after
/// `:`.
fn stdout<T>(root: &Node, visit: &mut dyn FnMut(&Node) -> Option<T>) -> Option<T> {
    let name = root.at("chosen", &mut |chosen| chosen.text("stdout-path"))?;
    let name = name.split(':').next()?;
    let path = match name.strip_prefix('/') {
        Some(path) => path,
        None => root.at("aliases", &mut |aliases| aliases.text(name))?.strip_prefix('/')?,
    };
    root.at(path, visit)
}

/// Returns the last valid `maxcpus` in the boot arguments.
fn wanted_cpus(root: &Node) -> Option<usize> {
    let arguments = root.at("chosen", &mut |chosen| chosen.text("bootargs"))?;
    arguments.split_ascii_whitespace().rev().find_map(|argument| argument.strip_prefix("maxcpus=")?.parse().ok())
}

/// Returns the device with its first block of registers and its first interrupt.
fn device(node: &Node, domains: &Domains) -> Option<Device> {
    let registers = registers(node).next()?;
    let is_coherent = node.property("dma-coherent").is_some();
    Some(Device { registers, interrupt: domains.interrupt(node, 0), is_coherent })
}

/// Returns the blocks of registers of a device, up to the first one that CPUs do not reach or that is misaligned. The
/// place of a block tells its purpose, so none is left out.
fn registers(node: &Node) -> impl Iterator<Item = RegisterBlock> {
    node.registers().map_while(|entry| {
        let (address, length) = entry?;
        address.is_multiple_of(REGISTER_MAX).then_some(RegisterBlock { address, length })
    })
}

fn long(value: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(value.get(..8)?.try_into().ok()?))
}
