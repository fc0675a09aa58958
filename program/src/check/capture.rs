//! Captures a Rust value as a whole, so that it can be printed. The bytes are read at the hit, because the memory may
//! hold another value later.
//!
//! A captured value consists of *blocks* of consecutive words: its own bytes, followed by the bytes that its references
//! lead to, to a bounded depth and length. The first word of each block is the number of bytes that could be read. A
//! reference in one variant of an enum is followed only if the enum is that variant; otherwise 0 bytes are read for its
//! block.

use alloc::vec::Vec;

use kprobes_types::{Flavor, Source, TypeId, TypeKind, ValuePart, ValuePlace};
use kprobes_vm::ir::{Arithmetic, Comparison, Op, Operand, Type, Word};

use super::clause::Clause;
use super::place::Spot;
use super::rust_place::RustPlace;
use super::value::{SIGNED, UNSIGNED, Value};
use super::variant::Tags;
use crate::checked::{Block, RustValue};
use crate::error::{Error, Problem, Span};
use crate::syntax::Expression;

/// The maximum size of a captured value, in words.
const WORDS_MAX: usize = 96;
/// The maximum size of the value's own bytes, and of the bytes that each reference leads to.
const OWN_MAX: u64 = 512;
const REFERRED_MAX: u64 = 64;
/// The maximum number of elements that are read of a slice. Strings are bounded by their bytes instead.
const ELEMENTS_MAX: u64 = 8;
/// The maximum number of references from the value to a block, and the maximum nesting of types that are searched for
/// references.
const REFERENCES_MAX: usize = 3;
const NESTED_MAX: usize = 12;

/// A condition for reading a block: the tag of an enum is `first`. If `others` is set, the tag is none of the `others`
/// numbers from `first` on.
#[derive(Clone, Copy, Debug)]
struct Guard {
    block: usize,
    offset: u32,
    bytes: u8,
    first: u64,
    others: Option<u64>,
}

/// The number of bytes that a reference leads to. At most the size of the block is read.
#[derive(Clone, Copy, Debug)]
enum Length {
    /// The size of the block.
    Whole,
    /// A number of elements of `bytes` bytes each. The number is at the offset `count` in the parent block.
    Elements { count: u32, bytes: u64 },
    /// The size in the vtable, whose address is at the offset `vtable` in the parent block.
    Object { vtable: u32 },
}

impl Length {
    /// Returns the offset of the word in the parent block that determines the length; `None` if no word does.
    fn at(self) -> Option<u32> {
        match self {
            Self::Whole => None,
            Self::Elements { count: at, .. } | Self::Object { vtable: at } => Some(at),
        }
    }
}

/// How to read the block that a reference leads to.
#[derive(Clone, Copy, Debug)]
struct Reading {
    /// The tags that select the reference. An enum within an enum has two.
    guards: [Option<Guard>; 2],
    /// The offset of the address in the parent block, and a distance that is added to the address.
    address: u32,
    distance: u32,
    length: Length,
}

/// The blocks of a value, and how to read each.
#[derive(Default)]
struct Plan {
    blocks: Vec<Block>,
    readings: Vec<Option<Reading>>,
    words: usize,
}

/// The position of a nested value during planning.
#[derive(Clone, Copy)]
struct Within {
    block: usize,
    offset: u32,
    guards: [Option<Guard>; 2],
    references: usize,
    nested: usize,
}

impl Plan {
    /// Adds a block and returns its index; `None` if there is no room for it.
    fn push(&mut self, block: Block, reading: Option<Reading>) -> Result<Option<usize>, Error> {
        let words = 1 + (block.bytes as usize).div_ceil(8);
        if self.words + words > WORDS_MAX {
            return Ok(None);
        }
        let number = self.blocks.len();
        fallible::push(&mut self.blocks, Block { at: self.words as u8, ..block })?;
        fallible::push(&mut self.readings, reading)?;
        self.words += words;
        Ok(Some(number))
    }

