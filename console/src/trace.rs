//! The commands about programs: `trace`, its shortcuts, and `list-probes`.
//!
//! | module | what it owns |
//! |---|---|
//! | `options` | the options of `trace` |
//! | `request` | the arguments of `trace`, parsed from a line |
//! | `command` | running a program while its output is shown |
//! | `describe` | lines about a program: what cannot be probed, its clauses, its stages |
//! | `refusal` | the reason why a program does not run |
//! | `listing` | what probes match |
//! | `information` | what this kernel supports |

mod command;
mod describe;
mod information;
mod listing;
mod options;
mod refusal;
mod request;

pub(crate) use command::{count_functions, count_stacks, time_function, trace};
pub(crate) use listing::list_probes;
pub(crate) use options::{Help, offer as offer_options};
