//! How deep the stacks of tasks were: Linux's `stack_trace` and `stack_max_size` (`kernel/trace/trace_stack.c`).
//!
//! The depth is taken where functions are called. So it lacks the frame of a function that calls no traced function.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt::Write;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use fallible::OutOfMemory;

use crate::atomic::{AtomicU64, fence};
use crate::symbols::{Symbols, write_on_stack};
use crate::text::ShowError;

/// The maximum number of frames that are kept of a stack.
pub(crate) const FRAMES: usize = 64;

/// The deepest stack of each CPU.
#[derive(Debug)]
pub struct Usage(pub(crate) Box<[Deepest]>);

/// The deepest stack that a CPU had.
#[derive(Debug)]
pub(crate) struct Deepest {
    /// Odd while the stack is being written.
    pub version: AtomicU64,
    /// The depth above which a stack is kept, in bytes.
    pub depth: AtomicU64,
    /// The number of frames.
    pub count: AtomicU64,
    pub frames: [StackFrame; FRAMES],
}

/// A function on a stack.
#[derive(Debug)]
pub(crate) struct StackFrame {
    /// A virtual address in the function: where it begins, or where a call in it returns to.
    pub address: AtomicU64,
    /// The depth of the stack within it, in bytes.
    pub depth: AtomicU64,
}

const HEADER: &str = "        -----    ----   --------\n";
const DISABLED: &str = "\
#
#  Stack tracer disabled
#
# To enable the stack tracer,
# 'echo 1 > /proc/sys/kernel/stack_tracer_enabled'
#
";

impl Usage {
    /// Makes the stacks of `cpus` CPUs, which have no depth.
    ///
    /// # Errors
    ///
    /// There is no memory.
    pub fn new(cpus: usize) -> Result<Self, OutOfMemory> {
        let zero = || AtomicU64::new(0);
        let frame = |_| StackFrame { address: zero(), depth: zero() };
        let deepest =
            |_| Deepest { version: zero(), depth: zero(), count: zero(), frames: core::array::from_fn(frame) };
        fallible::boxed_slice((0..cpus).map(deepest)).map(Self)
    }

    /// Returns the contents of `stack_max_size`: the depth of the deepest stack, or the depth that was set since, in
    /// bytes.
    #[must_use]
    pub fn depth(&self) -> u64 {
        self.0.iter().map(|deepest| deepest.depth.load(Relaxed)).max().unwrap_or(0)
    }

    /// Sets the depth, in bytes, above which stacks are kept.
    pub fn set_depth(&self, depth: u64) {
        self.0.iter().for_each(|deepest| deepest.depth.store(depth, Relaxed));
    }

    /// Returns the address and the depth of each frame of the deepest stack since a depth was set, from the innermost
    /// on. If there was none since then, returns the frames of the previous one.
    fn deepest(&self) -> Result<Vec<(u64, u64)>, OutOfMemory> {
        let (mut greatest, mut deepest) = ((0, 0), Vec::new());
        for of_cpu in &self.0 {
            let frames = of_cpu.copied()?;
            let depth = (of_cpu.depth.load(Relaxed), frames.first().map_or(0, |(_, depth)| *depth));
            if depth > greatest {
                (greatest, deepest) = (depth, frames);
            }
        }
        Ok(deepest)
    }

    /// Writes the file `stack_trace`.
    ///
    /// # Errors
    ///
    /// Returns the error of `out`, or that there is no memory for a copy of the stack.
    pub fn write(&self, out: &mut dyn Write, is_enabled: bool, symbols: &dyn Symbols) -> Result<(), ShowError> {
        let frames = self.deepest()?;
        writeln!(out, "        Depth    Size   Location    ({} entries)", frames.len())?;
        out.write_str(HEADER)?;
        if !is_enabled && self.depth() == 0 {
            out.write_str(DISABLED)?;
        }
        for (number, &(address, depth)) in frames.iter().enumerate() {
            let outer = frames.get(number + 1).map_or(0, |(_, depth)| *depth);
            write!(out, "{number:3}) {depth:8}   {:5}   ", depth.saturating_sub(outer))?;
            write_on_stack(out, address, number > 0, symbols)?;
            out.write_char('\n')?;
        }
        Ok(())
    }
}

impl Deepest {
    /// Returns a copy of the frames, all of one stack. Waits while the stack is being written.
    fn copied(&self) -> Result<Vec<(u64, u64)>, OutOfMemory> {
        let mut frames = Vec::new();
        frames.try_reserve_exact(FRAMES).map_err(OutOfMemory::from)?;
        loop {
            let version = self.version.load(Acquire);
            if version % 2 == 1 {
                core::hint::spin_loop();
                continue;
            }
            frames.clear();
            let count = (self.count.load(Relaxed) as usize).min(FRAMES);
            let all = self.frames.iter().take(count);
            frames.extend(all.map(|frame| (frame.address.load(Relaxed), frame.depth.load(Relaxed))));
            fence(AcqRel);
            if self.version.load(Relaxed) == version {
                return Ok(frames);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::tests::{ALLOC, GETNAME, Names, OPEN};
    use super::*;
    use alloc::string::String;

    fn written(usage: &Usage, is_enabled: bool) -> String {
        let mut out = String::new();
        usage.write(&mut out, is_enabled, &Names).unwrap();
        out
    }

    /// Notes a stack with these frames on CPU `cpu`.
    fn note(usage: &Usage, cpu: usize, frames: &[(u64, u64)]) {
        let mut frames = frames.iter().copied();
        usage.0[cpu].note(frames.clone().next().unwrap().1, || frames.next());
    }

    #[test]
    fn the_deepest_stack_of_all_cpus_is_written_as_linux_does() {
        let usage = Usage::new(2).unwrap();
        assert!(written(&usage, false).contains("(0 entries)") && written(&usage, false).contains("disabled"));
        assert!(!written(&usage, true).contains("disabled"));
        note(&usage, 0, &[(ALLOC, 352), (GETNAME + 8, 352), (OPEN + 16, 96)]);
        note(&usage, 1, &[(ALLOC, 200), (OPEN + 4, 200)]);
        let expected = "        Depth    Size   Location    (3 entries)
        -----    ----   --------
  0)      352       0   kmem_cache_alloc+0x0/0x100
  1)      352     256   getname+0x8/0x100
  2)       96      96   do_sys_open+0x10/0x100
";
        assert_eq!((written(&usage, false).as_str(), usage.depth()), (expected, 352));
        // A stack that is not deeper than the CPU's is not kept.
        note(&usage, 0, &[(OPEN, 352)]);
        assert_eq!(written(&usage, true), expected);
        note(&usage, 1, &[(OPEN, 353)]);
        assert!(written(&usage, true).ends_with("  0)      353     353   do_sys_open+0x0/0x100\n"));
        // From here on, every stack is deeper, whatever another CPU had before.
        usage.set_depth(0);
        assert_eq!(usage.depth(), 0);
        assert!(written(&usage, true).contains("  0)      353     353 "), "what was there stays until then");
        note(&usage, 1, &[(GETNAME, 16)]);
        assert!(written(&usage, true).ends_with("  0)       16      16   getname+0x0/0x100\n"));
    }

    #[test]
    fn a_stack_of_many_functions_is_cut() {
        let usage = Usage::new(1).unwrap();
        let frames: Vec<_> = (0..2 * FRAMES as u64).map(|number| (OPEN, 10_000 - number)).collect();
        note(&usage, 0, &frames);
        let text = written(&usage, true);
        assert!(text.contains("(64 entries)") && text.lines().count() == 2 + FRAMES, "{text}");
    }
}
