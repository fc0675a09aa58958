//! The walk along the frame records, on the target.

use core::cell::LazyCell;
use core::fmt;
use core::ops::Range;

use aarch64_cpu::registers::{FP, Readable, TPIDRRO_EL0};
use aarch64_kprobes::exception::TrapFrame;
use aarch64_kprobes::probe;

use kprobes_console::{is_caller_in_x30, source_lines};

use crate::memory::layout::{self, STACK_SIZE};
use crate::task::{self, Task};
use kprobes_console::symbol::{ReturnAddress, Symbolic};

/// The number of calls that a backtrace keeps. Outer calls that do not fit are dropped.
const CAPACITY: usize = 64;
const RECORD_SIZE: usize = 16;

/// The active functions, innermost first.
#[derive(Clone, Debug)]
pub struct Backtrace {
    entries: [CodeAddress; CAPACITY],
    length: usize,
    end: End,
}

#[derive(Clone, Copy, Debug)]
enum CodeAddress {
    /// The address of the next instruction, in a function that was interrupted or whose task does not run.
    Next(usize),
    /// A return address.
    Return(usize),
}

/// Why the backtrace ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// A record says that it is the last.
    Complete,
    /// The backtrace is full; there may be more calls.
    Full,
    /// No frame record can be at this virtual address.
    Broken(usize),
}

/// Why a task has no backtrace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceError {
    /// No task has this number.
    NoTask(u64),
    /// The task runs on another CPU, so its registers are not known.
    Running {
        /// The number of the task.
        task: u64,
        /// The dense number of the CPU that runs it.
        cpu: usize,
    },
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::NoTask(task) => write!(f, "there is no task {task}"),
            Self::Running { task, cpu } => write!(f, "task {task} is running on CPU {cpu}"),
        }
    }
}

impl core::error::Error for TraceError {}

/// Returns the functions that are active in the caller. The caller is the first of them.
#[inline(never)]
#[must_use]
pub fn current() -> Backtrace {
    Walk::of_running_task().follow(FP.get() as usize)
}

/// Returns the functions that were active when `frame` was saved on this CPU, in the current task.
#[must_use]
pub fn of_frame(frame: &TrapFrame) -> Backtrace {
    let mut walk = Walk::of_running_task();
    let record = walk.push_interrupted(frame, frame.pc as usize);
    walk.follow(record)
}

/// Returns the functions that are active in the task with the number `id`.
///
/// # Errors
///
/// [`TraceError::NoTask`] if there is no such task; [`TraceError::Running`] if it runs on another CPU.
pub fn of_task(id: u64) -> Result<Backtrace, TraceError> {
    if id == task::current_task_number() {
        return Ok(current());
    }
    let walk = |task: &Task| {
        let context = task.context();
        let mut walk = Walk::of(task, 0..0);
        walk.push(CodeAddress::Next(context.link as usize));
        walk.follow(context.frame_pointer as usize)
    };
    match task::inspect_stopped(id, walk) {
        Some(found) => found.map_err(|cpu| TraceError::Running { task: id, cpu }),
        None => Err(TraceError::NoTask(id)),
    }
}

impl Backtrace {
    /// Iterates over the addresses: that of the next instruction for functions that were interrupted or do not run, and
    /// return addresses for all others.
    pub fn addresses(&self) -> impl Iterator<Item = usize> {
        self.entries[..self.length].iter().map(|entry| match *entry {
            CodeAddress::Next(address) | CodeAddress::Return(address) => address,
        })
    }
}

