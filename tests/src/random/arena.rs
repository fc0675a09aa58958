//! The place where a word is executed, and the state of the machine that it uses.

use alloc::vec::Vec;
use core::arch::asm;
use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::ops::Range;

use aarch64_kprobes::exception::TrapFrame;
use aarch64_kprobes::insn;
use runtime::memory::{self, layout};

use kprobes_random::Random;

/// The number of words that are laid out at once.
pub const CELLS: usize = 64;
/// The size of a cell, which is a word and its pad, in bytes.
const CELL: usize = 12;
/// The number of pads on each side of the cells.
const PADS: usize = 5 * 1024;
/// The size of a pad, in bytes.
const PAD: usize = 8;
/// The number of doublewords that the words may load and store.
pub const MEMORY: usize = 64;

core::arch::global_asm!(
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../trampoline/preserved.S")),
    include_str!("harness.S"),
    IN = const offset_of!(Run, before),
    OUT = const offset_of!(Run, after),
    CALLER = const offset_of!(Run, caller),
    SP = const TrapFrame::SP,
    PC = const TrapFrame::PC,
    CELLS = const CELLS,
    PADS = const PADS,
);

unsafe extern "C" {
    safe static random_pads_below: u8;
    safe static random_literals_below: u8;
    safe static random_cells: u8;
    safe static random_literals_above: u8;
    safe static random_pads_above: u8;
    safe static random_exit: u8;
    fn random_run();
}

/// The data that `random_run` reads and writes.
#[repr(C)]
struct Run {
    caller: [u64; 2],
    before: TrapFrame,
    after: TrapFrame,
}

/// The stack that the words run on. Like every stack, it is the upper half of a window. The memory for loads and stores
/// is at its top.
#[repr(C, align(65536))]
struct Stack {
    guard: [u64; layout::STACK_SIZE / 8],
    stack: [u64; layout::STACK_SIZE / 8 - MEMORY],
    memory: [u64; MEMORY],
}

/// A value that only one task at a time and the assembly use.
#[repr(transparent)]
struct Shared<T>(UnsafeCell<T>);

// SAFETY: only `Arena` uses such a value, and a test has one arena.
unsafe impl<T> Sync for Shared<T> {}

const NOTHING: TrapFrame = TrapFrame::ZERO;

#[unsafe(no_mangle)]
static random_run_state: Shared<Run> = Shared(UnsafeCell::new(Run { caller: [0; 2], before: NOTHING, after: NOTHING }));

static STACK: Shared<Stack> = Shared(UnsafeCell::new(Stack {
    guard: [0; layout::STACK_SIZE / 8],
    stack: [0; layout::STACK_SIZE / 8 - MEMORY],
    memory: [0; MEMORY],
}));

/// The state after a word has been executed.
#[derive(Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The registers: pc is the pad that was reached, and pstate has NZCV and DAIF.
    pub frame: TrapFrame,
    /// The memory.
    pub memory: [u64; MEMORY],
}

/// The cells, the pads, the literals and the stack.
pub struct Arena {
    /// The address ranges of pads that belong to no cell: near ones, and one page far away.
    pads: Vec<Range<usize>>,
}

impl Arena {
    /// Creates the only arena of a test, and fills the literals from `sequence`.
    pub fn new(sequence: &mut Random) -> Self {
        let of = |start: *const u8, length| start.addr()..start.addr() + length;
        for literals in [&raw const random_literals_below, &raw const random_literals_above] {
            let words: Vec<u32> = (0..layout::PAGE_SIZE / 4).map(|_| sequence.next() as u32).collect();
            write(literals.addr(), &words);
        }
        let far = memory::allocate_executable(layout::PAGE_SIZE, false).expect("there is memory");
        let words: Vec<u32> = (far..far + layout::PAGE_SIZE).step_by(4).map(word_of_pad).collect();
        write(far, &words);
        let mut pads: Vec<_> =
            [&raw const random_pads_below, &raw const random_pads_above].map(|start| of(start, PADS * PAD)).into();
        pads.push(far..far + layout::PAGE_SIZE);
        Self { pads }
    }

