//! The walk, on the target.

use core::fmt;
use core::ops::Range;

use aarch64_cpu::registers::{FP, Readable, TPIDRRO_EL0};
use aarch64_kprobes::exception::TrapFrame;
use aarch64_kprobes::probe;

use kprobes_console::{is_caller_in_link, source_lines};

use crate::memory::layout::{self, STACK_SIZE};
use crate::task::{self, Task};
use kprobes_console::symbol::{ReturnAddress, Symbolic};

/// The deepest calls are dropped that do not fit.
const CAPACITY: usize = 64;
const RECORD_SIZE: usize = 16;

/// The functions that are active, innermost first.
#[derive(Clone, Debug)]
pub struct Backtrace {
    entries: [Entry; CAPACITY],
    length: usize,
    end: End,
}

#[derive(Clone, Copy, Debug)]
enum Entry {
    /// The address of the next instruction: of an interrupted function, or of one that does not run.
    Next(usize),
    /// A return address.
    Return(usize),
}

/// Why there is no more.
#[derive(Clone, Copy, Debug)]
enum End {
    /// The last record says that it is the last.
    Complete,
    /// There may be more calls, but no room for them.
    Full,
    /// The record at this virtual address cannot be one.
    Broken(usize),
}

/// Why there is no backtrace of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceError {
    /// There is no task of this number.
    NoTask(u64),
    /// The task runs on this CPU, so its registers are not known.
    Running {
        /// Its number.
        task: u64,
        /// The dense number of the CPU.
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

/// The functions that are active in the caller, which is the first.
#[inline(never)]
#[must_use]
pub fn current() -> Backtrace {
    Walk::of_running_task().follow(FP.get() as usize)
}

/// The functions that were active when `frame` was saved on this CPU, by the task that is current.
#[must_use]
pub fn of_frame(frame: &TrapFrame) -> Backtrace {
    let mut walk = Walk::of_running_task();
    let record = walk.push_interrupted(frame, frame.pc as usize);
    walk.follow(record)
}

/// The functions that are active in the task with the number `id`.
///
/// # Errors
///
/// Where there is no such task, or it is running on another CPU.
pub fn of_task(id: u64) -> Result<Backtrace, TraceError> {
    if id == task::current_task_number() {
        return Ok(current());
    }
    let walk = |task: &Task| {
        let context = task.context();
        let mut walk = Walk::of(task, 0..0);
        walk.push(Entry::Next(context.link as usize));
        walk.follow(context.frame_pointer as usize)
    };
    match task::inspect_stopped(id, walk) {
        Some(found) => found.map_err(|cpu| TraceError::Running { task: id, cpu }),
        None => Err(TraceError::NoTask(id)),
    }
}

impl Backtrace {
    /// The addresses: of the next instruction in the functions that were interrupted or do not run, and return
    /// addresses in all others.
    pub fn addresses(&self) -> impl Iterator<Item = usize> {
        self.entries[..self.length].iter().map(|entry| match *entry {
            Entry::Next(address) | Entry::Return(address) => address,
        })
    }
}

/// A line for each function: `  #0 0xffffffc000012345 sha2::sha256::compress256+0x1c/0x240`.
impl Backtrace {
    /// The same with the lines of source, for a report that may wait until their table has been checked.
    pub fn with_lines(&self) -> impl fmt::Display + '_ {
        WithLines(self)
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, has_lines: bool) -> fmt::Result {
        for (number, entry) in self.entries[..self.length].iter().enumerate() {
            let from = match *entry {
                Entry::Next(address) => {
                    write!(f, "  #{number} {address:#018x} {}", Symbolic(address))?;
                    address
                }
                Entry::Return(address) => {
                    write!(f, "  #{number} {address:#018x} {}", ReturnAddress(address))?;
                    // The call, after which the next line may begin.
                    address.wrapping_sub(4)
                }
            };
            // Not otherwise: a fault may be reported while the table is checked.
            match if has_lines { source_lines::at(from) } else { None } {
                Some(line) => writeln!(f, " at {line}")?,
                None => writeln!(f)?,
            }
        }
        match self.end {
            End::Complete => Ok(()),
            End::Full => writeln!(f, "  and more, which are not shown"),
            End::Broken(record) => writeln!(f, "  broken: no frame record can be at {record:#018x}"),
        }
    }
}

impl fmt::Display for Backtrace {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.write(f, false)
    }
}

/// See [`Backtrace::with_lines`].
struct WithLines<'a>(&'a Backtrace);

impl fmt::Display for WithLines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.0.write(f, true)
    }
}

struct Walk<'a> {
    trace: Backtrace,
    /// The current task, or one that is kept from running.
    task: &'a Task,
    /// Where records may lie: first on the emergency stack, then on the task's.
    stacks: [Range<usize>; 2],
    /// On which of them the last one lay.
    stack: usize,
    /// The end of the last one.
    end: usize,
}

impl<'a> Walk<'a> {
    fn of(task: &'a Task, emergency: Range<usize>) -> Self {
        Self {
            trace: Backtrace { entries: [Entry::Next(0); CAPACITY], length: 0, end: End::Complete },
            task,
            stacks: [emergency, task.stack_bounds()],
            stack: 0,
            end: 0,
        }
    }

