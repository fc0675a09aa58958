//! A machine that serves clients while a tracer records every function. Every byte that clients fetch must be right.
//! The last calls that the machine shows must nest for each task with `function_graph`, and be in order with
//! `function`.

use std::{collections::HashMap, mem};

use super::{
    HostNetworks,
    arrival::{Arrival, Arrived},
    curl,
    visiting::Visiting,
};
use crate::{
    console::Event,
    dialogue::{Reply, Subject},
};

/// Commands that are typed while clients come, with a part of each reply.
const MEANWHILE: [(&str, &str); 2] = [("run sha256 10", "10 right, 0 wrong"), ("run deflate 4", "4 right, 0 wrong")];
/// Keeps the records, so that showing them does not replace them.
const STOP: &str = "echo 0 > tracing_on";
/// Shows some thousand records of all CPUs.
const SHOW: &str = "cat trace 3000";
/// A tracer that records every function.
pub struct Tracer {
    /// The name of the test.
    pub name: &'static str,
    /// The command that starts it.
    set: &'static str,
    /// Commands that show what it has recorded. The last is [`SHOW`].
    show: &'static [&'static str],
    /// Checks what was shown.
    check: fn(&[String]) -> Result<(), String>,
}

/// The tracers that are tested.
pub const TRACERS: [Tracer; 2] = [
    Tracer {
        name: "function_graph",
        set: "echo function_graph > current_tracer",
        // The tasks are in a column of their own.
        show: &["echo funcgraph-proc > trace_options", SHOW],
        check: nesting,
    },
    Tracer { name: "function", set: "echo function > current_tracer", show: &[SHOW], check: order },
];

/// The fewest lines of calls that it must show.
const LEAST: usize = 1000;

/// The state of the test.
enum State {
    Arriving(Arrival),
    /// The tracer is being set.
    Tracing,
    /// The clients are there. The number is that of the commands that were typed.
    Visited(Visiting, usize),
    /// The commands that follow are typed, one after the other.
    Showing(&'static [&'static str]),
}

/// The test of a machine.
pub struct Recorded {
    networks: HostNetworks,
    tracer: &'static Tracer,
    state: State,
    /// The lines since the last prompt.
    reply: Vec<String>,
}

impl Recorded {
    /// Creates the test of a tracer for a machine that was just started.
    pub fn new(networks: HostNetworks, tracer: &'static Tracer) -> Self {
        Self { networks, tracer, state: State::Arriving(Arrival::default()), reply: Vec::new() }
    }

    /// Called at a prompt: checks the reply and decides what to type.
    fn asked(&mut self) -> Result<Reply<()>, String> {
        let reply = mem::take(&mut self.reply);
        match &mut self.state {
            State::Arriving(arrival) => match arrival.asked(&self.networks, &reply)? {
                Arrived::NotYet(reply) => Ok(reply),
                Arrived::All(_) => {
                    self.state = State::Tracing;
                    Ok(Reply::Type(self.tracer.set.into()))
                }
            },
            State::Tracing => {
                // The line that was typed comes first.
                if let Some(line) = reply.get(1) {
                    return Err(format!("the reply to `{}` is {line:?}", self.tracer.set));
                }
                self.state = State::Visited(Visiting::begin(curl::for_some_time, self.networks.servers()), 1);
                Ok(Reply::Type(MEANWHILE[0].0.into()))
            }
            State::Visited(visiting, typed) => {
                let (command, part) = MEANWHILE[(*typed - 1) % MEANWHILE.len()];
                if !reply.iter().any(|line| line.contains(part)) {
                    return Err(format!("the reply to `{command}` has no {part:?}"));
                }
                if *typed >= MEANWHILE.len()
                    && let Some(result) = visiting.poll()
                {
                    result?;
                    self.state = State::Showing(self.tracer.show);
                    return Ok(Reply::Type(STOP.into()));
                }
                *typed += 1;
                Ok(Reply::Type(MEANWHILE[(*typed - 1) % MEANWHILE.len()].0.into()))
            }
            State::Showing([]) => (self.tracer.check)(&reply).map(|()| Reply::Done(Ok(()))),
            State::Showing(commands) => {
                let (&next, rest) = commands.split_first().expect("it is not empty");
                *commands = rest;
                Ok(Reply::Type(next.into()))
            }
        }
    }
}

