//! A simulated kernel, and a simulated CPU that executes a handful of instructions and takes breakpoints to the engine
//! as the vectors do.

use std::alloc::{Layout, alloc_zeroed};
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::exception::frame::TrapFrame;
use crate::insn::{self, Environment, Guard, Key, Verdict};
use crate::interrupts;
use crate::platform::Platform;
use crate::probe::hit::{self, Breakpoint, returns, trampoline};
use crate::text::{self, Word};

/// Words of each function in the simulated text.
pub const FUNCTION: usize = 16;
const WORDS: usize = if cfg!(loom) { 64 } else { 2048 };
const PAGE: usize = 4096;
pub const RET: u32 = 0xd65f_03c0;
pub const NOP: u32 = 0xd503_201f;
/// `mov x19, x30`.
pub const KEEP_LINK: u32 = 0xaa1e_03f3;
/// `add x0, x0, #immediate`.
pub const fn add(immediate: u32) -> u32 {
    0x9100_0000 | immediate << 10
}
/// `bl` that skips `words` words.
pub const fn branch_link(words: i32) -> u32 {
    0x9400_0000 | (words as u32 & 0x03ff_ffff)
}

/// The address that the outermost function returns to.
pub const OUTSIDE: u64 = 0x5afe_0000;

/// The end of the stack that the simulated kernel knows.
const STACK: usize = 0x1000;

/// Set while there is no executable memory.
pub static EXHAUSTED: AtomicBool = AtomicBool::new(false);
/// Whether executable memory does not begin where a page does.
pub static MISPLACED: AtomicBool = AtomicBool::new(false);

/// The number of bytes by which the kernel takes a function to be longer than it is.
pub static TOO_LONG: AtomicUsize = AtomicUsize::new(0);

/// The pcs at which other tasks have been interrupted.
pub static INTERRUPTED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Set while a task that yields lets the tasks in [`INTERRUPTED`] go on.
pub static GO_ON_AT_YIELD: AtomicBool = AtomicBool::new(false);

/// How often every CPU has been held.
pub static HOLDS: AtomicUsize = AtomicUsize::new(0);

#[cfg(loom)]
kprobes_models::loom::lazy_static! {
    static ref MASKED: kprobes_models::loom::sync::Mutex<()> = kprobes_models::loom::sync::Mutex::new(());
}

/// Masks interrupts on the other CPU of a model, as long as the result exists: `hold_cpus` waits for it.
#[cfg(loom)]
pub fn mask() -> kprobes_models::loom::sync::MutexGuard<'static, ()> {
    MASKED.lock().unwrap()
}

/// The size of the executable memory, in bytes. It lies after the text, so that branches reach it: separate allocations
/// of two threads may be far apart. Models take memory again and again, all in one thread.
const EXECUTABLE: usize = if cfg!(any(loom, miri)) { 4 << 20 } else { 64 << 20 };

/// Returns the address at which the text begins.
fn memory() -> usize {
    static TEXT: OnceLock<usize> = OnceLock::new();
    *TEXT.get_or_init(|| {
        let text = pages(4 * WORDS + EXECUTABLE).expect("there is memory for the text");
        // SAFETY: the allocation has room for `WORDS` words.
        (0..WORDS).for_each(|word| unsafe { text.cast::<u32>().add(word).write(NOP) });
        text.expose_provenance().get()
    })
}

/// Allocates pages of zeroes with room for `length` bytes, which are never freed.
fn pages(length: usize) -> Option<NonNull<u8>> {
    let layout = Layout::from_size_align(length.next_multiple_of(PAGE), PAGE).ok()?;
    // SAFETY: the size of the layout is not zero, because the callers ask for at least a page.
    NonNull::new(unsafe { alloc_zeroed(layout) })
}

pub struct TestPlatform;
crate::platform!(TestPlatform);

// SAFETY: only `Computer` executes the text, and it goes through the engine.
unsafe impl Platform for TestPlatform {
    const CPU_OFFSET: usize = 0;
    const CALLS_OFFSET: usize = 8;

    fn text() -> Range<usize> {
        memory()..memory() + 4 * WORDS
    }
    fn function(address: usize) -> Option<Range<usize>> {
        let start = address - (address - Self::text().start) % (4 * FUNCTION);
        Some(start..start + 4 * FUNCTION + TOO_LONG.load(Relaxed))
    }
    fn with_writable(address: usize, _length: usize, write: &mut dyn FnMut(*mut u8)) {
        assert!(cfg!(loom) || interrupts::are_masked(), "an alias of this CPU was asked for with interrupts unmasked");
        write(ptr::with_exposed_provenance_mut(address));
    }
    fn is_guarded(_address: usize) -> bool {
        false
    }
    fn allocate_executable(length: usize, _guarded: bool) -> Option<usize> {
        static TAKEN: AtomicUsize = AtomicUsize::new(0);
        if EXHAUSTED.load(Relaxed) {
            return None;
        }
        if MISPLACED.load(Relaxed) {
            return Some(Self::text().end + 8);
        }
        if cfg!(loom) {
            return Some(pages(length)?.expose_provenance().get());
        }
        let length = length.next_multiple_of(PAGE);
        let take = |taken: usize| Some(taken + length).filter(|&end| end <= EXECUTABLE);
        TAKEN.fetch_update(Relaxed, Relaxed, take).ok().map(|taken| Self::text().end + taken)
    }
    fn hold_cpus(action: &mut dyn FnMut()) {
        HOLDS.fetch_add(1, Relaxed);
        #[cfg(loom)]
        let _held = mask();
        action();
    }
    fn interrupted(each: &mut dyn FnMut(usize)) {
        INTERRUPTED.lock().unwrap().iter().copied().for_each(each);
    }
    fn stack(pointer: usize) -> Option<Range<usize>> {
        (1..=STACK).contains(&pointer).then_some(0..STACK)
    }
    fn yield_now() {
        if GO_ON_AT_YIELD.load(Relaxed) {
            INTERRUPTED.lock().unwrap().clear();
        }
        std::thread::yield_now();
    }
    fn fatal(_frame: &TrapFrame, reason: &dyn std::fmt::Display) -> ! {
        panic!("{reason}");
    }
}