    /// Returns the virtual address of the word in cell `index`.
    pub fn cell(&self, index: usize) -> usize {
        (&raw const random_cells).addr() + CELL * index
    }

    /// Writes `words` to the cells, beginning with the first. The survey that the host has made does not know them. If
    /// it were wrong for a stub, the comparison of all registers would show it.
    pub fn lay_out(&self, words: &[u32]) {
        let start = self.cell(0);
        let mut code: Vec<u32> = (start..self.cell(CELLS)).step_by(4).map(read).collect();
        for (code, &word) in code.iter_mut().step_by(CELL / 4).zip(words) {
            *code = word;
        }
        write(start, &code);
    }

    /// Returns the virtual address of a pad that is at most `reach` bytes from `address`, in either direction.
    pub fn pad(&self, sequence: &mut Random, address: usize, reach: usize) -> usize {
        loop {
            let pad = match sequence.below(8) {
                // A near pad, whose offset has few bits.
                0 => self.cell(sequence.below(CELLS as u64) as usize) + 4,
                region => {
                    let pads = &self.pads[region as usize % self.pads.len()];
                    pads.start + sequence.below((pads.len() / PAD) as u64) as usize * PAD
                }
            };
            if pad.abs_diff(address) <= reach {
                return pad;
            }
        }
    }

    /// Returns the virtual address of a literal of eight bytes; it is a multiple of four.
    pub fn literal(&self, sequence: &mut Random) -> usize {
        let pages = [&raw const random_literals_below, &raw const random_literals_above];
        pages[sequence.below(2) as usize].addr() + sequence.below(layout::PAGE_SIZE as u64 / 4 - 1) as usize * 4
    }

    /// Returns the virtual address range of the memory that the words may load and store.
    pub fn memory(&self) -> Range<usize> {
        let end = STACK.0.get().addr() + size_of::<Stack>();
        end - 8 * MEMORY..end
    }

    /// Executes the word at `before.pc` with the registers in `before`, pc and pstate included, and with `memory`.
    pub fn run(&self, before: &TrapFrame, memory: &[u64; MEMORY]) -> Outcome {
        let state = random_run_state.0.get();
        let words = self.memory().start as *mut [u64; MEMORY];
        // SAFETY: nothing else uses the two statics while this runs, and both pointers are valid. The word at
        // `before.pc` was chosen so that it changes only registers and `memory`, and leads to a pad, from where
        // `random_run` returns. `after.pc` is in the image or in the pages for slots, which are in one region of 4 GiB.
        unsafe {
            (*state).before = *before;
            words.write(*memory);
            random_run();
            let mut frame = (*state).after;
            frame.pc |= layout::IMAGE_BASE as u64 & !u64::from(u32::MAX);
            Outcome { frame, memory: words.read() }
        }
    }
}

/// Returns the instruction for `address` in a page of pads.
fn word_of_pad(address: usize) -> u32 {
    const MSR_FAR_X30: u32 = 0xd518_601e;
    const LINK: u32 = 1 << 31;
    if address.is_multiple_of(PAD) {
        return MSR_FAR_X30;
    }
    let exit = (&raw const random_exit).addr();
    insn::branch(address as u64, exit as u64).expect("executable memory is near the image") | LINK
}

fn read(address: usize) -> u32 {
    // SAFETY: the callers pass addresses of cells, which are text.
    unsafe { (address as *const u32).read_volatile() }
}

/// Writes instructions or literals, which must be in one page.
pub fn write(address: usize, words: &[u32]) {
    let length = size_of_val(words);
    memory::with_writable(address, length, &mut |alias| {
        for (index, &word) in words.iter().enumerate() {
            // SAFETY: the alias is valid for all words, and the cache maintenance changes no memory.
            unsafe {
                let place = alias.cast::<u32>().add(index);
                place.write_volatile(word);
                asm!("dc cvau, {}", in(reg) place);
            }
        }
    });
    // SAFETY: barriers and cache maintenance change no memory. The addresses are those at which the words are executed.
    unsafe {
        asm!("dsb ish");
        for place in (address..address + length).step_by(4) {
            asm!("ic ivau, {}", in(reg) place);
        }
        asm!("dsb ish", "isb");
    }
}
