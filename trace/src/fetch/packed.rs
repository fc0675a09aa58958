//! Arguments that are numbers of any size, which a stub combines to the words of a record.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use fallible::OutOfMemory;

use super::{BitRange, Fetch, RecordedPart, Register, Source};
use crate::format::{Field, Width};

/// A number of a record. A stub combines it with its neighbours to words.
#[derive(Debug)]
pub(crate) struct PackedNumber {
    pub register: Register,
    /// The offsets that are added before each read of memory, innermost first. The last one reads `width`, any other a
    /// word.
    pub reads: Box<[i32]>,
    pub width: Width,
    /// The recorded bits of the value; `None` means the low bits.
    pub bits: Option<BitRange>,
    /// The offset of the number in the record, and its size, in bytes.
    pub at: u16,
    pub size: u8,
}

impl PackedNumber {
    /// Makes the number that records `argument` in `field`; `None` if a stub cannot fetch the argument.
    fn of(argument: &Fetch, field: &Field) -> Result<Option<Self>, OutOfMemory> {
        let kind = field.kind;
        let (Some(width), Ok(at)) = (kind.base.width().filter(|_| kind.count == 0), u16::try_from(field.offset)) else {
            return Ok(None);
        };
        let (register, stack) = match argument.source {
            Source::Register(register) => (register, None),
            Source::Stack(offset) => (Register::SP, Some(offset.into())),
            _ => return Ok(None),
        };
        let offsets = stack.into_iter().chain(argument.reads.iter().copied());
        if offsets.clone().any(|offset| i32::try_from(offset).is_err()) {
            return Ok(None);
        }
        let bits = match (&argument.part, kind.bits) {
            (RecordedPart::Whole, None) => None,
            (RecordedPart::Whole, Some(of)) => match BitRange::new(of.offset, of.width, false) {
                Some(range) => Some(range),
                None => return Ok(None),
            },
            (RecordedPart::Bits(part), None) => Some(*part),
            _ => return Ok(None),
        };
        let width = match (argument.reads.is_empty(), &argument.part) {
            // A stub reads whole words of the stack.
            (true, _) => Width::W64,
            (false, RecordedPart::Bits(part)) => part.width(),
            (false, _) => width,
        };
        let reads = fallible::boxed_slice(offsets.filter_map(|offset| i32::try_from(offset).ok()))?;
        Ok(Some(Self { register, reads, width, bits, at, size: kind.size() as u8 }))
    }

    /// Makes the numbers that record these arguments in these fields. `None` unless all of them are numbers, in this
    /// order, and within the bytes `room` of the record.
    pub(super) fn all<'a>(
        arguments: impl Iterator<Item = (&'a Fetch, &'a Field)>,
        room: Range<usize>,
    ) -> Result<Option<Box<[Self]>>, OutOfMemory> {
        let (mut numbers, mut free) = (Vec::new(), room.start);
        for (argument, field) in arguments {
            let Some(number) = Self::of(argument, field)?.filter(|_| field.offset >= free) else { return Ok(None) };
            free = field.offset.saturating_add(number.size.into());
            fallible::push(&mut numbers, number)?;
        }
        if free > room.end { Ok(None) } else { fallible::boxed_slice(numbers).map(Some) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::fetch::FetchProgram;
    use crate::format::{Base, Format, Shape, Type};

    /// The fields of a format are public. A stub gets only numbers that it can write from the first to the last, within
    /// the record.
    #[test]
    fn numbers_are_packed_that_are_in_order_and_within_the_record() {
        let types = ["u8", "u64", "u16"].map(|name| Type::one(Base::of(name).unwrap()));
        let argument = Fetch { source: Source::Register(Register::SP), reads: Vec::new(), part: RecordedPart::Whole };
        let arguments = [argument.try_copy().unwrap(), argument.try_copy().unwrap(), argument];
        let packed = |change: &dyn Fn(&mut [Field]), room: Range<usize>| {
            let mut format = Format::new(Shape::Probe, types.map(|kind| ("a", kind))).unwrap();
            let own = format.fields.len() - types.len();
            change(&mut format.fields[own..]);
            let program = FetchProgram::new(&arguments, format.fetched(), room, None).unwrap();
            let FetchProgram::Ops(ops) = program else { panic!("they are not all words") };
            ops.packed.map(|packed| packed.iter().map(|number| (number.at, number.size)).collect::<Vec<_>>())
        };
        assert_eq!(packed(&|_| (), 16..27), Some([(16, 1), (17, 8), (25, 2)].into()));
        assert_eq!(packed(&|fields| fields[2].offset = 30, 16..32), Some([(16, 1), (17, 8), (30, 2)].into()));
        assert_eq!(packed(&|_| (), 16..26), None, "the last is not within the record");
        assert_eq!(packed(&|_| (), 17..27), None, "the first is before the arguments");
        assert_eq!(packed(&|fields| fields[1].offset = 16, 16..27), None, "two share a byte");
        assert_eq!(packed(&|fields| fields.swap(0, 2), 16..27), None, "they are not in order");
        assert_eq!(packed(&|fields| fields[2].offset = 1 << 16, 16..1 << 17), None, "the offset is too large");
        assert_eq!(packed(&|fields| fields[2].offset = usize::MAX, 16..usize::MAX), None, "the offset is too large");
    }
}
