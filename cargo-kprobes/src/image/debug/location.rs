//! The location of a value, decoded from DWARF expressions (DWARF 4, section 2.6).

use gimli::{Encoding, Expression, Operation};
use kprobes_types::Source;

use super::bytes::Bytes;

/// The AAPCS64 registers that DWARF numbers x0 to x30, and sp (DWARF for the Arm 64-bit Architecture, section 4.1).
const STACK_POINTER: u16 = Source::STACK_POINTER as u16;

/// The location of a value, in the forms that can be of use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// In parts, each with its size in bytes. One part of size 0 is the whole value.
    Parts(Vec<(Piece, u64)>),
    /// In another form.
    Other,
}

/// The location of a part of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Nowhere.
    Lost,
    /// In this register.
    Register(u8),
    /// In this register at the entry.
    Entry(u8),
    /// In memory, at this offset from the address in a register.
    Memory(u8, i64),
    /// In this many of the lowest bits of a register; the bits above are 0.
    Bits(u8, u8),
    /// In memory, at this offset from the address that was in a register at the entry.
    EntryMemory(u8, i64),
    /// In the frame of the function, at this offset from its base. The frame is made after the entry.
    Frame(i64),
    /// In memory, at the address that is in the frame at this offset from its base.
    FrameAddress(i64),
    /// In the frame of the function, at this offset from the stack pointer, which moves.
    Stack(i64),
    /// Nowhere: the value is the sum of a register, or of the base of the frame, and this number.
    Sum(Option<u8>, i64),
    /// This number.
    Constant(u64),
    /// In another form.
    Other,
}

/// Decodes an expression.
pub fn decode(expression: Expression<Bytes<'_>>, encoding: Encoding) -> Location {
    decode_at(expression, encoding, Moment::Now)
}

/// When an expression holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// Where its location is used.
    Now,
    /// At the entry of the function.
    Entry,
}

