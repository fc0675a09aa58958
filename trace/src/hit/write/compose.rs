//! Records that are more than words: composed aside, field by field, and copied to the ring.

use aarch64_kprobes::exception::nofault;

use super::{Moment, Registers};
use crate::fetch::{Extract, Op, Ops, Program, Register, Shift, Target, Word};
use crate::format::Width;
use crate::functions::Functions;
use crate::hit::action::{self, Verdict, Walk};
use crate::host::{Context, Function};
use crate::recorder::{COMPOSED, Recorder, STACK_EVENT, STACK_HEADER, STACK_MAX, TEXT_MAX};
use crate::ring::{RECORD_HEADER, Ring};
use crate::trigger::Plan;

/// A record that is being composed.
struct Draft<'a> {
    words: &'a mut [u64; COMPOSED],
    /// How many bytes there are: fields, and texts so far.
    length: usize,
    faults: u32,
    /// How long the next text is that does not end with a zero.
    slice: Option<u64>,
}

impl Recorder {
    /// Records a hit, if `plan` does not have it otherwise, by composing the record aside.
    ///
    /// # Safety
    ///
    /// This hit has entered the ring.
    #[inline(never)]
    pub(super) unsafe fn record_composed(
        &self,
        ring: &Ring,
        plan: Option<&Plan>,
        registers: Registers<'_>,
        moment: &Moment<'_>,
    ) {
        // SAFETY: there is one for each ring, and nobody else records there, as the caller has entered.
        let words = unsafe { &mut *ring.bench.0.get() };
        let context = &moment.context;
        let [common, address, return_address, ..] = words;
        *common = self.common(ring, registers, context);
        *address = moment.address;
        if let Some(address) = moment.return_address {
            *return_address = address;
        }
        let length = match &self.program {
            Program::Words(_) => self.size - RECORD_HEADER,
            Program::Ops(_) => self.size,
        };
        let mut draft = Draft { words, length, faults: 0, slice: None };
        match &self.program {
            Program::Words(words) => draft.fill(words, self.shape.size() / 8, registers),
            Program::Ops(ops) => draft.carry_out(ops, registers, moment),
        }
        let Some(plan) = plan else { return draft.publish(ring, context) };
        let known = action::Moment { faults: draft.faults, ..self.known(registers, moment) };
        let Verdict { keep, stack } = plan.run(draft.bytes(), &known, &self.rings.on);
        if keep {
            draft.publish(ring, context);
        }
        if stack {
            let [common, ..] = *draft.words;
            draft.stack(common, plan.walk(&known));
            draft.publish(ring, context);
        }
    }

    /// Records the stack at a hit.
    ///
    /// # Safety
    ///
    /// As of [`record_composed`](Self::record_composed).
    pub(super) unsafe fn record_stack(&self, ring: &Ring, plan: &Plan, registers: Registers<'_>, moment: &Moment<'_>) {
        // SAFETY: as above.
        let words = unsafe { &mut *ring.bench.0.get() };
        let mut draft = Draft { words, length: 0, faults: 0, slice: None };
        draft.stack(self.common(ring, registers, &moment.context), plan.walk(&self.known(registers, moment)));
        draft.publish(ring, &moment.context);
    }
}

