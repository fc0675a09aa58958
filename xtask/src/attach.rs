//! The console of a machine that runs already: a [detached](crate::detached) QEMU, or a board on a serial line.

use std::sync::mpsc::{self, RecvTimeoutError};

use anyhow::{Result, anyhow};

use crate::{
    boot::{self, Target},
    conversation::Conversation,
    machine::{Output, Start},
    run, serial,
    signals::catch_interrupts,
    terminal::{HOW_TO_LEAVE, KEY_TURN, Keystrokes, Menu, REDRAW_KEY, Terminal},
};

/// Which running machine is meant, and whether a person or a script talks to it.
#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    serial: serial::Options,
    #[command(flatten)]
    script_options: run::ScriptOptions,
    /// How many seconds the machine may give no sign of life while it carries out a command of a script.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    timeout: u64,
}

/// Opens the console of a running machine.
pub fn attach(options: &Options) -> Result<()> {
    let script = options.script_options.open()?;
    let target = boot::attached(&options.serial, None)?;
    match script {
        Some(script) => {
            catch_interrupts();
            let conversation = Conversation::new(target.farewell(), options.script_options.strict);
            run::follow(&target, script, Some(options.timeout), conversation)
        }
        None => match &target {
            Target::Detached(detached) => interact(detached),
            Target::Connected { connection, .. } => connection.interact(),
            Target::Qemu { .. } | Target::Serial { .. } => unreachable!("`attach` boots no machine"),
        },
    }
}

/// Connects the console of this machine to this terminal until the person leaves or the machine ends.
fn interact(start: &dyn Start) -> Result<()> {
    let (sender, outputs) = mpsc::channel();
    // The receiver is gone once the person has left.
    let machine = start.start(Box::new(move |output| drop(sender.send(output))))?;
    eprintln!("{HOW_TO_LEAVE}");
    let mut terminal = Terminal::open(Menu::Own)?;
    machine.type_keys(vec![REDRAW_KEY]);
    let is_left = loop {
        match outputs.recv_timeout(KEY_TURN) {
            Ok(Output::Bytes(bytes)) => terminal.show(&bytes)?,
            Ok(Output::End) | Err(RecvTimeoutError::Disconnected) => break false,
            Err(RecvTimeoutError::Timeout) => {}
        }
        match terminal.keystrokes() {
            Keystrokes::Nothing => {}
            Keystrokes::Keys(keys) => machine.type_keys(keys),
            Keystrokes::Leave(keys) => {
                machine.type_keys(keys);
                break true;
            }
        }
    };
    drop(terminal);
    eprintln!();
    match is_left {
        true => Ok(()),
        false => machine.end().map_err(|how| anyhow!("the machine has ended: {how}")),
    }
}
