//! Measures how many hits several CPUs take together per second, by the clock of the host.

use std::collections::VecDeque;

use cargo_kprobes::counted::counted;

use super::{
    protocol::{PROMPT, ProtocolLine, Throughput},
    table::{aligned, number},
};
use crate::{
    console::Event,
    dialogue::{Reply, Subject},
};

/// The number of CPUs of the machine, and the numbers of them that call.
pub const CPUS: u32 = 4;
const CALLING: [u32; 3] = [1, 2, CPUS];
/// The number of functions: all CPUs call one, or each its own.
const FUNCTIONS: [u32; 2] = [1, CPUS];

/// The conversation with the image: all combinations for every suitable case, and without probes.
pub struct Session<'a> {
    wanted: &'a dyn Fn(&str) -> bool,
    is_listed: bool,
    /// The lines that remain to be typed.
    commands: VecDeque<String>,
    results: Vec<Throughput>,
}

impl<'a> Session<'a> {
    /// Creates a conversation with a machine that was just started, about the cases that are `wanted` by name.
    pub fn new(wanted: &'a dyn Fn(&str) -> bool) -> Self {
        Self { wanted, is_listed: false, commands: VecDeque::new(), results: Vec::new() }
    }

    fn add(&mut self, name: &str) {
        for functions in FUNCTIONS {
            self.commands.extend(CALLING.map(|cpus| format!("throughput {cpus} {functions} {name}")));
        }
    }
}

impl Subject<Vec<Throughput>> for Session<'_> {
    fn prompt(&self) -> &'static str {
        PROMPT
    }

    fn event(&mut self, event: Event) -> Reply<Vec<Throughput>> {
        match event {
            Event::Prompt if !self.is_listed => {
                self.is_listed = true;
                self.add("");
                Reply::Type("list".into())
            }
            Event::Prompt => match self.commands.pop_front() {
                Some(command) => Reply::Type(command),
                None => Reply::Done(Ok(std::mem::take(&mut self.results))),
            },
            Event::Line(text) => {
                match ProtocolLine::parse(&text) {
                    Some(ProtocolLine::Case(case)) if case.copies >= CPUS && (self.wanted)(&case.name) => {
                        self.add(&case.name)
                    }
                    Some(ProtocolLine::Throughput(result)) => self.results.push(result),
                    Some(ProtocolLine::Refused(sentence)) => return Reply::Done(Err(sentence)),
                    _ => {}
                }
                Reply::Wait
            }
        }
    }
}

impl Throughput {
    /// The number of calls per second, in thousands.
    fn thousands(&self) -> f64 {
        self.calls as f64 * 1e6 / self.nanoseconds as f64
    }

    /// Returns the result as a line of JSON.
    pub fn json(&self) -> String {
        format!(
            r#"{{"name": "{}", "cpus": {}, "functions": {}, "calls-per-second": {:.0}}}"#,
            self.name,
            self.cpus,
            self.functions,
            self.thousands() * 1e3
        )
    }
}

/// Returns a table with a line for each case, in thousands of calls per second.
pub fn table(results: &[Throughput]) -> String {
    let mut head = vec!["case".to_string()];
    for functions in FUNCTIONS {
        let what = if functions == 1 { "one function" } else { "each its own" };
        head.extend(CALLING.map(|cpus| format!("{what}, {}", counted(cpus, "CPU"))));
    }
    let mut rows = vec![head];
    let mut names: Vec<&str> = results.iter().map(|result| result.name.as_str()).collect();
    names.dedup();
    for name in names {
        let mut row = vec![name.to_string()];
        for functions in FUNCTIONS {
            row.extend(CALLING.map(|cpus| {
                let is_it =
                    |result: &&Throughput| result.name == name && result.cpus == cpus && result.functions == functions;
                number(results.iter().find(is_it).map(|result| result.thousands().round()))
            }));
        }
        rows.push(row);
    }
    format!("thousands of calls in a second, by all CPUs that call together\n\n{}", aligned(&rows))
}

#[cfg(test)]
mod tests {
    use super::{Session, Throughput, table};
    use crate::{
        console::Console,
        dialogue::{Reply, Subject},
    };

    fn result(name: &str, cpus: u32, functions: u32, calls: u64) -> Throughput {
        Throughput { name: name.into(), cpus, functions, calls, nanoseconds: 500_000_000 }
    }

    #[test]
    fn every_combination_is_asked_for() {
        let mut stream =
            String::from("bench> list\ncase a hit 4\ncase b hit 1\ncase c change 0\ncase d hit 4\nbench> ");
        stream += "\nbench> ".repeat(12).as_str();
        let is_wanted = |name: &str| name != "d";
        let mut session = Session::new(&is_wanted);
        let replies: Vec<_> =
            Console::new("bench> ").feed(stream.as_bytes()).into_iter().map(|event| session.hear(event)).collect();
        let typed: Vec<_> = replies
            .iter()
            .filter_map(|reply| match reply {
                Reply::Type(line) => Some(line.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(typed.len(), 1 + 2 * 6);
        assert_eq!((typed[1], typed[6], typed[12]), ("throughput 1 1 ", "throughput 4 4 ", "throughput 4 4 a"));
    }

    #[test]
    fn a_case_is_a_line() {
        let results = [result("a", 1, 1, 600_000), result("a", 4, 4, 1_000_000), result("b", 2, 1, 1_000)];
        let text = table(&results);
        let cells: Vec<Vec<&str>> = text.lines().skip(3).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(cells, [["a", "1,200", "-", "-", "-", "-", "2,000"], ["b", "-", "2", "-", "-", "-", "-"]]);
        let json = r#"{"name": "a", "cpus": 1, "functions": 1, "calls-per-second": 1200000}"#;
        assert_eq!(results[0].json(), json);
    }
}
