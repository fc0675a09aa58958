//! Measures what a live view costs the machine: how much longer a workload takes while the view's program counts all
//! functions. QEMU counts instructions, so the figures are the same on every host.

use std::ffi::OsString;

use anyhow::{Context, Result};

use super::table::{aligned, number};
use crate::{remote::Remote, top};

/// The workloads, each of one task, which never waits.
const WORKLOADS: [&str; 2] = ["run sha256 20000 1", "run deflate 200 1"];

/// Measures all workloads, and returns a table.
pub fn measure(arguments: &Vec<OsString>, seconds: u64) -> Result<String> {
    let head = ["workload", "hits", "instructions a hit", "% of time", "with --time", "% of time"];
    let mut rows = vec![head.map(String::from).to_vec()];
    let mut remote = Remote::start(arguments, seconds)?;
    for workload in WORKLOADS {
        let bare = milliseconds(&remote.ask(workload)?.join("\n"))?;
        let mut row = vec![workload.to_string()];
        for is_timed in [false, true] {
            let (hits, output) = top::count(&mut remote, workload, is_timed)?;
            let time = milliseconds(&output)?;
            let more = time.saturating_sub(bare) as f64;
            if !is_timed {
                row.push(number(Some(hits as f64)));
            }
            // An instruction takes a nanosecond.
            row.push(number(Some((more * 1e6 / hits.max(1) as f64).round())));
            row.push(format!("{:.1}", more * 100.0 / time.max(1) as f64));
        }
        rows.push(row);
    }
    Ok(aligned(&rows))
}

/// Returns how many milliseconds a workload took, from its output.
fn milliseconds(output: &str) -> Result<u64> {
    let time = |line: &str| line.strip_suffix(" ms")?.rsplit_once(' ')?.1.parse().ok();
    output.lines().find_map(time).with_context(|| format!("the workload does not say how long it took: {output}"))
}

#[cfg(test)]
mod tests {
    use super::milliseconds;

    #[test]
    fn a_workload_says_how_long_it_took() {
        let output = "3594 probes\nsha256: 100 iterations in 1 task: 100 right, 0 wrong, 15 ms\n  100 calls of f";
        assert_eq!(milliseconds(output).unwrap(), 15);
        assert!(milliseconds("error: no").is_err());
    }
}
