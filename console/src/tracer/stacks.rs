//! The stack tracer, which looks for the deepest stack.

use core::{mem, ptr};

use aarch64_kprobes::probe::{self, AliasableBox};
use fallible::{OutOfMemory, TryClone};
use kprobes_trace::errno::Errno;
use kprobes_trace::tracer::Traced;
use kprobes_trace::tracer::usage::Usage;

use super::functions::Functions;
use super::settings::Settings;
use crate::host::cpus;

/// The stack tracer: the deepest stack, with the probes that look for it.
#[derive(Debug, Default)]
pub(crate) struct Stacks {
    /// Dropped before the stacks, which its handlers write.
    pub(super) traced: Option<Traced>,
    /// The stacks; `None` until [`usage_mut`](Self::usage_mut) makes them.
    usage: Option<AliasableBox<Usage>>,
    /// `stack_trace_filter`: the functions whose calls are looked at; if empty, all functions.
    filter: Functions,
}

impl Stacks {
    pub(crate) fn is_on(&self) -> bool {
        self.traced.is_some()
    }

    /// Returns the functions whose calls are looked at; all, if there are none.
    pub(crate) fn filter(&self) -> &Functions {
        &self.filter
    }

    /// Returns the stacks that the tracer has seen; `None` until [`usage_mut`](Self::usage_mut) makes them.
    pub(crate) fn usage(&self) -> Option<&Usage> {
        self.usage.as_deref()
    }

    /// Returns the stacks. The first call makes them.
    ///
    /// # Errors
    ///
    /// There is no memory for them.
    pub(crate) fn usage_mut(&mut self) -> Result<&Usage, OutOfMemory> {
        let usage = match self.usage.take() {
            Some(usage) => usage,
            None => AliasableBox::new(fallible::boxed(Usage::new(cpus())?)?),
        };
        Ok(self.usage.insert(usage))
    }

    /// Turns the tracer on or off. The stacks that it has seen stay.
    ///
    /// # Errors
    ///
    /// The kernel does not know its stacks, or there is no memory: nothing has changed.
    pub(crate) fn set(&mut self, on: bool) -> Result<(), Errno> {
        if on == self.is_on() {
            return Ok(());
        }
        self.traced = if on { Some(self.probes()?) } else { None };
        Ok(())
    }

    /// Creates the probes of the stack tracer, enabled.
    fn probes(&mut self) -> Result<Traced, Errno> {
        let here = 0_u8;
        if probe::stack_around(ptr::from_ref(&here).addr()).is_none() {
            println!("this kernel does not say where its stacks are: its platform has no `stack`");
            return Err(Errno::Invalid);
        }
        let all;
        let functions = match self.filter.addresses() {
            [] => {
                all = Settings::default().functions()?;
                &all
            }
            functions => functions,
        };
        let functions = fallible::collect(functions.iter().copied())?;
        let usage = self.usage_mut()?;
        // SAFETY: `Stacks` drops the probes before `usage`, which stays in its box.
        let traced = unsafe { Traced::stacks(&functions, usage)? };
        traced.set_enabled(true)?;
        Ok(traced)
    }

    /// Sets the functions whose calls are looked at.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Functions::change`], or that there is no memory for other probes. Nothing has changed
    /// then.
    pub(crate) fn change_filter(
        &mut self,
        change: impl FnOnce(&mut Functions) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut filter = self.filter.try_clone()?;
        change(&mut filter)?;
        let before = mem::replace(&mut self.filter, filter);
        if self.is_on() {
            match self.probes() {
                Ok(traced) => self.traced = Some(traced),
                Err(errno) => {
                    self.filter = before;
                    return Err(errno);
                }
            }
        }
        Ok(())
    }
}
