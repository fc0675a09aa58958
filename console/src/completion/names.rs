//! The names of the commands, the image and the session.

use aarch64_kprobes::event;
use fallible::OutOfMemory;

use super::{NameKind, Names, Usage};
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

    fn offer(&mut self, kind: NameKind, found: &mut Candidates) -> Result<(), OutOfMemory> {
        match kind {
            NameKind::Command => command::all()
                .try_for_each(|command| found.offer(command.name, if command.arguments.is_empty() { "" } else { " " })),
            NameKind::Topic => {
                command::all().try_for_each(|command| found.offer(command.name, ""))?;
                files::complete(self, found)
            }
            NameKind::Option => trace::offer_options(found),
            NameKind::File => files::complete(self, found),
            NameKind::Function => symbol::plain_paths().try_for_each(|path| found.offer_path(&path?, "::")),
            NameKind::WholeFunction => symbol::names().try_for_each(|name| found.offer_path(name, "::")),
            NameKind::FunctionWithSegment => symbol::plain_paths().try_for_each(|path| found.offer_segment(&path?)),
            NameKind::Static => symbol::static_paths().try_for_each(|path| found.offer_path(&path?, "::")),
            NameKind::Event => {
                let mut defined = self.events.iter().filter(|event| !event.is_static());
                defined.try_for_each(|event| found.offer(&event.definition().event, " "))
            }
            NameKind::StaticEvent => event::all().try_for_each(|event| found.offer(event.name(), " ")),
            NameKind::Tracepoint => event::all().try_for_each(|event| {
                let name = fallible::format(format_args!("{}:{}", event.group(), event.name()))?;
                found.offer_path(&name, ":")
            }),
            NameKind::GroupEvent => self.events.iter().try_for_each(|event| {
                let definition = event.definition();
                let name = fallible::format(format_args!("{}.{}", definition.group, definition.event))?;
                found.offer_path(&name, ".")
            }),
        }
    }
}
