//! The settings of a machine that a recording changes. A machine that goes on gets them back.

use anyhow::{Result, bail};

use crate::remote::{Remote, Stopped};

/// The settings of a machine that a recording changes, for one that goes on.
pub struct Settings {
    /// The static and the defined events.
    events: Vec<String>,
    /// The files of the sizes of the rings, each with a size in KiB, in ascending order of size: one file for all CPUs,
    /// or one for each if the sizes differ.
    buffers: Vec<(String, u64)>,
}

impl Settings {
    /// Reads the settings.
    pub fn of(remote: &mut Remote) -> Result<Self, Stopped> {
        let events = remote.ask("cat available_events")?;
        let mut buffers = sizes(remote, vec!["buffer_size_kb".into()])?;
        if buffers.is_empty() {
            let files = remote.ask("ls per_cpu")?.iter().map(|cpu| format!("per_cpu/{cpu}/buffer_size_kb")).collect();
            buffers = sizes(remote, files)?;
        }
        // In this order, a ring that shrinks makes room for those that grow.
        buffers.sort_by_key(|&(_, size)| size);
        Ok(Self { events, buffers })
    }

    /// Checks that each of these definitions makes a new event, which can be removed again.
    pub(super) fn check(&self, definitions: &[String]) -> Result<()> {
        for definition in definitions {
            let event = given_event(definition).filter(|event| self.events.contains(event));
            if let Some(event) = event {
                let event = event.replace(':', "/");
                bail!(
                    "the machine has an event {event} already: remove it by `-:{event}`, or define one of another name"
                );
            }
        }
        Ok(())
    }

    /// Removes the events that were defined since, and gives the rings the size that they had.
    pub fn restore(&self, remote: &mut Remote) -> Result<(), Stopped> {
        let now = Self::of(remote)?;
        for event in self.added(&now) {
            remote.does(&format!("-:{}", event.replace(':', "/")))?;
        }
        for (file, size) in self.buffers.iter().filter(|_| self.buffers != now.buffers) {
            remote.does(&format!("echo {size} > {file}"))?;
        }
        Ok(())
    }

    /// Returns the events that `now` has in addition, the last first: an event cannot be removed while another one,
    /// which was defined later, is on it.
    fn added<'a>(&self, now: &'a Self) -> impl Iterator<Item = &'a String> {
        now.events.iter().rev().filter(move |event| !self.events.contains(event))
    }
}

/// Reads the numbers at the start of these files. A file without one is left out.
fn sizes(remote: &mut Remote, files: Vec<String>) -> Result<Vec<(String, u64)>, Stopped> {
    let mut sizes = Vec::new();
    for file in files {
        let printed = remote.ask(&format!("cat {file}"))?;
        let size = printed.iter().find_map(|line| line.split_whitespace().next()?.parse().ok());
        sizes.extend(size.map(|size| (file, size)));
    }
    Ok(sizes)
}

/// Returns the event that a definition makes, as `GROUP:NAME`, if it gives a name.
fn given_event(definition: &str) -> Option<String> {
    let (kind, name) = definition.split_whitespace().next()?.split_once(':')?;
    // Without a group, it is in that of its kind, as in Linux.
    let group = match kind.chars().next() {
        Some('f') => "fprobes",
        Some('t') => "tracepoints",
        Some('e') => "eprobes",
        Some('s') => "synthetic",
        _ => "kprobes",
    };
    let (group, name) = name.split_once(['/', '.']).unwrap_or((group, name));
    Some(format!("{group}:{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_events_are_defined_where_they_are_removed_again() {
        let events = ["kprobes:blocks", "sched:sched_switch"].map(String::from).to_vec();
        let settings = Settings { events, buffers: Vec::new() };
        for (definition, is_new) in [
            ("p:blocks f", false),
            ("r5:kprobes/blocks f", false),
            ("p:kprobes.blocks f", false),
            ("p:other/blocks f", true),
            ("e:blocks kprobes/other", true),
            ("p:sched_switch f", true),
            ("t:sched/sched_switch other", false),
            ("p:block f", true),
            ("p f x=+0(%x0):u8", true),
        ] {
            assert_eq!(settings.check(&[definition.into()]).is_ok(), is_new, "{definition}");
        }
        let error = settings.check(&["p:blocks f".into()]).unwrap_err().to_string();
        let sentence = "the machine has an event kprobes/blocks already: remove it by `-:kprobes/blocks`, or define one of \
                        another name";
        assert_eq!(error, sentence);
    }

    #[test]
    fn events_are_removed_before_those_that_they_are_on() {
        let events = ["sched:sched_switch", "kprobes:old", "kprobes:in", "eprobes:on"].map(String::from);
        let lists = [&events[..2], &events[..]];
        let [before, now] = lists.map(|events| Settings { events: events.to_vec(), buffers: Vec::new() });
        assert_eq!(before.added(&now).collect::<Vec<_>>(), ["eprobes:on", "kprobes:in"]);
    }
}
