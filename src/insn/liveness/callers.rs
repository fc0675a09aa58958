//! Finds the functions whose callers rely on them to preserve registers.
//!
//! Each function of the text that makes a direct call is followed as a whole. It relies on a called function for the
//! registers that it reads after the call and that the called function preserves on all paths. On some paths, compiled
//! code also reads registers that it never wrote, where the value does not matter. So functions that preserve a
//! register on some paths only are not taken for ones that callers rely on.
//!
//! What a called function preserves is looked for only if a register is read after the call. In code that follows the
//! standard, this is so after calls that do not return, and where the value does not matter.

use alloc::vec::Vec;
use core::mem;
use core::ops::Range;

use super::flow::{Exit, Flow};
use super::walk::{DEPTH, read_by_callee};
use super::{Bounds, Live, Preserving, Read, SCRATCH, called_by, function_around};
use crate::insn::classify;
use crate::insn::control::Control;
use crate::insn::op::Indirect;
use crate::insn::registers::{RegisterAccess, Registers};

/// The number of words that are taken together where no function is known.
const PIECE: u64 = 256;

/// What is known of the functions of a text, and of the functions that they call or branch to.
pub(super) struct Callers<'a> {
    /// The virtual addresses of the text.
    text: Range<u64>,
    read: Read<'a>,
    bounds: Bounds<'a>,
    /// In ascending order.
    callees: Vec<Callee>,
    /// Functions of which it was found that they are relied on for more registers.
    pending: Vec<u64>,
    /// Functions of which it was found that they read more registers.
    readers: Vec<u64>,
}

struct Callee {
    function: u64,
    /// The registers that it reads before it writes them.
    reads: Registers,
    /// Whether it has an instruction of which nothing is known, and which may read others.
    may_read_others: bool,
    /// The registers that it preserves on all paths, if that was looked for.
    preserved: Option<Registers>,
    /// The registers for which a caller relies on it.
    kept: Registers,
    /// A call by which a caller does, for the lowest of these registers.
    call: u64,
}

/// Where an instruction may lead outside of its function.
enum Leaving {
    Nowhere,
    /// To the function at this virtual address, by a call or a branch.
    To(u64),
    /// To a function that is not known.
    Unknown,
}

impl<'a> Callers<'a> {
    pub(super) const fn new(text: Range<u64>, read: Read<'a>, bounds: Bounds<'a>) -> Self {
        Self { text, read, bounds, callees: Vec::new(), pending: Vec::new(), readers: Vec::new() }
    }

    /// Returns the functions that are relied on in the text, in ascending order; `None` if there is no memory.
    pub(super) fn preserving(mut self) -> Option<Vec<Preserving>> {
        self.follow_callers(None)?;
        while !self.readers.is_empty() {
            let readers = mem::take(&mut self.readers);
            self.follow_callers(Some(readers.as_slice()))?;
        }
        // The functions that such a function calls or goes on in preserve the same registers.
        while let Some(function) = self.pending.pop() {
            let &mut Callee { kept, call, .. } = self.callee(function)?;
            let function = self.around(function);
            for at in function.clone().step_by(4) {
                if let Some(Leaving::To(other)) = self.leaving(at, &function) {
                    self.keep(other, call, kept)?;
                }
            }
        }
        let kept = self.callees.iter().filter(|callee| !callee.kept.is_empty());
        let preserving = kept.map(|callee| Preserving {
            function: callee.function,
            call: callee.call,
            preserved: callee.preserved.unwrap_or(callee.kept),
            kept: callee.kept,
        });
        Some(fallible::boxed_slice(preserving).ok()?.into_vec())
    }

    /// Follows the functions in the text that call a function; or one of these functions.
    fn follow_callers(&mut self, callees: Option<&[u64]>) -> Option<()> {
        let mut followed = self.text.start;
        for call in self.text.clone().step_by(4) {
            if call < followed {
                continue;
            }
            let Some(function) = (self.read)(call).and_then(|word| called_by(word, call)) else { continue };
            if callees.is_none_or(|callees| callees.contains(&function)) {
                let caller = self.around(call);
                followed = caller.end;
                self.follow(&caller)?;
            }
        }
        Some(())
    }

    /// Records for which registers the function at these virtual addresses relies on others.
    fn follow(&mut self, function: &Range<u64>) -> Option<()> {
        let mut flow = Flow::of(function, self.read)?;
        let written = flow.written();
        let mut all_kept = Registers::NONE;
        flow.solve(&mut |exit, past| {
            let (at, target) = match exit {
                Exit::Call { at, function } => (at, function),
                Exit::Branch(target) => return Some(self.callee(target)?.reads(written)),
                Exit::End(end) => return Some(self.reads(end, written)),
            };
            let reads = self.callee(target)?.reads(written);
            if past.is_empty() {
                return Some(reads);
            }
            let kept = past & self.preserved(target)?;
            if !kept.is_empty() {
                all_kept = all_kept | kept;
                self.keep(target, at, kept)?;
            }
            Some(reads | kept)
        })?;
        // Values of the caller that are read after a call that preserves them.
        let reads = flow.found(function.start).unwrap_or_default() & all_kept;
        if !reads.is_empty() {
            let callee = self.callee(function.start)?;
            if !(reads - callee.reads).is_empty() {
                callee.reads = callee.reads | reads;
                fallible::push(&mut self.readers, function.start).ok()?;
            }
        }
        Some(())
    }

