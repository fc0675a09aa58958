//! Composed records: records that are more than words. They are composed field by field in a buffer, and then copied to
//! the ring.

use aarch64_kprobes::exception::nofault;
use aarch64_kprobes::probe::StackWalk;

use super::{RecordedHit, Registers};
use crate::context::Context;
use crate::fetch::{BitRange, FetchProgram, Op, Ops, Register, Target, Word};
use crate::format::Width;
use crate::functions::Functions;
use crate::hit::action::{HitState, Verdict};
use crate::recorder::{COMPOSED, Recorder, STACK_EVENT, STACK_HEADER, STACK_MAX, TEXT_MAX};
use crate::ring::{RECORD_HEADER, Ring};
use crate::symbols::Function;
use crate::trigger::Plan;

/// A record that is being composed.
struct Draft<'a> {
    words: &'a mut [u64; COMPOSED],
    /// The length so far, in bytes: the fields, and the texts appended after them.
    length: usize,
    faults: u32,
    /// The length of the next text without a terminating zero, in bytes.
    slice: Option<u64>,
}

impl Recorder {
    /// Records a hit, unless `plan` drops it, by composing the record in the buffer of the ring.
    ///
    /// # Safety
    ///
    /// The caller must have entered the ring.
    #[inline(never)]
    pub(super) unsafe fn record_composed(
        &self,
        ring: &Ring,
        plan: Option<&Plan>,
        registers: Registers<'_>,
        hit: &RecordedHit<'_>,
    ) {
        // SAFETY: each ring has its own buffer. The caller has entered the ring, so no other hit uses the buffer.
        let words = unsafe { &mut *ring.bench.0.get() };
        let context = &hit.context;
        let [common, address, return_address, ..] = words;
        *common = self.common(ring, registers, context);
        *address = hit.address;
        if let Some(address) = hit.return_address {
            *return_address = address;
        }
        let length = self.size - RECORD_HEADER;
        let mut draft = Draft { words, length, faults: 0, slice: None };
        match &self.program {
            FetchProgram::Words(words) | FetchProgram::Block(words) => {
                draft.fill(words, self.shape.size() / 8, registers)
            }
            FetchProgram::Ops(ops) => draft.carry_out(ops, registers, hit),
        }
        let Some(plan) = plan else { return draft.publish(ring, context) };
        let known = HitState { faults: draft.faults, ..self.known(registers, hit) };
        let Verdict { keep, stack } = plan.run(draft.bytes(), &known, &self.rings.on);
        if keep {
            draft.publish(ring, context);
        }
        if stack && !ring.is_left_out() {
            let [common, ..] = *draft.words;
            draft.stack(common, plan.walk(&known));
            draft.publish(ring, context);
        }
    }

    /// Records the stack at a hit.
    ///
    /// # Safety
    ///
    /// The caller must have entered the ring.
    pub(super) unsafe fn record_stack(
        &self,
        ring: &Ring,
        plan: &Plan,
        registers: Registers<'_>,
        hit: &RecordedHit<'_>,
    ) {
        // SAFETY: each ring has its own buffer. The caller has entered the ring, so no other hit uses the buffer.
        let words = unsafe { &mut *ring.bench.0.get() };
        let mut draft = Draft { words, length: 0, faults: 0, slice: None };
        draft.stack(self.common(ring, registers, &hit.context), plan.walk(&self.known(registers, hit)));
        draft.publish(ring, &hit.context);
    }
}

