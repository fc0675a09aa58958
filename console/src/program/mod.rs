//! Programs in the language of [`kprobes_program`], run on the engine's probes with this kernel's state at a hit.
//!
//! [`RunningProgram::start`] parses a program, finds the instructions that it probes, and probes them. From then on its
//! clauses run at the hits, as compiled instructions. [`RunningProgram::drain`] shows their output, and
//! [`RunningProgram::finish`] ends the program and shows its maps.

// | module | what it owns |
// |---|---|
// | `names` | functions by their names |
// | `exits` | the instructions that leave a function |
// | `inlined` | inlined copies of functions |
// | `resolve` | from probes to instructions |
// | `compiled` | clauses as instructions |
// | `executable_memory` | memory for their instructions |
// | `attach` | registering the probes |
// | `watch` | the watchpoints |
// | `refused` | what cannot be probed |
// | `hit` | the hit path: running a clause, and the state that it can ask for |
// | `list` | what probes match, without probing |
// | `stages` | what a program became on its way to instructions |
// | `samples` | clauses that run for samples: `profile:`, `software:` |
// | `alone` | clauses that run at no hit: `BEGIN`, `END`, `interval:` |

mod executable_memory;
mod exits;
mod hit;
mod refused;

mod alone;
mod attach;
mod compiled;
mod inlined;
mod list;
mod names;
mod resolve;
mod running;
mod samples;
mod snippets;
mod stages;
mod watch;

pub use compiled::Reason;
pub use list::{list, list_of_program, search};
use running::Shared;
pub use running::{DetachedProgram, Options, ProgramRefusal, Reader, RunningProgram};
