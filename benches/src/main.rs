//! The benchmark: one image, which measures a case on command.
//!
//! The host types commands at the prompt, over the UART, and reads the results there. The same image therefore works in
//! an emulator, where it counts instructions, and on hardware, where it counts cycles. `list` names the cases, `run`
//! measures them, and `run NAME` measures one. `once NAME` does the work of a case once. `trace NAME` does it once, and
//! waits for a line of input before and after it. `throughput` makes several CPUs hit probes at once, and measures by
//! wall clock.

#![no_std]
#![no_main]

extern crate alloc;

mod case;
mod clock;
mod measure;
mod stopwatch;
mod target;
mod throughput;

use core::slice;

use case::{CASES, Case, Work};
use clock::Clock;
use runtime::console::read_line;
use runtime::{print, println};

runtime::entry!(main);

fn main() {
    loop {
        print!("bench> ");
        let line = read_line();
        let (command, name) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        match (command, CASES.iter().find(|case| case.name == name)) {
            ("list", _) => CASES.iter().for_each(list),
            ("run", Some(case)) => run(slice::from_ref(case)),
            ("run", None) if name.is_empty() => run(CASES),
            ("once", Some(case)) => measure::once(case),
            ("throughput", _) => throughput(name),
            ("trace", Some(case)) => {
                let tell = |what| {
                    println!("{what} {name}");
                    read_line();
                };
                measure::trace(case, || tell("armed"), || tell("traced"));
            }
            _ => println!(
                "error: say `list`, `run`, `run NAME`, `once NAME`, `trace NAME` or `throughput CPUS FUNCTIONS [NAME]`"
            ),
        }
    }
}

fn run(cases: &[Case]) {
    match Clock::find() {
        Ok(clock) => cases.iter().for_each(|case| measure::run(case, clock)),
        Err(sentence) => println!("error: {sentence}"),
    }
}

fn list(case: &Case) {
    match case.work {
        Work::Hit { target, .. } => println!("case {} hit {}", case.name, target().copies),
        Work::Change { .. } => println!("case {} change 0", case.name),
    }
}

/// Runs `throughput CPUS FUNCTIONS [CASE]`. Without a case, the functions have no probes.
fn throughput(arguments: &str) {
    let mut words = arguments.split_whitespace();
    let mut number = || words.next()?.parse().ok().filter(|number| *number != 0);
    match (number(), number(), words.next()) {
        (Some(cpus), Some(functions), None) => throughput::run(None, cpus, functions),
        (Some(cpus), Some(functions), Some(name)) if let Some(case) = CASES.iter().find(|case| case.name == name) => {
            throughput::run(Some(case), cpus, functions);
        }
        _ => println!("error: say `throughput CPUS FUNCTIONS [NAME]`"),
    }
}
