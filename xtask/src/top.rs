//! Shows in the terminal what a machine does, while it does it: its functions, tasks and CPUs by their hits. A program
//! on the machine counts, and ends with the view.

mod model;
pub mod picture;
mod program;
mod state;
pub mod view;

use std::{
    fmt, fs,
    io::{self, IsTerminal},
    mem,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use cargo_kprobes::image::{self, Source};
use kprobes_wire::mark::{Diagnostic, Mark};
use ratatui::{
    Terminal,
    backend::{Backend, TestBackend},
    crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind},
};

use crate::{
    boot, lines,
    record::check_writable,
    remote::{Heard, Remote, Stopped, TURN},
    signals::{catch_interrupts, is_interrupted, restore_on_exit},
    trace::{Outcome, ProgramOptions, REFUSED, Stream, run_text},
};
use model::Model;
use program::{KEYS, Plan};
use state::{Action, Listing, Page, ViewState};

/// Leaves the alternate screen, and shows the cursor.
const LEAVE_SCREEN: &[u8] = b"\x1b[?1049l\x1b[?25h";
/// How long a frame is shown at least, and how long a key may wait: 30 frames a second.
const FRAME: Duration = Duration::from_millis(33);
/// How often the screen is drawn if the machine says nothing.
const REDRAW: Duration = Duration::from_millis(250);
/// How often ^C is typed again while a program does not end.
const RETRY: Duration = Duration::from_secs(2);
/// How long a program may take to end with the view, also on a busy host. A machine that this command has started is
/// ended then, with its probes.
const PATIENCE: Duration = Duration::from_secs(30);

/// The functions to watch, and how.
#[derive(clap::Args)]
#[command(
    after_help = "The exit status is 3 if the program that counts is refused, and 4 if the machine stops responding."
)]
pub struct Options {
    #[command(flatten)]
    machine: boot::TargetOptions,
    #[command(flatten)]
    top_options: TopOptions,
    /// Watches without a terminal, and then draws the screen into this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// How long to watch for the picture.
    #[arg(long, value_name = "N", default_value_t = 10, requires = "svg", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    seconds: u64,
    /// Draws 30 frames a second, also if nothing has changed, and says at the end how long they took.
    #[arg(long)]
    frames: bool,
}

/// The functions to watch, and how.
#[derive(clap::Args, Clone)]
pub struct TopOptions {
    /// The functions to watch: paths in which `*` and `?` stand for others. All that can be probed if none is given.
    #[arg(value_name = "GLOB")]
    pub globs: Vec<String>,
    /// Runs this console command meanwhile. It begins again when the program does, for the callers of a function.
    #[arg(short, value_name = "COMMAND")]
    pub command: Option<String>,
    /// How often the machine sends its counts, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = INTERVAL, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    pub interval: u64,
    /// Also times the calls, by return probes.
    #[arg(long)]
    pub time: bool,
}

/// The interval by default.
const INTERVAL: u64 = 1000;

/// The size of a picture in characters.
const PICTURE: (u16, u16) = (100, 24);

/// Shows what a machine does until the user ends the view.
pub fn top(options: &Options) -> Result<ExitCode> {
    ensure!(
        options.svg.is_some() || io::stdin().is_terminal() && io::stdout().is_terminal(),
        "a live view needs a terminal, unless it draws a picture (--svg); `cargo xtask trace` writes to files and pipes"
    );
    options.svg.as_deref().map_or(Ok(()), check_writable)?;
    let mut top = Top::new(&options.top_options)?;
    top.frames = options.frames.then(Frames::default);
    let target = options.machine.target()?;
    top.elf = target.elf().map(Path::to_path_buf);
    restore_on_exit(LEAVE_SCREEN);
    catch_interrupts();
    let mut remote = Remote::start(&target, options.machine.boot.timeout)?;
    let outcome = match &options.svg {
        Some(path) => top.draw(&mut remote, path, Duration::from_secs(options.seconds)),
        None => {
            // A panic restores the terminal, too, and then drops `remote`: that ends the machine and its probes.
            let mut terminal = ratatui::try_init().context("the terminal cannot be set up")?;
            let outcome = top.run(&mut remote, &mut terminal, &mut typed);
            ratatui::restore();
            outcome
        }
    };
    // Whatever ended the view, the program ends with it, unless the machine has stopped.
    let ended = match &outcome {
        Err(error) if error.is::<Stopped>() => Ok(()),
        _ => top.end(&mut remote, target.farewell().is_none()),
    };
    if let Some(frames) = &top.frames {
        eprintln!("{frames}");
    }
    let end = outcome?;
    ended?;
    remote.leave(target.farewell());
    Ok(match end {
        End::Quit => ExitCode::SUCCESS,
        End::Refused(sentence) => {
            eprintln!("{sentence}");
            REFUSED.into()
        }
    })
}

