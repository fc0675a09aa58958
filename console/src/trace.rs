//! The commands about programs: `trace`, its shortcuts, and `list-probes`.
//!
//! | module | what it owns |
//! |---|---|
//! | `options` | the options of `trace`, parsed from a line |
//! | `command` | running a program while its output is shown |
//! | `describe` | lines about a program: what cannot be probed, its clauses, its stages |
//! | `listing` | what probes match |
//! | `information` | what this kernel supports |

#[cfg(target_os = "none")]
mod command;
#[cfg(target_os = "none")]
mod describe;
#[cfg(target_os = "none")]
mod information;
#[cfg(target_os = "none")]
mod listing;
mod options;

#[cfg(target_os = "none")]
pub(crate) use command::{count_functions, count_stacks, time_function, trace};
#[cfg(target_os = "none")]
pub(crate) use listing::list_probes;
#[cfg(target_os = "none")]
pub(crate) use options::{Help, offer as offer_options};