impl Environment for TestPlatform {
    fn guard(&self, _pc: u64) -> Guard {
        Guard::Absent
    }
    fn has_consistent_branches(&self) -> bool {
        false
    }
    fn read_u32(&self, _address: u64) -> Result<u32, u64> {
        Err(0)
    }
    fn read_u64(&self, _address: u64) -> Result<u64, u64> {
        Err(0)
    }
    fn authenticate(&self, _key: Key, pointer: u64, _modifier: u64) -> Result<u64, u64> {
        Ok(pointer)
    }
}

/// Writes words to the text, at addresses without probes.
pub fn write(address: usize, words: &[u32]) {
    let words: Vec<_> =
        words.iter().zip((address..).step_by(4)).map(|(&word, address)| Word { address, words: [word] }).collect();
    text::write(&words);
}

/// The simulated machine. There is only one, so the tests take turns.
pub struct Computer {
    pub frame: TrapFrame,
    /// The number of breakpoints taken.
    pub exceptions: u32,
    _turn: MutexGuard<'static, ()>,
}

impl Computer {
    pub fn new() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        Self { frame: TrapFrame { sp: STACK as u64, ..TrapFrame::default() }, exceptions: 0, _turn: turn }
    }

    /// Writes a function and returns its address.
    pub fn function(&self, number: usize, words: &[u32]) -> usize {
        let address = TestPlatform::text().start + 4 * FUNCTION * number;
        assert_ne!(text::read(address), insn::BRK_KPROBE, "a test has left a probe behind");
        write(address, words);
        address
    }

    /// Calls the function at `address` with `x0`, and returns its result.
    pub fn call(&mut self, address: usize, x0: u64) -> u64 {
        self.frame.pc = address as u64;
        self.frame.x[0] = x0;
        self.frame.x[30] = OUTSIDE;
        self.run_until(OUTSIDE);
        self.frame.x[0]
    }

    /// Begins a call of the function at `address`, which is to return to `caller`, and executes its first instruction.
    pub fn begin(&mut self, address: usize, caller: u64) {
        self.frame.pc = address as u64;
        self.frame.x[30] = caller;
        self.run_until(address as u64 + 4);
    }

    pub fn run_until(&mut self, address: u64) {
        for _ in 0..10_000 {
            if self.frame.pc == address {
                return;
            }
            self.step();
        }
        panic!("the pretended CPU does not stop: {:#x?}", self.frame);
    }

    /// Executes one instruction.
    pub fn step(&mut self) {
        let frame = &mut self.frame;
        if trampoline::is_kretprobe(frame.pc) {
            return returns::kprobes_function_returned(frame);
        }
        let word = text::read(frame.pc as usize);
        if let insn::BRK_KPROBE | insn::BRK_STEP = word {
            enter_exception(frame);
        }
        match word {
            insn::BRK_KPROBE => {
                self.exceptions += 1;
                assert_eq!(
                    hit::breakpoint(frame),
                    Breakpoint::Handled,
                    "nobody claims the breakpoint at {:#x}",
                    frame.pc
                );
            }
            insn::BRK_STEP => {
                self.exceptions += 1;
                assert!(hit::stepped(frame), "nobody claims the end of a slot at {:#x}", frame.pc);
            }
            _ => execute(word, frame),
        }
    }
}

/// Stores the frame record as the vectors do, which do not know about slots.
pub fn enter_exception(frame: &mut TrapFrame) {
    frame.record = [frame.x[29], frame.pc];
}

/// Executes an instruction that is not a breakpoint.
pub fn execute(word: u32, frame: &mut TrapFrame) {
    match insn::classify(word) {
        Verdict::Simulate(operation) => operation.simulate(frame, &TestPlatform).unwrap(),
        _ if word == KEEP_LINK => {
            frame.x[19] = frame.x[30];
            frame.pc += 4;
        }
        _ => {
            assert_eq!(word & !(0xfff << 10), add(0), "not one of the handful: {word:#x}");
            frame.x[0] += u64::from(word >> 10 & 0xfff);
            frame.pc += 4;
        }
    }
}
