//! The check of the rules of the checked form. Front ends should only make code that keeps them; this verifies every
//! program before it may run, without trusting the front end.

use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use crate::maps::LoadError;

use super::{
    Aggregate, Builtin, COMM_WORDS, Code, FRAME_WORDS, HISTOGRAM_BITS_MAX, INTERVALS_MAX, Map, MapValue, OPS_MAX, Op,
    Operand, Register, STACK_MAX, Series, Word,
};

/// A broken rule, with the routine and the op that break it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// The number of the routine.
    pub routine: usize,
    /// The number of the op in the routine.
    pub op: usize,
    /// The broken rule, as a predicate about the op.
    pub what: &'static str,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "op {} of routine {} {}", self.op, self.routine, self.what)
    }
}

impl core::error::Error for Flaw {}

/// The words that have been written on every path to an op; `None` if no path leads there.
type Written = Option<[u64; FRAME_WORDS / 64]>;

fn both(left: Written, right: Written) -> Written {
    match (left, right) {
        (Some(mut left), Some(right)) => {
            left.iter_mut().zip(right).for_each(|(left, right)| *left &= right);
            Some(left)
        }
        (one, other) => one.or(other),
    }
}

/// Consecutive words: the first, and their number.
type Words = (Word, usize);

/// Returns the numbers of consecutive words.
fn each((Word(first), words): Words) -> Range<usize> {
    usize::from(first)..usize::from(first) + words
}

/// The words that an op reads and writes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Touched {
    /// At most two, because no op reads more than two values.
    read: [Option<Words>; 2],
    written: Option<Words>,
}

impl Touched {
    /// Returns the numbers of the words that are read, in the order of the op's operands.
    pub fn read(&self) -> impl Iterator<Item = usize> {
        self.read.into_iter().flatten().flat_map(each)
    }

    /// Returns the numbers of the words that are written.
    pub fn written(&self) -> impl Iterator<Item = usize> {
        self.written.into_iter().flat_map(each)
    }

    fn operands(self, operands: &[Operand]) -> Self {
        operands.iter().fold(self, |touched, operand| match *operand {
            Operand::Word(word) => touched.reads(word, 1),
            Operand::Constant(_) => touched,
        })
    }

    fn reads(mut self, from: Word, words: usize) -> Self {
        let [first, second] = &mut self.read;
        *(if first.is_none() { first } else { second }) = Some((from, words));
        self
    }

    fn writes(mut self, to: Word, words: usize) -> Self {
        self.written = Some((to, words));
        self
    }
}

impl Code {
    /// Checks the rules: a clause has at most [`OPS_MAX`] ops; jumps go forward, except those that a budget bounds;
    /// words are within the frame, and written before they are read; registers, maps and actions exist; aggregations
    /// are within the bounds that [`Aggregate`] and [`Series`] document; and lengths are valid for their ops.
    ///
    /// # Errors
    ///
    /// [`LoadError::Flaw`] with the first broken rule; [`LoadError::OutOfMemory`] if there is no memory for the check.
    pub fn verify(&self) -> Result<(), LoadError> {
        for (routine, ops) in self.routines.iter().map(|routine| &routine.ops).enumerate() {
            if ops.len() > OPS_MAX {
                let what = "comes after the last op that a clause may have";
                return Err(Flaw { routine, op: OPS_MAX, what }.into());
            }
            let mut states: Vec<Written> = fallible::collect((0..=ops.len()).map(|_| None))?;
            if let Some(first) = states.first_mut() {
                *first = Some([0; FRAME_WORDS / 64]);
            }
            for (number, op) in ops.iter().enumerate() {
                let flaw = |what| Flaw { routine, op: number, what };
                let touched = self.touched(*op).map_err(flaw)?;
                let state = states.get(number).copied().flatten();
                let after = state.map(|state| follow(state, &touched)).transpose().map_err(flaw)?;
                if let Op::Again { target } = *op {
                    // All forward jumps to the loop's head have been seen by now. A word written there is still written
                    // on every path to here.
                    let head =
                        states.get(usize::from(target)).copied().flatten().filter(|_| usize::from(target) <= number);
                    let keeps = |head: [u64; FRAME_WORDS / 64], after: [u64; FRAME_WORDS / 64]| {
                        head.iter().zip(after).all(|(head, after)| head & !after == 0)
                    };
                    if after.is_some_and(|after| !head.is_some_and(|head| keeps(head, after))) {
                        return Err(flaw("jumps back elsewhere").into());
                    }
                    continue;
                }
                let (target, falls) = op.successors();
                if let Some(target) = target {
                    let place =
                        states.get_mut(target).filter(|_| target > number).ok_or_else(|| flaw("jumps elsewhere"))?;
                    *place = both(*place, after);
                }
                if falls && let Some(next) = states.get_mut(number + 1) {
                    *next = both(*next, after);
                }
            }
        }
        Ok(())
    }

