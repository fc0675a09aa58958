//! The probes that tell [`InheritedTasks`] of the starts and ends of tasks. They are at the kernel's static events
//! `sched:sched_process_fork` and `sched:sched_process_exit`.

use core::fmt;

use aarch64_kprobes::event;
use aarch64_kprobes::probe::AliasableBox;
use aarch64_kprobes::{Kprobe, ProbeError};
use fallible::{Arc, OutOfMemory};

use crate::hit::tracer::{self, Listener};
use crate::trigger::inherited_tasks::InheritedTasks;

/// The probes by which children inherit restrictions, until this is dropped.
#[derive(Debug)]
pub struct InheritanceProbes {
    // Dropped before the listeners that their handlers use.
    _probes: [Kprobe; 2],
    _listeners: AliasableBox<[Listener]>,
}

/// Why children cannot inherit restrictions.
#[derive(Debug)]
pub enum InheritanceError {
    /// The kernel has no static event of this name with the needed fields.
    NoEvent(&'static str),
    /// The engine refuses the probe at an event.
    Refused(ProbeError),
    /// There is no memory.
    OutOfMemory,
}

impl fmt::Display for InheritanceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoEvent(name) => write!(f, "children cannot follow, because this kernel has no static event {name}"),
            Self::Refused(error) => write!(f, "children cannot follow: {error}"),
            Self::OutOfMemory => write!(f, "{OutOfMemory}"),
        }
    }
}

impl core::error::Error for InheritanceError {}

impl From<OutOfMemory> for InheritanceError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

/// Returns the static event `sched:NAME`, and the offsets of these fields of 4 bytes.
fn find<const N: usize>(
    name: &'static str,
    fields: [&str; N],
) -> Result<(&'static event::Event, [usize; N]), InheritanceError> {
    let is_meant = |event: &&event::Event| (event.group(), event.name()) == ("sched", name);
    let event = event::all().find(is_meant).ok_or(InheritanceError::NoEvent(name))?;
    let mut places = [0; N];
    for (place, name_of) in places.iter_mut().zip(fields) {
        let field = event.fields().iter().find(|field| field.name == name_of && field.size == 4);
        *place = field.ok_or(InheritanceError::NoEvent(name))?.offset;
    }
    Ok((event, places))
}

impl InheritanceProbes {
    /// Begins to tell `inherited` of the starts and ends of tasks.
    ///
    /// # Errors
    ///
    /// Returns why that is impossible.
    pub fn new(inherited: &Arc<InheritedTasks>) -> Result<Self, InheritanceError> {
        let (start, [parent, child]) = find("sched_process_fork", ["parent_pid", "child_pid"])?;
        let (end, [task]) = find("sched_process_exit", ["pid"])?;
        let listener = |fields| Listener { inherited: inherited.clone(), fields };
        let listeners = fallible::boxed_slice([listener([parent, child]), listener([task, task])])?;
        let listeners = AliasableBox::<[Listener]>::new(listeners);
        let data = |number: usize| core::ptr::from_ref(&listeners[number]).expose_provenance();
        let probes = [
            Kprobe::at(start.address()).arguments(tracer::task_starts).data(data(0)).register(),
            Kprobe::at(end.address()).arguments(tracer::task_ends).data(data(1)).register(),
        ];
        let [starts, ends] = probes.map(|probe| probe.map_err(InheritanceError::Refused));
        Ok(Self { _probes: [starts?, ends?], _listeners: listeners })
    }
}