impl Draft<'_> {
    /// What there is of the record.
    fn bytes(&self) -> &[u8] {
        let length = self.length.min(8 * COMPOSED);
        // SAFETY: they are bytes of the words, in the order that a record has on every target of this crate.
        unsafe { core::slice::from_raw_parts(self.words.as_ptr().cast(), length) }
    }

    /// Fills in words from `first` on.
    fn fill(&mut self, words: &[Word], first: usize, registers: Registers<'_>) {
        for (index, (word, place)) in words.iter().zip(self.words.iter_mut().skip(first)).enumerate() {
            let value = registers.fetch(word);
            if value.is_none() {
                self.faults |= 1 << (index & 31);
            }
            *place = value.unwrap_or(0);
        }
    }

    /// Makes it the record of a stack instead.
    fn stack(&mut self, common: u64, mut walk: Walk<'_>) {
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

    fn carry_out(&mut self, ops: &Ops, registers: Registers<'_>, moment: &Moment<'_>) {
        // What an argument begins with is always good; what cannot be read is nothing from then on.
        let mut value = Some(0);
        for op in &ops.list {
            value = self.carry_out_one(op, value, ops, registers, moment);
        }
    }

    /// Carries one operation out on `value`, and returns what that is then.
    //
    // Not inlined into the loop, out of which the compiler would move the address of the table of jumps, away from the jump: the
    // audit finds it only there.
    #[inline(never)]
    fn carry_out_one(
        &mut self,
        op: &Op,
        value: Option<u64>,
        ops: &Ops,
        registers: Registers<'_>,
        moment: &Moment<'_>,
    ) -> Option<u64> {
        match *op {
            Op::Register(from) => return Some(registers.get(from)),
            Op::Stack(offset) => return read(registers.get(Register::SP).wrapping_add(offset.into()), Width::W64),
            Op::Immediate(number) => return Some(number),
            Op::Entry(word) => return moment.entry.get(usize::from(word)).copied(),
            Op::Follow(offset) => return follow(value, offset, Width::W64),
            Op::Read(offset, width) => return follow(value, offset, width),
            Op::Bits(shift) => return value.map(|value| shift.apply(value)),
            Op::Extract(part) => return value.map(|value| part.apply(value)),
            Op::Length => self.slice = value,
            Op::Slice(target) => self.slice(target, value),
            Op::Store(target, width) => self.store(target, width, value),
            Op::Array(target, width, offset, count, shift, unread) => {
                let start = value.map(|value| value.wrapping_add_signed(offset));
                let mask = self.array(target, width, count, start, shift);
                self.put(unread.into(), Width::W64, mask);
            }
            Op::Text(target, offset) => self.text(target, value.map(|value| value.wrapping_add_signed(offset))),
            Op::Texts(target, offset, count) => {
                let mut target = target;
                for index in 0..i64::from(count) {
                    self.text(target, follow(value, offset.wrapping_add(8 * index), Width::W64));
                    target.at = target.at.wrapping_add(4);
                }
            }
            Op::Symbol(target) => self.symbol(target, value, ops.functions.as_deref()),
            Op::TaskName(target) => {
                let [low, high] = moment.context.name;
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

    /// Stores a byte of the record; one that has no place is dropped.
    #[inline(always)]
    fn byte(&mut self, at: usize, byte: u8) {
        if let Some(word) = self.words.get_mut(at / 8) {
            let shift = 8 * (at % 8);
            *word = *word & !(0xff << shift) | u64::from(byte) << shift;
        }
    }

    #[inline(never)]
    fn put(&mut self, at: usize, width: Width, value: u64) {
        let mut rest = value;
        for index in 0..width.bytes() {
            self.byte(at + index, rest as u8);
            rest >>= 8;
        }
    }

    fn store(&mut self, target: Target, width: Width, value: Option<u64>) {
        if value.is_none() {
            self.fault(target);
        }
        self.put(target.at.into(), width, value.unwrap_or(0));
    }

    /// Stores the values of an array, and returns which of them could not be read, bit 0 for the first.
    fn array(&mut self, target: Target, width: Width, count: u8, start: Option<u64>, shift: Shift) -> u64 {
        let mut unread = 0;
        for index in 0..usize::from(count) {
            let offset = index * width.bytes();
            let value = follow(start, offset as i64, width).map(|value| shift.apply(value));
            let at = target.at.wrapping_add(offset as u16);
            self.store(Target { at, ..target }, width, value);
            unread |= u64::from(value.is_none()) << (index & 63);
        }
        unread
    }

    /// Appends the text at `address`, up to its zero, and says at `target` where it is.
    #[inline(never)]
    fn text(&mut self, target: Target, address: Option<u64>) {
        let (start, end) = self.room();
        let room = end - start;
        let mut length = 0;
        let mut ended = address.is_none();
        while !ended && length + 1 < room {
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

    /// Appends the text at `address` that has as many bytes as was said before, and says at `target` where it is.
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

    /// Where a text can be appended: its first byte, and the end of what it can take with its zero.
    fn room(&self) -> (usize, usize) {
        let start = self.length;
        (start, start + (8 * COMPOSED).saturating_sub(start).min(TEXT_MAX))
    }

    /// Ends the text that was appended up to `at`, where there is room for the zero, and says at `target` where it is.
    fn end_text(&mut self, target: Target, at: usize) {
        self.byte(at, 0);
        self.locate(target, at + 1 - self.length);
    }

    /// Appends what contains `address`, as [`text::write_offset`](crate::text::write_offset) writes it: `name+0xOFFSET/0xSIZE`, or
    /// the bare address where no function is.
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

    /// Writes bytes of the record from `at` on, as far as `end`, and returns where they end.
    fn write(&mut self, mut at: usize, end: usize, bytes: &[u8]) -> usize {
        for &byte in bytes.iter().take(end.saturating_sub(at)) {
            self.byte(at, byte);
            at += 1;
        }
        at
    }

    /// Writes `prefix` and a number in hexadecimal, as [`write`](Self::write) does.
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

    /// The last `length` bytes that were appended are the text that is said to be at `target`; none are one that could not be
    /// read.
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
        let Some(room) = ring.reserve(8 * (FIRST + words)) else { return };
        // SAFETY: there is room for the header, and so many words.
        unsafe {
            room.set(0, (RECORD_HEADER + self.length) as u64 | u64::from(self.faults) << 32);
            room.set(1, context.time);
            room.set(2, context.name[0]);
            room.set(3, context.name[1]);
        }
        for (index, &word) in self.words.iter().enumerate() {
            if index >= words {
                break;
            }
            // SAFETY: as above.
            unsafe { room.set(FIRST + index, word) };
        }
        room.commit();
    }
}

impl Functions {
    /// The function that contains the virtual address `address`: of several names for it, the first.
    //
    // Written out: a search of the standard library's would be a call out of the region.
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

impl Shift {
    /// The bits that remain of `value`.
    #[inline(always)]
    fn apply(self, value: u64) -> u64 {
        let unused = 64_u32.wrapping_sub(self.width.bits()) & 63;
        let cut = |value: u64| value << unused >> unused;
        cut(value << (self.left & 63)) >> (self.right & 63)
    }
}

impl Extract {
    /// The number that these bits of `value` are.
    #[inline(always)]
    fn apply(self, value: u64) -> u64 {
        let unused = 64_u32.wrapping_sub(self.width.bits()) & 63;
        let moved = value >> (self.from & 63) << unused;
        if self.signed { (moved.cast_signed() >> unused).cast_unsigned() } else { moved >> unused }
    }
}

/// What is `offset` bytes from where `value` points to.
#[inline(always)]
fn follow(value: Option<u64>, offset: i64, width: Width) -> Option<u64> {
    read(value?.wrapping_add_signed(offset), width)
}

#[inline(never)]
fn read(address: u64, width: Width) -> Option<u64> {
    let address = address as usize;
    // SAFETY: the one who defines an event answers for what its arguments read (README.md, Limits).
    unsafe {
        match width {
            Width::W8 => nofault::read::<u8>(address).ok().map(u64::from),
            Width::W16 => nofault::read::<u16>(address).ok().map(u64::from),
            Width::W32 => nofault::read::<u32>(address).ok().map(u64::from),
            Width::W64 => nofault::read::<u64>(address).ok(),
        }
    }
}