    /// Returns whether a block has these bytes, from `offset` on.
    fn has(&self, block: usize, offset: u32, bytes: u8) -> bool {
        let block = self.blocks.get(block).map_or(0, |block| block.bytes);
        u64::from(offset) + u64::from(bytes) <= block.into()
    }

    /// Adds the block that a reference in another block leads to, and returns its index; `None` if the reference is not
    /// followed.
    fn refer(&mut self, of: TypeId, bytes: u32, within: Within, reading: Reading) -> Result<Option<usize>, Error> {
        let has = |offset: u32| offset.is_multiple_of(8) && self.has(within.block, offset, 8);
        let is_there = has(reading.address) && reading.length.at().is_none_or(has);
        if bytes == 0 || within.references == REFERENCES_MAX || !is_there {
            return Ok(None);
        }
        let block = Block { at: 0, of, bytes, parent: within.block as u8, offset: reading.address };
        self.push(block, Some(reading))
    }
}

impl Clause<'_, '_> {
    /// Compiles an argument of a print: a Rust value is captured as a whole, to be shown as `{:?}` shows it.
    pub fn printed(&mut self, expression: &Expression) -> Result<Value, Error> {
        let span = expression.span;
        let Some(place) = self.rust_place(expression)? else { return self.value(expression) };
        let value = self.followed(place, span)?;
        let of = self.rust(value.of, span)?;
        match of.kind {
            TypeKind::Bool | TypeKind::Char | TypeKind::Enumeration { .. } => self.named(value, span),
            TypeKind::Integer { .. } if of.size <= 8 => self.named(value, span),
            TypeKind::Opaque => Err(span.error(Problem::NotShown { of: of.name })),
            _ => self.capture(value, span),
        }
    }

    /// Plans the blocks of a value, and adds the ops that read them.
    fn capture(&mut self, value: RustPlace, span: Span) -> Result<Value, Error> {
        let of = self.rust(value.of, span)?;
        let too_large = span.error(Problem::NotShown { of: of.name });
        let mut plan = Plan::default();
        let own = Block { at: 0, of: value.of, bytes: of.size.min(OWN_MAX) as u32, parent: 0, offset: 0 };
        plan.push(own, None)?.ok_or(too_large)?;
        let within = Within { block: 0, offset: 0, guards: [None; 2], references: 0, nested: 0 };
        self.plan(&mut plan, value.of, within, span)?;
        let first = self.room(plan.words as u8, span)?;
        self.read_own(value, own.bytes, first, span)?;
        for (number, reading) in plan.readings.iter().enumerate() {
            if let (Some(reading), Some(block)) = (reading, plan.blocks.get(number)) {
                let kept = self.free;
                self.read_block(&plan, *block, reading, first, span)?;
                self.free = kept;
            }
        }
        let words = plan.words as u8;
        let of = self.checker.capture(plan.blocks, span)?;
        let of = self.checker.rust_type(RustValue::Captured(of), words, span)?;
        Ok(Value { at: Operand::Word(first), of })
    }

    /// Plans the blocks for all references within a value. A list of pending values replaces recursion, to bound the
    /// use of the stack.
    fn plan(&self, plan: &mut Plan, of: TypeId, within: Within, span: Span) -> Result<(), Error> {
        let mut pending = fallible::collect([(of, within)])?;
        while let Some((of, within)) = pending.pop() {
            if within.nested == NESTED_MAX {
                continue;
            }
            let count = pending.len();
            self.look_into(plan, &mut pending, of, Within { nested: within.nested + 1, ..within }, span)?;
            // The list is a stack: reversed, so that fields are handled in their order while there is room.
            pending.get_mut(count..).unwrap_or_default().reverse();
        }
        Ok(())
    }

