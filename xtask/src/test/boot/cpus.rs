//! CPUs that are started by other means than QEMU's default, and trees with errors about CPUs. A machine must go on
//! without the CPUs that do not start, and say which they are and why.
//!
//! None of QEMU's machines for the kernel has a spin table. So a few instructions do the work of firmware that has one:
//! they start the other CPUs, which then wait for the words that the tree names.

use std::{ffi::OsString, path::Path};

use anyhow::{Context, Result};

use super::{
    super::{
        flattened::{Tree, text},
        select::{Demands, Trait},
        sessions,
    },
    Boot, IMAGE, LOADER, TREE, loaded, loader,
};
use crate::{
    board::{Board, Configuration},
    machine::value_of,
};

/// The number of CPUs in the configurations of these tests.
const CPUS: u32 = 4;
/// More CPUs than the kernel has room for, as a GICv3 allows.
const MANY: &str = "40";

/// Returns the boots for changed copies of QEMU's tree `good`. Each is tested by the session of its name.
pub fn boots(
    board: &Board,
    configuration: &Configuration,
    machine: &[OsString],
    good: &[u8],
    image: &Path,
    directory: &Path,
) -> Result<Vec<Boot>> {
    if board.cpus(configuration) != CPUS {
        return Ok(Vec::new());
    }
    let wrong = "QEMU's device tree has an unexpected form";
    let changed = |change: &dyn Fn(&mut Tree) -> Option<()>| {
        let mut tree = Tree::parse(good).context(wrong)?;
        change(&mut tree).context(wrong)?;
        anyhow::Ok(tree.blob())
    };
    let uses_smc = Tree::parse(good).and_then(|tree| Some(tree.get("psci", "method")? == b"smc\0")).context(wrong)?;
    let odd = changed(&|tree| {
        tree.remove("cpu@1", "enable-method")?;
        tree.set("cpu@2", "reg", 0x77_u32.to_be_bytes().into())?;
        tree.set("cpu@3", "enable-method", text("spin-table"))?;
        tree.set("cpu@3", "cpu-release-addr", (TREE - 8).to_be_bytes().into())
    })?;
    // Not aligned, in the image, and beyond the addresses that can be mapped.
    let bad_places = changed(&|tree| set_spin_tables(tree, &|cpu| [0, TREE - 4, IMAGE + 8, !7][cpu as usize]))?;
    let firmware = spin_table_firmware(uses_smc);
    let words = LOADER + firmware.len() as u64;
    let word_of = |cpu: u64| words + 8 * cpu;
    let outside_of_ram = changed(&|tree| {
        remove_memory_below(tree, IMAGE)?;
        set_spin_tables(tree, &word_of)
    })?;
    // At EL2 the kernel calls PSCI in another way, and the interrupt controller wakes CPUs.
    let demands = || Demands::on(&[Trait::Entry, Trait::Interrupts]);
    let mut boots = Vec::new();
    for (name, tree, code) in [
        ("spin_table", changed(&|tree| set_spin_tables(tree, &word_of))?, firmware.clone()),
        ("spin_table_outside_of_ram", outside_of_ram, firmware),
        ("odd_cpus", odd, loader(TREE)),
        ("spin_tables_that_cannot_be_written_to", bad_places, loader(TREE)),
        ("cpus_without_psci", changed(&|tree| tree.remove_node("psci"))?, loader(TREE)),
    ] {
        let mut arguments = machine.to_vec();
        arguments.extend(loaded(image, Some(&tree), TREE, &code, name, directory)?);
        boots.push(Boot { name, demands: demands(), arguments, subject: sessions::special(name) });
    }
    if machine.iter().any(|argument| argument.to_string_lossy().contains("gic-version=3")) {
        let mut arguments = machine.to_vec();
        *value_of(&mut arguments, "-smp")? = MANY.into();
        arguments.extend(["-kernel".into(), image.into()]);
        let name = "more_cpus_than_there_is_room_for";
        boots.push(Boot { name, demands: Demands::default(), arguments, subject: sessions::special(name) });
    }
    Ok(boots)
}

/// Has the CPUs other than CPU 0 start from spin tables. `release` returns the release address of each.
fn set_spin_tables(tree: &mut Tree, release: &dyn Fn(u64) -> u64) -> Option<()> {
    tree.reserve(LOADER, 0x1000);
    (1..CPUS.into()).try_for_each(|cpu| {
        let node = format!("cpu@{cpu}");
        tree.set(&node, "enable-method", text("spin-table"))?;
        tree.set(&node, "cpu-release-addr", release(cpu).to_be_bytes().into())
    })
}

/// Removes the RAM below the physical address `start` from the tree.
fn remove_memory_below(tree: &mut Tree, start: u64) -> Option<()> {
    const MEMORY: &str = "memory@40000000";
    let (address, size) = tree.get(MEMORY, "reg")?.split_first_chunk::<8>()?;
    let size: &[u8; 8] = size.try_into().ok()?;
    let end = u64::from_be_bytes(*address) + u64::from_be_bytes(*size);
    tree.set(MEMORY, "reg", [start, end - start].map(u64::to_be_bytes).concat())
}

/// Returns instructions that start the other CPUs by PSCI, and then the image. Each of these CPUs waits for an address
/// in its word after the instructions, by Aff0, and jumps there.
fn spin_table_firmware(uses_smc: bool) -> Vec<u8> {
    let code: [u32; 20] = [
        0xd280_0033,                   //    mov x19, #1
        0x5800_0260,                   // 1: ldr x0, cpu_on
        0xaa13_03e1,                   //    mov x1, x19
        0x1000_0122,                   //    adr x2, 2f
        0xd280_0003,                   //    mov x3, #0
        0xd400_0002 + uses_smc as u32, // hvc #0, or smc #0
        0x9100_0673,                   //    add x19, x19, #1
        0xf100_227f,                   //    cmp x19, #8
        0x54ff_ff23,                   //    b.lo 1b
        0x5800_01a0,                   //    ldr x0, tree
        0x5800_01c1,                   //    ldr x1, image
        0xd61f_0020,                   //    br x1
        0xd538_00a0,                   // 2: mrs x0, mpidr_el1
        0x9240_1c00,                   //    and x0, x0, #0xff
        0x1000_0181,                   //    adr x1, words
        0x8b00_0c21,                   //    add x1, x1, x0, lsl #3
        0xd503_205f,                   // 3: wfe
        0xf940_0022,                   //    ldr x2, [x1]
        0xb4ff_ffc2,                   //    cbz x2, 3b
        0xd61f_0040,                   //    br x2
    ];
    const CPU_ON: u64 = 0xc400_0003;
    let code = code.iter().flat_map(|word| word.to_le_bytes());
    code.chain([CPU_ON, TREE, IMAGE].iter().flat_map(|number| number.to_le_bytes())).collect()
}
