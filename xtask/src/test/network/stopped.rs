//! A machine on which every instruction is probed, and none any more, again and again, while clients come; ^C is pressed in the
//! middle of each.
//!
//! To probe them all takes so long that the console says how far it is, and is stopped then. To remove them may not: ^C is pressed
//! as it begins, and may come too late. What it leaves is asked for.

use std::{mem, time::Instant};

use super::{
    Host, PATIENCE, curl,
    listed::{self, COMMAND},
    visiting::Visiting,
};
use crate::{
    console::Event,
    conversation::PROMPT,
    test::{
        dialogue::{Reply, Subject},
        session::{INTERRUPT_KEY, INTERRUPTED},
    },
};

const ALL: &str = "instructions are probed: ";
const SOME: &str = "probes are disarmed: ";
const NONE: &str = "`everything on` probes every instruction";
/// What is typed; what one of the lines of the reply holds, for one of these; and in which line ^C is pressed.
const STEPS: [(&str, &[&str], Option<&str>); 8] = [
    ("everything on", &["nothing is probed"], Some("% ")),
    ("everything", &[NONE], None),
    ("everything on", &["instructions are probed"], None),
    ("everything", &[ALL], None),
    ("everything off", &[""], Some(PROMPT)),
    ("everything", &[NONE, SOME], None),
    ("everything off", &[""], None),
    ("everything", &[NONE], None),
];

/// How far it is.
enum State {
    Booting,
    /// The interfaces are to have addresses before this.
    Arriving(Instant),
    /// The clients are there, and so many lines were typed.
    Visited(Visiting, usize),
}

/// Such a machine.
pub struct Stopped {
    host: Host,
    state: State,
    /// What was said since the last prompt.
    reply: Vec<String>,
    /// ^C is to be pressed when a line has this.
    upon: Option<&'static str>,
    /// The interfaces are to be asked for again.
    is_pending: bool,
}

impl Stopped {
    pub fn new(host: Host) -> Self {
        Self { host, state: State::Booting, reply: Vec::new(), upon: None, is_pending: false }
    }

    /// The machine asks.
    fn asked(&mut self) -> Result<Reply<()>, String> {
        let reply = mem::take(&mut self.reply);
        match &mut self.state {
            State::Booting => {
                self.state = State::Arriving(Instant::now() + PATIENCE);
                return Ok(Reply::Type(COMMAND.into()));
            }
            State::Arriving(deadline) => {
                if self.host.is_reached(&listed::interfaces(&reply)) {
                    self.state = State::Visited(Visiting::begin(curl::for_some_time, self.host.lines()), 0);
                } else if *deadline < Instant::now() {
                    return Err("not all of the interfaces have addresses".into());
                } else {
                    self.is_pending = true;
                    return Ok(Reply::Wait);
                }
            }
            // It came when the command was over, to the next line.
            State::Visited(..) if reply == [format!("{PROMPT}{INTERRUPTED}")] => return Ok(Reply::Wait),
            State::Visited(visiting, typed) => {
                let (command, expected, pressed) = STEPS[(*typed - 1) % STEPS.len()];
                let has = |part: &&str| reply.iter().any(|line| line.contains(*part));
                if !expected.iter().any(has) || reply.iter().any(|line| line.starts_with("error: ")) {
                    return Err(format!("the reply to `{command}` is not one of {expected:?}"));
                }
                if pressed == Some("% ") && reply.last().is_none_or(|line| line != INTERRUPTED) {
                    return Err(format!("`{command}` goes on though ^C was pressed"));
                }
                if *typed % STEPS.len() == 0
                    && let Some(result) = visiting.poll()
                {
                    return result.map(|()| Reply::Done(Ok(())));
                }
            }
        }
        let State::Visited(_, typed) = &mut self.state else { return Ok(Reply::Wait) };
        let (command, _, upon) = STEPS[*typed % STEPS.len()];
        *typed += 1;
        self.upon = upon;
        Ok(Reply::Type(command.into()))
    }
}

impl Subject<()> for Stopped {
    fn prompt(&self) -> &'static str {
        PROMPT
    }

    fn event(&mut self, event: Event) -> Reply<()> {
        match event {
            Event::Prompt => self.asked().unwrap_or_else(|sentence| Reply::Done(Err(sentence))),
            Event::Line(line) => {
                let is_pressed = self.upon.take_if(|part| line.contains(*part)).is_some();
                self.reply.push(line);
                if is_pressed { Reply::Keys(vec![INTERRUPT_KEY]) } else { Reply::Wait }
            }
        }
    }

    fn silence(&mut self) -> Reply<()> {
        match mem::take(&mut self.is_pending) {
            true => Reply::Keys(format!("{COMMAND}\r").into_bytes()),
            false => Reply::Wait,
        }
    }
}
