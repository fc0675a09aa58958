//! Interrupts. The meaning of an interrupt specifier depends on the controller that the interrupt goes to. A node names
//! that controller by its phandle, or leaves it to a node above (Devicetree Specification 0.4, 2.4).

use heapless::Vec;

use super::node::Node;
use super::{RegisterBlock, registers};

/// An interrupt, numbered as on a GIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// Numbers 16 to 31 are private to a CPU; numbers from 32 on are shared. On a GIC the number is the INTID. On a
    /// BCM2836 private interrupts belong to the local interrupt controller, and shared interrupts to the peripherals'
    /// controller, 32 in each bank.
    pub number: u32,
    /// Whether the interrupt is edge-triggered; otherwise it is level-sensitive.
    pub edge: bool,
}

impl Interrupt {
    /// Returns whether each CPU has its own interrupt of this number.
    pub(super) fn is_private(&self) -> bool {
        self.number < 32
    }
}

/// The supported interrupt controllers. Registers are at physical addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterruptController {
    /// GICv2 (GIC-400).
    GicV2 {
        /// The distributor's registers.
        distributor: RegisterBlock,
        /// The CPU interface's registers.
        cpu_interface: RegisterBlock,
    },
    /// GICv3 or later.
    GicV3 {
        /// The distributor's registers.
        distributor: RegisterBlock,
        /// The redistributors' registers, in one or more regions.
        redistributors: Vec<RegisterBlock, 4>,
    },
    /// BCM2836 and BCM2837.
    Bcm2836 {
        /// The registers of the local interrupt controllers, one controller for each core.
        local: RegisterBlock,
        /// The registers of the peripherals' controller, which interrupts through the local controller.
        peripherals: Option<RegisterBlock>,
    },
}

/// The interrupt controllers of a machine, with the phandles by which nodes name them.
#[derive(Default)]
pub(super) struct Domains {
    /// The controller that interrupts the CPUs.
    pub(super) controller: Option<InterruptController>,
    gic: Option<u32>,
    /// The number of cells in a specifier of an interrupt of the GIC.
    gic_cells: usize,
    local: Option<u32>,
    peripherals: Option<u32>,
}

impl Domains {
    /// Finds the interrupt controllers of the machine.
    pub(super) fn read(root: &Node) -> Self {
        // Chips after the BCM2837 still have the local controller, but their interrupts go to a GIC. Their trees do not
        // mark the local controller as an interrupt controller.
        let find = |names: &[&str]| {
            root.each_enabled(&mut |node| {
                let found = node.is_compatible(names) && node.property("interrupt-controller").is_some();
                let registers: Vec<RegisterBlock, 8> = registers(node).take(8).collect();
                let cells = node.cell("#interrupt-cells").unwrap_or(3) as usize;
                let regions = node.cell("#redistributor-regions").unwrap_or(1) as usize;
                found.then(|| (node.cell("phandle"), cells, registers, regions))
            })
        };
        if let Some((gic, gic_cells, registers, _)) = find(&["arm,gic-400", "arm,cortex-a15-gic", "arm,cortex-a7-gic"])
            && let [distributor, cpu_interface, ..] = registers[..]
        {
            let controller = Some(InterruptController::GicV2 { distributor, cpu_interface });
            return Self { controller, gic, gic_cells, ..Self::default() };
        }
        if let Some((gic, gic_cells, registers, regions)) = find(&["arm,gic-v3"])
            && let [distributor, rest @ ..] = &registers[..]
        {
            let redistributors = rest.iter().copied().take(regions.min(4)).collect();
            let controller = Some(InterruptController::GicV3 { distributor: *distributor, redistributors });
            return Self { controller, gic, gic_cells, ..Self::default() };
        }
        let Some((phandle, _, registers, _)) = find(&["brcm,bcm2836-l1-intc"]) else { return Self::default() };
        let Some(&local) = registers.first() else { return Self::default() };
        let peripherals = find(&["brcm,bcm2836-armctrl-ic"]);
        Self {
            local: phandle,
            peripherals: peripherals.as_ref().and_then(|(phandle, ..)| *phandle),
            controller: Some(InterruptController::Bcm2836 {
                local,
                peripherals: peripherals.and_then(|(_, _, registers, _)| registers.first().copied()),
            }),
            ..Self::default()
        }
    }

    /// Returns interrupt `index` of a node, or `None` if it goes to none of these controllers.
    pub(super) fn interrupt(&self, node: &Node, index: usize) -> Option<Interrupt> {
        let parent = Some(node.interrupt_parent()?);
        if parent == self.gic {
            // Type, number and flags, and on a GICv3 perhaps a set of CPUs (Linux, bindings of arm,gic and arm,gic-v3).
            let [kind, number, flags] = node.interrupt(index, self.gic_cells)?;
            let edge = flags & 0b11 != 0;
            match kind {
                0 if number < 988 => Some(Interrupt { number: 32 + number, edge }),
                1 if number < 16 => Some(Interrupt { number: 16 + number, edge }),
                _ => None,
            }
        } else if parent == self.local {
            // Number and flags (Linux, bindings of brcm,bcm2836-l1-intc). Only the timers and the performance monitors
            // belong to devices.
            let [number, _flags] = node.interrupt(index, 2)?;
            (number < 4 || number == 9).then_some(Interrupt { number: 16 + number, edge: false })
        } else if parent == self.peripherals {
            // Bank and number (Linux, bindings of brcm,bcm2836-armctrl-ic).
            let [bank, number] = node.interrupt(index, 2)?;
            (bank < 3 && number < 32).then_some(Interrupt { number: 32 + 32 * bank + number, edge: false })
        } else {
            None
        }
    }
}
