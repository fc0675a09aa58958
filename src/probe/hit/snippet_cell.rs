//! The cells of *snippets*: code in a stub that does the work of a probe without a call. It lies in front of a lean or
//! a full stub.
//!
//! The branch that replaces the probed instruction leads to the snippet. The snippet makes no call and uses no stack.
//! It counts and collects, using only registers that are dead there, and then goes on in a copy of the instruction. In
//! an unusual case it goes on at the stub that follows it, before it has changed anything that other code looks at. The
//! stub then calls the handler of the probe, as if there were no snippet.
//!
//! ```text
//! +-----------+----------+----------+----------+-------+------+--------+-- ... --+------+------+
//! | counts,   | numbers  | prologue | what the | hit   | copy | to the |         | copy | stub |
//! | operand   |          |          | probe    | is    |      | stub   |         | at   |      |
//! |           |          |          | does     | counted      |        |         |      |      |
//! +-----------+----------+----------+----------+-------+------+--------+-- ... --+------+------+
//! ```
//!
//! No handler runs, so none can be running already: a hit while another handler runs on the CPU is not missed. If the
//! CPUs can add to a word by one instruction (FEAT_LSE), interrupts stay unmasked. A task that migrates in the middle
//! of a snippet then adds to the words of the CPU that it came from, so all code that adds to such words uses such
//! instructions. A snippet that does more than add, such as writing a record, masks interrupts for that: nothing else
//! then runs on its CPU.

use super::origin;
use crate::exception::frame::TrapFrame;
use crate::insn::MAX_WORDS;

/// Sends `frame` on to the handler, if it was interrupted in a snippet: by a load that may fault, since nothing else in
/// a snippet faults. Returns whether it was.
pub(crate) fn fix_up(frame: &mut TrapFrame) -> bool {
    let pc = frame.pc as usize;
    let exit = origin::exit_of_return(pc).or_else(|| origin::find(pc)?.exit(pc));
    frame.pc = exit.map_or(frame.pc, |exit| exit as u64);
    exit.is_some()
}

/// Returns the address at which a snippet goes on at the handler with interrupts masked. `copy` is the address of its
/// copy of the instruction.
pub(crate) const fn exit(copy: usize) -> usize {
    copy + 4 * MAX_WORDS
}

/// Size in bytes of a cell with a snippet.
pub(crate) const SHORT: usize = 192;
/// Size in bytes of a cell with a long snippet.
pub(crate) const LONG: usize = 512;
