//! Instructions as people write them. Nothing is decided by this text.

use core::fmt;

use yaxpeax_arch::{Decoder, U8Reader};
use yaxpeax_arm::armv8::a64::InstDecoder;

/// An instruction, shown in assembly language; branch targets relative to itself.
pub(super) struct Disassembly(pub u32);

impl fmt::Display for Disassembly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match InstDecoder::default().decode(&mut U8Reader::new(&self.0.to_le_bytes())) {
            Ok(instruction) => instruction.fmt(f),
            Err(_) => write!(f, ".word {:#010x}", self.0),
        }
    }
}
