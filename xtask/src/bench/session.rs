//! The conversation with the image: asks for the list of cases, the figure of each wanted case, and the trace of one
//! hit.

use std::{collections::VecDeque, mem};

use kprobes_symbols::SymbolTable;

use super::{
    monitor::Monitor,
    protocol::{Case, Measured, PROMPT, ProtocolLine},
    trace::Trace,
};
use crate::{
    console::Event,
    dialogue::{Reply, Subject},
};

/// The result of a case.
#[derive(Debug)]
pub struct Figure {
    pub measured: Measured,
    /// The trace of one hit.
    pub trace: Option<Trace>,
}

impl Figure {
    /// Returns the figure as a line of JSON.
    pub fn json(&self) -> String {
        let Measured { name, unit, .. } = &self.measured;
        let exceptions = match &self.trace {
            Some(trace) => format!(r#", "exceptions": {}"#, trace.exceptions),
            None => String::new(),
        };
        // The members are in the order in which people read them. Names and units need no escapes.
        format!(r#"{{"name": "{name}", "{unit}": {}{exceptions}}}"#, self.measured.value())
    }

    /// Returns a sentence if the counter and the log of the instructions disagree.
    pub fn doubt(&self) -> Option<String> {
        let is_hit_in_instructions = self.measured.bare != 0 && self.measured.unit == "instructions";
        let trace = self.trace.as_ref().filter(|_| is_hit_in_instructions)?;
        (trace.total() as f64 != self.measured.value()).then(|| {
            format!(
                "{}: the counter says {} instructions, but {} were logged",
                self.measured.name,
                self.measured.value(),
                trace.total()
            )
        })
    }
}

/// The figures, or the sentence with which the image refuses to measure. (If the conversation itself fails, the error
/// has the whole output.)
pub type Outcome = Result<Vec<Figure>, String>;

/// The conversation.
pub struct Session<'a> {
    wanted: &'a dyn Fn(&str) -> bool,
    monitor: Monitor,
    symbols: SymbolTable<'a>,
    /// Whether changes are traced, too. They may have many instructions.
    traces_changes: bool,
    is_listed: bool,
    /// The cases that remain to be measured.
    cases: VecDeque<Case>,
    /// The case that was measured and is next traced.
    traced: Option<Measured>,
    /// The command whose result is awaited.
    pending: Option<String>,
    figures: Vec<Figure>,
}

impl<'a> Session<'a> {
    /// Creates a conversation with a machine that was just started, about the cases that are `wanted` by name.
    pub fn new(
        wanted: &'a dyn Fn(&str) -> bool,
        traces_changes: bool,
        monitor: Monitor,
        symbols: SymbolTable<'a>,
    ) -> Self {
        Self {
            wanted,
            monitor,
            symbols,
            traces_changes,
            is_listed: false,
            cases: VecDeque::new(),
            traced: None,
            pending: None,
            figures: Vec::new(),
        }
    }

    /// Returns the next thing to type.
    fn next(&mut self) -> Reply<Outcome> {
        if let Some(command) = &self.pending {
            return Reply::Done(Err(format!("the image prompts again without a result of `{command}`")));
        }
        if !mem::replace(&mut self.is_listed, true) {
            return Reply::Type("list".into());
        }
        let command = match (&self.traced, self.cases.front()) {
            (Some(measured), _) => format!("trace {}", measured.name),
            (None, Some(case)) => format!("run {}", case.name),
            (None, None) => return Reply::Done(Ok(Ok(mem::take(&mut self.figures)))),
        };
        self.pending = Some(command.clone());
        Reply::Type(command)
    }

    fn line(&mut self, line: ProtocolLine) -> anyhow::Result<Reply<Outcome>> {
        match line {
            ProtocolLine::Case(case) if (self.wanted)(&case.name) => self.cases.push_back(case),
            ProtocolLine::Measured(measured) => {
                if let Some(case) = self.cases.pop_front_if(|case| case.name == measured.name) {
                    self.pending = None;
                    match case.copies != 0 || self.traces_changes {
                        true => self.traced = Some(measured),
                        false => self.figures.push(Figure { measured, trace: None }),
                    }
                }
            }
            ProtocolLine::Armed => {
                self.monitor.start_log()?;
                return Ok(Reply::Type(String::new()));
            }
            ProtocolLine::Traced => {
                let log = self.monitor.end_log()?;
                let trace = Trace::read(log, &self.symbols).map_err(anyhow::Error::msg)?;
                self.pending = None;
                self.figures.extend(self.traced.take().map(|measured| Figure { measured, trace: Some(trace) }));
                return Ok(Reply::Type(String::new()));
            }
            ProtocolLine::Refused(sentence) => return Ok(Reply::Done(Ok(Err(sentence)))),
            ProtocolLine::Case(_) | ProtocolLine::Done(_) | ProtocolLine::Throughput(_) => {}
        }
        Ok(Reply::Wait)
    }
}

impl Subject<Outcome> for Session<'_> {
    fn prompt(&self) -> &'static str {
        PROMPT
    }

    fn event(&mut self, event: Event) -> Reply<Outcome> {
        match event {
            Event::Prompt => self.next(),
            Event::Line(text) => match ProtocolLine::parse(&text).map(|line| self.line(line)) {
                None => Reply::Wait,
                Some(Ok(reply)) => reply,
                Some(Err(error)) => Reply::Done(Err(format!("{error:#}"))),
            },
        }
    }
}
