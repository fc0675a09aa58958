//! Tests the live view on a machine: in this process, where the machine can be asked afterwards, and as a process of
//! its own on a pseudo-terminal, which must be as before at the end.

use std::{
    env,
    ffi::OsString,
    path::Path,
    process::{Command, Stdio},
    sync::mpsc::RecvTimeoutError,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use ratatui::{
    Terminal,
    backend::TestBackend,
    crossterm::event::{KeyCode, KeyEvent},
};

use super::{
    attach::no_probe_is_left,
    pool::BuildContext,
    pty::Pty,
    report::Outcome,
    select::{Demands, Trait},
    target::{Candidate, Targets},
};
use crate::{
    remote::Remote,
    top::{End, Top, TopOptions},
};

/// The functions to watch. The first is called most often, twice by each run of the second, in the workload.
const FUNCTIONS: [&str; 2] = ["sha2::sha256::compress256", "runtime::workload::sha256::*"];
/// A workload that does not end by itself.
const WORKLOAD: &str = "run sha256 100000000";

/// Adds the tests of the live view.
pub fn add<'a>(context: &BuildContext<'_, 'a>, targets: &'a Targets<'a>, kernel: &Path) {
    targets.add_each(context, "top::machine", |index, named| {
        let (arguments, seconds, kernel) = (named.arguments(kernel)?, targets.seconds, kernel.to_path_buf());
        let live = move || live(&arguments, seconds);
        let terminal = move || terminal(&named.board.name, &kernel, seconds);
        Ok(vec![
            Candidate::try_new(index, "top::live", Demands::on(&[Trait::Cpus]), live),
            Candidate::try_new(index, "top::terminal", Demands::default(), terminal),
        ])
    });
}

/// A screen that is awaited: texts of its fourth line, which is the first row, and texts of the rest; and the key to
/// press then.
type AwaitedScreen = (&'static [&'static str], &'static [&'static str], KeyCode);

/// The end of an average in any unit. No other column of a function's row contains it.
const AVERAGE: &str = "s ";

/// Finds the function that is called most at the top, looks at its callers, and goes back. Then no probe is left. A
/// workload that ends is counted to its end.
fn live(arguments: &Vec<OsString>, seconds: u64) -> Result<Outcome> {
    let mut remote = Remote::start(arguments, seconds)?;
    let steps: [AwaitedScreen; 5] = [
        (&["sha2::sha256::compress256", AVERAGE], &["1 functions"], KeyCode::Char('2')),
        (&["sha256/"], &["2 tasks"], KeyCode::Char('1')),
        (&["sha2::sha256::compress256"], &["hits/s▾"], KeyCode::Enter),
        (&["runtime::workload::sha256::digest"], &["callers of sha2::sha256::compress256", "p50 "], KeyCode::Esc),
        (&["sha2::sha256::compress256", AVERAGE], &["3 CPUs"], KeyCode::Char('q')),
    ];
    watch(&mut remote, WORKLOAD, &steps, seconds)?;
    let steps: [AwaitedScreen; 1] =
        [(&[" 2,000 ", " 0 ", "sha2::sha256::compress256"], &["ENDED", " 1,000 "], KeyCode::Char('q'))];
    watch(&mut remote, "run sha256 1000", &steps, seconds)?;
    Ok(Outcome::Passed)
}

/// Watches a workload until all steps are done. Then no probe is left.
fn watch(remote: &mut Remote, workload: &str, steps: &[AwaitedScreen], seconds: u64) -> Result<()> {
    let mut top = Top::new(&TopOptions {
        globs: FUNCTIONS.map(String::from).into(),
        command: Some(workload.into()),
        interval: 200,
        time: true,
    })?;
    let mut terminal = Terminal::new(TestBackend::new(100, 30))?;
    let mut steps = steps.iter().peekable();
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let end = top.run(remote, &mut terminal, &mut |screen| {
        let first = screen.lines().nth(3).unwrap_or_default();
        let is_awaited = |(row, rest, _): &&AwaitedScreen| {
            row.iter().all(|text| first.contains(text)) && rest.iter().all(|text| screen.contains(text))
        };
        ensure!(Instant::now() < deadline, "{:?} does not come after\n{screen}", steps.peek());
        Ok(steps.next_if(is_awaited).map(|(_, _, key)| KeyEvent::from(*key)))
    })?;
    ensure!(end == End::Quit && steps.next().is_none(), "{end:?}");
    top.end(remote, false)?;
    no_probe_is_left(remote)
}

/// How a view is ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// By the key ^C.
    Key,
    /// By two signals at once, as when a terminal is closed.
    Signals,
}

/// Ends on a terminal of 80 by 24, and leaves it as it was. Without a terminal there is a sentence.
fn terminal(board: &str, kernel: &Path, seconds: u64) -> Result<Outcome> {
    [Ending::Key, Ending::Signals].into_iter().try_for_each(|ending| ends(ending, board, kernel, seconds))?;
    Ok(Outcome::Passed)
}

fn ends(ending: Ending, board: &str, kernel: &Path, seconds: u64) -> Result<()> {
    let mut command = Command::new(env::current_exe()?);
    command.args(["top", "--no-network", "--board", board, "--image"]).arg(kernel).args(FUNCTIONS);
    command.args(["-c", WORKLOAD, "--interval", "200"]);
    let refused = command.stdin(Stdio::null()).output()?;
    let sentence = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(refused.status.code() == Some(1) && sentence.contains("a live view needs a terminal"), "{sentence}");

    let pty = Pty::new()?;
    let before = pty.modes()?;
    let (mut child, pieces) = pty.spawn(&mut command)?;
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let (mut shown, mut is_ended) = (String::new(), false);
    let status = loop {
        match pieces.recv_timeout(Duration::from_millis(50)) {
            Ok(bytes) => shown += &String::from_utf8_lossy(&bytes),
            Err(RecvTimeoutError::Timeout) => {
                if let Some(status) = child.try_wait()? {
                    break status;
                }
            }
            Err(RecvTimeoutError::Disconnected) => break child.wait()?,
        }
        if !is_ended && shown.contains(FUNCTIONS[0]) && shown.contains("hits/s") {
            match ending {
                Ending::Key => pty.type_keys(b"\x03")?,
                Ending::Signals => {
                    for signal in ["-TERM", "-HUP"] {
                        Command::new("kill").args([signal, &child.id().to_string()]).status()?;
                    }
                }
            }
            is_ended = true;
        }
        if Instant::now() > deadline {
            // The machine ends with the child.
            child.kill()?;
        }
    };
    // The first signal counts.
    let expected = if ending == Ending::Key { 0 } else { 143 };
    ensure!(status.code() == Some(expected), "{status}: {shown:?}");
    ensure!(before == pty.modes()?, "the terminal has other modes than before");
    let (enter, leave) = (shown.find("\x1b[?1049h"), shown.rfind("\x1b[?1049l"));
    ensure!(enter.is_some() && enter < leave, "the screen is not restored: {shown:?}");
    Ok(())
}
