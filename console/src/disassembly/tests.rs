use std::format;
use std::string::String;

use kprobes_trace::symbols::Function;

use super::*;

const MAIN: Function<'static> = Function { name: "main", address: 0x8_1000, size: 0x100 };
const OTHER: Function<'static> = Function { name: "core::fmt::write", address: 0x8_2000, size: 0x20 };

struct Names;

impl Symbols for Names {
    fn lookup(&self, address: u64) -> Option<Function<'_>> {
        [MAIN, OTHER].into_iter().find(|function| address.wrapping_sub(function.address) < function.size)
    }

    fn find<'a>(&'a self, _: &str, _: &mut dyn FnMut(Function<'a>)) {}
}

fn shown(address: u64, word: u32, within: Range<u64>) -> String {
    Disassembly { address, word, symbols: &Names, within }.to_string()
}

/// Instruction words with their text by an assembler, in lower case.
const SYSTEM: &[(u32, &str)] = &[
    (0xd503_201f, "nop"),
    (0xd503_203f, "yield"),
    (0xd503_205f, "wfe"),
    (0xd503_207f, "wfi"),
    (0xd503_20bf, "sevl"),
    (0xd503_221f, "esb"),
    (0xd503_223f, "psb csync"),
    (0xd503_229f, "csdb"),
    (0xd503_20df, "dgh"),
    (0xd503_20ff, "xpaclri"),
    (0xd503_233f, "paciasp"),
    (0xd503_23bf, "autiasp"),
    (0xd503_237f, "pacibsp"),
    (0xd503_21df, "autib1716"),
    (0xd503_241f, "bti"),
    (0xd503_245f, "bti c"),
    (0xd503_249f, "bti j"),
    (0xd503_24df, "bti jc"),
    (0xd503_261f, "stshh keep"),
    (0xd503_263f, "stshh strm"),
    (0xd503_217f, "hint #0xb"),
    (0xd503_2b5f, "hint #0x5a"),
    (0xd503_42df, "msr daifset, #2"),
    (0xd503_4fff, "msr daifclr, #15"),
    (0xd500_41bf, "msr spsel, #1"),
    (0xd500_419f, "msr pan, #1"),
    (0xd500_407f, "msr uao, #0"),
    (0xd503_413f, "msr ssbs, #1"),
    (0xd503_415f, "msr dit, #1"),
    (0xd503_419f, "msr tco, #1"),
    (0xd53b_4220, "mrs x0, daif"),
    (0xd51b_4223, "msr daif, x3"),
    (0xd538_d093, "mrs x19, tpidr_el1"),
    (0xd518_c01f, "msr vbar_el1, xzr"),
    (0xd538_f281, "mrs x1, s3_0_c15_c2_4"),
    (0xd511_34a7, "msr s2_1_c3_c4_5, x7"),
    (0xd533_0500, "mrs x0, dbgdtrrx_el0"),
    (0xd513_0500, "msr dbgdtrtx_el0, x0"),
    (0xd50b_7522, "ic ivau, x2"),
    (0xd508_711f, "ic ialluis"),
    (0xd508_7103, "ic ialluis, x3"),
    (0xd50b_7b21, "dc cvau, x1"),
    (0xd50b_7e3f, "dc civac, xzr"),
    (0xd50b_743e, "dc zva, x30"),
    (0xd508_7805, "at s1e1r, x5"),
    (0xd508_831f, "tlbi vmalle1is"),
    (0xd508_8723, "tlbi vae1, x3"),
    (0xd508_9723, "tlbi vae1nxs, x3"),
    (0xd508_83e4, "tlbi vaale1is, x4"),
    (0xd508_8525, "tlbi rvae1os, x5"),
    (0xd50c_871f, "tlbi alle2"),
    (0xd50c_87df, "tlbi vmalls12e1"),
    (0xd50c_8023, "tlbi ipas2e1is, x3"),
    (0xd50b_74e3, "sys #3, c7, c4, #7, x3"),
    (0xd50b_74ff, "sys #3, c7, c4, #7"),
    (0xd52b_74e3, "sysl x3, #3, c7, c4, #7"),
    (0xd50b_7381, "cfp rctx, x1"),
    (0xd503_3fdf, "isb"),
    (0xd503_3b9f, "dsb ish"),
    (0xd503_3fbf, "dmb sy"),
    (0xd503_3f5f, "clrex"),
    (0xd503_345f, "clrex #0x4"),
];