    /// Adds the block that the value leads to, if it is a reference. Adds the parts of the value, or of that block, to
    /// `pending`.
    fn look_into(
        &self,
        plan: &mut Plan,
        pending: &mut Vec<(TypeId, Within)>,
        of: TypeId,
        within: Within,
        span: Span,
    ) -> Result<(), Error> {
        let at = |offset: u32| Within { offset: within.offset.saturating_add(offset), ..within };
        match self.rust(of, span)?.kind {
            TypeKind::Struct { members, .. } => {
                fallible::extend(pending, fallible::collect(members.map(|member| (member.of, at(member.offset))))?)?;
            }
            TypeKind::Wrapper { target, at: offset } => fallible::push(pending, (target, at(offset)))?,
            TypeKind::Array { element, count } => {
                let bytes = self.rust(element, span)?.size;
                for number in 0..count.min(ELEMENTS_MAX) {
                    let offset = number.saturating_mul(bytes).min(OWN_MAX) as u32;
                    fallible::push(pending, (element, at(offset)))?;
                }
            }
            // A variant that is not known is not followed.
            TypeKind::Variants { tag: Some(tag), .. } if !plan.has(within.block, at(tag.offset).offset, tag.bytes) => {}
            TypeKind::Variants { tag, variants } => {
                let tags = Tags::of(tag.map_or(8, |tag| tag.bytes), variants.clone().filter_map(|one| one.value));
                for variant in variants {
                    let mut guards = within.guards;
                    if let Some(tag) = tag {
                        let Some(free) = guards.iter_mut().find(|guard| guard.is_none()) else { continue };
                        let others = if variant.value.is_none() { Some(tags.span) } else { None };
                        *free = Some(Guard {
                            block: within.block,
                            offset: within.offset.saturating_add(tag.offset),
                            bytes: tag.bytes,
                            first: variant.value.unwrap_or(tags.first),
                            others,
                        });
                    }
                    fallible::push(pending, (variant.of, Within { guards, ..within }))?;
                }
            }
            TypeKind::Pointer { flavor: Flavor::Reference | Flavor::Shared, target, at: distance } => {
                let bytes = self.rust(target, span)?.size.min(REFERRED_MAX) as u32;
                let (guards, address) = (within.guards, within.offset);
                let reading = Reading { guards, address, distance, length: Length::Whole };
                self.refer(plan, pending, target, bytes, within, reading, span)?;
            }
            TypeKind::Object { data, vtable } => {
                let [address, vtable] = [data, vtable].map(|offset| within.offset.saturating_add(offset));
                let length = Length::Object { vtable };
                let reading = Reading { guards: within.guards, address, distance: 0, length };
                plan.refer(of, REFERRED_MAX as u32, within, reading)?;
            }
            TypeKind::Sequence { element, is_text, data, length } => {
                let size = self.rust(element, span)?.size;
                let most = if is_text { REFERRED_MAX } else { ELEMENTS_MAX };
                let bytes = size.saturating_mul(most).min(REFERRED_MAX);
                let bytes = bytes.checked_div(size).unwrap_or(0) * size;
                let reading = Reading {
                    guards: within.guards,
                    address: within.offset.saturating_add(data),
                    distance: 0,
                    length: Length::Elements { count: within.offset.saturating_add(length), bytes: size },
                };
                self.refer(plan, pending, element, bytes as u32, within, reading, span)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Adds the block that a reference leads to, and adds the values in it to `pending`.
    #[expect(clippy::too_many_arguments, reason = "the reference, its place, and the plan are separate values")]
    fn refer(
        &self,
        plan: &mut Plan,
        pending: &mut Vec<(TypeId, Within)>,
        of: TypeId,
        bytes: u32,
        within: Within,
        reading: Reading,
        span: Span,
    ) -> Result<(), Error> {
        let Some(number) = plan.refer(of, bytes, within, reading)? else { return Ok(()) };
        let size = self.rust(of, span)?.size.max(1);
        let count = if let Length::Elements { .. } = reading.length { u64::from(bytes) / size } else { 1 };
        for element in 0..count {
            let inner = Within {
                block: number,
                offset: (element * size) as u32,
                guards: [None; 2],
                references: within.references + 1,
                nested: within.nested,
            };
            fallible::push(pending, (of, inner))?;
        }
        Ok(())
    }

    /// Reads the value's own bytes to the words after `first`, and their number to `first`.
    fn read_own(&mut self, value: RustPlace, bytes: u32, first: Word, span: Span) -> Result<(), Error> {
        let words = 1 + bytes.div_ceil(8) as u8;
        let to = |number: u8| Word(first.0.saturating_add(number));
        let Some((base, offset)) = self.in_memory(value.spot, span)? else {
            if let Spot::Places(number, at) = value.spot {
                let read = |clause: &mut Self, place| {
                    clause.read_own(RustPlace { spot: Spot::Passed(place, at), ..value }, bytes, first, span)
                };
                return self.by_place(number, span, read);
            }
            self.push(Op::Set { to: first, from: Operand::Constant(bytes.into()) }, span)?;
            for number in 1..words {
                self.push(Op::Set { to: to(number), from: Operand::Constant(0) }, span)?;
            }
            return self.gather(value.spot, bytes, first, span);
        };
        if bytes == 0 {
            return self.push(Op::Set { to: first, from: Operand::Constant(0) }, span);
        }
        let address = self.compute(Arithmetic::Add, base, Operand::Constant(offset), UNSIGNED, span)?.at;
        self.push(Op::ReadBytes { to: first, words, address, length: Operand::Constant(bytes.into()) }, span)
    }

    /// Assembles a value that is passed in registers or on the stack: puts its parts where they would be in memory.
    fn gather(&mut self, spot: Spot, bytes: u32, first: Word, span: Span) -> Result<(), Error> {
        let Spot::Passed(place, from) = spot else { return Ok(()) };
        let parts = match place {
            ValuePlace::Words { first, second } => [Some(first), second],
            ValuePlace::Constant(_) => [Some(ValuePart { offset: 0, bytes: 8, source: Source::Lost }), None],
            ValuePlace::Unknown(why) => return Err(span.error(Problem::Unknown { why })),
            ValuePlace::Nothing | ValuePlace::At(_) | ValuePlace::Memory { .. } => [None; 2],
        };
        let end = from + u64::from(bytes);
        for part in parts.into_iter().flatten() {
            let (start, stop) = (u64::from(part.offset), u64::from(part.offset) + u64::from(part.bytes));
            let (start, stop) = (start.max(from), stop.min(end));
            let mut at = start;
            while at < stop {
                // Loads pieces of 1, 2, 4 or 8 bytes, none of which crosses a word.
                let to = at - from;
                let piece = [8, 4, 2, 1].into_iter().find(|&size| at + size <= stop && to % 8 + size <= 8).unwrap_or(1);
                let kept = self.free;
                let value = self.load(Spot::Passed(place, at), piece as u8, UNSIGNED, span)?.at;
                let value = match to % 8 {
                    0 => value,
                    above => self.compute(Arithmetic::Left, value, Operand::Constant(8 * above), UNSIGNED, span)?.at,
                };
                let word = Word(first.0.saturating_add(1 + (to / 8) as u8));
                let how = Arithmetic::Or;
                self.push(Op::Compute { to: word, how, left: Operand::Word(word), right: value }, span)?;
                self.free = kept;
                at += piece;
            }
        }
        Ok(())
    }

    /// Adds the ops that read the block that a reference leads to.
    fn read_block(
        &mut self,
        plan: &Plan,
        block: Block,
        reading: &Reading,
        first: Word,
        span: Span,
    ) -> Result<(), Error> {
        let word = |of: usize, offset: u32| {
            let at = plan.blocks.get(of).map_or(0, |block| block.at);
            Operand::Word(Word(first.0.saturating_add(at).saturating_add(1 + (offset / 8) as u8)))
        };
        let parent = usize::from(block.parent);
        let mut length = match reading.length {
            Length::Whole | Length::Object { .. } => Operand::Constant(block.bytes.into()),
            Length::Elements { count, bytes } => {
                let (to, most) = (self.room(1, span)?, u64::from(block.bytes) / bytes.max(1));
                self.push(Op::Set { to, from: word(parent, count) }, span)?;
                let mut exits = Vec::new();
                let (left, right) = (Operand::Word(to), Operand::Constant(most));
                self.branch_if(Comparison::BelowEqual, left, right, &mut exits, span)?;
                self.push(Op::Set { to, from: right }, span)?;
                self.land(&exits);
                self.compute(Arithmetic::Multiply, left, Operand::Constant(bytes), UNSIGNED, span)?.at
            }
        };
        // If the reference in the parent block was not read, or the tag that selects it, it is not followed: the length
        // becomes 0.
        let at = plan.blocks.get(parent).map_or(0, |block| block.at);
        let (how, left) = (Comparison::AboveEqual, Operand::Word(Word(first.0.saturating_add(at))));
        let words = [Some(reading.address), reading.length.at()].into_iter().flatten().map(|at| u64::from(at) + 8);
        let tags = reading.guards.iter().flatten().map(|guard| u64::from(guard.offset) + u64::from(guard.bytes));
        let right = Operand::Constant(words.chain(tags).max().unwrap_or(0));
        let holds = self.give(SIGNED, |to| Op::Compare { to, how, left, right }, span)?;
        length = self.compute(Arithmetic::Multiply, length, holds.at, UNSIGNED, span)?.at;
        for guard in reading.guards.into_iter().flatten() {
            let above = Operand::Constant(8 * u64::from(guard.offset % 8));
            let tag = self.compute(Arithmetic::Right, word(guard.block, guard.offset), above, UNSIGNED, span)?;
            let tag = self.cut(tag, guard.bytes, span)?;
            let (how, left, right) = match guard.others {
                None => (Comparison::Equal, tag.at, guard.first),
                Some(others) => {
                    (Comparison::AboveEqual, self.distance(tag, guard.bytes, guard.first, span)?.at, others)
                }
            };
            let holds = self.give(SIGNED, |to| Op::Compare { to, how, left, right: Operand::Constant(right) }, span)?;
            length = self.compute(Arithmetic::Multiply, length, holds.at, UNSIGNED, span)?.at;
        }
        if let Length::Object { vtable } = reading.length {
            length = self.object_length(length, word(parent, vtable), span)?;
        }
        let (left, right) = (word(parent, reading.address), Operand::Constant(reading.distance.into()));
        let address = self.compute(Arithmetic::Add, left, right, UNSIGNED, span)?.at;
        let words = 1 + block.bytes.div_ceil(8) as u8;
        let to = Word(first.0.saturating_add(block.at));
        self.push(Op::ReadBytes { to, words, address, length }, span)
    }

    /// Returns the number of bytes of the object with the vtable at `vtable`, but at most `most`. If that is 0, because
    /// the reference is not followed, the vtable is not read.
    fn object_length(&mut self, most: Operand, vtable: Operand, span: Span) -> Result<Operand, Error> {
        let to = self.room(1, span)?;
        let length = Operand::Word(to);
        self.push(Op::Set { to, from: most }, span)?;
        let mut exits = Vec::new();
        self.branch_if(Comparison::Equal, length, Operand::Constant(0), &mut exits, span)?;
        let size = Operand::Constant(kprobes_types::VTABLE_SIZE);
        let address = self.compute(Arithmetic::Add, vtable, size, UNSIGNED, span)?.at;
        self.push(Op::Read { to, address, bytes: 8, signed: false }, span)?;
        self.branch_if(Comparison::BelowEqual, length, most, &mut exits, span)?;
        self.push(Op::Set { to, from: most }, span)?;
        self.land(&exits);
        Ok(length)
    }

    /// Returns the low `bytes` bytes of a word.
    fn cut(&mut self, value: Value, bytes: u8, span: Span) -> Result<Value, Error> {
        match bytes {
            8 => Ok(value),
            _ => {
                let from = value.at;
                self.give(
                    Type::Integer { signed: false },
                    |to| Op::Extend { to, from, bits: 8 * bytes, signed: false },
                    span,
                )
            }
        }
    }
}