/// Returns a key that was typed on the terminal, if there is one. What the screen shows makes no difference.
fn typed(_screen: &str) -> Result<Option<KeyEvent>> {
    while event::poll(Duration::ZERO).context("the terminal cannot be read")? {
        match event::read().context("the terminal cannot be read")? {
            Event::Key(key) if key.kind != KeyEventKind::Release => return Ok(Some(key)),
            _ => {}
        }
    }
    Ok(None)
}

/// Why a view has ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    Quit,
    /// The program was refused, for this reason.
    Refused(String),
}

/// The phase of the program on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No program runs: the machine is at its prompt.
    Idle,
    /// The program is loaded, and its probes are placed.
    Starting,
    Counting,
    /// ^C was typed at this time.
    Ending(Instant),
}

/// A view of a machine.
pub struct Top {
    plan: Plan,
    command: Option<String>,
    model: Model,
    state: ViewState,
    phase: Phase,
    /// The program to start once the one before has ended.
    next: Option<String>,
    /// When the machine sent something last.
    last_output: Instant,
    refusal: Option<String>,
    /// The frames, if they are measured.
    frames: Option<Frames>,
    /// The linked kernel, if it is known, and its source, once that was asked for.
    elf: Option<PathBuf>,
    source: Option<Source>,
}

/// How many frames were drawn, and how long that took.
#[derive(Default)]
struct Frames {
    count: u32,
    /// When the first and the last one were begun.
    span: Option<(Instant, Instant)>,
    drawing: Duration,
    longest_drawing: Duration,
    /// The longest time from the beginning of one to the next.
    longest: Duration,
}

impl Frames {
    /// Adds a frame that was begun at this time and is on the screen now.
    fn add(&mut self, begin: Instant) {
        let drawing = begin.elapsed();
        self.drawing += drawing;
        self.longest_drawing = self.longest_drawing.max(drawing);
        if let Some((_, last)) = self.span {
            self.longest = self.longest.max(begin - last);
        }
        self.span = Some((self.span.map_or(begin, |(first, _)| first), begin));
        self.count += 1;
    }
}

impl fmt::Display for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.count < 2 {
            return write!(f, "{} frames", self.count);
        }
        let seconds = self.span.map_or(0.0, |(first, last)| (last - first).as_secs_f64());
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        write!(
            f,
            "{} frames in {seconds:.1} s, {:.1} a second; the longest was shown for {:.0} ms; one was drawn in {:.1} ms \
             on average, and in {:.1} ms at most",
            self.count,
            f64::from(self.count.saturating_sub(1)) / seconds,
            milliseconds(self.longest),
            milliseconds(self.drawing) / f64::from(self.count),
            milliseconds(self.longest_drawing)
        )
    }
}

impl Top {
    /// Creates a view, and checks that its program can be typed.
    pub fn new(options: &TopOptions) -> Result<Self> {
        let globs = if options.globs.is_empty() { vec!["*".into()] } else { options.globs.clone() };
        let plan = Plan { globs, is_timed: options.time, interval: options.interval };
        let first = plan.overview();
        let top = Self {
            model: Model::new(options.interval),
            state: ViewState::new(options.time),
            command: options.command.clone(),
            phase: Phase::Idle,
            next: Some(first.clone()),
            last_output: Instant::now(),
            refusal: None,
            frames: None,
            elf: None,
            source: None,
            plan,
        };
        top.options().line(&first)?;
        Ok(top)
    }

    fn options(&self) -> ProgramOptions {
        ProgramOptions {
            format: "json".into(),
            command: self.command.clone(),
            keys: Some(KEYS),
            no_warnings: true,
            ..ProgramOptions::default()
        }
    }