    /// Returns the registers of [`SCRATCH`] that the function at the virtual address `entry` preserves on all paths.
    fn preserved(&mut self, entry: u64) -> Option<Registers> {
        if let Some(known) = self.callee(entry)?.preserved {
            return Some(known);
        }
        let preserved = self.unwritten(entry, SCRATCH, 0);
        self.callee(entry)?.preserved = Some(preserved);
        Some(preserved)
    }

    /// Returns those of `registers` that the function at the virtual address `entry` preserves on all paths. A call
    /// that cannot be followed preserves none of them.
    fn unwritten(&self, entry: u64, mut registers: Registers, depth: usize) -> Registers {
        let Some(function) = self.function(entry).filter(|_| depth < DEPTH) else { return Registers::NONE };
        for at in function.clone().step_by(4) {
            let Some(word) = (self.read)(at) else { return Registers::NONE };
            registers = registers - RegisterAccess::of(word).writes;
            match self.leaving(at, &function) {
                Some(Leaving::To(other)) => registers = self.unwritten(other, registers, depth + 1),
                Some(Leaving::Unknown) => return Registers::NONE,
                Some(Leaving::Nowhere) | None => {}
            }
            if registers.is_empty() {
                break;
            }
        }
        registers
    }

    /// Returns where the instruction at `at` may lead outside of `function`, which contains it; `None` outside the
    /// text.
    fn leaving(&self, at: u64, function: &Range<u64>) -> Option<Leaving> {
        let word = (self.read)(at)?;
        Some(match Control::after(word, classify(word)) {
            Control::Next | Control::Register { kind: Indirect::Return, .. } => Leaving::Nowhere,
            Control::Jump(offset) | Control::Either(offset) | Control::Call(offset) => {
                let target = at.wrapping_add_signed(offset.into());
                if function.contains(&target) { Leaving::Nowhere } else { Leaving::To(target) }
            }
            Control::Register { kind: Indirect::Jump | Indirect::Call, .. } => Leaving::Unknown,
        })
    }

    /// Records that the caller that made `call` relies on `function` for `kept`; and on the function around it, if that
    /// begins elsewhere.
    fn keep(&mut self, function: u64, call: u64, kept: Registers) -> Option<()> {
        let start = self.around(function).start;
        for function in [function, start] {
            let callee = self.callee(function)?;
            let added = kept - callee.kept;
            if added.is_empty() {
                continue;
            }
            callee.kept = callee.kept | added;
            if added.first() == callee.kept.first() {
                callee.call = call;
            }
            fallible::push(&mut self.pending, function).ok()?;
        }
        Some(())
    }

    /// Returns the bounds of the function around `at`, if it is known.
    fn function(&self, at: u64) -> Option<Range<u64>> {
        function_around(at, &self.text, self.bounds)
    }

    /// Returns the bounds of the function around `at`; of some words from there, if none is known.
    fn around(&self, at: u64) -> Range<u64> {
        self.function(at).unwrap_or_else(|| {
            let end = at.saturating_add(4 * PIECE);
            let next = (at..end).step_by(4).skip(1).find(|&next| self.function(next).is_some());
            at..next.unwrap_or(end)
        })
    }

    /// Returns the registers that `function` may read, if its caller writes these anywhere. It needs no entry.
    fn reads(&self, function: u64, written: Registers) -> Registers {
        let index = self.callees.binary_search_by_key(&function, |callee| callee.function).ok();
        match index.and_then(|index| self.callees.get(index)) {
            Some(callee) => callee.reads(written),
            None => Callee::new(function, self.read).reads(written),
        }
    }

    /// Returns the entry of `function`, which is added if there is none; `None` if there is no memory for it.
    fn callee(&mut self, function: u64) -> Option<&mut Callee> {
        let index = match self.callees.binary_search_by_key(&function, |callee| callee.function) {
            Ok(index) => index,
            Err(index) => {
                self.callees.try_reserve(1).ok()?;
                self.callees.insert(index, Callee::new(function, self.read));
                index
            }
        };
        self.callees.get_mut(index)
    }
}

impl Callee {
    fn new(function: u64, read: Read<'_>) -> Self {
        let (mut reads, mut may_read_others) = (Registers::NONE, false);
        while let Some(Live::Read { register, reader }) = read_by_callee(function, SCRATCH - reads, read) {
            if read(reader).is_some_and(|word| RegisterAccess::of(word).reads == Registers::ALL) {
                may_read_others = true;
                break;
            }
            reads = reads | register;
        }
        Self { function, reads, may_read_others, preserved: None, kept: Registers::NONE, call: 0 }
    }

    /// Returns the registers that the function may read, if its caller writes these anywhere. An instruction of which
    /// nothing is known reads only registers that the caller has set.
    fn reads(&self, written: Registers) -> Registers {
        if self.may_read_others { self.reads | written } else { self.reads }
    }
}
