//! Which probes at an instruction are enabled, in which order they run, and whether one stub can serve them all.

use core::sync::atomic::Ordering::Relaxed;

use super::{Probes, RegistryEntry};
use crate::probe::aliasable::AliasableBox;
use crate::probe::hit::point::{Handlers, Pre, ProbeRef};
use crate::probe::hit::returns::ReturnProbe;
use crate::probe::{Mode, follower};

impl RegistryEntry {
    pub(super) fn enabled(&self) -> impl Iterator<Item = ProbeRef> {
        self.probes.iter().copied().filter(is_enabled)
    }

    /// Returns the first two enabled probes.
    #[inline]
    pub(super) fn first_two(&self) -> [Option<ProbeRef>; 2] {
        if let Probes::One(only) = &self.probes {
            return [Some(*only).filter(is_enabled), None];
        }
        let mut enabled = self.enabled();
        [enabled.next(), enabled.next()]
    }

    /// Returns a probe with a snippet and a return probe that only follows calls, if no other probes are enabled, and
    /// one code in front of the stub can do the work of both.
    pub(super) fn pair(&self) -> Option<(ProbeRef, &AliasableBox<ReturnProbe>)> {
        if self.probes.len() == 1 || self.lean_obstacle.is_some() || self.enabled().nth(2).is_some() {
            return None;
        }
        let probe = self.enabled().find(|probe| matches!(probe.handlers, Handlers::Kprobe { .. }))?;
        let returning =
            self.probes.iter().filter(|probe| is_enabled(probe)).find_map(|probe| match &probe.handlers {
                Handlers::Return(returning)
                    if returning.is_plain() && !returning.is_given() && probe.allows >= Mode::Optimized =>
                {
                    Some(returning)
                }
                _ => None,
            })?;
        let inserted = probe.inserted.as_ref().filter(|inserted| inserted.is_possible())?;
        follower::cell(Some(inserted)).filter(|_| probe.allows == Mode::Compiled)?;
        Some((probe, returning))
    }

    /// Returns the enabled probes in the order in which they run: return probes last, so that the handlers of the other
    /// probes see the true x30.
    pub(super) fn in_order(&self) -> impl Iterator<Item = ProbeRef> {
        let is_return = |probe: &ProbeRef| matches!(probe.handlers, Handlers::Return(_));
        self.enabled().filter(move |probe| !is_return(probe)).chain(self.enabled().filter(is_return))
    }

    /// Returns the return probe for which calls are followed, if nothing else is to be done at the entry.
    pub(super) fn only_follows(&self) -> Option<&AliasableBox<ReturnProbe>> {
        let only = match &self.probes {
            Probes::None => return None,
            Probes::One(only) => Some(only).filter(|only| is_enabled(only))?,
            Probes::Several(probes) => {
                let mut enabled = probes.iter().filter(|probe| is_enabled(probe));
                enabled.next().filter(|_| enabled.next().is_none())?
            }
        };
        match &only.handlers {
            Handlers::Return(return_probe) if return_probe.is_plain() => Some(return_probe),
            _ => None,
        }
    }

    /// Returns whether only one probe is enabled, and its handler needs only what a call passes.
    pub(super) fn is_entered_alone(&self) -> bool {
        let [first, second] = self.first_two();
        second.is_none()
            && first.is_some_and(|probe| matches!(probe.handlers, Handlers::Kprobe { pre: Pre::Arguments(_), .. }))
    }
}

pub(super) fn is_enabled(probe: &ProbeRef) -> bool {
    probe.enabled.load(Relaxed)
}