impl Draft<'_> {
    /// Returns the bytes of the record so far.
    fn bytes(&self) -> &[u8] {
        let length = self.length.min(8 * COMPOSED);
        // SAFETY: the pointer and the length stay within `words`. The bytes are in the order of a record because every
        // target of this crate is little-endian.
        unsafe { core::slice::from_raw_parts(self.words.as_ptr().cast(), length) }
    }

    /// Stores the values of `words`, from the word `first` on.
    fn fill(&mut self, words: &[Word], first: usize, registers: Registers<'_>) {
        for (index, (word, place)) in words.iter().zip(self.words.iter_mut().skip(first)).enumerate() {
            let value = registers.fetch(word);
            if value.is_none() {
                self.faults |= 1 << (index & 31);
            }
            *place = value.unwrap_or(0);
        }
    }

    /// Turns the draft into the record of a stack.
    fn stack(&mut self, common: u64, mut walk: StackWalk) {
        const FIRST: usize = STACK_HEADER / 8;
        let mut depth = 0;
        let mut next = Some(walk.first());
        while let Some(address) = next.filter(|_| depth < STACK_MAX) {
            if let Some(word) = self.words.get_mut(FIRST + depth) {
                *word = address;
            }
            depth += 1;
            next = walk.step();
        }
        let [first, second, ..] = &mut *self.words;
        *first = common & !0xffff | u64::from(STACK_EVENT);
        *second = depth as u64;
        self.length = 8 * (FIRST + depth);
        self.faults = 0;
    }

    fn carry_out(&mut self, ops: &Ops, registers: Registers<'_>, hit: &RecordedHit<'_>) {
        // Every argument begins with an operation that succeeds. Once a read fails, the value stays `None` until the
        // end of the argument.
        let mut value = Some(0);
        for op in &ops.list {
            value = self.carry_out_one(op, value, ops, registers, hit);
        }
    }

    /// Carries out one operation on `value`, and returns the value after it.
    //
    // Not inlined: in the loop, the compiler would move the address of the jump table away from the jump, and the audit
    // could no longer find the table.
    #[inline(never)]
    fn carry_out_one(
        &mut self,
        op: &Op,
        value: Option<u64>,
        ops: &Ops,
        registers: Registers<'_>,
        hit: &RecordedHit<'_>,
    ) -> Option<u64> {
        match *op {
            Op::Register(from) => return Some(registers.get(from)),
            Op::Stack(offset) => return read(registers.get(Register::SP).wrapping_add(offset.into()), Width::W64),
            Op::Immediate(number) => return Some(number),
            Op::Entry(word) => return hit.entry.get(usize::from(word)).copied(),
            Op::Fixed(word) => {
                return hit.entry.get(usize::from(word)).map(|word| (&raw const *word).expose_provenance() as u64);
            }
            Op::Located(word) => {
                let offset = hit.entry.get(usize::from(word))? & 0xffff;
                return Some(hit.entry.as_ptr().expose_provenance() as u64 + offset);
            }
            Op::Dereference(offset) => return dereference(value, offset, Width::W64),
            Op::Read(offset, width) => return dereference(value, offset, width),
            Op::Bits(range) => return value.map(|value| range.apply(value)),
            Op::Length => self.slice = value,
            Op::Slice(target) => self.slice(target, value),
            Op::Store(target, width) => self.store(target, width, value),
            Op::Array(target, width, offset, count, range, unread) => {
                let start = value.map(|value| value.wrapping_add_signed(offset));
                let mask = self.array(target, width, count, start, range);
                self.put(unread.into(), Width::W64, mask);
            }
            Op::Text(target, offset, longest) => {
                self.text(target, value.map(|value| value.wrapping_add_signed(offset)), longest.into());
            }
            Op::Texts(target, offset, count) => {
                let mut target = target;
                for index in 0..i64::from(count) {
                    self.text(target, dereference(value, offset.wrapping_add(8 * index), Width::W64), usize::MAX);
                    target.at = target.at.wrapping_add(4);
                }
            }
            Op::Symbol(target) => self.symbol(target, value, ops.functions.as_deref()),
            Op::TaskName(target) => {
                let [low, high] = hit.context.name;
                let (low, high) = (low.to_le_bytes(), high.to_le_bytes());
                self.name(target, low, high);
            }
            Op::Data(target, start, length) => {
                let start = usize::from(start);
                self.append(target, ops.data.get(start..start + usize::from(length)));
            }
        }
        value
    }

    fn fault(&mut self, target: Target) {
        self.faults |= 1 << (target.argument & 31);
    }

    /// Stores a byte of the record. A byte beyond the buffer is dropped.
    #[inline(always)]
    fn byte(&mut self, at: usize, byte: u8) {
        if let Some(word) = self.words.get_mut(at / 8) {
            let shift = 8 * (at % 8);
            *word = *word & !(0xff << shift) | u64::from(byte) << shift;
        }
    }

    /// Stores a number of the record, which may lie across two words. What is beyond the buffer is dropped.
    #[inline(never)]
    fn put(&mut self, at: usize, width: Width, value: u64) {
        let mask = u64::MAX >> (64_u32.wrapping_sub(width.bits()) & 63);
        let (value, shift) = (value & mask, 8 * (at % 8) as u32);
        if let Some(word) = self.words.get_mut(at / 8) {
            *word = *word & !(mask << (shift & 63)) | value << (shift & 63);
        }
        let first = 64 - shift;
        if width.bits() > first
            && let Some(word) = self.words.get_mut(at / 8 + 1)
        {
            *word = *word & !(mask >> (first & 63)) | value >> (first & 63);
        }
    }

    fn store(&mut self, target: Target, width: Width, value: Option<u64>) {
        if value.is_none() {
            self.fault(target);
        }
        self.put(target.at.into(), width, value.unwrap_or(0));
    }

    /// Stores the values of an array. Returns a mask of those that could not be read, bit 0 for the first.
    fn array(&mut self, target: Target, width: Width, count: u8, start: Option<u64>, range: Option<BitRange>) -> u64 {
        let mut unread = 0;
        for index in 0..usize::from(count) {
            let offset = index * width.bytes();
            let value = dereference(start, offset as i64, width);
            let value = value.map(|value| range.map_or(value, |range| range.apply(value)));
            let at = target.at.wrapping_add(offset as u16);
            self.store(Target { at, ..target }, width, value);
            unread |= u64::from(value.is_none()) << (index & 63);
        }
        unread
    }

    /// Appends the text at `address`, up to its zero or to `longest` bytes, and stores its location at `target`.
    #[inline(never)]
    fn text(&mut self, target: Target, address: Option<u64>, longest: usize) {
        let (start, end) = self.room();
        let room = end - start;
        let mut length = 0;
        let mut ended = address.is_none();
        while !ended && length + 1 < room && length < longest {
            let byte = address.and_then(|address| read(address.wrapping_add(length as u64), Width::W8));
            let Some(byte) = byte else {
                length = 0;
                break;
            };
            self.byte(start + length, byte as u8);
            length += 1;
            ended = byte == 0;
        }
        if !ended && length > 0 {
            self.byte(start + length, 0);
            length += 1;
        }
        self.locate(target, length);
    }

    /// Appends the text at `address`, whose length [`Op::Length`] has set, and stores its location at `target`.
    #[inline(never)]
    fn slice(&mut self, target: Target, address: Option<u64>) {
        let (start, end) = self.room();
        let (Some(address), Some(length)) = (address, self.slice) else { return self.locate(target, 0) };
        if start >= end {
            return self.locate(target, 0);
        }
        let mut at = start;
        while at + 1 < end && (at - start) as u64 != length {
            let Some(byte) = read(address.wrapping_add((at - start) as u64), Width::W8) else {
                return self.locate(target, 0);
            };
            self.byte(at, byte as u8);
            at += 1;
        }
        self.end_text(target, at);
    }

    /// Appends these bytes as a text.
    fn append(&mut self, target: Target, bytes: Option<&[u8]>) {
        let (start, end) = self.room();
        match bytes.filter(|_| start < end) {
            Some(bytes) => {
                let at = self.write(start, end - 1, bytes);
                self.end_text(target, at);
            }
            None => self.locate(target, 0),
        }
    }

    /// Returns the range in which a text can be appended, with space for its zero.
    fn room(&self) -> (usize, usize) {
        let start = self.length;
        (start, start + (8 * COMPOSED).saturating_sub(start).min(TEXT_MAX))
    }

    /// Ends the text that was appended up to `at` with a zero, which must fit, and stores its location at `target`.
    fn end_text(&mut self, target: Target, at: usize) {
        self.byte(at, 0);
        self.locate(target, at + 1 - self.length);
    }

    /// Appends the symbol that contains `address`, in the form of [`write_offset`](crate::symbols::write_offset):
    /// `name+0xOFFSET/0xSIZE`, or the bare address if no function contains it.
    #[inline(never)]
    fn symbol(&mut self, target: Target, address: Option<u64>, functions: Option<&Functions>) {
        let (start, end) = self.room();
        let Some(address) = address.filter(|_| start < end) else { return self.locate(target, 0) };
        let last = end - 1;
        let at = match functions.and_then(|functions| functions.containing(address)) {
            Some(function) => {
                let at = self.write(start, last, function.name.as_bytes());
                let at = self.write_number(at, last, b"+0x", address - function.address);
                self.write_number(at, last, b"/0x", function.size)
            }
            None => self.write_number(start, last, b"0x", address),
        };
        self.end_text(target, at);
    }

    /// Writes bytes of the record from `at`, but not beyond `end`. Returns the position after them.
    fn write(&mut self, mut at: usize, end: usize, bytes: &[u8]) -> usize {
        for &byte in bytes.iter().take(end.saturating_sub(at)) {
            self.byte(at, byte);
            at += 1;
        }
        at
    }

    /// Writes `prefix` and a number in hexadecimal. Cuts and returns as [`write`](Self::write) does.
    fn write_number(&mut self, at: usize, end: usize, prefix: &[u8], number: u64) -> usize {
        let mut at = self.write(at, end, prefix);
        let mut digits = (u64::BITS - number.leading_zeros()).div_ceil(4).max(1);
        while digits > 0 && at < end {
            digits -= 1;
            let digit = (number >> (4 * digits) & 0xf) as u8;
            self.byte(at, if digit < 10 { b'0' + digit } else { b'a' - 10 + digit });
            at += 1;
        }
        at
    }

    fn name(&mut self, target: Target, low: [u8; 8], high: [u8; 8]) {
        let start = self.length;
        let mut length = 0;
        for &byte in low.iter().chain(&high) {
            if byte == 0 {
                break;
            }
            self.byte(start + length, byte);
            length += 1;
        }
        self.byte(start + length, 0);
        self.locate(target, length + 1);
    }

    /// Stores the location of the last `length` appended bytes at `target`. A length of 0 marks a text that could not
    /// be read.
    fn locate(&mut self, target: Target, length: usize) {
        if length == 0 {
            self.fault(target);
        }
        self.put(target.at.into(), Width::W32, (length as u64) << 16 | self.length as u64 & 0xffff);
        self.length = (self.length + length).min(8 * COMPOSED);
    }

    #[inline(always)]
    fn publish(&self, ring: &Ring, context: &Context) {
        const FIRST: usize = RECORD_HEADER / 8;
        let words = self.length.div_ceil(8);
        let Some(reservation) = ring.reserve(8 * (FIRST + words)) else { return };
        // SAFETY: `reserve` has reserved `FIRST + words` words, of which the header takes the first.
        unsafe {
            reservation.set(0, (RECORD_HEADER + self.length) as u64 | u64::from(self.faults) << 32);
            reservation.set(1, context.time);
            reservation.set(2, context.name[0]);
            reservation.set(3, context.name[1]);
        }
        for (index, &word) in self.words.iter().enumerate() {
            if index >= words {
                break;
            }
            // SAFETY: `index` is below `words`, and the reservation has `FIRST + words` words.
            unsafe { reservation.set(FIRST + index, word) };
        }
        reservation.commit();
    }
}