#[test]
fn system_instructions_have_names() {
    for &(word, text) in SYSTEM {
        assert_eq!(shown(0, word, 0..0), text, "{word:#010x}");
    }
}

#[test]
fn each_system_register_has_one_place_in_the_table() {
    let keys = register::NAMES.map(|(key, _)| key);
    assert!(keys.is_sorted_by(|one, next| one < next), "the search would miss names");
    let mut names = register::NAMES.map(|(_, name)| name);
    names.sort_unstable();
    assert!(names.is_sorted_by(|one, next| one < next), "a name stands twice");
    for (key, name) in register::NAMES {
        assert_eq!(shown(0, 0xd500_0003 | u32::from(key) << 5, 0..0), format!("msr {name}, x3"));
    }
}

#[test]
fn targets_are_addresses_with_their_functions() {
    let everywhere = [
        // bl #0x1000; bl #0x1004; b #-0x1000
        (0x9400_0400, "bl 0x82000 <core::fmt::write>"),
        (0x9400_0401, "bl 0x82004 <core::fmt::write+0x4>"),
        (0x17ff_fc00, "b 0x80000"),
        // adr x0, #0x1001; adrp x0, #0x1000; adrp x1, #-0x1000
        (0x3000_8000, "adr x0, 0x82001 <core::fmt::write+0x1>"),
        (0xb000_0000, "adrp x0, 0x82000"),
        (0xf0ff_ffe1, "adrp x1, 0x80000"),
        // ldr x7, #0x1008; ldrsw x7, #-0x1000; ldr s0, #0x1000; prfm pldl1keep, #0x1000
        (0x5800_8047, "ldr x7, 0x82008 <core::fmt::write+0x8>"),
        (0x98ff_8007, "ldrsw x7, 0x80000"),
        (0x1c00_8000, "ldr s0, 0x82000 <core::fmt::write>"),
        (0xd800_8000, "prfm pldl1keep, 0x82000 <core::fmt::write>"),
    ];
    for (word, text) in everywhere {
        assert_eq!(shown(MAIN.address, word, 0..0), text, "{word:#010x}");
    }
    // b.ne #0x10; cbz w3, #0x10; tbnz x3, #33, #-0x1000
    let inside = |word| shown(MAIN.address + 0x10, word, MAIN.address..MAIN.address + MAIN.size);
    assert_eq!(inside(0x5400_0081), "b.ne 0x81020 <+0x20>");
    assert_eq!(inside(0x3400_0083), "cbz w3, 0x81020 <+0x20>");
    assert_eq!(inside(0xb70c_0003), "tbnz x3, #0x21, 0x79010");
    assert_eq!(inside(0x9400_03fc), "bl 0x82000 <core::fmt::write>");
    assert_eq!(shown(MAIN.address + 0x10, 0x5400_0081, 0..0), "b.ne 0x81020 <main+0x20>");
    // The base of an ADRP is its page, not its address.
    assert_eq!(shown(0x8_1ffc, 0xb000_0000, 0..0), "adrp x0, 0x82000");
    // The target wraps around at the end of the address space.
    assert_eq!(shown(u64::MAX - 3, 0x1400_0001, 0..0), "b 0x0");
}

#[test]
fn a_register_that_is_extended_is_shown_so() {
    assert_eq!(shown(0, 0x8b36_46c8, 0..0), "add x8, x22, w22, uxtw #1");
    assert_eq!(shown(0, 0xeb28_413f, 0..0), "cmp x9, w8, uxtw");
    assert_eq!(shown(0, 0x8b36_c6c8, 0..0), "add x8, x22, w22, sxtw #1");
    assert_eq!(shown(0, 0x8b16_06c8, 0..0), "add x8, x22, x22, lsl #1");
}

#[test]
fn what_is_no_instruction_is_a_word() {
    assert_eq!(shown(0, 0xffff_ffff, 0..0), ".word 0xffffffff");
}

#[test]
fn every_word_has_some_text() {
    // A stride that is coprime to 2^32 visits words of every group.
    let mut word = 0_u32;
    for _ in 0..1 << 20 {
        assert!(!shown(MAIN.address, word, 0..0).is_empty(), "{word:#010x}");
        word = word.wrapping_add(0x9e37_79b1);
    }
}
