//! The command `coverage`: tells how much of the image can be probed.

use aarch64_kprobes::{ProbeError, platform, probe};

use crate::arguments::name;
use crate::census::Census;
use crate::session::Session;
use crate::words::{Failure, Words};
use crate::{input, symbol, symbols};

/// Runs the command `coverage [GLOB]`.
pub(super) fn coverage(_: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    let (glob, column) = name(words)?;
    let table = symbol::table().ok_or_else(|| Failure::new("this image has no symbol table"))?;
    let text = platform::text();
    let (mut census, mut checker) = (Census::default(), probe::Checker::new());
    let mut end = text.start;
    for function in table.iter().filter(symbols::selection(&glob)?) {
        if input::is_interrupted() {
            return Ok(());
        }
        let start = function.address as usize;
        // A function with several names is counted once.
        if start < end {
            continue;
        }
        end = start + function.size as usize;
        let outcomes = (start..end).step_by(4).map_while(|address| match checker.check(address) {
            // The function is not in the text, or ends outside of it.
            Err(ProbeError::NotText { .. } | ProbeError::Misaligned { .. }) => None,
            outcome => Some(outcome),
        });
        census.add(outcomes)?;
    }
    if census.instructions() == 0 {
        return Err(match symbol::nearest(&glob) {
            Some(meant) => Failure::at(column, format_args!("no function matches this; did you mean `{meant}`?")),
            None => Failure::at(column, "no function matches this; `symbols GLOB` shows what a pattern matches"),
        });
    }
    print!("{census}");
    if glob.is_empty() {
        let rest = (text.len() / 4) as u64 - census.instructions();
        println!("{rest} words of the text belong to no function, accept no probe and are not counted.");
    }
    Ok(())
}
