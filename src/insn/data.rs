//! Finds the data among the instructions of a function.
//!
//! Literals and jump tables may lie between the instructions that read them. A word of data can look like any
//! instruction, and if it were probed, the function would read the probe's breakpoint. The words of a function show two
//! ways in which it reads data of its own:
//!
//! - A literal load names the address and the size of the data.
//! - ADR puts the address of a table into a register, by which a later load reads it. The length of the table is not
//!   visible. It ends, at the latest, at the target of a branch that lies before it; code that only the table leads to
//!   is refused together with it. ADR alone is no sign of data: it also gives the address of the code from which a
//!   table elsewhere holds distances.
//!
//! A word of data that looks like one of these makes instructions look like data, which are then refused as well. Data
//! whose address is computed otherwise, or that another function reads, is not found.

use alloc::vec::Vec;
use core::ops::Range;

use fallible::OutOfMemory;

use super::classify::{classify, signed};
use super::control::Control;
use super::op::{Indirect, Op};
use super::verdict::{Reason, Verdict};

/// The number of instructions after ADR among which the load is looked for.
const REACH: usize = 16;

/// The data in a function.
#[derive(Debug)]
pub struct Data {
    /// The virtual addresses of the data, and the address of the instruction that reads it.
    read: Vec<(Range<u64>, u64)>,
}

impl Data {
    /// Finds the data in the function at the range of virtual addresses `function`, which consists of whole words.
    /// `read` returns the word at an address in it, as it is without probes.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] if there is no memory for the list.
    pub fn of(function: Range<u64>, read: impl Fn(u64) -> u32) -> Result<Self, OutOfMemory> {
        let mut found = Self { read: Vec::new() };
        let words = || function.clone().step_by(4);
        for at in words() {
            if let Some(literal) = literal(read(at), at)
                && literal.start < function.end
                && literal.end > function.start
            {
                fallible::push(&mut found.read, (literal, at))?;
            }
        }
        for at in words() {
            let Some(start) = table(at, function.clone(), &read) else { continue };
            let is_before = |&branch: &u64| branch < start && found.reader(branch).is_none();
            let targets = words().filter(is_before).filter_map(|branch| target(read(branch), branch));
            let end = targets.filter(|&target| target > start).min().unwrap_or(function.end);
            fallible::push(&mut found.read, (start..end, at))?;
        }
        Ok(found)
    }

    /// Returns the address of the instruction that reads the word at the virtual address `address`; `None` if no
    /// instruction was found that does.
    #[must_use]
    pub fn reader(&self, address: u64) -> Option<u64> {
        let is_here = |(data, _): &&(Range<u64>, u64)| data.start < address.saturating_add(4) && address < data.end;
        self.read.iter().find(is_here).map(|&(_, reader)| reader)
    }
}

/// Returns the addresses that the word at `at` reads, if it is a literal load (C6.2, LDR (literal); C7.2, LDR (literal,
/// SIMD&FP)).
fn literal(word: u32, at: u64) -> Option<Range<u64>> {
    if !is_literal(word) {
        return None;
    }
    let size = match classify(word) {
        Verdict::Simulate(Op::LoadLiteral { kind, .. }) => kind.size(),
        Verdict::Reject(Reason::SimdLiteral) => 4 << (word >> 30),
        _ => return None,
    };
    // The offset is in bits 23 to 5 for all of them.
    let start = at.wrapping_add_signed(i64::from(signed(word, 23, 5) << 2));
    Some(start..start.wrapping_add(size))
}

/// Returns whether `word` is in the group of literal loads (C4.1.88). Used to skip all other words quickly.
const fn is_literal(word: u32) -> bool {
    word & 0x3b00_0000 == 0x1800_0000
}

/// Returns whether `word` may read data that [`Data`] would find, by two tests. A function in which no word may do so
/// has no data.
#[must_use]
pub const fn may_read_data(word: u32) -> bool {
    is_literal(word) || is_address(word)
}

/// Returns whether `word` is ADR (C6.2).
const fn is_address(word: u32) -> bool {
    word & 0x9f00_0000 == 0x1000_0000
}

/// Returns the address of the table in `function` that the instruction at `at` puts into a register for a later load;
/// `None` if it does not.
fn table(at: u64, function: Range<u64>, read: impl Fn(u64) -> u32) -> Option<u64> {
    let word = read(at);
    if !is_address(word) {
        return None;
    }
    let Verdict::Simulate(Op::Address { rd, offset }) = classify(word) else { return None };
    let start = at.wrapping_add_signed(offset.into()) & !3;
    if rd == 31 || !function.contains(&start) {
        return None;
    }
    let following = (at + 4..function.end).step_by(4).take(REACH).map(read);
    for word in following {
        if accesses_by(word, rd) {
            return Some(start);
        }
        let leaves = match Control::after(word, classify(word)) {
            Control::Next | Control::Either(_) | Control::Call(_) | Control::Register { kind: Indirect::Call, .. } => {
                false
            }
            Control::Jump(_) | Control::Register { kind: Indirect::Jump | Indirect::Return, .. } => true,
        };
        if leaves || computes(word, rd) {
            break;
        }
    }
    None
}