fn decode_at(expression: Expression<Bytes<'_>>, encoding: Encoding, moment: Moment) -> Location {
    let mut operations = expression.operations(encoding);
    let (mut parts, mut piece) = (Vec::new(), None);
    loop {
        let operation = match operations.next() {
            Ok(Some(operation)) => operation,
            Ok(None) => break,
            Err(_) => return Location::Other,
        };
        piece = Some(match (operation, piece) {
            (Operation::Register { register }, None) if register.0 == STACK_POINTER => {
                Piece::Sum(Some(Source::STACK_POINTER), 0)
            }
            (Operation::Register { register }, None) => register_of(register.0).map_or(Piece::Other, Piece::Register),
            (Operation::RegisterOffset { register, offset, .. }, None) if register.0 == STACK_POINTER => {
                Piece::Stack(offset)
            }
            (Operation::RegisterOffset { register, offset, .. }, None) => {
                register_of(register.0).map_or(Piece::Other, |register| Piece::Memory(register, offset))
            }
            (Operation::FrameOffset { offset }, None) => Piece::Frame(offset),
            (Operation::Deref { size: 8, space: false, .. }, Some(Piece::Frame(offset))) => Piece::FrameAddress(offset),
            (Operation::UnsignedConstant { value }, None) => Piece::Constant(value),
            (Operation::SignedConstant { value }, None) => Piece::Constant(value.cast_unsigned()),
            (Operation::EntryValue { expression }, None) if moment == Moment::Now => {
                match decode_at(Expression(expression), encoding, Moment::Entry) {
                    Location::Parts(parts) => match parts.as_slice() {
                        // An address, unless `DW_OP_stack_value` follows.
                        [(Piece::Register(register), 0)] => Piece::EntryMemory(*register, 0),
                        _ => Piece::Other,
                    },
                    Location::Other => Piece::Other,
                }
            }
            (Operation::PlusConstant { value }, Some(Piece::EntryMemory(register, offset))) => {
                Piece::EntryMemory(register, offset.wrapping_add_unsigned(value))
            }
            (Operation::PlusConstant { value }, Some(Piece::Memory(register, offset))) => {
                Piece::Memory(register, offset.wrapping_add_unsigned(value))
            }
            (Operation::PlusConstant { value }, Some(Piece::Stack(offset))) => {
                Piece::Stack(offset.wrapping_add_unsigned(value))
            }
            (Operation::PlusConstant { value }, Some(Piece::Frame(offset))) => {
                Piece::Frame(offset.wrapping_add_unsigned(value))
            }
            (Operation::StackValue, Some(Piece::EntryMemory(register, 0))) => Piece::Entry(register),
            (Operation::StackValue, Some(Piece::Memory(register, 0))) => Piece::Register(register),
            (Operation::StackValue, Some(Piece::Memory(register, offset))) => Piece::Sum(Some(register), offset),
            (Operation::StackValue, Some(Piece::Stack(offset))) => Piece::Sum(Some(Source::STACK_POINTER), offset),
            (Operation::StackValue, Some(Piece::Frame(offset))) => Piece::Sum(None, offset),
            (Operation::UnsignedConstant { value: mask }, Some(Piece::Memory(register, 0)))
                if mask < u64::MAX && (mask + 1).is_power_of_two() && mask > 0 =>
            {
                let mut after = operations;
                match (after.next(), after.next()) {
                    (Ok(Some(Operation::And)), Ok(Some(Operation::StackValue))) => {
                        operations = after;
                        Piece::Bits(register, mask.count_ones() as u8)
                    }
                    _ => Piece::Other,
                }
            }
            (Operation::StackValue, Some(Piece::Constant(value))) => Piece::Constant(value),
            (Operation::Piece { size_in_bits, bit_offset: None | Some(0) }, before) if size_in_bits % 8 == 0 => {
                parts.push((before.unwrap_or(Piece::Lost), size_in_bits / 8));
                piece = None;
                continue;
            }
            _ => Piece::Other,
        });
    }
    match (piece, parts.is_empty()) {
        (None, false) => Location::Parts(parts),
        (Some(piece), true) => Location::Parts(vec![(piece, 0)]),
        _ => Location::Other,
    }
}

/// Returns the general register with this DWARF number.
fn register_of(number: u16) -> Option<u8> {
    u8::try_from(number).ok().filter(|&number| number <= 30)
}

#[cfg(test)]
mod tests {
    use gimli::{EndianSlice, Expression, Format, LittleEndian};

    use super::{Encoding, Location, Piece, decode};

    /// Decodes an expression of these bytes (DWARF 4, section 7.7.1).
    fn decoded(bytes: &[u8]) -> Location {
        let encoding = Encoding { address_size: 8, format: Format::Dwarf32, version: 4 };
        decode(Expression(EndianSlice::new(bytes, LittleEndian)), encoding)
    }