    /// Returns the words that `op` touches, or the rule that it breaks.
    pub(crate) fn touched(&self, op: Op) -> Result<Touched, &'static str> {
        let key = |map: u8| match self.maps.get(usize::from(map)) {
            Some(of) => check_bounds(of.value).map(|()| (of.key_words(), of.value.words())),
            None => Err("names no map"),
        };
        let none = Touched::default();
        Ok(match op {
            Op::Set { to, from } => none.operands(&[from]).writes(to, 1),
            Op::Copy { to, from, words } if to.0.checked_sub(from.0).is_some_and(|away| (1..words).contains(&away)) => {
                return Err("copies words that it has overwritten");
            }
            Op::Copy { to, from, words } => none.reads(from, words.into()).writes(to, words.into()),
            Op::Load { what: Builtin::Register(Register::X(31..)), .. } => return Err("loads no such register"),
            Op::Load { to, .. } => none.writes(to, 1),
            Op::Comm { to } => none.writes(to, COMM_WORDS.into()),
            Op::Stack { to, frames } if (1..=self.stack_frames.min(STACK_MAX)).contains(&frames.into()) => {
                none.writes(to, 1)
            }
            Op::Stack { .. } => return Err("takes no such stack"),
            Op::Extend { bits, .. } if !matches!(bits, 8 | 16 | 32) => return Err("extends no such integer"),
            Op::Extend { to, from, .. } => none.operands(&[from]).writes(to, 1),
            Op::Compute { to, left, right, .. } | Op::Compare { to, left, right, .. } => {
                none.operands(&[left, right]).writes(to, 1)
            }
            Op::Differ { to, left, right, bytes } => {
                let words = usize::from(bytes).div_ceil(8);
                none.reads(left, words).reads(right, words).writes(to, 1)
            }
            Op::Find { to, text, text_words, part, part_words } => {
                none.reads(text, text_words.into()).reads(part, part_words.into()).writes(to, 1)
            }
            Op::Length { to, text, words } => none.reads(text, words.into()).writes(to, 1),
            Op::Frames { to, stack } => none.operands(&[stack]).writes(to, 1),
            Op::Branch { left, right, .. } => none.operands(&[left, right]),
            Op::Jump { .. } | Op::Again { .. } => none,
            Op::Exit { status: Operand::Constant(256..) } => return Err("exits with no such status"),
            Op::Exit { status } => none.operands(&[status]),
            Op::Next { place, map } => none.reads(place, 1).writes(place, 1 + key(map)?.0),
            Op::Read { bytes, .. } if !matches!(bytes, 1 | 2 | 4 | 8) => return Err("reads no such integer"),
            Op::Read { to, address, .. } => none.operands(&[address]).writes(to, 1),
            Op::ReadText { to, words, address, length } => none.operands(&[address, length]).writes(to, words.into()),
            Op::ReadBytes { words: ..2, .. } => return Err("reads no bytes"),
            Op::ReadBytes { to, words, address, length } => none.operands(&[address, length]).writes(to, words.into()),
            Op::Has { to, map, key: at } => none.reads(at, key(map)?.0).writes(to, 1),
            Op::Keys { map, .. }
                if !matches!(self.maps.get(usize::from(map)), Some(Map { value: MapValue::Value(_), .. })) =>
            {
                return Err("counts keys that each CPU has");
            }
            Op::Keys { to, .. } => none.writes(to, 1),
            Op::Get { to, map, key: at } => none.reads(at, key(map)?.0).writes(to, key(map)?.1),
            Op::Total { to, map, key: at } => none.reads(at, key(map)?.0).writes(to, 1),
            Op::Put { map, key: at, from } => none.reads(at, key(map)?.0).reads(from, key(map)?.1),
            Op::Modify { to, map, key: at, by, .. } => none.operands(&[by]).reads(at, key(map)?.0).writes(to, 1),
            Op::Collect { map, key: at, value } => none.operands(&[value]).reads(at, key(map)?.0),
            Op::Delete { map, key: at } => none.reads(at, key(map)?.0),
            Op::Emit { action, .. } if usize::from(action) >= self.actions => return Err("names no action"),
            Op::Emit { from, words, .. } => none.reads(from, words.into()),
        })
    }
}

