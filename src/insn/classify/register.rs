//! C4.1.89 Data Processing -- Register. Only the signing instructions of FEAT_PAuth_LR read the program counter.

use super::{UNALLOCATED, bit, field, number, slot_if};
use crate::insn::verdict::{Reason, Verdict};

pub(super) const fn classify(word: u32) -> Verdict {
    let wide = bit(word, 31);
    let narrow = !wide;
    // The S bit, which sets the flags.
    let flags = bit(word, 29);
    if !bit(word, 28) {
        return slot_if(match (bit(word, 24), bit(word, 21)) {
            // Logical (shifted register). A shift of a W register is less than 32.
            (false, _) => wide || !bit(word, 15),
            // Add/subtract (shifted register).
            (true, false) => field(word, 23, 22) != 0b11 && (wide || !bit(word, 15)),
            // Add/subtract (extended register).
            (true, true) => field(word, 23, 22) == 0b00 && field(word, 12, 10) <= 4,
        });
    }
    match field(word, 24, 21) {
        // Add/subtract (with carry), (checked pointer); rotate right into flags; evaluate into flags.
        0b0000 => slot_if(match field(word, 15, 10) {
            0b000000 => true,
            0b001000..=0b001111 => wide && !flags,
            op3 if op3 & 0b011111 == 0b000001 => field(word, 31, 29) == 0b101 && !bit(word, 4),
            0b000010 | 0b010010 => {
                field(word, 31, 29) == 0b001 && field(word, 20, 15) == 0 && field(word, 4, 0) == 0b01101
            }
            _ => false,
        }),
        // Conditional compare (register) and (immediate).
        0b0010 => slot_if(flags && !bit(word, 10) && !bit(word, 4)),
        // Conditional select.
        0b0100 => slot_if(!flags && !bit(word, 11)),
        0b0110 if flags => {
            // Data-processing (2 source): SUBPS.
            slot_if(field(word, 31, 30) == 0b10 && field(word, 15, 10) == 0)
        }
        0b0110 if bit(word, 30) => one_source(word),
        // Data-processing (2 source).
        0b0110 => slot_if(match field(word, 15, 10) {
            // UDIV, SDIV; LSLV, LSRV, ASRV, RORV; SMAX, UMAX, SMIN, UMIN.
            0b000010 | 0b000011 | 0b001000..=0b001011 | 0b011000..=0b011011 => true,
            // CRC32 and CRC32C of up to a word.
            0b010000..=0b010010 | 0b010100..=0b010110 => narrow,
            // SUBP, IRG, GMI; PACGA; CRC32X, CRC32CX.
            0b000000 | 0b000100 | 0b000101 | 0b001100 | 0b010011 | 0b010111 => wide,
            _ => false,
        }),
        // Data-processing (3 source): MADD, MSUB; the widening ones, SMULH and UMULH; MADDPT and MSUBPT.
        0b1000 => slot_if(field(word, 30, 29) == 0),
        0b1001 | 0b1011 | 0b1101 => slot_if(field(word, 31, 29) == 0b100),
        0b1010 | 0b1110 => slot_if(field(word, 31, 29) == 0b100 && !bit(word, 15)),
        _ => UNALLOCATED,
    }
}

/// Data-processing (1 source).
const fn one_source(word: u32) -> Verdict {
    let wide = bit(word, 31);
    let opcode = field(word, 15, 10);
    let (rn, rd) = (number(word, 5), number(word, 0));
    match field(word, 20, 16) {
        // RBIT, REV16, REV or REV32; REV of an X register; CLZ, CLS; CTZ, CNT, ABS.
        0b00000 => slot_if(opcode <= 8 && (wide || opcode != 3)),
        0b00001 if wide => match opcode {
            // PACIA to AUTDB.
            0b000000..=0b000111 => Verdict::Slot,
            // PACIZA to AUTDZB; XPACI, XPACD.
            0b001000..=0b010001 => slot_if(rn == 31),
            // PACNBIASPPC, PACNBIBSPPC; PACIASPPC, PACIBSPPC.
            0b100000 | 0b100001 | 0b101000 | 0b101001 if rn == 31 && rd == 30 => {
                Verdict::Reject(Reason::AuthenticatedAddress)
            }
            // PACIA171615, PACIB171615; AUTIA171615, AUTIB171615.
            0b100010 | 0b100011 | 0b101110 | 0b101111 => slot_if(rn == 31 && rd == 30),
            // AUTIASPPCR, AUTIBSPPCR.
            0b100100 | 0b100101 => slot_if(rd == 30),
            _ => UNALLOCATED,
        },
        _ => UNALLOCATED,
    }
}
