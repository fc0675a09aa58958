//! Stubs that record: they write numbers from registers and memory straight into the ring.
//!
//! A record is written in whole words. Numbers that are narrower, or lie across two words, are put together in a
//! register, so that no store is unaligned and each word is stored once.

use core::mem::offset_of;

use aarch64_kprobes::insn::encode;
use aarch64_kprobes::insn::encode::compute::{self, Branch, Condition};
use aarch64_kprobes::probe::{Snippet, Step};

use super::{NoCode, OTHER, Steps, THREAD, ZERO, load};
use crate::fetch::{FetchProgram, Ops, PackedNumber, Word};
use crate::format::{Shape, Width};
use crate::recorder::{Flags, Recorder};
use crate::ring::{PAGE, RECORD_HEADER, Ring};

const RING: u8 = 13;
const LAST: u8 = 12;

/// Returns the last offset in a page at which a record of `size` bytes fits, in words after the page's first.
const fn last_place(size: usize) -> u16 {
    ((PAGE - 8 - size) / 8) as u16
}

impl Steps {
    /// Records a hit, unless recording is off. Masks interrupts for it, unless they are masked already.
    pub(super) fn record(&mut self, recorder: &Recorder, is_masked: bool) -> Result<(), NoCode> {
        let spare = self.spare;
        if matches!(&recorder.program, FetchProgram::Ops(Ops { packed: None, .. })) {
            return Err(NoCode::Stub);
        }
        if !is_masked {
            self.push(Step::Mask)?;
        }
        self.push(Step::Number(spare, recorder.rings.switch_address()))?;
        self.instructions([encode::load_bytes(1, spare, spare, 0)])?;
        let is_off = self.list.branch_ahead(Branch::Zero(spare))?;
        self.room(recorder)?;
        // A load from here on may fault, and the return address may be known only to the handler. Then the handler
        // records the hit from the start: so far, only unpublished space was written.
        if self.is_of_returns {
            self.push(Step::ReturnAddress(spare))?;
            let place = 8 + (RECORD_HEADER + Shape::Probe.size()) as u16;
            self.instructions([encode::store(Snippet::RETURN_ADDRESS, self.place, place)])?;
        }
        match &recorder.program {
            FetchProgram::Words(words) | FetchProgram::Block(words) => self.words(recorder, words)?,
            FetchProgram::Ops(ops) => self.packed(recorder, ops.packed.as_deref().unwrap_or_default())?,
        }
        self.common(recorder)?;
        self.head(recorder)?;
        self.list.place(is_off);
        if is_masked { Ok(()) } else { self.push(Step::Unmask) }
    }

    /// Loads the ring, and the position of the word before the next record, into `RING` and `LAST`, and sets the
    /// register for the place to the address of that word.
    fn room(&mut self, recorder: &Recorder) -> Result<(), NoCode> {
        const LOW: u8 = 3;
        const BITS: u8 = PAGE.trailing_zeros() as u8 - LOW;
        let spare = self.spare;
        self.push(Step::Number(RING, recorder.rings.distance()))?;
        self.instructions([
            encode::load_at(RING, Snippet::CPU, RING),
            encode::load_pair(LAST, self.place, RING, offset_of!(Ring, last) as i16),
            compute::extract(false, spare, LAST, LOW, BITS),
            compute::compare(spare, last_place(recorder.size.next_multiple_of(8))),
        ])?;
        self.push(Step::Call(Branch::If(Condition::Hi)))?;
        const { assert!(cfg!(loom) || offset_of!(Ring, page) == offset_of!(Ring, last) + 8) };
        self.instructions([compute::add_shifted(self.place, self.place, spare, LOW)])
    }

    /// Writes the first words of the event, the common fields and the address, and counts the record.
    fn common(&mut self, recorder: &Recorder) -> Result<(), NoCode> {
        /// The I bit of PSTATE.DAIF, as MRS reads it (C5.2, DAIF).
        const IRQ_MASKED: u8 = 7;
        const FLAGS: u8 = 16;
        const TASK: u8 = 32;
        let spare = self.spare;
        const { assert!(Flags::IRQS_OFF == 1) };
        const { assert!(cfg!(loom) || offset_of!(Ring, interrupt) == offset_of!(Ring, number) + 8) };
        self.instructions([
            encode::load_pair(OTHER, spare, RING, offset_of!(Ring, number) as i16),
            encode::add(OTHER, OTHER, 1),
            encode::store(OTHER, RING, offset_of!(Ring, number) as u16),
            encode::load_bytes(1, spare, spare, 0),
            compute::extract(false, OTHER, Snippet::MASKS, IRQ_MASKED, 1),
            compute::or_shifted(OTHER, OTHER, spare, Flags::INTERRUPT.trailing_zeros() as u8),
        ])?;
        self.push(Step::Number(spare, recorder.event.into()))?;
        self.instructions([compute::or_shifted(spare, spare, OTHER, FLAGS)])?;
        if !self.is_of_returns {
            self.instructions([compute::read_thread(THREAD)])?;
        }
        self.instructions([load(OTHER, THREAD, self.offsets.task), compute::or_shifted(spare, spare, OTHER, TASK)])?;
        if let FetchProgram::Block(_) = recorder.program {
            return self.instructions([encode::store(spare, self.place, 8 + RECORD_HEADER as u16)]);
        }
        self.address(OTHER)?;
        self.pair(spare, OTHER, RECORD_HEADER)
    }

