//! The functions that files of tracers name: which can be traced, sets of them, and their commands.

use alloc::vec::Vec;

use aarch64_kprobes::{ProbeError, event, platform, probe};
use fallible::{OutOfMemory, TryClone};
use kprobes_symbols::Symbol;
use kprobes_trace::engine::Probe;
use kprobes_trace::errno::Errno;
use kprobes_trace::events::Events;
use kprobes_trace::tracer::Refused;

use crate::{symbol, tracing};

/// Functions, by their virtual addresses, in ascending order.
#[derive(Debug, Default)]
pub(crate) struct Functions(Vec<u64>);

/// Returns the functions that match `glob` and can be traced.
pub(crate) fn traceable(glob: &str) -> impl Iterator<Item = Symbol<'static>> {
    let (text, blacklist) = (platform::text(), probe::blacklist());
    symbol::functions_by_classes(glob).filter(move |function| {
        let address = function.address as usize;
        // A probe at the function of a static event listens to the event.
        text.contains(&address) && !blacklist.contains(&address) && event::of_function(address).is_none()
    })
}

/// Returns the functions that match `glob` and can be traced, by their virtual addresses in ascending order.
///
/// # Errors
///
/// No function matches, or there is no memory.
fn meant(glob: &str) -> Result<Vec<u64>, Errno> {
    let meant = fallible::collect(traceable(glob).map(|function| function.address))?;
    if !meant.is_empty() {
        return Ok(meant);
    }
    match symbol::nearest(glob) {
        Some(near) => println!("no function that can be traced matches `{glob}`; did you mean `{near}`?"),
        None => println!("no function that can be traced matches `{glob}`; see available_filter_functions"),
    }
    Err(Errno::Invalid)
}

/// Gives the functions that match `glob` a command, or takes it from them.
///
/// # Errors
///
/// No function matches, the command is refused, or there is no memory.
pub(crate) fn command(events: &mut Events<Probe>, glob: &str, command: &str, is_removed: bool) -> Result<(), Errno> {
    let functions = meant(glob)?;
    if is_removed {
        return events.remove_command(&functions, command).inspect_err(|errno| {
            if *errno == Errno::Invalid {
                println!("no function that matches `{glob}` has the command `{command}`");
            }
        });
    }
    let mut refused = Refused::default();
    let mut refuse = |error: ProbeError| {
        refused.count += 1;
        refused.first.get_or_insert(error);
    };
    let added = events.add_command(&functions, command, &tracing::Names, &mut refuse);
    if let Refused { count, first: Some(error) } = &refused {
        println!("{count} of the functions cannot have the command; the first: {error}");
    }
    added.inspect_err(|errno| {
        if *errno == Errno::Invalid && refused.count < functions.len() {
            println!("`{command}` is no command, or its event does not exist; {COMMANDS}");
        }
    })
}

/// The help about commands of functions.
const COMMANDS: &str = "the commands are traceon, traceoff, snapshot, stacktrace, enable_event:GROUP:EVENT, disable_event:GROUP:EVENT; with :COUNT";

impl TryClone for Functions {
    fn try_clone(&self) -> Result<Self, OutOfMemory> {
        fallible::collect(self.0.iter().copied()).map(Self)
    }
}

impl Functions {
    /// Adds the functions that match `glob`, or removes them.
    ///
    /// # Errors
    ///
    /// The pattern matches no function, or there is no memory.
    pub(crate) fn change(&mut self, glob: &str, is_removed: bool) -> Result<(), Errno> {
        let meant = meant(glob)?;
        if is_removed {
            self.0.retain(|function| meant.binary_search(function).is_err());
        } else {
            fallible::extend(&mut self.0, meant)?;
            self.0.sort_unstable();
            self.0.dedup();
        }
        Ok(())
    }

    /// Returns the virtual addresses of the functions.
    pub(crate) fn addresses(&self) -> &[u64] {
        &self.0
    }
}