    /// Shows the machine, which is at its prompt, until the user ends the view. The program may still run then. `typed`
    /// is given the text of the screen, and returns a key that was typed, if there is one.
    pub fn run<B: Backend<Error: std::error::Error + Send + Sync + 'static>>(
        &mut self,
        remote: &mut Remote,
        terminal: &mut Terminal<B>,
        typed: &mut dyn FnMut(&str) -> Result<Option<KeyEvent>>,
    ) -> Result<End> {
        // When the screen was drawn last; `None` if it is to be drawn at once.
        let mut drawn: Option<Instant> = None;
        let mut is_changed = false;
        let mut screen = String::new();
        loop {
            let is_awaited = is_changed || self.frames.is_some();
            let age = drawn.map_or(FRAME, |drawn| drawn.elapsed());
            is_changed |= self.turn(remote, if is_awaited { FRAME.saturating_sub(age) } else { FRAME })?;
            if let Some(sentence) = self.refusal.take() {
                return Ok(End::Refused(sentence));
            }
            // Before the terminal is touched, which may be gone.
            if is_interrupted() {
                return Ok(End::Quit);
            }
            let period = if is_changed || self.frames.is_some() { FRAME } else { REDRAW };
            if drawn.is_none_or(|drawn| drawn.elapsed() >= period) {
                let begin = Instant::now();
                self.state.activity = self.activity();
                terminal.draw(|frame| {
                    view::draw(frame, &self.state, &self.model);
                    screen = view::text(frame.buffer_mut());
                })?;
                (drawn, is_changed) = (Some(begin), false);
                self.frames.iter_mut().for_each(|frames| frames.add(begin));
            }
            while let Some(key) = typed(&screen)? {
                drawn = None;
                match self.state.key(key, &self.model) {
                    Some(Action::Quit) => return Ok(End::Quit),
                    Some(Action::Enter(function)) => self.restart(remote, self.plan.detail(&function)),
                    Some(Action::Back) => self.restart(remote, self.plan.overview()),
                    Some(Action::Source(function)) => self.show_source(&function),
                    Some(Action::Save) => self.state.message = save(&screen, Path::new("")),
                    None => {}
                }
            }
        }
    }

    /// Watches the machine, which is at its prompt, without a terminal for this time from the first counts on. Then
    /// draws the screen into the file at `path`. The program may still run then.
    fn draw(&mut self, remote: &mut Remote, path: &Path, time: Duration) -> Result<End> {
        let mut terminal = Terminal::new(TestBackend::new(PICTURE.0, PICTURE.1))?;
        let mut begin = None;
        let end = self.run(remote, &mut terminal, &mut |screen| {
            let is_counting = screen.contains(" hits/s ");
            let is_over = is_counting && begin.get_or_insert_with(Instant::now).elapsed() > time;
            Ok(is_over.then_some(KeyEvent::from(KeyCode::Char('q'))))
        })?;
        if end == End::Quit {
            ensure!(begin.is_some(), "nothing was counted, so there is no picture");
            let svg = picture::svg(terminal.backend().buffer());
            fs::write(path, svg).with_context(|| format!("{} cannot be written", path.display()))?;
        }
        Ok(end)
    }

    /// Ends the program, which takes its probes away. A machine that does not take the ^C is left as it is if it
    /// `goes_on`, and ended otherwise.
    pub fn end(&mut self, remote: &mut Remote, goes_on: bool) -> Result<()> {
        self.next = None;
        self.interrupt(remote);
        let deadline = Instant::now() + PATIENCE;
        let rest = if goes_on { "it and its probes may stay" } else { "the machine is ended with its probes" };
        while self.phase != Phase::Idle {
            ensure!(Instant::now() < deadline, "the program has not ended; {rest}");
            self.turn(remote, TURN)?;
        }
        self.model.losses.iter().for_each(|loss| eprintln!("{loss}"));
        Ok(())
    }

    /// Shows the source of a function.
    fn show_source(&mut self, function: &str) {
        let Some(elf) = &self.elf else {
            self.state.message = "the source is known of a kernel that this command has built, or of --elf".into();
            return;
        };
        if self.source.is_none() {
            match image::source(elf) {
                Ok(source) => self.source = Some(source),
                Err(error) => self.state.message = format!("{error:#}"),
            }
        }
        match self.source.as_ref().map(|source| lines::listing(source, function)) {
            Some(Ok(lines)) => self.state.source = Some(Listing { lines, first: 0 }),
            Some(Err(error)) => self.state.message = format!("{error:#}"),
            None => {}
        }
    }

    /// Ends the program, if one runs, and then starts this one.
    fn restart(&mut self, remote: &mut Remote, program: String) {
        self.next = Some(program);
        self.model = Model::new(self.plan.interval);
        self.interrupt(remote);
    }

    fn interrupt(&mut self, remote: &mut Remote) {
        if self.phase != Phase::Idle {
            remote.interrupt();
            self.phase = Phase::Ending(Instant::now());
        }
    }

    /// Starts the next program if it is its turn, and takes what the machine says, for this time at most. Returns
    /// whether it says anything.
    fn turn(&mut self, remote: &mut Remote, wait: Duration) -> Result<bool> {
        match (self.phase, self.next.take()) {
            (Phase::Idle, Some(program)) => {
                // The program before has said at its end what it missed.
                self.state.message += &mem::replace(&mut self.model, Model::new(self.plan.interval)).losses.join("; ");
                remote.type_line(&self.options().line(&program)?)?;
                (self.phase, self.last_output) = (Phase::Starting, Instant::now());
            }
            (Phase::Ending(since), next) => {
                self.next = next;
                if since.elapsed() > RETRY {
                    self.interrupt(remote);
                }
            }
            (_, next) => self.next = next,
        }
        let all = remote.hear(wait)?;
        let is_changed = !all.is_empty();
        for heard in all {
            match heard {
                Heard::Marked(Mark::Output, text) => {
                    for line in text.lines() {
                        // A line may be damaged on its way. The interval that it belongs to lacks it then.
                        if let Err(error) = self.model.feed(line) {
                            self.state.message = error.to_string();
                        }
                    }
                    if matches!(self.phase, Phase::Starting | Phase::Idle) {
                        self.phase = Phase::Counting;
                    }
                    self.last_output = Instant::now();
                }
                // It was stopped before it started.
                Heard::Marked(Mark::Refused, _) if matches!(self.phase, Phase::Ending(_)) => {}
                Heard::Marked(Mark::Refused, text) => {
                    let sentence = Diagnostic::parse(&text).sentence.to_string();
                    if self.state.page == Page::Callers {
                        self.state.leave();
                        self.state.message = sentence;
                        self.next = Some(self.plan.overview());
                    } else {
                        self.refusal = Some(sentence);
                    }
                }
                Heard::Marked(Mark::Failed, _) => self.state.message = "the command is refused".into(),
                Heard::Marked(..) | Heard::Line(_) => {}
                Heard::Prompt => self.phase = Phase::Idle,
            }
        }
        Ok(is_changed)
    }

    /// Returns the activity of the program, if it is not counting.
    fn activity(&self) -> String {
        let silence = self.last_output.elapsed();
        match self.phase {
            Phase::Starting => "placing probes".into(),
            Phase::Ending(_) => "removing probes".into(),
            Phase::Idle if self.next.is_none() => "ENDED: the command has ended".into(),
            Phase::Counting if silence > Duration::from_millis(3 * self.plan.interval) => {
                format!("silent for {} s", silence.as_secs())
            }
            _ => String::new(),
        }
    }
}

