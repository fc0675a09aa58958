//! What follows a call to its return without calling anybody: code in front of a stub, as a snippet is.
//!
//! It does what `kprobes_follow` in `trampoline/hit.S` does where that is usual: takes the instance out of this CPU's slot, makes
//! it the one of the newest call of the task, and has the function return to the trampoline. Where the slot is empty, or a handler
//! is running, it leaves all to the stub. The address of the return probe is a number in front of it: so it stands there only for
//! the one probe, and, as it changes registers, only where these are dead.
//!
//! ```text
//! +-----------+------------+------+------+--------+-- ... --+------+------+
//! | the probe | the        | code | copy | to the |         | copy | stub |
//! |           | trampoline |      |      | stub   |         | at   |      |
//! +-----------+------------+------+------+--------+-- ... --+------+------+
//! ```

use super::check::Site;
use super::hit::instance::{Instance, Pool};
use super::hit::machine;
use super::hit::returns::ReturnProbe;
use super::hit::snippet_cell::SHORT;
use super::hit::stub::WORDS;
use crate::insn::encode::compute::{self, Branch};
use crate::insn::encode::{self, Code, MASK_INTERRUPTS, OutOfRange, SP};
use crate::insn::{self, Guard, Literal, MAX_WORDS, NotRelocatable, Place};
use crate::platform;

/// The words in front of the stub.
pub(super) const ROOM: usize = SHORT / 4 - WORDS;
/// Where the two numbers are, in words.
const PROBE: usize = 0;
const TRAMPOLINE: usize = 2;
/// And where the code begins.
const START: usize = 4;

// The registers that it changes, beside x30.
const CPU: u8 = 9;
const THREAD: u8 = 10;
const SLOT: u8 = 11;
const INSTANCE: u8 = 12;
const OTHER: u8 = 13;
const MASKS: u8 = 17;
const ZERO: u8 = 31;
const LINK: u8 = 30;

/// Fills in the words of a cell at the virtual address `cell`, in memory that is guarded alike, up to the stub: what follows calls
/// for `probe` and has them return to the virtual address `to_return`, for the instruction of `site`, which is at the virtual
/// address `address`. Returns how many bytes before the stub it begins.
pub(super) fn build(
    probe: *const ReturnProbe,
    to_return: u64,
    cell: usize,
    address: usize,
    site: &Site,
    guard: Guard,
    words: &mut [u32; ROOM],
) -> Result<u16, NotRelocatable> {
    let (cell, from) = (cell as u64, address as u64);
    let to = |word: usize| cell + 4 * word as u64;
    let mut code = Code::<ROOM>::new(cell);
    for number in [probe.expose_provenance() as u64, to_return] {
        code.push(number as u32);
        code.push((number >> 32) as u32);
    }
    let atomics = machine::has_atomics();
    let copy = START + if atomics { 17 } else { 19 };
    let leave = copy + MAX_WORDS;
    let led = |code: &Code<ROOM>, branch: Branch, word: usize| {
        let (from, to) = (code.here(), to(word));
        branch.word(to.wrapping_sub(from).cast_signed()).ok_or(OutOfRange { from, to })
    };
    let calls = platform::calls_offset();
    code.push(encode::read_daif(MASKS));
    code.push(MASK_INTERRUPTS);
    code.push(compute::read_thread(THREAD));
    code.push(encode::load(Literal::Doubleword, CPU, THREAD, platform::cpu_offset()));
    code.push(led(&code, Branch::Literal(SLOT), PROBE)?);
    // Whether a handler is running, and the number of the CPU.
    code.push(encode::load_pair(INSTANCE, OTHER, CPU, 0));
    code.push(led(&code, Branch::NotZero(INSTANCE), leave)?);
    code.push(compute::add_shifted(SLOT, SLOT, OTHER, Pool::SLOT_SHIFT as u8));
    if atomics {
        code.push(compute::swap_acquire(ZERO, INSTANCE, SLOT));
        code.push(led(&code, Branch::Zero(INSTANCE), leave)?);
    } else {
        code.push(compute::load_exclusive(INSTANCE, SLOT));
        code.push(led(&code, Branch::Zero(INSTANCE), leave)?);
        code.push(compute::store_exclusive(OTHER, ZERO, SLOT));
        code.push(led(&code, Branch::NotZeroWord(OTHER), START + 8)?);
    }
    code.push(encode::add(OTHER, SP, 0));
    code.push(encode::store_pair(OTHER, LINK, INSTANCE, Instance::STACK_POINTER as i16));
    code.push(encode::load(Literal::Doubleword, OTHER, THREAD, calls));
    // The zero is `Instance::ALONE`.
    code.push(encode::store_pair(OTHER, ZERO, INSTANCE, Instance::NEXT as i16));
    code.push(encode::store(INSTANCE, THREAD, calls));
    code.push(led(&code, Branch::Literal(LINK), TRAMPOLINE)?);
    code.push(encode::write_daif(MASKS));
    let text = platform::text();
    let place = Place { from, to: to(copy), guard, text: text.start as u64..text.end as u64 };
    for &word in insn::relocate(site.word, site.verdict, &place)?.padded() {
        code.push(word);
    }
    code.push(encode::write_daif(MASKS));
    code.branch(to(ROOM))?;
    *words = *code.padded();
    words[ROOM - 1] = copy as u32;
    insn::branch(from, to(START))?;
    Ok((4 * (ROOM - START)) as u16)
}
