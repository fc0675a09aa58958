//! Calls of the kernel's routine, and loads of properties of a hit, which may need such a call.

use aarch64_kprobes::insn::encode;

use super::allocation::Allocation;
use super::emit::Emitter;
use super::words::{CALL, ENTER, LEAVE};
use super::{CallInstruction, FRAME, HIT, LEFT, ONE, OTHER, Source, THIRD, load};
use crate::ir::{Builtin, Word};

impl Emitter<'_> {
    /// Calls the kernel's routine for op `number`.
    pub fn perform(&mut self, number: usize) {
        self.frame();
        let touched = self.touched(number);
        let own = |(word, allocation)| {
            if let Allocation::Register(register) = allocation { Some((word, register)) } else { None }
        };
        let across = self.assembler.list(self.allocations.across(number));
        let read = touched.read().map(|word| (word, self.allocations.before(word, number))).filter_map(own);
        let mut before = self.assembler.list(read.chain(across.iter().copied()));
        before.sort_unstable();
        before.dedup();
        let written = touched.written().map(|word| (word, self.allocations.after(word, number))).filter_map(own);
        let mut after = self.assembler.list(written.chain(across));
        after.sort_unstable();
        after.dedup();
        for (word, register) in before {
            self.assembler.push(encode::store(register, FRAME, Self::offset(word)));
        }
        self.push_all(&ENTER);
        self.assembler.constant(1, (self.clause as u64) << 16 | number as u64);
        self.assembler.constant(2, self.kernel.context);
        self.call(self.kernel.perform);
        self.push_all(&LEAVE);
        for (word, register) in after {
            self.assembler.push(load(register, FRAME, Self::offset(word)));
        }
    }

    fn push_all(&mut self, words: &[u32]) {
        words.iter().for_each(|&word| self.assembler.push(word));
    }

    fn call(&mut self, to: u64) {
        self.assembler.constant(THIRD, to);
        let outcome = fallible::push(&mut self.calls, CallInstruction { word: self.assembler.length(), to });
        self.assembler.need(outcome);
        self.assembler.push(CALL);
    }

    /// Loads a property of the hit.
    pub fn load(&mut self, number: usize, to: Word, what: Builtin) {
        let kernel = self.kernel;
        let source = match what {
            Builtin::Register(register) => {
                let Some(offset) = (kernel.register)(register) else { return self.perform(number) };
                let target = self.target(number, to);
                self.assembler.push(load(target, HIT, offset));
                return self.keep(number, to);
            }
            Builtin::Function => kernel.function,
            Builtin::Caller => kernel.caller,
            Builtin::Probe => kernel.probe,
            Builtin::Cpus => Some(Source::Constant(self.store.per_cpu.len() as u64)),
            Builtin::Random | Builtin::Result => None,
            Builtin::Cpu => Some(Source::Path(kernel.cpu)),
            Builtin::Task => kernel.task,
            Builtin::Nanoseconds => return self.time(number, to, 0),
            Builtin::Elapsed => return self.time(number, to, self.store.start),
        };
        let Some(source) = source else { return self.perform(number) };
        let target = self.target(number, to);
        match source {
            Source::Constant(value) => self.assembler.constant(target, value),
            Source::Path(path) => self.follow(target, path),
        }
        self.keep(number, to);
    }

    /// Loads the nanoseconds since the time `since`.
    fn time(&mut self, number: usize, to: Word, since: u64) {
        let Some(clock) = self.kernel.nanoseconds else { return self.perform(number) };
        let target = self.target(number, to);
        let Ok(()) = clock.read(target, since, [LEFT, OTHER], |step| self.common(step));
        self.keep(number, to);
    }

    /// Loads the name of the task; its two words go to the frame.
    pub fn comm(&mut self, number: usize, to: Word) {
        let Some(path) = self.kernel.comm else { return self.perform(number) };
        self.frame();
        self.follow(
            ONE,
            super::Path { offsets: path.offsets.split_last().map_or(&[], |(_, offsets)| offsets), ..path },
        );
        let last = path.offsets.last().copied().unwrap_or(0);
        let base = if path.base == super::Base::Hit && path.offsets.len() == 1 { HIT } else { ONE };
        self.assembler.push(load(OTHER, base, last.wrapping_add(8)));
        self.assembler.push(load(ONE, base, last));
        let word = usize::from(to.0);
        self.assembler.push(encode::store(ONE, FRAME, Self::offset(word)));
        self.assembler.push(encode::store(OTHER, FRAME, Self::offset(word + 1)));
        debug_assert!(
            [word, word + 1]
                .iter()
                .all(|&word| !matches!(self.allocations.after(word, number), Allocation::Register(_)))
        );
    }
}