    #[test]
    fn expressions_are_places() {
        let one = |piece| Location::Parts(vec![(piece, 0)]);
        assert_eq!(decoded(&[0x53]), one(Piece::Register(3)));
        assert_eq!(decoded(&[0x71, 0x08]), one(Piece::Memory(1, 8)));
        assert_eq!(decoded(&[0x91, 0x70]), one(Piece::Frame(-16)));
        assert_eq!(decoded(&[0x91, 0x70, 0x06]), one(Piece::FrameAddress(-16)));
        // Pointers into memory that a register, the frame and the stack pointer lead to.
        assert_eq!(decoded(&[0x71, 0x08, 0x9f]), one(Piece::Sum(Some(1), 8)));
        assert_eq!(decoded(&[0x91, 0x70, 0x9f]), one(Piece::Sum(None, -16)));
        assert_eq!(decoded(&[0x8f, 0x10, 0x9f]), one(Piece::Sum(Some(31), 16)));
        assert_eq!(decoded(&[0x8f, 0x10]), one(Piece::Stack(16)));
        // `DW_OP_plus_uconst` after an address.
        assert_eq!(decoded(&[0x71, 0x08, 0x23, 0x18]), one(Piece::Memory(1, 32)));
        assert_eq!(decoded(&[0x8f, 0xa0, 0x01, 0x23, 0x80, 0x01]), one(Piece::Stack(288)));
        assert_eq!(decoded(&[0x91, 0x70, 0x23, 0x04]), one(Piece::Frame(-12)));
        assert_eq!(decoded(&[0x71, 0x78, 0x23, 0x10, 0x9f]), one(Piece::Sum(Some(1), 8)));
        assert_eq!(decoded(&[0x53, 0x23, 0x08]), one(Piece::Other), "a register is no address");
        assert_eq!(decoded(&[0x91, 0x70, 0x06, 0x23, 0x08]), one(Piece::Other));
        // A pointer to the lower end of the frame.
        assert_eq!(decoded(&[0x6f]), one(Piece::Sum(Some(31), 0)));
        assert_eq!(decoded(&[0x10, 0x07, 0x9f]), one(Piece::Constant(7)));
        // A bool: the lowest bit of w1.
        assert_eq!(decoded(&[0x71, 0x00, 0x10, 0x01, 0x1a, 0x9f]), one(Piece::Bits(1, 1)));
        assert_eq!(decoded(&[0x71, 0x00, 0x10, 0xff, 0x01, 0x1a, 0x9f]), one(Piece::Bits(1, 8)));
        assert_eq!(decoded(&[0x71, 0x00, 0x10, 0x05, 0x1a, 0x9f]), one(Piece::Other), "bits of it are not the lowest");
        assert_eq!(decoded(&[0x71, 0x00, 0x10, 0x00, 0x1a, 0x9f]), one(Piece::Other));
        // Without `DW_OP_and`, the value is the mask; without `DW_OP_stack_value`, this is an address.
        assert_eq!(decoded(&[0x71, 0x00, 0x10, 0x01, 0x9f]), one(Piece::Other));
        assert_eq!(decoded(&[0x71, 0x00, 0x10, 0x01, 0x1a]), one(Piece::Other));
        // The part ends after the mask.
        let parts = Location::Parts(vec![(Piece::Other, 8), (Piece::Register(2), 8)]);
        assert_eq!(decoded(&[0x71, 0x00, 0x10, 0x01, 0x93, 8, 0x52, 0x93, 8]), parts);
        // `DW_OP_GNU_entry_value` of x2, as a value and as an address.
        assert_eq!(decoded(&[0xf3, 0x01, 0x52, 0x9f]), one(Piece::Entry(2)));
        assert_eq!(decoded(&[0xf3, 0x01, 0x52]), one(Piece::EntryMemory(2, 0)));
        assert_eq!(decoded(&[0xf3, 0x03, 0xf3, 0x01, 0x52]), one(Piece::Other), "the entry has no entry");
        // Nowhere, and x0: only the length of a string.
        let parts = vec![(Piece::Lost, 8), (Piece::Register(0), 8)];
        assert_eq!(decoded(&[0x93, 0x08, 0x50, 0x93, 0x08]), Location::Parts(parts));
        assert_eq!(decoded(&[0x93, 0x08, 0x50]), Location::Other);
        assert_eq!(decoded(&[0x10]), Location::Other, "it is cut");
    }

    #[test]
    fn expressions_that_are_nested_deeply_are_decoded() {
        // From its end: x2, in one `DW_OP_GNU_entry_value` in the other.
        let mut reversed = vec![0x52];
        for _ in 0..100_000 {
            let mut length = reversed.len();
            let mut number = Vec::new();
            while length >= 0x80 {
                number.push(length as u8 | 0x80);
                length >>= 7;
            }
            number.push(length as u8);
            reversed.extend(number.iter().rev());
            reversed.push(0xf3);
        }
        reversed.reverse();
        assert_eq!(decoded(&reversed), Location::Parts(vec![(Piece::Other, 0)]));
    }
}
