//! Fetches the known megabyte repeatedly with `curl`, the client that users are most likely to have.

use std::{
    env,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use super::clients::{self, on_each};
use crate::network::CardServers;

/// How often the megabyte is fetched, on all cards together.
const FETCHES: u64 = 100;
/// Of this many fetches, the first card gets all but one, so that no two cards pass the same packets.
const SHARE: u64 = 3;
/// How many seconds it is fetched if [`SECONDS`] is not set.
const DEFAULT_SECONDS: u64 = 5;
/// The environment variable for how many seconds it is fetched.
const SECONDS: &str = "NETWORK_SECONDS";
/// How many seconds one fetch may take.
const PATIENCE: &str = "120";

/// Fetches the megabyte [`FETCHES`] times, on all cards at once.
pub fn a_hundred_times(cards: &[CardServers]) -> Result<()> {
    let others = cards.len().saturating_sub(1) as u64;
    on_each(cards, |servers| {
        let is_first = cards.first() == Some(servers);
        let share = FETCHES.checked_div(SHARE * others).unwrap_or_default();
        (0..if is_first { FETCHES - share * others } else { share }).try_for_each(|_| fetch(servers))
    })
}

/// Fetches the megabyte for some time, on all cards at once, twice in parallel on each.
pub fn for_some_time(cards: &[CardServers]) -> Result<()> {
    let seconds = match env::var(SECONDS) {
        Ok(text) => text.parse().with_context(|| format!("{SECONDS} is not a number of seconds"))?,
        Err(_) => DEFAULT_SECONDS,
    };
    let end = Instant::now() + Duration::from_secs(seconds);
    let (fetched, has_failed) = (AtomicU64::new(0), AtomicBool::new(false));
    on_each(&[cards, cards].concat(), |servers| {
        while Instant::now() < end && !has_failed.load(Ordering::Relaxed) {
            fetch(servers).inspect_err(|_| has_failed.store(true, Ordering::Relaxed))?;
            fetched.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    })?;
    ensure!(fetched.into_inner() > 0, "nothing was fetched");
    Ok(())
}

/// Fetches the megabyte once, and compares every byte.
fn fetch(servers: &CardServers) -> Result<()> {
    let mut curl = Command::new("curl");
    // The user's own settings for curl must not apply here.
    curl.args(["-q", "--noproxy", "*", "--silent", "--show-error", "--fail", "--max-time", PATIENCE]);
    let output = curl.arg(format!("http://{}/megabyte", servers.http)).stdin(Stdio::null()).output();
    let output = output.context("curl cannot be started")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    clients::is_megabyte(&output.stdout)
}
