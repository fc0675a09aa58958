//! Programs in the language of [`kprobes_program`], run on the engine's probes with this kernel's state at a hit.
//!
//! [`Program::start`] parses a program, finds the instructions that it probes, and probes them. From then on its
//! clauses run at the hits, as compiled instructions. [`Program::drain`] shows their output, and [`Program::finish`]
//! ends the program and shows its maps.
//!
//! | module | what it owns |
//! |---|---|
//! | `names` | functions by their names |
//! | `exits` | the instructions that leave a function |
//! | `inlined` | inlined copies of functions |
//! | `places` | from probes to instructions |
//! | `compiled` | clauses as instructions |
//! | `room` | executable memory for them |
//! | `attach` | registering the probes |
//! | `watch` | the watchpoints |
//! | `refused` | what cannot be probed |
//! | `hit` | the hit path: running a clause, and the state that it can ask for |
//! | `list` | what probes match, without probing |
//! | `stages` | what a program became on its way to instructions |
//! | `samples` | clauses that run for samples: `profile:`, `software:` |
//! | `alone` | clauses that run at no hit: `BEGIN`, `END`, `interval:` |

#[cfg(any(target_os = "none", test))]
mod exits;
#[cfg(any(target_os = "none", test))]
mod hit;
#[cfg(any(target_os = "none", test))]
mod refused;
#[cfg(any(target_os = "none", test))]
mod room;

#[cfg(target_os = "none")]
mod alone;
#[cfg(target_os = "none")]
mod attach;
#[cfg(target_os = "none")]
mod compiled;
#[cfg(target_os = "none")]
mod inlined;
#[cfg(target_os = "none")]
mod list;
#[cfg(target_os = "none")]
mod names;
#[cfg(target_os = "none")]
mod places;
#[cfg(target_os = "none")]
mod running;
#[cfg(target_os = "none")]
mod samples;
#[cfg(target_os = "none")]
mod snippets;
#[cfg(target_os = "none")]
mod stages;
#[cfg(target_os = "none")]
mod watch;

#[cfg(target_os = "none")]
pub use compiled::Reason;
#[cfg(target_os = "none")]
pub use list::{list, list_of_program, search};
#[cfg(target_os = "none")]
use running::Shared;
#[cfg(target_os = "none")]
pub use running::{Detached, Options, Program, Reader, Refusal};
