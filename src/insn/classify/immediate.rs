//! C4.1.86 Data Processing -- Immediate. The first two classes read the program counter.

use super::{UNALLOCATED, bit, field, number, signed, slot_if};
use crate::insn::op::Op;
use crate::insn::verdict::{Reason, Verdict};

pub(super) const fn classify(word: u32) -> Verdict {
    let wide = bit(word, 31);
    match field(word, 25, 23) {
        // PC-rel. addressing: ADR, ADRP.
        0b000 | 0b001 => {
            let rd = number(word, 0);
            let offset = signed(word, 23, 5) << 2 | field(word, 30, 29).cast_signed();
            Verdict::Simulate(if wide {
                Op::AddressOfPage { rd, offset: (offset as i64) << 12 }
            } else {
                Op::Address { rd, offset }
            })
        }
        // Add/subtract (immediate).
        0b010 => Verdict::Slot,
        0b011 => slot_if(match (field(word, 31, 29), bit(word, 22)) {
            // Add/subtract (immediate, with tags): ADDG, SUBG.
            (0b100 | 0b110, false) => field(word, 15, 14) == 0,
            // Min/max (immediate).
            (0b000 | 0b100, true) => field(word, 21, 18) <= 0b0011,
            _ => false,
        }),
        // Logical (immediate).
        0b100 => slot_if(is_bitmask(word)),
        // Move wide (immediate): opc 01 is unallocated, and a W register has no upper half to shift to.
        0b101 => slot_if(field(word, 30, 29) != 0b01 && (wide || !bit(word, 22))),
        // Bitfield: N is sf, and so limits immr and imms.
        0b110 => {
            slot_if(field(word, 30, 29) != 0b11 && bit(word, 22) == wide && (wide || !bit(word, 21) && !bit(word, 15)))
        }
        _ => match field(word, 30, 29) {
            // Extract.
            0b00 => slot_if(bit(word, 22) == wide && !bit(word, 21) && (wide || !bit(word, 15))),
            // Data-processing (1 source immediate): AUTIASPPC, AUTIBSPPC.
            0b11 if wide && matches!(field(word, 22, 21), 0b00 | 0b01) && number(word, 0) == 31 => {
                Verdict::Reject(Reason::AuthenticatedAddress)
            }
            _ => UNALLOCATED,
        },
    }
}

/// Returns whether N, immr and imms of a logical immediate encode a mask (C6.2 and DecodeBitMasks): an element of 2 to
/// 64 bits that is not all ones.
const fn is_bitmask(word: u32) -> bool {
    let n = field(word, 22, 22);
    let imms = field(word, 15, 10);
    if n != 0 && !bit(word, 31) {
        return false;
    }
    let selector = n << 6 | (!imms & 0x3f);
    if selector < 2 {
        return false;
    }
    let element = 1 << selector.ilog2();
    imms & (element - 1) != element - 1
}