    /// Writes the words of the arguments, in pairs.
    fn words(&mut self, recorder: &Recorder, words: &[Word]) -> Result<(), NoCode> {
        let spare = self.spare;
        let mut place = RECORD_HEADER + recorder.shape.size();
        for pair in words.chunks(2) {
            match *pair {
                [one, other] => {
                    let (one, other) = (self.word(one, spare)?, self.word(other, OTHER)?);
                    self.pair(one, other, place)?;
                }
                [one] => {
                    let one = self.word(one, spare)?;
                    self.instructions([encode::store(one, self.place, 8 + place as u16)])?;
                }
                _ => {}
            }
            place += 16;
        }
        Ok(())
    }

    /// Writes numbers of any width, each word of the record once.
    fn packed(&mut self, recorder: &Recorder, numbers: &[PackedNumber]) -> Result<(), NoCode> {
        const WORD: u8 = 64;
        let spare = self.spare;
        // The offset of the next word, and the register in which the word is put together, once it has a number.
        let (mut next, mut begun) = (RECORD_HEADER + recorder.shape.size(), None);
        for number in numbers {
            let at = RECORD_HEADER + usize::from(number.at);
            while next + 8 <= at {
                self.store(begun.take(), next)?;
                next += 8;
            }
            let value = self.fetch(number, OTHER)?;
            let (low, bits) = (8 * (at - next) as u8, 8 * number.size);
            if bits == WORD && low == 0 {
                self.store(Some(value), next)?;
                next += 8;
                continue;
            }
            // As many bits as this word has room for; the rest begins the next one.
            let first = bits.min(WORD - low);
            match begun {
                None => self.instructions([compute::insert_in_zeros(spare, value, low, first)])?,
                Some(_) => self.instructions([compute::insert(spare, value, low, first)])?,
            }
            begun = Some(spare);
            if low + first == WORD {
                self.store(begun.take(), next)?;
                next += 8;
            }
            if first < bits {
                self.instructions([compute::extract(false, spare, value, first, bits - first)])?;
                begun = Some(spare);
            }
        }
        // More words follow only if the fields of the format were changed.
        while next < recorder.size {
            self.store(begun.take(), next)?;
            next += 8;
        }
        Ok(())
    }

    /// Returns a register whose low bits hold the number: its own register, or `otherwise`, into which steps load it.
    fn fetch(&mut self, number: &PackedNumber, otherwise: u8) -> Result<u8, NoCode> {
        let &PackedNumber { register, ref reads, width, bits, .. } = number;
        let mut value = match reads.is_empty() {
            true => self.whole(register, otherwise)?,
            false => self.base(register)?,
        };
        for (count, &offset) in (1..).zip(reads) {
            let width = if count == reads.len() { width } else { Width::W64 };
            self.read(value, offset, width, otherwise)?;
            value = otherwise;
        }
        if let Some(bits) = bits {
            self.extract(bits, value, otherwise)?;
            value = otherwise;
        }
        Ok(value)
    }

    /// Stores a register, or 0, at byte `at` of the record.
    fn store(&mut self, register: Option<u8>, at: usize) -> Result<(), NoCode> {
        self.instructions([encode::store(register.unwrap_or(ZERO), self.place, 8 + at as u16)])
    }

    /// Writes the header of the record, and publishes the record.
    fn head(&mut self, recorder: &Recorder) -> Result<(), NoCode> {
        let (size, spare) = (recorder.size as u16, self.spare);
        self.push(Step::Number(spare, size.into()))?;
        self.instructions([compute::read_counter(OTHER)])?;
        self.pair(spare, OTHER, 0)?;
        self.instructions([encode::load_pair(spare, OTHER, THREAD, self.offsets.name as i16)])?;
        self.pair(spare, OTHER, 16)?;
        const { assert!(cfg!(loom) || offset_of!(Ring, last) == 0) };
        self.instructions([encode::add(LAST, LAST, size.next_multiple_of(8)), compute::store_release(LAST, RING)])
    }

    /// Stores two words at byte `at` of the record.
    fn pair(&mut self, one: u8, other: u8, at: usize) -> Result<(), NoCode> {
        match i16::try_from(8 + at) {
            Ok(offset @ ..=504) => self.instructions([encode::store_pair(one, other, self.place, offset)]),
            _ => Err(NoCode::Stub),
        }
    }
}
