//! Code that follows a call to its return without calling a function. Like a snippet, it lies in front of a stub.
//!
//! It does what `kprobes_follow` in `trampoline/hit.S` does in the usual case: it takes this CPU's spare
//! instance, makes it the newest call of the task, and has the function return to the trampoline. If there is none, or
//! a handler is running, it goes on at the stub. The distance to the spare is a number in the cell, so the code serves
//! only one probe. It changes registers, so it is only used where these are dead.
//!
//! Another probe of the same instruction may have a snippet. The snippet is placed within this code, where the call is
//! in the list of the task but x30 is still the return address. If the snippet takes its exit to the handler, the code
//! takes the call back out of the list and gives its instance back, and the stub calls the handlers of both probes. So
//! the code does the work of both probes, or of neither; and a hit while a handler is running is missed by both.
//!
//! ```text
//! +---------+-----------+------------+---------+------+------+-------+--------+-- ... --+------+------+
//! | its     | the probe | the        | follows | the  | copy | takes | to the |         | copy | stub |
//! | numbers |           | trampoline |         | snip |      | back  | stub   |         | at   |      |
//! |         |           |            |         | pet  |      |       |        |         |      |      |
//! +---------+-----------+------------+---------+------+------+-------+--------+-- ... --+------+------+
//! ```

use super::atomics;
use super::check::CheckedInstruction;
use super::hit::instance::Instance;
use super::hit::origin::Cell;
use super::hit::stub;
use super::snippet::{Inserted, Writer};
use crate::insn::encode::compute::{self, Binary, Branch};
use crate::insn::encode::{self, MASK_INTERRUPTS, SP};
use crate::insn::{self, Guard, Literal, MAX_WORDS, NotRelocatable, Relocation};
use crate::kernel;

/// Where the code is built: in a cell at the virtual address `cell`, for the instruction that was `checked` at the
/// virtual address `address`. `guard` applies to both places.
pub(super) struct At<'a> {
    pub(super) cell: usize,
    pub(super) address: usize,
    pub(super) checked: &'a CheckedInstruction,
    pub(super) guard: Guard,
}

/// The return probe for which calls are followed: the distance from the state of a CPU to its spare, in bytes, and the
/// virtual address that functions return to.
#[derive(Clone, Copy)]
pub(super) struct Followed {
    pub(super) spare_distance: u64,
    pub(super) to_return: u64,
}

// The registers that the code changes, besides x30. Snippets do not change those with the state of the CPU and the
// masks.
const CPU: u8 = 9;
const THREAD: u8 = 10;
const SPARE: u8 = 11;
const INSTANCE: u8 = 12;
const OTHER: u8 = 13;
const MASKS: u8 = 17;
const ZERO: u8 = 31;
const LINK: u8 = 30;

/// The number of words that take the call back.
const UNDO: usize = 7;

/// Returns the number of words that follow a call, without the two that go on at the copy.
fn follow_words() -> usize {
    if atomics::are_used() { 15 } else { 17 }
}

/// Returns the kind of cell for the code, with this snippet of another probe; `None` if no cell is large enough.
pub(super) fn cell(inserted: Option<&Inserted>) -> Option<Cell> {
    let within = inserted.map_or(0, |inserted| inserted.number_words() + inserted.masked_words() + UNDO);
    // The two numbers; x30 and the masks; the masks and the branch to the stub; and the position of the copy.
    let length = 4 + follow_words() + 2 + within + MAX_WORDS + 2 + 1;
    [Cell::Snippet, Cell::LongSnippet].into_iter().find(|cell| length <= cell.size() / 4 - stub::WORDS)
}

/// Fills in the words of a cell in front of the stub. Returns how many bytes before the stub the code begins.
pub(super) fn build(
    followed: Followed,
    inserted: Option<&Inserted>,
    at: &At<'_>,
    words: &mut [u32],
) -> Result<u16, NotRelocatable> {
    let (cell, from, stub) = (at.cell as u64, at.address as u64, words.len());
    let to = |word: usize| cell + 4 * word as u64;
    let mut out = Writer { words, length: 0 };
    if let Some(inserted) = inserted {
        inserted.numbers(&mut out);
    }
    let spare = out.length;
    out.number(followed.spare_distance);
    let trampoline = out.length;
    out.number(followed.to_return);
    let start = out.length;
    let copy = start + follow_words() + inserted.map_or(0, Inserted::masked_words) + 2;
    let undo = copy + MAX_WORDS;
    let leave = undo + if inserted.is_some() { UNDO } else { 0 };
    let calls = kernel::calls_offset();
    out.push(encode::read_daif(MASKS));
    out.push(MASK_INTERRUPTS);
    out.push(compute::read_thread(THREAD));
    out.push(encode::load(Literal::Doubleword, CPU, THREAD, kernel::cpu_offset()));
    out.push_to(Branch::Literal(SPARE), spare);
    // Loads `busy`, which is not 0 if a handler is running.
    out.push(encode::load(Literal::Doubleword, INSTANCE, CPU, 0));
    out.push_to(Branch::NotZero(INSTANCE), leave);
    out.push(compute::compute(Binary::Add, SPARE, CPU, SPARE));
    if atomics::are_used() {
        out.push(compute::swap_acquire(ZERO, INSTANCE, SPARE));
        out.push_to(Branch::Zero(INSTANCE), leave);
    } else {
        let again = out.length;
        out.push(compute::load_exclusive(INSTANCE, SPARE));
        out.push_to(Branch::Zero(INSTANCE), leave);
        out.push(compute::store_exclusive(OTHER, ZERO, SPARE));
        out.push_to(Branch::NotZeroWord(OTHER), again);
    }
    out.push(encode::add(OTHER, SP, 0));
    out.push(encode::store_pair(OTHER, LINK, INSTANCE, Instance::STACK_POINTER as i16));
    out.push(encode::load(Literal::Doubleword, OTHER, THREAD, calls));
    // The zero is `Instance::ALONE`: the hit follows one call.
    out.push(encode::store_pair(OTHER, ZERO, INSTANCE, Instance::NEXT as i16));
    out.push(encode::store(INSTANCE, THREAD, calls));
    if let Some(inserted) = inserted {
        inserted.masked(&mut out, undo);
    }
    out.push_to(Branch::Literal(LINK), trampoline);
    out.push(encode::write_daif(MASKS));
    let text = kernel::text();
    let relocation = Relocation { from, to: to(copy), guard: at.guard, text: text.start as u64..text.end as u64 };
    for &word in insn::relocate(at.checked.word, at.checked.verdict, &relocation)?.padded() {
        out.push(word);
    }
    if inserted.is_some() {
        // The newest call of the task is still this one: no interrupt has been taken since it began.
        out.push(compute::read_thread(THREAD));
        out.push(encode::load(Literal::Doubleword, INSTANCE, THREAD, calls));
        out.push(encode::load(Literal::Doubleword, OTHER, INSTANCE, Instance::NEXT as u16));
        out.push(encode::store(OTHER, THREAD, calls));
        out.push_to(Branch::Literal(SPARE), spare);
        out.push(compute::compute(Binary::Add, SPARE, CPU, SPARE));
        // The instance is the spare again, as in `Pool::give_back`: no other CPU has set one meanwhile.
        out.push(compute::store_release(INSTANCE, SPARE));
    }
    out.push(encode::write_daif(MASKS));
    let here = out.length;
    out.push(encode::branch(to(here), to(stub))?);
    if let Some(last) = out.words.last_mut() {
        *last = copy as u32;
    }
    insn::branch(from, to(start))?;
    Ok((4 * (stub - start)) as u16)
}
