//! The board's console on this terminal.

use anyhow::{Context, Result};
use kprobes_loader_protocol::Reply;

use super::{
    TURN,
    line::{Heard, SerialLine},
    load::Load,
};
use crate::terminal::{HOW_TO_LEAVE, Keystrokes, Menu, REDRAW_KEY, Terminal};

/// Loads the image whenever the loader comes back, and connects its console to this terminal in between. Without an
/// image, connects the console of the kernel that runs already. Returns when the person leaves.
pub fn interact(line: &mut SerialLine, load: Option<&Load>) -> Result<()> {
    load.map_or(Ok(()), |load| load.run(line))?;
    eprintln!("{}", if load.is_some() { "To quit: Ctrl-A X." } else { HOW_TO_LEAVE });
    let mut terminal = Terminal::open(Menu::Own)?;
    if load.is_none() {
        line.send(&[REDRAW_KEY]);
    }
    let mut was_connected = true;
    loop {
        match line.hear(TURN) {
            Some(Heard::Text(text)) => terminal.show(&text)?,
            Some(Heard::Reply(Reply::Ready { .. })) => terminal.lend(|| {
                eprintln!("\nThe board was reset, and its loader is back.");
                load.context("the kernel has ended; `cargo xtask run` loads the next one")?.run(line)
            })?,
            Some(Heard::Reply(_)) | None => {}
        }
        if line.is_connected() != was_connected {
            was_connected = !was_connected;
            let sentence = if was_connected { "is back" } else { "is gone; waiting for it" };
            eprint!("\r\n{} {sentence}\r\n", line.name());
        }
        match terminal.keystrokes() {
            Keystrokes::Nothing => {}
            Keystrokes::Keys(keys) => line.send(&keys),
            Keystrokes::Leave(keys) => {
                line.send(&keys);
                break;
            }
        }
    }
    eprint!("\r\n");
    Ok(())
}