/// Returns whether `word` is a load or store whose base is register `rn` (C4.1.88).
const fn accesses_by(word: u32, rn: u8) -> bool {
    word & 0x0a00_0000 == 0x0800_0000 && !is_literal(word) && word >> 5 & 31 == rn as u32
}

/// Returns whether `word` is a data processing instruction (C4.1.86, C4.1.89) with the result in register `rd`.
const fn computes(word: u32, rd: u8) -> bool {
    let is_processing = matches!(word >> 25 & 0b1111, 0b1000 | 0b1001 | 0b0101 | 0b1101);
    is_processing && word & 31 == rd as u32
}

/// Returns the target of the word at `at`, if it is a direct branch without a link.
fn target(word: u32, at: u64) -> Option<u64> {
    let offset = Control::after(word, classify(word)).branch_offset();
    offset.map(|offset| at.wrapping_add_signed(offset.into()))
}

#[cfg(test)]
mod tests {
    use super::Data;

    const START: u64 = 0x1000;
    const NOP: u32 = 0xd503_201f;
    const RET: u32 = 0xd65f_03c0;

    /// Returns the indices of the words that are data, each with the index of the word that reads it.
    fn data(words: &[u32]) -> std::vec::Vec<(u64, u64)> {
        let end = START + 4 * words.len() as u64;
        let data = Data::of(START..end, |address| words[((address - START) / 4) as usize]).unwrap();
        let number = |address: u64| (address - START) / 4;
        (START..end).step_by(4).filter_map(|at| Some((number(at), number(data.reader(at)?)))).collect()
    }

    #[test]
    fn what_a_literal_load_reads_is_data() {
        // ldr w0, +8; ldr x0, +8; ldrsw x0, +8.
        assert_eq!(data(&[0x1800_0040, RET, NOP, NOP]), [(2, 0)]);
        assert_eq!(data(&[0x5800_0040, RET, NOP, NOP]), [(2, 0), (3, 0)]);
        assert_eq!(data(&[0x9800_0040, RET, NOP, NOP]), [(2, 0)]);
        // ldr s0, +8; ldr d0, +8; ldr q0, +8.
        assert_eq!(data(&[0x1c00_0040, RET, NOP, NOP]), [(2, 0)]);
        assert_eq!(data(&[0x5c00_0040, RET, NOP, NOP]), [(2, 0), (3, 0)]);
        assert_eq!(data(&[0x9c00_0040, RET, NOP, NOP, NOP, NOP, NOP]), [(2, 0), (3, 0), (4, 0), (5, 0)]);
        // ldr x0, -8, after its literal.
        assert_eq!(data(&[0x1400_0003, NOP, NOP, 0x58ff_ffc0, RET]), [(1, 3), (2, 3)]);
        let all = Data::of(START..START + 8, |_| 0x1800_0020).unwrap(); // ldr w0, +4
        assert_eq!([START + 4, u64::MAX].map(|address| all.reader(address)), [Some(START), None]);
        // prfm pldl1keep, +8 reads nothing; ldr x0, +0x40 and ldr x0, -0x40 read outside the function.
        assert_eq!(data(&[0xd800_0040, RET, NOP, NOP]), []);
        assert_eq!(data(&[0x5800_0200, 0x58ff_fe00, RET]), []);
    }

    #[test]
    fn a_table_is_data_up_to_where_a_branch_leads_that_stands_before_it() {
        const TABLE: u32 = 0x1400_0002; // It looks like b +8.
        let function = |bounds_check| {
            [
                bounds_check,
                0x1000_0089, // adr x9, 5
                0xb868_7929, // ldrsw x9, [x9, x8, lsl #2]
                0x8b09_0129, // add x9, x9, x9
                0xd61f_0120, // br x9
                TABLE,
                TABLE,
                TABLE, // 5 to 7
                NOP,   // 8, which only the table leads to
                RET,   // 9
                NOP,   // 10
                RET,
            ]
        };
        // b.hi 10; cbhi x8, x0, 10.
        for bounds_check in [0x5400_0148, 0xf440_0148] {
            assert_eq!(data(&function(bounds_check)), [(5, 1), (6, 1), (7, 1), (8, 1), (9, 1)]);
        }
    }

    #[test]
    fn a_table_may_be_read_after_a_call() {
        // bl +0x40; blr x8.
        for call in [0x9400_0010, 0xd63f_0100] {
            let function = [
                0x1000_0093, // adr x19, 4
                call,
                0x3860_6a60, // ldrb w0, [x19, x0]
                RET,
                NOP, // 4
            ];
            assert_eq!(data(&function), [(4, 0)], "{call:#010x}");
        }
    }

    #[test]
    fn the_address_of_code_is_no_table() {
        let function = [
            0x1000_00a9, // adr x9, 5
            0x3868_6948, // ldrb w8, [x10, x8]
            0x8b08_0929, // add x9, x9, x8, lsl #2
            0xf940_0129, // ldr x9, [x9]: reads at the sum
            0xd61f_0120, // br x9
            NOP,
            RET,
        ];
        assert_eq!(data(&function), []);
    }
}