impl Subject<()> for Recorded {
    fn event(&mut self, event: Event) -> Reply<()> {
        match event {
            Event::Prompt => self.asked().unwrap_or_else(|sentence| Reply::Done(Err(sentence))),
            Event::Line(line) => {
                self.reply.push(line);
                Reply::Wait
            }
        }
    }

    fn silence(&mut self) -> Reply<()> {
        if let State::Arriving(arrival) = &mut self.state { arrival.silence() } else { Reply::Wait }
    }
}

/// A call that a task is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    /// It surrounds the first line of its task.
    Before,
    /// A line opened it.
    Shown,
    /// Its beginning was not recorded: only that it surrounds others, and its end, is shown.
    Missing,
}

/// The state of a task at its last line.
#[derive(Default)]
struct Task<'a> {
    open: Vec<Open>,
    /// The CPU of the line, with the number of gaps in its records.
    place: (&'a str, usize),
}

/// Checks that the ends in the lines ` CPU) TASK | DURATION |  CALL` are those of calls:
///
/// | an end closes | allowed |
/// |---|---|
/// | a call that a line opened | always |
/// | a call that surrounds its task's first line | always; it is named if its beginning was not recorded |
/// | a call without a beginning | if it is named; and it must be closed |
/// | nothing | if the task was on another CPU at its last line, or records of this CPU were lost since then |
fn nesting(lines: &[String]) -> Result<(), String> {
    let mut tasks: HashMap<&str, Task<'_>> = HashMap::new();
    let mut gaps: HashMap<&str, usize> = HashMap::new();
    let (mut calls, mut deepest) = (0, 0);
    for line in lines {
        if let Some((cpu, _)) = line.strip_prefix("CPU:").and_then(|rest| rest.split_once(" [LOST ")) {
            *gaps.entry(cpu).or_default() += 1;
        }
        let mut columns = line.splitn(3, '|');
        let (Some(place), Some(_), Some(call)) = (columns.next(), columns.next(), columns.next()) else { continue };
        let Some((cpu, task)) = place.split_once(") ") else { continue };
        let Some(call) = call.strip_prefix("  ") else { continue };
        let depth = (call.len() - call.trim_start().len()) / 2;
        let is_end = call.trim_start().starts_with('}');
        let is_named = call.ends_with(" */");
        let place = (cpu.trim(), gaps.get(cpu.trim()).copied().unwrap_or_default());
        let surrounding = depth + usize::from(is_end);
        let Task { open, place: last } = tasks.entry(task.trim()).or_insert_with(|| {
            // The calls that it was in at the first line are not shown.
            Task { open: vec![Open::Before; surrounding], place }
        });
        if open.iter().skip(surrounding).any(|call| *call == Open::Missing) {
            return Err(format!("{line:?} is after a call that does not end"));
        }
        let closes_nothing = is_end && open.len() <= depth && *last == place;
        open.resize(surrounding, Open::Missing);
        if is_end {
            let is_shown = open.pop() != Some(Open::Missing);
            if closes_nothing || !is_shown && !is_named {
                return Err(format!("{line:?} closes nothing"));
            }
        } else if call.ends_with('{') {
            open.push(Open::Shown);
        }
        *last = place;
        (calls, deepest) = (calls + 1, deepest.max(depth));
    }
    if let Some((task, _)) = tasks.iter().find(|(_, task)| task.open.contains(&Open::Missing)) {
        return Err(format!("{task} is in a call without a beginning that does not end"));
    }
    if calls < LEAST || deepest < 3 {
        return Err(format!("only {calls} lines of calls were shown, to a depth of {deepest}"));
    }
    Ok(())
}

