//! Runs every case: tests that the benchmark works, and that the page of its figures is right.

use std::collections::VecDeque;

use anyhow::Result;

use super::{
    comparison::Comparison,
    page::Page,
    protocol::{Measured, PROMPT, ProtocolLine},
};
use crate::{
    console::Event,
    dialogue::{Reply, Subject},
};

/// The cases that are measured in thorough runs only: a usual run does not see that their figures change. The probes of
/// `change.copies-off` are registered first, which takes two fifths of the time of all cases, and `change.copies-on`
/// measures that.
const LONG: [&str; 1] = ["change.copies-off"];

/// The conversation: every case is run once without a figure, or measured.
#[derive(Default)]
pub struct Rehearsal {
    /// The data that figures are compared with. `None` if nothing is measured.
    page: Option<(Page, Comparison)>,
    /// The cases that are neither run nor compared.
    left_out: &'static [&'static str],
    figures: Vec<Measured>,
    is_listed: bool,
    /// The cases that have not been run.
    names: VecDeque<String>,
    done: usize,
    /// The case that is running.
    current: Option<String>,
}

impl Rehearsal {
    /// Creates a rehearsal that measures, and compares with the page of this repository. It leaves out [`LONG`] unless
    /// `is_thorough`.
    pub fn of_page(is_thorough: bool) -> Result<Self> {
        let left_out: &[_] = if is_thorough { &[] } else { &LONG };
        Ok(Self { page: Some((Page::load()?, Comparison::load()?)), left_out, ..Self::default() })
    }
}

impl Subject<()> for Rehearsal {
    fn prompt(&self) -> &'static str {
        PROMPT
    }

    fn event(&mut self, event: Event) -> Reply<()> {
        match event {
            Event::Prompt if !self.is_listed => {
                self.is_listed = true;
                Reply::Type("list".into())
            }
            Event::Prompt => match (self.current.take(), self.names.pop_front()) {
                (Some(name), _) => Reply::Done(Err(format!("the image prompts again without a result of {name}"))),
                (None, Some(name)) => {
                    let command = format!("{} {name}", if self.page.is_some() { "run" } else { "once" });
                    self.current = Some(name);
                    Reply::Type(command)
                }
                (None, None) if self.done == 0 => Reply::Done(Err("the image has no case".into())),
                (None, None) => Reply::Done(match &self.page {
                    Some((page, comparison)) => page.compare(&self.figures, comparison, self.left_out),
                    None => Ok(()),
                }),
            },
            Event::Line(text) => {
                match ProtocolLine::parse(&text) {
                    Some(ProtocolLine::Case(case)) if self.left_out.contains(&case.name.as_str()) => {}
                    Some(ProtocolLine::Case(case)) => self.names.push_back(case.name),
                    Some(ProtocolLine::Done(name)) if self.current.as_ref() == Some(&name) => {
                        self.current = None;
                        self.done += 1;
                    }
                    Some(ProtocolLine::Measured(measured)) if self.current.as_ref() == Some(&measured.name) => {
                        self.current = None;
                        self.done += 1;
                        self.figures.push(measured);
                    }
                    Some(ProtocolLine::Refused(sentence)) => return Reply::Done(Err(sentence)),
                    _ => {}
                }
                Reply::Wait
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Rehearsal;
    use crate::{
        console::Console,
        dialogue::{Reply, Subject},
    };

    /// Returns the typed lines, and the result.
    fn rehearse(stream: &str) -> (Vec<String>, Option<Result<(), String>>) {
        let (mut rehearsal, mut typed) = (Rehearsal::default(), Vec::new());
        for event in Console::new(rehearsal.prompt()).feed(stream.as_bytes()) {
            match rehearsal.hear(event) {
                Reply::Type(line) => typed.push(line),
                Reply::Done(result) => return (typed, Some(result)),
                _ => {}
            }
        }
        (typed, None)
    }

    #[test]
    fn a_case_that_is_left_out_is_not_run() {
        let mut rehearsal = Rehearsal { left_out: &["b"], ..Rehearsal::default() };
        let mut replies: Vec<_> = Console::new(rehearsal.prompt())
            .feed(LIST.as_bytes())
            .into_iter()
            .map(|event| rehearsal.hear(event))
            .collect();
        replies.retain(|reply| *reply != Reply::Wait);
        assert_eq!(replies, ["list", "once a"].map(|line| Reply::Type(line.into())));
        assert!(rehearsal.names.is_empty());
    }

    const LIST: &str = "boot\nbench> list\ncase a hit 1\ncase b change 0\nbench> ";

    #[test]
    fn every_case_has_to_be_done() {
        let good = format!("{LIST}once a\n{{\"name\":\"a\"}}\nbench> once b\n{{\"name\":\"b\"}}\nbench> ");
        assert_eq!(rehearse(&good), (["list", "once a", "once b"].map(String::from).to_vec(), Some(Ok(()))));
        for (stream, end) in [
            (good[..good.len() - 7].to_string(), None),
            (good.replace(r#""b""#, r#""c""#), Some("the image prompts again without a result of b")),
            (good.replace(r#"{"name":"a"}"#, "machine stopped: panic"), Some("the machine stopped: panic")),
            ("bench> list\nbench> ".into(), Some("the image has no case")),
        ] {
            assert_eq!(rehearse(&stream).1, end.map(|sentence| Err(sentence.into())), "{stream}");
        }
    }
}