/// Prints a line for each function: `  #0 0xffffffc000012345 sha2::sha256::compress256+0x1c/0x240`.
impl Backtrace {
    /// Returns a value that prints the source lines, too, if the image has a table of them. It allocates nothing and
    /// waits for no lock, so reports of faults can use it.
    pub fn with_lines(&self) -> impl fmt::Display + '_ {
        WithLines(self)
    }

    /// Prints the backtrace. `line` returns the source line of the instruction at an address, if it is to be printed.
    fn write<L: fmt::Display>(&self, f: &mut fmt::Formatter<'_>, line: impl Fn(usize) -> Option<L>) -> fmt::Result {
        for (number, entry) in self.entries[..self.length].iter().enumerate() {
            let from = match *entry {
                CodeAddress::Next(address) => {
                    write!(f, "  #{number} {address:#018x} {}", Symbolic(address))?;
                    address
                }
                CodeAddress::Return(address) => {
                    write!(f, "  #{number} {address:#018x} {}", ReturnAddress(address))?;
                    // The call itself: the next source line may begin after it.
                    address.wrapping_sub(4)
                }
            };
            match line(probe::origin(from).unwrap_or(from)) {
                Some(line) => writeln!(f, " at {line}")?,
                None => writeln!(f)?,
            }
        }
        match self.end {
            End::Complete => Ok(()),
            End::Full => writeln!(f, "  more calls, which are not shown"),
            End::Broken(record) => writeln!(f, "  broken: no frame record can be at {record:#018x}"),
        }
    }
}

impl fmt::Display for Backtrace {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.write(f, |_| None::<&str>)
    }
}

/// A backtrace that prints source lines: see [`Backtrace::with_lines`].
struct WithLines<'a>(&'a Backtrace);

impl fmt::Display for WithLines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        // The first function is out before the table is checked, in case that the check faults.
        let lines = LazyCell::new(source_lines::for_report);
        self.0.write(f, |address| (*lines)?.at(address as u64))
    }
}

struct Walk<'a> {
    trace: Backtrace,
    /// The task whose records are walked. It is the current task, or `task::inspect_stopped` keeps it from running.
    task: &'a Task,
    /// Where records may lie: first on the emergency stack, then on the task's stack.
    stacks: [Range<usize>; 2],
    /// The index in `stacks` of the stack that the last record lay on.
    stack: usize,
    /// The end address of the last record.
    end: usize,
}

impl<'a> Walk<'a> {
    fn of(task: &'a Task, emergency: Range<usize>) -> Self {
        Self {
            trace: Backtrace { entries: [CodeAddress::Next(0); CAPACITY], length: 0, end: End::Complete },
            task,
            stacks: [emergency, task.stack_bounds()],
            stack: 0,
            end: 0,
        }
    }

    fn of_running_task() -> Self {
        // Bit 0 flags the emergency stack as in use (trampoline/vectors.S).
        let emergency = TPIDRRO_EL0.get() as usize & !1;
        Self::of(task::current_task(), emergency.saturating_sub(STACK_SIZE)..emergency)
    }

    fn push(&mut self, entry: CodeAddress) {
        match self.trace.entries.get_mut(self.trace.length) {
            Some(place) => {
                *place = entry;
                self.trace.length += 1;
            }
            None => self.trace.end = End::Full,
        }
    }

    /// Follows the chain of records that begins at `record`.
    fn follow(mut self, mut record: usize) -> Backtrace {
        // The address in the record before this one.
        let mut from = 0;
        while self.trace.length < CAPACITY {
            if record == 0 {
                return self.trace;
            }
            let Some([next, address]) = self.read(record) else {
                self.trace.end = End::Broken(record);
                return self.trace;
            };
            if next == 0 {
                return self.trace;
            }
            if let Some(frame) = self.trap_frame(from, record) {
                record = self.push_interrupted(&frame, address);
                from = 0;
            } else {
                let mut floor = record + RECORD_SIZE;
                if let Some((function, stack_pointer)) = self.probed_entry(from, record) {
                    self.push(CodeAddress::Next(function));
                    floor = stack_pointer;
                }
                from = self.true_return_address(address, floor);
                self.push(CodeAddress::Return(from));
                record = next;
            }
        }
        self.trace.end = End::Full;
        self.trace
    }

    /// Reads the record at `record`. Returns `None` if no record can be there.
    fn read(&mut self, record: usize) -> Option<[usize; 2]> {
        let end = record.checked_add(RECORD_SIZE)?;
        let is_within = |stack: &Range<usize>| stack.start <= record && end <= stack.end;
        let stack = self.stack + self.stacks[self.stack..].iter().position(is_within)?;
        if !record.is_multiple_of(RECORD_SIZE) || stack == self.stack && record < self.end {
            return None;
        }
        (self.stack, self.end) = (stack, end);
        // SAFETY: the address is aligned and within a stack, which is mapped. The stack is the task's own, which the
        // task itself or the lock in `task::inspect_stopped` keeps mapped, or the CPU's emergency stack. Any bits are
        // valid integers.
        Some(unsafe { (record as *const [usize; 2]).read_volatile() })
    }

