//! Programs in the language of [`kprobes_program`], run on the engine's probes with this kernel's state at a hit.
//!
//! [`RunningProgram::start`] parses a program, finds the instructions that it probes, and probes them. From then on its
//! clauses run at the hits, mostly as compiled instructions. [`RunningProgram::drain`] shows their output, and
//! [`RunningProgram::finish`] ends the program and shows its maps.

// | module | what it owns |
// |---|---|
// | `places` | the places where clauses run, as types |
// | `shared` | the state that the tasks and the hits of a program share |
// | `names` | names for reports |
// | `image_symbols` | the names, the instructions and the types of the image, for the checker |
// | `exits` | the instructions that leave a function |
// | `inlined` | inlined copies of functions |
// | `resolve` | from probes to instructions |
// | `machine_code` | clauses as instructions |
// | `executable_memory` | memory for their instructions |
// | `snippets` | clauses that run in the stubs of their probes |
// | `attach` | registering the probes |
// | `watchpoints` | the watchpoints that a program has |
// | `watch` | registering the watchpoints |
// | `refused` | what cannot be probed |
// | `hit` | the hit path: running a clause, and the state that it can ask for |
// | `samples` | clauses that run for samples: `profile:`, `software:`, `hardware:` |
// | `alone` | clauses that run at no hit: `BEGIN`, `END`, `interval:` |
// | `refusal` | the reason why a program does not run |
// | `load` | a program, from its text to the places that it probes and the memory that it has |
// | `running` | running a program: its probes, its tasks and its output |
// | `detached` | the end of a program after its probes, and what it missed |
// | `list` | what probes match, without probing |
// | `stages` | what a program became on its way to instructions |

mod executable_memory;
mod exits;
mod hit;
mod refused;

mod alone;
mod attach;
mod detached;
mod image_symbols;
mod inlined;
mod list;
mod load;
mod machine_code;
mod names;
mod places;
mod refusal;
mod resolve;
mod running;
mod samples;
mod shared;
mod snippets;
mod stages;
mod watch;
mod watchpoints;

pub use detached::DetachedProgram;
pub use list::{list, list_of_program, search};
pub use load::Options;
pub use machine_code::Reason;
pub use refusal::ProgramRefusal;
pub use running::{Reader, RunningProgram};
use shared::Shared;
