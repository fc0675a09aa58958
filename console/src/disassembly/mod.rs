//! Shows instructions in assembly language, so that a verdict can be read without a manual.
//!
//! A decoder crate writes most of the text. It shows PC-relative targets as distances, and hints and system registers
//! as numbers. This module replaces distances by addresses with the function that contains them, `system` supplies the
//! names, and `word_extension` corrects an operand. No decision depends on the text.

mod operand;
mod operation;
mod register;
mod system;
#[cfg(test)]
mod tests;

use core::fmt;
use core::ops::Range;

use kprobes_trace::symbols::Symbols;
use yaxpeax_arch::{Decoder, U8Reader};
use yaxpeax_arm::armv8::a64::{InstDecoder, Opcode, Operand};

/// An instruction, shown in assembly language, or as a `.word` if the decoder does not know it.
pub struct Disassembly<'a> {
    /// The virtual address at which the instruction is executed.
    pub address: u64,
    /// The instruction word.
    pub word: u32,
    /// The names of the functions that the instruction refers to.
    pub symbols: &'a dyn Symbols,
    /// The virtual address range of the function that is being shown. Targets in it are shown without the function's
    /// name. May be empty.
    pub within: Range<u64>,
}

impl fmt::Display for Disassembly<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(instruction) = system::Instruction::decode(self.word) {
            return instruction.fmt(f);
        }
        let Ok(instruction) = InstDecoder::default().decode(&mut U8Reader::new(&self.word.to_le_bytes())) else {
            return write!(f, ".word {:#010x}", self.word);
        };
        let text = fallible::format(format_args!("{instruction}"))?;
        if let Some(shift) = word_extension(self.word) {
            let (operands, _) = text.split_once(", lsl").unwrap_or((&text, ""));
            write!(f, "{operands}, uxtw")?;
            return if shift == 0 { Ok(()) } else { write!(f, " #{shift}") };
        }
        let distance = instruction.operands.iter().find_map(|operand| match operand {
            Operand::PCOffset(distance) => Some(*distance),
            _ => None,
        });
        // The distance is the last operand, in the form `$+0x10`.
        let (Some(distance), Some((before, _))) = (distance, text.split_once('$')) else { return f.write_str(&text) };
        f.write_str(before)?;
        if instruction.opcode == Opcode::ADRP {
            // The target is a page, and is shown without the function at its beginning.
            return write!(f, "{:#x}", (self.address & !0xfff).wrapping_add_signed(distance));
        }
        self.write_target(f, self.address.wrapping_add_signed(distance))
    }
}

/// Returns the shift of a 64-bit ADD, ADDS, SUB or SUBS (extended register) that zero-extends a 32-bit register (C6.2,
/// option 010). The decoder shows such an instruction without the extension.
fn word_extension(word: u32) -> Option<u32> {
    (word & 0x9fe0_e000 == 0x8b20_4000).then_some((word >> 10) & 7)
}

impl Disassembly<'_> {
    /// Writes an address, with its offset in the function that contains it.
    fn write_target(&self, f: &mut fmt::Formatter<'_>, target: u64) -> fmt::Result {
        write!(f, "{target:#x}")?;
        if self.within.contains(&target) {
            return write!(f, " <+{:#x}>", target - self.within.start);
        }
        match self.symbols.lookup(target) {
            Some(function) if function.address == target => write!(f, " <{}>", function.name),
            Some(function) => write!(f, " <{}+{:#x}>", function.name, target - function.address),
            None => Ok(()),
        }
    }
}
