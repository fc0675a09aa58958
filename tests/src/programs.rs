//! Programs on a real machine: their results are right with probes of every kind, and every hit is accounted for.

mod counts;
mod instructions;
mod lifecycle;
mod nesting;
mod returns;
mod samples;
mod values;
mod watched;

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use core::arch::naked_asm;
use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use kprobes_console::program::{ProgramRefusal, RunningProgram};
use runtime::task::JoinHandle;

use crate::smp::start_on_each_cpu;

/// Starts a valid program.
fn start(text: &str) -> RunningProgram {
    started(text, RunningProgram::start(text))
}

/// Returns the program of a valid `text`.
pub fn started(text: &str, program: Result<RunningProgram, ProgramRefusal>) -> RunningProgram {
    program.unwrap_or_else(|refusal| panic!("{}", sentence(text, &refusal)))
}

type Start = fn(&str) -> Result<RunningProgram, ProgramRefusal>;

/// Returns what a program prints that runs during `act`.
fn printed(text: &str, act: impl FnOnce()) -> String {
    let program = start(text);
    act();
    finished(program)
}

/// Stops a program, and returns the rest of its output.
pub fn finished(program: RunningProgram) -> String {
    let mut out = String::new();
    program.finish(&mut out).expect("a string can be written to");
    out
}

/// Returns why a program is refused.
fn refused(text: &str) -> String {
    match RunningProgram::start(text) {
        Ok(_) => panic!("{text} is not refused"),
        Err(refusal) => sentence(text, &refusal),
    }
}

/// Returns the sentence about a refused program.
pub fn sentence(text: &str, refusal: &ProgramRefusal) -> String {
    let mut out = String::new();
    refusal.write(text, &mut out).expect("a string can be written to");
    out
}

/// Returns the numbers of the map `name` in the output of a program, by their keys.
pub fn map(printed: &str, name: &str) -> BTreeMap<String, u64> {
    let start = format!("@{name}[");
    let entries = printed.lines().filter_map(|line| line.strip_prefix(&start)?.rsplit_once("]: "));
    entries.map(|(key, value)| (key.to_string(), value.parse().expect("a number"))).collect()
}

/// Returns the number that follows `start` in a line of a program's output; 0 if there is no such line.
fn number(printed: &str, start: &str) -> u64 {
    let line = printed.lines().find_map(|line| line.strip_prefix(start));
    line.and_then(|line| line.split(' ').next()?.parse().ok()).unwrap_or(0)
}

/// The number of calls of [`target`].
static CALLS: AtomicU64 = AtomicU64::new(0);

/// The probed function.
#[inline(never)]
extern "C" fn target(number: u64, pointer: *const u8) -> u64 {
    CALLS.fetch_add(1, Relaxed);
    black_box(pointer);
    number.wrapping_mul(3)
}

/// Calls [`target`] with the numbers from 0 to `calls`, exclusive, on all CPUs at once. Returns the number of CPUs.
fn call_on_all_cpus(calls: u64) -> u64 {
    let callers = start_on_each_cpu("caller", move || {
        (0..calls).for_each(|number| _ = black_box(target(black_box(number), core::ptr::null())));
    });
    let cpus = callers.len() as u64;
    callers.into_iter().for_each(JoinHandle::join);
    cpus
}

/// Returns the number of steps of the Collatz sequence from `number` to 1.
///
/// It is written in assembly, so that its basic blocks, and the fact that it returns by itself, do not depend on the
/// compiler.
#[unsafe(naked)]
extern "C" fn collatz(number: u64) -> u64 {
    naked_asm!(
        "mov x1, xzr",
        "cmp x0, #1",
        "b.ls 4f",
        "1: tbnz x0, #0, 2f",
        "lsr x0, x0, #1",
        "b 3f",
        "2: add x0, x0, x0, lsl #1",
        "add x0, x0, #1",
        "3: add x1, x1, #1",
        "cmp x0, #1",
        "b.hi 1b",
        "4: mov x0, x1",
        "ret"
    )
}

/// Calls itself `depth` times, and returns `depth`.
#[inline(never)]
fn recurse(depth: u64) -> u64 {
    // Not the code of another test's function: the compiler would merge the two.
    if depth == 0 { 0 } else { black_box(recurse(black_box(depth - 1))) + black_box(1) }
}

#[inline(never)]
fn caller_of_target(number: u64) -> u64 {
    black_box(target(number, core::ptr::null())) + 1
}
