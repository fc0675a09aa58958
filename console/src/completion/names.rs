//! The names of the commands, the image and the session.

use aarch64_kprobes::event;
use fallible::OutOfMemory;

use super::{Kind, Names, Usage};
use crate::line_editor::Candidates;
use crate::session::Session;
use crate::{command, files, help, symbol, trace};

impl Names for Session {
    fn usage(&self, command: &str) -> Option<Usage> {
        let command = command::all().find(|other| other.name == command)?;
        Some(Usage { arguments: command.arguments, values: command.values })
    }

    fn place(&self, letter: char) -> Option<&'static str> {
        help::place(letter)
    }

    fn offer(&mut self, kind: Kind, found: &mut Candidates) -> Result<(), OutOfMemory> {
        match kind {
            Kind::Command => command::all()
                .try_for_each(|command| found.offer(command.name, if command.arguments.is_empty() { "" } else { " " })),
            Kind::Topic => {
                command::all().try_for_each(|command| found.offer(command.name, ""))?;
                files::complete(self, found)
            }
            Kind::Option => trace::offer_options(found),
            Kind::File => files::complete(self, found),
            Kind::Function => {
                symbol::plain_paths().try_for_each(|path| found.offer_path(&path?, "::"))?;
                if found.names().is_empty() {
                    symbol::plain_paths().try_for_each(|path| found.offer_segment(&path?))?;
                }
                Ok(())
            }
            Kind::Static => symbol::static_paths().try_for_each(|path| found.offer_path(&path?, "::")),
            Kind::Event => {
                let mut defined = self.events.iter().filter(|event| !event.is_static());
                defined.try_for_each(|event| found.offer(&event.definition().event, " "))
            }
            Kind::StaticEvent => event::all().try_for_each(|event| found.offer(event.name(), " ")),
            Kind::Tracepoint => event::all().try_for_each(|event| {
                let name = fallible::format(format_args!("{}:{}", event.group(), event.name()))?;
                found.offer_path(&name, ":")
            }),
            Kind::GroupEvent => self.events.iter().try_for_each(|event| {
                let definition = event.definition();
                let name = fallible::format(format_args!("{}.{}", definition.group, definition.event))?;
                found.offer_path(&name, ".")
            }),
        }
    }
}
