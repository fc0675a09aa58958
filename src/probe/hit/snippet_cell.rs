//! What a probe does, where its stub does it itself: a *snippet* of code, in front of a lean stub, or of a full one.
//!
//! The branch at the probed instruction leads to the snippet. The snippet makes no call and takes no room on the stack: in
//! registers that are dead there, it counts and collects, and goes on in a copy of the instruction. What is unusual it leaves,
//! before it has changed anything that others look at, to the stub behind it, which calls the handler of the probe, as if there
//! were no snippet.
//!
//! ```text
//! +-----------+----------+----------+----------+-------+------+--------+-- ... --+------+------+
//! | counts,   | numbers  | prologue | what the | hit   | copy | to the |         | copy | stub |
//! | operand   |          |          | probe    | is    |      | stub   |         | at   |      |
//! |           |          |          | does     | counted      |        |         |      |      |
//! +-----------+----------+----------+----------+-------+------+--------+-- ... --+------+------+
//! ```
//!
//! No handler runs, so there is none that could be running already: what is hit while another handler runs on the CPU is not
//! missed. Where a CPU adds to a word by one instruction (FEAT_LSE), interrupts are not masked either: a task that is moved in the
//! middle adds to the words of the CPU that it came from. So all that add to such words do it by such instructions. What takes more
//! than an addition, as a record does, masks interrupts for that, and is then alone on its CPU.

use super::origin;
use crate::exception::TrapFrame;
use crate::insn::MAX_WORDS;

/// Has `frame` go on at the handler, if it was interrupted in a snippet, by a load that may fault: nothing else in one does.
pub(crate) fn fix_up(frame: &mut TrapFrame) -> bool {
    let pc = frame.pc as usize;
    let exit = origin::exit_of_return(pc).or_else(|| origin::find(pc)?.exit(pc));
    frame.pc = exit.map_or(frame.pc, |exit| exit as u64);
    exit.is_some()
}

/// Where a snippet leaves all to the handler, with interrupts masked, whose copy of the instruction begins at `copy`.
pub(crate) const fn exit(copy: usize) -> usize {
    copy + 4 * MAX_WORDS
}

/// Bytes of a cell with a snippet.
pub(crate) const SHORT: usize = 192;
/// Bytes of one with a long snippet.
pub(crate) const LONG: usize = 512;
