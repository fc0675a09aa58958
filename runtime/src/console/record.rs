//! The command that streams the rings to the host.

use kprobes_console::lock::Lock;
use kprobes_console::session::Session;
use kprobes_console::words::{Failure, Words};
use kprobes_vm::counted::counted;

use crate::println;
use crate::recording::{Outcome, Recording};

/// The recording in progress, if there is one.
static RECORDING: Lock<Option<Recording>> = Lock::new(None);

/// `record [on|off]`: starts or ends the recording, or prints whether it is on.
pub(super) fn record(_: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    let word = words.next();
    words.end()?;
    let mut recording = RECORDING.lock();
    match word.map(|word| (word.text, word)) {
        None => println!("{}", if recording.is_some() { "on" } else { "off" }),
        Some(("on", word)) if recording.is_some() => {
            return Err(word.failure("a recording is already in progress; `record off` ends it"));
        }
        Some(("on", _)) => *recording = Some(Recording::begin()?),
        Some(("off", word)) => {
            let recording =
                recording.take().ok_or_else(|| word.failure("no recording is in progress; `record on` begins one"))?;
            let Outcome { records, lost, unsent, is_short } = recording.end();
            println!("{} sent, {lost} lost", counted(records, "record", "records"));
            if unsent > 0 {
                return Err(Failure::new(format_args!(
                    "the channel did not accept {}",
                    counted(unsent, "frame", "frames")
                )));
            }
            if is_short {
                return Err(Failure::new(
                    "there was not enough memory to send the last records; they stay in the trace",
                ));
            }
        }
        Some((_, word)) => return Err(word.failure("on or off is expected here")),
    }
    Ok(())
}
