//! Compares the description with what the `fdt` crate itself reads. The crate does not translate addresses and does not
//! interpret `status` or the cells of an interrupt. The tests do that with separate code.

use fdt::Fdt;
use fdt::node::FdtNode;

use super::*;

fn number(cells: &[u8]) -> u64 {
    cells.chunks_exact(4).fold(0, |number, cell| number << 32 | u64::from(u32::from_be_bytes(cell.try_into().unwrap())))
}

fn is_enabled(node: &FdtNode) -> bool {
    node.property("status").is_none_or(|status| status.as_str() == Some("okay"))
}

/// Returns the first enabled node that is compatible with one of `names`, and its parent.
fn find<'b, 'a>(tree: &'b Fdt<'a>, names: &[&str]) -> Option<(FdtNode<'b, 'a>, FdtNode<'b, 'a>)> {
    let is_wanted = |node: &FdtNode| {
        is_enabled(node) && node.compatible().is_some_and(|found| found.all().any(|name| names.contains(&name)))
    };
    // In all of these machines, such a device is in the root or on a bus in the root.
    let root = tree.find_node("/")?;
    let parents = std::iter::once(root).chain(root.children());
    parents.flat_map(|parent| parent.children().map(move |node| (node, parent))).find(|(node, _)| is_wanted(node))
}

/// Returns the registers of `node`, which is on the bus `parent`.
fn registers_of(tree: &Fdt, (node, parent): (FdtNode, FdtNode)) -> std::vec::Vec<RegisterBlock> {
    let (inner, outer) = (parent.cell_sizes(), tree.root().cell_sizes());
    let ranges = parent.property("ranges").map_or(&[][..], |ranges| ranges.value);
    let translate = |address| {
        let entries = ranges.chunks_exact((inner.address_cells + outer.address_cells + inner.size_cells) * 4);
        let mut found = entries.filter_map(|entry| {
            let (from, rest) = entry.split_at(inner.address_cells * 4);
            let (to, length) = rest.split_at(outer.address_cells * 4);
            let (from, to, length) = (number(from), number(to), number(length));
            (from..from + length).contains(&address).then(|| address - from + to)
        });
        if ranges.is_empty() { address } else { found.next().expect("the bus leads to the CPUs") }
    };
    let pieces = node.raw_reg().expect("a device has registers");
    pieces
        .map(|piece| RegisterBlock { address: translate(number(piece.address)), length: number(piece.size) })
        .collect()
}

/// Returns interrupt `index` of `node`, if it goes to a GIC.
fn interrupt_of(tree: &Fdt, node: FdtNode, index: usize) -> Option<Interrupt> {
    let gic = tree.find_phandle(tree.root().property("interrupt-parent")?.as_usize()? as u32)?;
    if gic.interrupt_cells()? != 3 {
        return None;
    }
    let cells = &node.property("interrupts")?.value[index * 12..][..12];
    let [kind, number, flags] = [0, 4, 8].map(|at| number(&cells[at..][..4]) as u32);
    let base = if kind == 0 { 32 } else { 16 };
    Some(Interrupt { number: base + number, edge: flags & 3 != 0 })
}

/// Asserts that `fdt` reads from `blob` the same machine as [`Hardware::read`].
fn compare(blob: &[u8]) {
    let mut blob = blob.to_vec();
    let hardware = Hardware::read(&mut blob).unwrap();
    let tree = Fdt::new(&blob).unwrap();

    let memory = tree.memory();
    let regions = memory.regions().map(|region| {
        let start = region.starting_address as u64;
        start..start + region.size.unwrap() as u64
    });
    assert_eq!(hardware.memory, regions.collect::<Vec<_, 16>>());

    let cpus = tree.cpus().map(|cpu| {
        let start = match cpu.property("enable-method").and_then(|method| method.as_str()) {
            Some("psci") => Some(Start::Psci),
            Some("spin-table") => Some(Start::SpinTable(number(cpu.property("cpu-release-addr").unwrap().value))),
            _ => None,
        };
        Cpu { affinity: cpu.ids().first() as u64, start }
    });
    assert_eq!(hardware.cpus, cpus.collect::<Vec<_, MAX_CPUS>>());

    let uart = find(&tree, &["arm,pl011"]).map(|place| Device {
        registers: registers_of(&tree, place)[0],
        interrupt: interrupt_of(&tree, place.0, 0),
        is_coherent: false,
    });
    assert_eq!(hardware.uart, uart);

    let gic_v2 = find(&tree, &["arm,gic-400", "arm,cortex-a15-gic"]).map(|place| {
        let registers = registers_of(&tree, place);
        InterruptController::GicV2 { distributor: registers[0], cpu_interface: registers[1] }
    });
    let gic_v3 = find(&tree, &["arm,gic-v3"]).map(|place| {
        let registers = registers_of(&tree, place);
        let regions = place.0.property("#redistributor-regions").map_or(1, |regions| regions.as_usize().unwrap());
        let redistributors = registers[1..][..regions].iter().copied().collect();
        InterruptController::GicV3 { distributor: registers[0], redistributors }
    });
    assert_eq!(hardware.interrupt_controller, gic_v2.or(gic_v3));

    let timer = |index| find(&tree, &["arm,armv8-timer"]).and_then(|(node, _)| interrupt_of(&tree, node, index));
    assert_eq!((hardware.physical_timer, hardware.timer), (timer(1), timer(2)));

    let psci = find(&tree, &["arm,psci-1.0", "arm,psci-0.2"]).map(|(node, _)| {
        match node.property("method").unwrap().as_str().unwrap() {
            "hvc" => Conduit::Hvc,
            "smc" => Conduit::Smc,
            method => panic!("{method}"),
        }
    });
    assert_eq!(hardware.psci, psci);
}

#[test]
fn fdt_reads_the_same_of_qemu_virt() {
    compare(VIRT_GICV2);
    compare(VIRT_GICV3);
}

#[test]
fn fdt_reads_the_same_of_boards() {
    compare(&board().blob());
    // The interrupts of a BCM2837, the SoC of the Raspberry Pi 3, do not go to a GIC.
    for name in raspberry_pi::NAMES.iter().filter(|name| !name.starts_with("bcm2837")) {
        compare(&raspberry_pi::with_memory(&raspberry_pi::tree(name)));
    }
}

/// With NOPs, the crate panics or misreads. After the check, which moves the tokens, it reads everything.
#[test]
fn fdt_reads_the_same_of_trees_with_nops() {
    let mut tree = board();
    tree.pad_with_nops();
    compare(&tree.blob());
}