impl Functions {
    /// Returns the function that contains the virtual address `address`; the first of several names for it.
    //
    // Written out: the standard library's binary search would be a call out of the region.
    #[inline(always)]
    fn containing(&self, address: u64) -> Option<&Function<'static>> {
        let begins = |index: usize| self.all.get(index).is_some_and(|function| function.address <= address);
        let (mut least, mut most) = (0, self.all.len());
        while least < most {
            let middle = least + (most - least) / 2;
            if begins(middle) { least = middle + 1 } else { most = middle }
        }
        let nearest = self.all.get(least.wrapping_sub(1))?.address;
        let mut found = None;
        while let Some(function) = self.all.get(least.wrapping_sub(1)).filter(|other| other.address == nearest) {
            if address - nearest < function.size {
                found = Some(function);
            }
            least -= 1;
        }
        found
    }
}

/// Dereferences: loads a number at `value + offset`. Returns `None` if `value` is `None`, or if the memory cannot be
/// read.
#[inline(always)]
fn dereference(value: Option<u64>, offset: i64, width: Width) -> Option<u64> {
    read(value?.wrapping_add_signed(offset), width)
}

#[inline(never)]
fn read(address: u64, width: Width) -> Option<u64> {
    let address = address as usize;
    // SAFETY: the user who defines an event answers for the memory that its arguments read (README.md, Limits).
    unsafe {
        match width {
            Width::W8 => nofault::read::<u8>(address).ok().map(u64::from),
            Width::W16 => nofault::read::<u16>(address).ok().map(u64::from),
            Width::W32 => nofault::read::<u32>(address).ok().map(u64::from),
            Width::W64 => nofault::read::<u64>(address).ok(),
        }
    }
}