    fn of_running_task() -> Self {
        // Bit 0 says that it is in use (trampoline/vectors.S).
        let emergency = TPIDRRO_EL0.get() as usize & !1;
        Self::of(task::current_task(), emergency.saturating_sub(STACK_SIZE)..emergency)
    }

    fn push(&mut self, entry: Entry) {
        match self.trace.entries.get_mut(self.trace.length) {
            Some(place) => {
                *place = entry;
                self.trace.length += 1;
            }
            None => self.trace.end = End::Full,
        }
    }

    /// Goes along the records from the one at `record`.
    fn follow(mut self, mut record: usize) -> Backtrace {
        // The address in the record before.
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
                    self.push(Entry::Next(function));
                    floor = stack_pointer;
                }
                from = self.true_return_address(address, floor);
                self.push(Entry::Return(from));
                record = next;
            }
        }
        self.trace.end = End::Full;
        self.trace
    }

    /// The record at `record`, if one can be there.
    fn read(&mut self, record: usize) -> Option<[usize; 2]> {
        let end = record.checked_add(RECORD_SIZE)?;
        let is_within = |stack: &Range<usize>| stack.start <= record && end <= stack.end;
        let stack = self.stack + self.stacks[self.stack..].iter().position(is_within)?;
        if !record.is_multiple_of(RECORD_SIZE) || stack == self.stack && record < self.end {
            return None;
        }
        (self.stack, self.end) = (stack, end);
        // SAFETY: aligned, and within a stack, which is mapped: the task's own, which the task or the lock in
        // `task::inspect_stopped` keeps, or the CPU's emergency stack. What is there are integers.
        Some(unsafe { (record as *const [usize; 2]).read_volatile() })
    }

    /// The trap frame that ends with the record at `record`, which was read, if the record before it has the address `from`
    /// and says that there is one.
    fn trap_frame(&self, from: usize, record: usize) -> Option<TrapFrame> {
        if !is_vectors(from) {
            return None;
        }
        let frame = record.checked_sub(TrapFrame::RECORD)?;
        // SAFETY: as for the record; the frame is aligned as its record is.
        (frame >= self.stacks[self.stack].start).then(|| unsafe { (frame as *const TrapFrame).read_volatile() })
    }

    /// Likewise the function that a probe has been hit in, at its beginning, without an exception, and the stack pointer then.
    fn probed_entry(&self, from: usize, record: usize) -> Option<(usize, usize)> {
        if self.stacks[self.stack].end - record < size_of::<probe::Entry>() {
            return None;
        }
        // SAFETY: aligned, and within a stack, as for the record. Only this task, or CPU, writes there.
        let entry = unsafe { probe::entry_at(from, record) }?;
        Some((entry.address(), entry.stack_pointer() as usize))
    }

    /// Enters the function that was interrupted at `pc`, and its caller where there is no record of that yet. Returns where the
    /// next record is.
    fn push_interrupted(&mut self, frame: &TrapFrame, pc: usize) -> usize {
        let mut frame = *frame;
        frame.pc = pc as u64;
        // SAFETY: the task is the current one, or `task::inspect_stopped` keeps it from running.
        unsafe { probe::recover(&mut frame, &self.task.calls, |address| self.word(address)) };
        let (pc, link) = (frame.pc as usize, frame.x[30] as usize);
        self.push(Entry::Next(pc));
        if returns_by_link(pc, link) {
            self.push(Entry::Return(self.true_return_address(link, frame.sp as usize)));
        }
        frame.x[29] as usize
    }

    /// The doubleword at the virtual address `address`, if it is in a stack.
    fn word(&self, address: usize) -> Option<u64> {
        let is_within = |stack: &Range<usize>| stack.contains(&address) && stack.end - address >= size_of::<u64>();
        let is_readable = address.is_multiple_of(size_of::<u64>()) && self.stacks.iter().any(is_within);
        // SAFETY: as for a record.
        is_readable.then(|| unsafe { (address as *const u64).read_volatile() })
    }

    /// Where a call returns to: `address`, or what the engine has put a trampoline in the place of. `floor` is
    /// the lowest stack pointer that the function can have been entered with.
    fn true_return_address(&self, address: usize, floor: usize) -> usize {
        if !probe::is_trampoline(address) {
            return address;
        }
        // SAFETY: as in `push_interrupted`.
        unsafe { probe::true_return_address(&self.task.calls, floor) }.unwrap_or(address)
    }
}

/// Whether the return address of what was interrupted at `pc`, with `link` in x30, is in x30.
fn returns_by_link(pc: usize, link: usize) -> bool {
    let text = layout::text();
    if !text.contains(&pc) {
        // A call that went astray; or else a return, to what was taken for the caller.
        return link != pc;
    }
    is_caller_in_link(pc)
}

/// Whether `address`, a return address, is in the exception vectors, or in what takes their place where a probe is hit without
/// an exception: the next record is then a trap frame's.
fn is_vectors(address: usize) -> bool {
    unsafe extern "C" {
        safe static exception_vectors: u8;
        safe static exception_vectors_end: u8;
    }
    ((&raw const exception_vectors).addr()..(&raw const exception_vectors_end).addr()).contains(&address)
        || probe::has_trap_frame(address)
}
