//! Instances: traces besides the kernel's own, each with rings, enabled events, options and a tracer of its own (Linux:
//! Documentation/trace/ftrace.rst, "Instances").
//!
//! Commands work on the session, which has the kernel's trace. To work on an instance, they exchange it with the
//! kernel's trace. An instance has the event definitions of the kernel's trace.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

use fallible::OutOfMemory;
use kprobes_trace::definition::Definition;
use kprobes_trace::engine::Probe;
use kprobes_trace::errno::Errno;
use kprobes_trace::events::{DefineError, Events};
use kprobes_trace::ring::Rings;

use crate::host::{cpus, host, memory_to_spare};
use crate::tracer::Tracing;
use crate::tracing::{self, Event};

/// All instances.
#[derive(Default)]
pub(crate) struct Instances {
    all: Vec<Instance>,
    /// Whether an instance is exchanged with the kernel's trace.
    is_inside: bool,
    /// The rings of removed instances, for later instances. Probes need rings that live forever, so rings are never
    /// freed.
    spare: Vec<&'static Rings>,
}

/// An instance.
struct Instance {
    name: String,
    // Dropped before the events, because its probes record in the same rings.
    tracing: Tracing,
    events: Events<Probe>,
    /// The value of [`Events::changes`] of the kernel's trace when its definitions were last copied.
    changes: u64,
}

/// The longest name, in bytes, as in Linux (`NAME_MAX`).
const NAME_MAX: usize = 255;

impl Instances {
    /// Returns whether an instance is in the place of the kernel's trace.
    pub(crate) fn is_inside(&self) -> bool {
        self.is_inside
    }

    /// Returns the names of the instances.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(|instance| &*instance.name)
    }

    /// Returns the events and the tracers of all instances.
    pub(crate) fn traces(&self) -> impl Iterator<Item = (&Events<Probe>, &Tracing)> {
        self.all.iter().map(|Instance { events, tracing, .. }| (events, tracing))
    }

    /// Returns the events of all instances.
    pub(crate) fn events(&self) -> impl Iterator<Item = &Event> {
        self.traces().flat_map(|(events, ..)| events.iter())
    }

    /// Returns whether an event with the name of `event` is in use in an instance.
    pub(crate) fn have_busy(&self, event: &Event) -> bool {
        let Definition { group, event, .. } = event.definition();
        let is_same = |own: &Event| own.definition().group == *group && own.definition().event == *event;
        self.all.iter().any(|Instance { events, .. }| events.iter().any(|own| is_same(own) && events.is_busy(own)))
    }

    /// Disarms all kprobes and the events that are on them, or arms those that are enabled again.
    ///
    /// # Errors
    ///
    /// There is no memory to arm them. The instances are then as before, unless the memory does not suffice for that
    /// either.
    pub(crate) fn set_may_be_armed(&mut self, armed: bool) -> Result<(), Errno> {
        for number in 0..self.all.len() {
            let set = |Instance { events, .. }: &mut Instance, armed| events.set_may_be_armed(armed);
            let (done, rest) = self.all.split_at_mut(number);
            if let Some(Err(errno)) = rest.first_mut().map(|instance| set(instance, armed)) {
                for instance in done {
                    // This fails only for lack of memory, and there was memory for this setting before.
                    let _ = set(instance, !armed);
                }
                return Err(errno);
            }
        }
        Ok(())
    }

    /// Returns the number of the instance `name`.
    ///
    /// # Errors
    ///
    /// No instance has this name.
    pub(crate) fn position(&self, name: &str) -> Result<usize, Errno> {
        self.names().position(|other| other == name).ok_or(Errno::NotFound)
    }

    /// Returns rings for a new instance.
    fn rings(&mut self) -> Result<&'static Rings, Errno> {
        let bytes = host().ring_bytes();
        if let Some(rings) = self.spare.pop() {
            if tracing::resize(rings, None, bytes).is_err() {
                self.spare.push(rings);
                return Err(Errno::NoMemory);
            }
            rings.set_on(true);
            return Ok(rings);
        }
        if cpus().saturating_mul(bytes) > memory_to_spare() {
            return Err(Errno::NoMemory);
        }
        // Reserves room for the rings in `spare`, for the time when the instance is removed.
        self.spare.try_reserve(self.all.len() + 1).map_err(OutOfMemory::from)?;
        Ok(Box::leak(fallible::boxed(tracing::make_rings()?)?))
    }
}