/// Runs the program of a view of all functions while a command is carried out on a machine that is at its prompt.
/// Returns the number of hits, and the command's output.
pub fn count(remote: &mut Remote, command: &str, is_timed: bool) -> Result<(u64, String)> {
    let mut top =
        Top::new(&TopOptions { globs: Vec::new(), command: Some(command.into()), interval: INTERVAL, time: is_timed })?;
    let mut output = String::new();
    let program = top.plan.overview();
    let outcome = run_text(remote, &program, &top.options(), &mut |stream, text| {
        match stream {
            Stream::Output => text.lines().try_for_each(|line| top.model.feed(line).map(drop))?,
            Stream::Notes => output.push_str(text),
        }
        Ok(())
    })?;
    ensure!(outcome == Outcome::Done, "the program does not run: {outcome:?}");
    Ok((top.model.total, output))
}

/// Writes a screen to the first free file `top-N.txt` of a directory. Returns the message about it.
fn save(screen: &str, directory: &Path) -> String {
    let free = (1..).map(|number| directory.join(format!("top-{number}.txt"))).find(|path| !path.exists());
    let path = free.unwrap_or_default();
    match fs::write(&path, screen) {
        Ok(()) => format!("written to {}", path.display()),
        Err(error) => format!("{} cannot be written: {error}", path.display()),
    }
}