/// Returns the rule that the bounds of an aggregation break.
fn check_bounds(value: MapValue) -> Result<(), &'static str> {
    match value {
        MapValue::Aggregate(Aggregate::Histogram { bits }) if bits > HISTOGRAM_BITS_MAX => {
            Err("names a histogram with too many rows")
        }
        MapValue::Aggregate(Aggregate::Linear { step: ..1, .. }) => Err("names a histogram with a step below 1"),
        MapValue::Aggregate(Aggregate::Series(Series { interval: 0, .. })) => {
            Err("names a series whose intervals have no length")
        }
        MapValue::Aggregate(Aggregate::Series(Series { intervals, .. }))
            if !(1..=INTERVALS_MAX).contains(&u64::from(intervals)) =>
        {
            Err("names a series with no such number of intervals")
        }
        _ => Ok(()),
    }
}

/// Returns the words written after an op that touches `touched`, given those `written` before it.
fn follow(mut written: [u64; FRAME_WORDS / 64], touched: &Touched) -> Result<[u64; FRAME_WORDS / 64], &'static str> {
    for word in touched.read() {
        let set = written.get(word / 64).ok_or("reads outside its frame")?;
        if set & 1 << (word % 64) == 0 {
            return Err("reads a word that is not written before");
        }
    }
    for word in touched.written() {
        *written.get_mut(word / 64).ok_or("writes outside its frame")? |= 1 << (word % 64);
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use alloc::string::String;
    use alloc::vec;

    use super::*;
    use crate::ir::{Combine, Comparison, Routine, Type};

    /// Returns the flaw of code with one map whose key has two words, one action, and stacks of 4 frames.
    fn flaw(ops: &[Op]) -> Option<(usize, &'static str)> {
        flaw_with(Aggregate::Count, ops)
    }

    /// Returns the flaw of the same code with a map of this aggregation.
    fn flaw_with(aggregate: Aggregate, ops: &[Op]) -> Option<(usize, &'static str)> {
        let keys = vec![Type::Text { words: 2 }];
        let code = Code {
            routines: vec![Routine { ops: ops.to_vec(), runs_after_exit: false }],
            maps: vec![Map { name: String::new(), keys, value: MapValue::Aggregate(aggregate), room: None }],
            actions: 1,
            stack_frames: 4,
        };
        match code.verify() {
            Ok(()) => None,
            Err(LoadError::Flaw(flaw)) => Some((flaw.op, flaw.what)),
            Err(LoadError::OutOfMemory) => panic!("there is memory"),
        }
    }

    fn set(to: u8) -> Op {
        Op::Set { to: Word(to), from: Operand::Constant(1) }
    }

    fn branch(target: u16) -> Op {
        Op::Branch { how: Comparison::Equal, left: Operand::Constant(0), right: Operand::Constant(0), target }
    }

    fn get(from: u8) -> Op {
        Op::Set { to: Word(200), from: Operand::Word(Word(from)) }
    }

    #[test]
    fn a_clause_has_no_more_ops_than_their_numbers_have_room_for() {
        let mut ops = vec![set(0); OPS_MAX];
        assert_eq!(flaw(&ops), None);
        ops.push(set(0));
        assert_eq!(flaw(&ops), Some((OPS_MAX, "comes after the last op that a clause may have")));
    }

    #[test]
    fn aggregations_are_within_their_bounds() {
        let bits = |bits| Aggregate::Histogram { bits };
        let linear = |step| Aggregate::Linear { least: 0, most: 10, step };
        let series =
            |interval, intervals| Aggregate::Series(Series { interval, intervals, by: Combine::Sum, signed: false });
        let (first, last) = (1, INTERVALS_MAX as u16);
        let collect = Op::Collect { map: 0, key: Word(0), value: Operand::Constant(1) };
        for (aggregate, expected) in [
            (bits(HISTOGRAM_BITS_MAX), None),
            (bits(HISTOGRAM_BITS_MAX + 1), Some("names a histogram with too many rows")),
            (linear(1), None),
            (linear(0), Some("names a histogram with a step below 1")),
            (linear(-1), Some("names a histogram with a step below 1")),
            (series(1, first), None),
            (series(1, last), None),
            (series(0, first), Some("names a series whose intervals have no length")),
            (series(1, first - 1), Some("names a series with no such number of intervals")),
            (series(1, last + 1), Some("names a series with no such number of intervals")),
        ] {
            let found = flaw_with(aggregate, &[Op::Comm { to: Word(0) }, collect]);
            assert_eq!(found, expected.map(|what| (1, what)), "{aggregate:?}");
        }
    }

    #[test]
    fn jumps_go_forward_to_the_end_at_most() {
        let elsewhere = "jumps elsewhere";
        assert_eq!(flaw(&[branch(2), set(0)]), None);
        assert_eq!(flaw(&[set(0), branch(1)]), Some((1, elsewhere)));
        assert_eq!(flaw(&[set(0), Op::Jump { target: 0 }]), Some((1, elsewhere)));
        assert_eq!(flaw(&[branch(3), set(0)]), Some((0, elsewhere)));
    }

    #[test]
    fn loops_go_back_to_where_control_has_been() {
        let elsewhere = "jumps back elsewhere";
        let again = |target| Op::Again { target };
        assert_eq!(flaw(&[set(0), branch(4), get(0), again(1)]), None);
        assert_eq!(flaw(&[again(0)]), None);
        assert_eq!(flaw(&[set(0), again(2)]), Some((1, elsewhere)));
        assert_eq!(flaw(&[set(0), again(9)]), Some((1, elsewhere)));
        // The target is unreachable, so nothing was checked there.
        assert_eq!(flaw(&[Op::Jump { target: 2 }, get(5), again(1)]), Some((2, elsewhere)));
        // Fewer words are written at the jump back than the loop's head was checked with.
        assert_eq!(flaw(&[branch(3), set(0), get(0), again(2)]), Some((3, elsewhere)));
        // A word that a turn writes is not written before the first turn.
        assert_eq!(flaw(&[get(0), set(0), again(0)]), Some((0, "reads a word that is not written before")));
        // The op after the jump back is reached only by jumps.
        assert_eq!(flaw(&[branch(3), set(0), again(0), get(0)]), Some((3, "reads a word that is not written before")));
    }

    #[test]
    fn words_are_written_on_every_way_before_they_are_read() {
        let unwritten = "reads a word that is not written before";
        assert_eq!(flaw(&[set(0), get(0)]), None);
        assert_eq!(flaw(&[get(0)]), Some((0, unwritten)));
        assert_eq!(flaw(&[branch(2), set(0), get(0)]), Some((2, unwritten)));
        assert_eq!(flaw(&[branch(3), set(0), Op::Jump { target: 4 }, set(0), get(0)]), None);
        assert_eq!(flaw(&[Op::Jump { target: 2 }, get(0), set(0)]), None);
        let collect = |key| Op::Collect { map: 0, key: Word(key), value: Operand::Constant(1) };
        assert_eq!(flaw(&[Op::Comm { to: Word(7) }, collect(7)]), None);
        assert_eq!(flaw(&[Op::Comm { to: Word(7) }, collect(8)]), Some((1, unwritten)));
        assert_eq!(flaw(&[Op::Comm { to: Word(255) }]), Some((0, "writes outside its frame")));
        assert_eq!(flaw(&[Op::Copy { to: Word(0), from: Word(250), words: 9 }]), Some((0, unwritten)));
    }

    /// The destination of a copy may overlap the source at lower numbers.
    #[test]
    fn a_copy_does_not_overwrite_words_that_it_has_yet_to_copy() {
        let comm = Op::Comm { to: Word(5) };
        let copy = |to, words| Op::Copy { to: Word(to), from: Word(5), words };
        for (to, words) in [(4, 2), (5, 2), (7, 2), (6, 1), (5, 0)] {
            assert_eq!(flaw(&[comm, copy(to, words)]), None, "{to} {words}");
        }
        assert_eq!(flaw(&[comm, copy(6, 2)]), Some((1, "copies words that it has overwritten")));
    }

    #[test]
    fn what_is_named_exists() {
        assert_eq!(flaw(&[Op::Delete { map: 1, key: Word(0) }]), Some((0, "names no map")));
        assert_eq!(flaw(&[Op::Emit { action: 1, from: Word(0), words: 0 }]), Some((0, "names no action")));
        assert_eq!(flaw(&[Op::Stack { to: Word(0), frames: 5 }]), Some((0, "takes no such stack")));
        let register = |number| Op::Load { to: Word(0), what: Builtin::Register(Register::X(number)) };
        assert_eq!(flaw(&[register(30)]), None);
        assert_eq!(flaw(&[register(31)]), Some((0, "loads no such register")));
        let read = |bytes| Op::Read { to: Word(0), address: Operand::Constant(0), bytes, signed: false };
        assert_eq!(flaw(&[read(8)]), None);
        assert_eq!(flaw(&[read(3)]), Some((0, "reads no such integer")));
        let extend = Op::Extend { to: Word(0), from: Operand::Constant(0), bits: 64, signed: false };
        assert_eq!(flaw(&[extend]), Some((0, "extends no such integer")));
        let exit = |status| Op::Exit { status: Operand::Constant(status) };
        assert_eq!(flaw(&[exit(255)]), None);
        assert_eq!(flaw(&[exit(256)]), Some((0, "exits with no such status")));
    }
}
