//! Probes every instruction of a machine and removes all probes, again and again, while clients come. ^C is pressed in
//! the middle of both.
//!
//! Probing all instructions takes so long that the console reports progress. ^C is pressed then, and the prompt must
//! come back sooner than probing all of them takes. During the removal, ^C is pressed once the console has been silent
//! for a while. In at least one round it must leave some probes.

use std::{
    mem,
    time::{Duration, Instant},
};

use super::{
    HostNetworks,
    arrival::{Arrival, Arrived},
    curl,
    visiting::Visiting,
};
use crate::{
    console::Event,
    conversation::PROMPT,
    dialogue::{Reply, Subject},
    test::session::{INTERRUPT_KEY, INTERRUPTED},
};

/// The moment to press ^C.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cue {
    /// The console has reported progress.
    Progress,
    /// The console has written nothing for a while.
    Silence,
}

const ALL: &str = "instructions are probed: ";
const SOME: &str = "probes are disabled: ";
const NONE: &str = "`everything on` probes every instruction";
/// For each step: the line that is typed; texts, one of which a line of the reply must contain; and the moment to press
/// ^C.
const STEPS: [(&str, &[&str], Option<Cue>); 8] = [
    ("everything on", &["nothing is probed"], Some(Cue::Progress)),
    ("everything", &[NONE], None),
    ("everything on", &["instructions are probed"], None),
    ("everything", &[ALL], None),
    ("everything off", &[""], Some(Cue::Silence)),
    ("everything", &[NONE, SOME], None),
    ("everything off", &[""], None),
    ("everything", &[NONE], None),
];
/// The step that ^C stops, the step that probes all instructions, and the step that asks which probes ^C has left.
const STOPPED: usize = 0;
const WHOLE: usize = 2;
const LEFT: usize = 5;

/// The state of the test.
enum State {
    Arriving(Arrival),
    /// The clients are there, and this many lines were typed.
    Visited(Visiting, usize),
}

/// A machine in this test.
pub struct Stopped {
    networks: HostNetworks,
    state: State,
    /// The lines since the last prompt.
    reply: Vec<String>,
    /// The moment to press ^C, if it is to be pressed.
    cue: Option<Cue>,
    /// When the last line was typed, or ^C was pressed after it.
    since: Instant,
    /// The shortest time from ^C to the end of the step that it stops.
    stopped: Duration,
    /// The shortest time that probing all instructions takes.
    whole: Duration,
    /// The number of rounds in which ^C was pressed during the removal.
    pressed: usize,
    /// Whether ^C has left probes to remove in one of these rounds.
    has_left_some: bool,
}

impl Stopped {
    pub fn new(networks: HostNetworks) -> Self {
        Self {
            networks,
            state: State::Arriving(Arrival::default()),
            reply: Vec::new(),
            cue: None,
            since: Instant::now(),
            stopped: Duration::MAX,
            whole: Duration::MAX,
            pressed: 0,
            has_left_some: false,
        }
    }

    /// Called at a prompt: checks the reply and types the next line.
    fn asked(&mut self) -> Result<Reply<()>, String> {
        let reply = mem::take(&mut self.reply);
        match &mut self.state {
            State::Arriving(arrival) => match arrival.asked(&self.networks, &reply)? {
                Arrived::NotYet(reply) => return Ok(reply),
                Arrived::All(_) => {
                    self.state = State::Visited(Visiting::begin(curl::for_some_time, self.networks.servers()), 0);
                }
            },
            // The ^C came when the command was over, and applied to the next line.
            State::Visited(..) if reply == [format!("{PROMPT}{INTERRUPTED}")] => return Ok(Reply::Wait),
            State::Visited(visiting, typed) => {
                let (command, expected, cue) = STEPS[(*typed - 1) % STEPS.len()];
                let has = |part: &&str| reply.iter().any(|line| line.contains(*part));
                if !expected.iter().any(has) || reply.iter().any(|line| line.starts_with("error: ")) {
                    return Err(format!("the reply to `{command}` is not one of {expected:?}"));
                }
                if cue == Some(Cue::Progress) && reply.last().is_none_or(|line| line != INTERRUPTED) {
                    return Err(format!("`{command}` goes on though ^C was pressed"));
                }
                let took = self.since.elapsed();
                match (*typed - 1) % STEPS.len() {
                    STOPPED => self.stopped = self.stopped.min(took),
                    WHOLE => self.whole = self.whole.min(took),
                    LEFT => self.has_left_some |= has(&SOME),
                    _ => {}
                }
                if *typed % STEPS.len() == 0
                    && let Some(result) = visiting.poll()
                {
                    return result.and_then(|()| self.judged()).map(|()| Reply::Done(Ok(())));
                }
            }
        }
        let State::Visited(_, typed) = &mut self.state else { return Ok(Reply::Wait) };
        let (command, _, cue) = STEPS[*typed % STEPS.len()];
        *typed += 1;
        self.cue = cue;
        self.since = Instant::now();
        Ok(Reply::Type(command.into()))
    }

    /// Checks that ^C has stopped both commands in one of the rounds.
    fn judged(&self) -> Result<(), String> {
        let Self { stopped, whole, .. } = self;
        if stopped > whole {
            return Err(format!("^C has stopped `everything on` after {stopped:?}; all of it takes {whole:?}"));
        }
        let left = "^C has never left anything of `everything off` to do";
        if self.has_left_some || self.pressed == 0 { Ok(()) } else { Err(left.into()) }
    }
}

impl Subject<()> for Stopped {
    fn event(&mut self, event: Event) -> Reply<()> {
        match event {
            Event::Prompt => self.asked().unwrap_or_else(|sentence| Reply::Done(Err(sentence))),
            Event::Line(line) => {
                let is_pressed = line.contains("% ") && self.cue.take_if(|cue| *cue == Cue::Progress).is_some();
                self.reply.push(line);
                if is_pressed {
                    self.since = Instant::now();
                    return Reply::Keys(vec![INTERRUPT_KEY]);
                }
                Reply::Wait
            }
        }
    }

    fn silence(&mut self) -> Reply<()> {
        // Not before the line was echoed: the line editor has a meaning of its own for the key.
        if !self.reply.is_empty() && self.cue.take_if(|cue| *cue == Cue::Silence).is_some() {
            self.pressed += 1;
            return Reply::Keys(vec![INTERRUPT_KEY]);
        }
        if let State::Arriving(arrival) = &mut self.state { arrival.silence() } else { Reply::Wait }
    }
}
