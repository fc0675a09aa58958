//! Programs in the language of [`kprobes_program`], on the probes of the engine and with what this kernel knows of a hit.
//!
//! [`Program::start`] reads a program, finds the instructions that it is about, and probes them. From then on
//! its clauses run at their hits, as instructions that they were compiled to; [`Program::drain`] shows what they put out, and
//! [`Program::finish`] ends it and shows its maps.
//!
//! | module | what it owns |
//! |---|---|
//! | `names` | functions by their names |
//! | `exits` | where a function is left |
//! | `inlined` | copies of functions in others |
//! | `places` | from probes to instructions |
//! | `compiled` | clauses as instructions |
//! | `room` | where these are |
//! | `attach` | the probes |
//! | `refused` | what cannot be probed |
//! | `hit` | what a clause is told of a hit: the part that runs then |
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
mod names;
#[cfg(target_os = "none")]
mod places;
#[cfg(target_os = "none")]
mod running;
#[cfg(target_os = "none")]
mod snippets;

#[cfg(target_os = "none")]
pub use compiled::Reason;
#[cfg(target_os = "none")]
use running::Shared;
#[cfg(target_os = "none")]
pub use running::{Detached, Options, Program, Reader, Refusal, list};