/// Checks the lines ` TASK [CPU] FLAGS TIME: FUNCTION <-CALLER`: the times of each CPU ascend, and every call has a
/// caller.
fn order(lines: &[String]) -> Result<(), String> {
    let mut last: HashMap<&str, f64> = HashMap::new();
    let mut calls = 0;
    for line in lines {
        // The line that was typed comes first, then the names of the columns. A gap is a line of its own.
        if line.ends_with(SHOW) || line.is_empty() || line.starts_with('#') || line.starts_with("CPU:") {
            continue;
        }
        let Some((place, call)) = line.split_once(": ").filter(|(place, _)| place.contains(" [")) else {
            return Err(format!("{line:?} is no call"));
        };
        let mut words = place.split_once(" [").map_or("", |(_, rest)| rest).split_whitespace();
        let (Some(cpu), Some(time)) = (words.next(), words.next_back().and_then(|time| time.parse().ok())) else {
            return Err(format!("{line:?} has no CPU or no time"));
        };
        if !call.split_once(" <-").is_some_and(|(function, caller)| !function.is_empty() && !caller.is_empty()) {
            return Err(format!("{line:?} has no function or no caller"));
        }
        if last.insert(cpu, time).is_some_and(|before| before > time) {
            return Err(format!("{line:?} is before the last line of its CPU"));
        }
        calls += 1;
    }
    if calls < LEAST || last.len() < 2 {
        return Err(format!("only {calls} calls were shown, on {} CPUs", last.len()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_in_the_order_of_their_cpu() {
        let check = |lines: &[&str]| {
            let many = (0..LEAST).map(|time| format!("  idle-{0}  [00{0}] d....  1.{time:06}: f <-g", time % 2));
            order(&many.chain(lines.iter().map(|line| (*line).to_owned())).collect::<Vec<_>>())
        };
        check(&["# CPU", "  main-3  [001] .....     2.000000: a::<b: c> <-<d as e>::f", "CPU:1 [LOST 3 EVENTS]"])
            .unwrap();
        check(&["something else"]).unwrap_err();
        check(&["  main-3  [001] .....     0.000000: a <-b"]).unwrap_err();
        check(&["  main-3  [001] .....     2.000000: a <-"]).unwrap_err();
        check(&["  main-3  [001] .....     soon: a <-b"]).unwrap_err();
        order(&[]).unwrap_err();
    }

    fn check(lines: &[&str]) -> Result<(), String> {
        let many = (0..LEAST).map(|_| " 1)     idle-9     |   1.000 us    |        d();".to_owned());
        nesting(&many.chain(lines.iter().map(|line| (*line).to_owned())).collect::<Vec<_>>())
    }

    #[test]
    fn calls_nest_for_each_task() {
        let right = [
            " 0)    main-3     |               |  a() {",
            " 1)    busy-2     |               |        e() {",
            " 0)    main-3     |   1.000 us    |    b();",
            " 0)   ==========> |",
            " 1)   reaper-5    |   1.000 us    |      }",
            " 1)   reaper-5    |   1.000 us    |    }",
            " 2)    main-3     |               |    c() {",
            " 2)    main-3     | ! 110.000 us  |    }",
            " 2)    main-3     | ! 120.000 us  |  }",
        ];
        check(&right).unwrap();
        for missing in [0, 6] {
            let mut wrong = right.to_vec();
            wrong[missing] = " 0)    main-3     |               |  other();";
            check(&wrong).unwrap_err();
        }
        check(&[" 0)    main-3     |  |  a();", " 0)    main-3     |  |      c();"]).unwrap_err();
    }

    #[test]
    fn a_call_without_a_beginning_surrounds_others_and_ends() {
        let right = [
            " 2)    main-3     |               |  f() {",
            " 2)    main-3     |   1.000 us    |  }",
            " 0)    main-3     |   1.000 us    |      b();",
            " 0)    main-3     |               |    } /* inner */",
            " 0)    main-3     |               |  } /* run */",
            " 2)    main-3     |               |  } /* elsewhere */",
            "CPU:2 [LOST 3 EVENTS]",
            " 2)    main-3     |               |  } /* lost */",
        ];
        check(&right).unwrap();
        // Its end is missing, is not named, or comes after calls that are not within it.
        for (at, line) in [
            (4, " 0)    main-3     |   1.000 us    |  other();"),
            (4, " 0)    main-3     |   1.000 us    |  }"),
            (3, " 0)    main-3     |   1.000 us    |    other();"),
            (2, " 0)    main-3     |   1.000 us    |    b();"),
            (6, " 0)    busy-2     |   1.000 us    |  other();"),
        ] {
            let mut wrong = right.to_vec();
            wrong[at] = line;
            check(&wrong).unwrap_err();
        }
        check(&right[..4]).unwrap_err();
    }

    #[test]
    fn few_calls_show_nothing() {
        nesting(&[]).unwrap_err();
    }
}
