//! What a probe does, where its stub does it itself: a *snippet* of code, in front of a lean stub, or of a full one.
//!
//! The branch at the probed instruction leads to the snippet. That calls nobody, and takes no room on the stack: in registers
//! that are dead there, it counts and collects, and goes on in a copy of the instruction. What is unusual it leaves, before it has
//! changed anything, to the stub behind it, which calls the handler of the probe, as if there were no snippet.
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
//! middle adds to the words of the CPU that it came from. So all that add to words of snippets do it by such instructions, on all
//! CPUs, or none does, with interrupts masked.

/// Bytes of a cell with a snippet.
pub(crate) const SHORT: usize = 192;
/// Bytes of one with a long snippet.
pub(crate) const LONG: usize = 512;