    /// Returns the trap frame that ends with the record at `record`, which `read` has read. `from` is the address in
    /// the record before it. There is a trap frame only if `is_vectors` holds for `from`.
    fn trap_frame(&self, from: usize, record: usize) -> Option<TrapFrame> {
        if !is_vectors(from) {
            return None;
        }
        let frame = record.checked_sub(TrapFrame::RECORD)?;
        // SAFETY: the frame lies within the stack of its record, which `read` has checked. It is aligned as its record
        // is.
        (frame >= self.stacks[self.stack].start).then(|| unsafe { (frame as *const TrapFrame).read_volatile() })
    }

    /// Returns the function that a probe was hit in, at its first instruction and without an exception, and the stack
    /// pointer at that time. `from` and `record` are as for `trap_frame`.
    fn probed_entry(&self, from: usize, record: usize) -> Option<(usize, usize)> {
        if self.stacks[self.stack].end - record < size_of::<probe::CallArguments>() {
            return None;
        }
        // SAFETY: `read` has checked that the record is aligned and within a stack, and the arguments fit below the
        // stack's end. Only this task, or CPU, writes there.
        let call = unsafe { probe::arguments_at(from, record) }?;
        Some((call.address(), call.stack_pointer() as usize))
    }

    /// Pushes the function that was interrupted at `pc`, and its caller if no record exists for the function yet.
    /// Returns the address of the next record.
    fn push_interrupted(&mut self, frame: &TrapFrame, pc: usize) -> usize {
        let mut frame = *frame;
        frame.pc = pc as u64;
        // SAFETY: the task is the current one, or `task::inspect_stopped` keeps it from running.
        unsafe { probe::recover(&mut frame, &self.task.calls, |address| self.word(address)) };
        let (pc, link) = (frame.pc as usize, frame.x[30] as usize);
        self.push(CodeAddress::Next(pc));
        if returns_by_link(pc, link) {
            self.push(CodeAddress::Return(self.true_return_address(link, frame.sp as usize)));
        }
        frame.x[29] as usize
    }

    /// Returns the doubleword at the virtual address `address`, if it lies in a stack.
    fn word(&self, address: usize) -> Option<u64> {
        let is_within = |stack: &Range<usize>| stack.contains(&address) && stack.end - address >= size_of::<u64>();
        let is_readable = address.is_multiple_of(size_of::<u64>()) && self.stacks.iter().any(is_within);
        // SAFETY: the address is aligned and within a stack, which stays mapped as `read` explains.
        is_readable.then(|| unsafe { (address as *const u64).read_volatile() })
    }

    /// Returns where a call returns to: `address`, or the address that the engine has replaced with a trampoline.
    /// `floor` is the lowest stack pointer that the function can have been entered with.
    fn true_return_address(&self, address: usize, floor: usize) -> usize {
        if !probe::is_trampoline(address) {
            return address;
        }
        // SAFETY: the task is the current one, or `task::inspect_stopped` keeps it from running.
        unsafe { probe::true_return_address(&self.task.calls, floor) }.unwrap_or(address)
    }
}

/// Returns whether code interrupted at `pc`, with `link` in x30, would return through x30.
fn returns_by_link(pc: usize, link: usize) -> bool {
    let text = layout::text();
    if !text.contains(&pc) {
        // Either a call went astray, and x30 is the caller; or a return did, and then x30 is `pc`.
        return link != pc;
    }
    is_caller_in_x30(pc)
}

/// Returns whether the return address `address` is in the exception vectors, or in the code that takes their place when
/// a probe is hit without an exception. The next record is then a trap frame's.
fn is_vectors(address: usize) -> bool {
    unsafe extern "C" {
        safe static exception_vectors: u8;
        safe static exception_vectors_end: u8;
    }
    ((&raw const exception_vectors).addr()..(&raw const exception_vectors_end).addr()).contains(&address)
        || probe::has_trap_frame(address)
}