impl Instances {
    /// Makes the instance `name`, with the definitions of `main`, the kernel's trace, and nothing enabled.
    ///
    /// # Errors
    ///
    /// There is an instance with this name, the name is too long, a definition is refused, or there is no memory.
    pub(crate) fn make(&mut self, main: &Events<Probe>, name: &str) -> Result<(), Errno> {
        if self.position(name).is_ok() {
            return Err(Errno::Exists);
        }
        if name.len() > NAME_MAX {
            return Err(Errno::NameTooLong);
        }
        let name = fallible::copy(name)?;
        self.all.try_reserve(1).map_err(OutOfMemory::from)?;
        let rings = self.rings()?;
        let fill = || {
            let mut events = tracing::events(rings)?;
            events.add_all_static()?;
            events.copy_definitions(main, &tracing::Names).map_err(refuse)?;
            events.set_may_be_armed(main.may_be_armed())?;
            Ok(events)
        };
        match fill() {
            Ok(events) => {
                let changes = main.changes();
                self.all.push(Instance { name, tracing: Tracing::default(), events, changes });
                Ok(())
            }
            Err(errno) => {
                self.give_back(rings);
                Err(errno)
            }
        }
    }

    /// Keeps the rings of a removed instance, empty and as small as possible.
    fn give_back(&mut self, rings: &'static Rings) {
        rings.set_on(false);
        rings.set_overwrites(true);
        rings.set_cpus(None);
        // Discards the records that a trigger has split off. Without memory for that, the next reader finds none,
        // because the rings are cleared.
        let _ = rings.split_off(false);
        // Without memory for smaller rings, the size stays.
        let _ = tracing::resize(rings, None, 0);
        rings.clear();
        // The method `rings` has reserved room for this.
        self.spare.push(rings);
    }

    /// Removes the instance `name`, with all that is enabled in it.
    ///
    /// # Errors
    ///
    /// No instance has this name.
    pub(crate) fn remove(&mut self, name: &str) -> Result<(), Errno> {
        let instance = self.all.remove(self.position(name)?);
        let rings = instance.events.rings();
        drop(instance);
        self.give_back(rings);
        Ok(())
    }

    /// Exchanges an instance with the kernel's trace. Not inlined: it is 7 KiB of instructions.
    #[inline(never)]
    pub(crate) fn exchange(&mut self, number: usize, events: &mut Events<Probe>, tracing: &mut Tracing) {
        self.is_inside = !self.is_inside;
        if let Some(instance) = self.all.get_mut(number) {
            mem::swap(events, &mut instance.events);
            mem::swap(tracing, &mut instance.tracing);
        }
    }

    /// Gives all instances the definitions of `main`, the kernel's trace, if they have changed. Shows which instance
    /// lacks a definition.
    ///
    /// # Errors
    ///
    /// A definition is refused in an instance, or there is no memory for it. It is tried again when definitions change
    /// the next time.
    pub(crate) fn copy_definitions(&mut self, main: &Events<Probe>) -> Result<(), Errno> {
        let mut outcome = Ok(());
        for Instance { name, events, changes, .. } in &mut self.all {
            if mem::replace(changes, main.changes()) == main.changes() {
                continue;
            }
            if let Err(error) = events.copy_definitions(main, &tracing::Names) {
                println!("the instance {name} lacks a definition until definitions change again");
                outcome = Err(refuse(error));
            }
        }
        outcome
    }
}

fn refuse(error: DefineError) -> Errno {
    match error {
        DefineError::OutOfMemory => Errno::NoMemory,
        DefineError::Probe(error) => {
            println!("{error}");
            error.problem.errno()
        }
        DefineError::Synthetic(problem) => {
            println!("{problem}");
            problem.errno()
        }
    }
}
