//! The commands about the kernel itself: its tasks, its CPUs and its workloads.

use device_tree::Start;
use kprobes_console::input;
use kprobes_console::nearest::nearest;
use kprobes_console::session::Session;
use kprobes_console::source_lines;
use kprobes_console::words::{Failure, Words, joined};

use crate::workload;
use crate::{backtrace as trace, power, print, println, smp, task};

/// The iterations of a workload if the command gives no number.
const DEFAULT_ITERATIONS: u64 = 100;
/// The most iterations that the command accepts.
const ITERATIONS_MAX: u64 = 1_000_000_000;
/// The tasks of a workload if the command gives no number.
const DEFAULT_TASKS: u64 = 4;
/// The most tasks that the command accepts.
const TASKS_MAX: u64 = 64;

/// `run WORKLOAD [N] [TASKS]`: runs a workload and prints its report.
pub(super) fn run(_: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    let names = workload::NAMES;
    let name = words.expect(format_args!("a workload ({})", joined(&names, " or ")))?;
    let Some(workload) = workload::find(name.text) else {
        return Err(match nearest(name.text, names.into_iter()) {
            Some(meant) => name.failure(format_args!("there is no workload `{}`; did you mean `{meant}`?", name.text)),
            None => name.failure(format_args!(
                "there is no workload `{}`; the workloads are {}",
                name.text,
                joined(&names, " and ")
            )),
        });
    };
    if let Some(lack) = (workload.lacks)() {
        return Err(name.failure(lack));
    }
    let iterations = words.number(DEFAULT_ITERATIONS, ITERATIONS_MAX)?;
    let tasks = words.number(DEFAULT_TASKS, TASKS_MAX)?;
    words.end()?;
    let report = workload::run(workload, iterations, tasks, input::is_interrupted)?;
    if !input::is_interrupted() {
        println!("{report}");
    }
    Ok(())
}

/// `tasks`: prints a line for each task.
pub(super) fn tasks(_: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    words.end()?;
    println!("  number  cpu  state     run time       name");
    for task::TaskInfo { id, name, state, cpu, run_time_ns, .. } in task::list()? {
        let (milliseconds, rest) = (run_time_ns / 1_000_000, run_time_ns / 1000 % 1000);
        println!("{id:>8}  {cpu:>3}  {state:<8}  {milliseconds:>6}.{rest:03} ms  {name}");
    }
    Ok(())
}

/// `cpus`: prints a line for each CPU, with the reason if it does not run.
pub(super) fn cpus(_: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    words.end()?;
    println!("  number  affinity    started by   state");
    for (number, smp::CpuInfo { affinity, start, error }) in smp::list().iter().enumerate() {
        let method = match (number, start) {
            (0, _) => "boot loader",
            (_, Some(Start::Psci)) => "PSCI",
            (_, Some(Start::SpinTable(_))) => "spin table",
            (_, None) => "none",
        };
        print!("{number:>8}  {affinity:#010x}  {method:<11}  ");
        match error {
            None => println!("running"),
            Some(error) => println!("off: {error}"),
        }
    }
    if smp::unwanted() > 0 {
        println!("off, because the boot arguments ask for fewer: {}", smp::unwanted());
    }
    if smp::surplus() > 0 {
        println!("off, because the kernel has no room for more: {}", smp::surplus());
    }
    Ok(())
}

/// `backtrace [-v] TASK`: prints where a task is, given by its number or its name.
pub(super) fn backtrace(_: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    let has_lines = words.option("-v");
    let wanted = words.expect("the number or the name of a task")?;
    words.end()?;
    let tasks = task::list()?;
    let is_number_of = |id: u64| {
        let is_plain = wanted.text.len() == 1 || !wanted.text.starts_with(['+', '0']);
        is_plain && wanted.text.parse() == Ok(id)
    };
    let mut named = tasks.iter().filter(|task| is_number_of(task.id) || task.name == wanted.text);
    let task = named.next().ok_or_else(|| wanted.failure("no task has this number or name; `tasks` lists them"))?;
    if named.next().is_some() {
        return Err(wanted.failure("several tasks have this name; give the number of one of them"));
    }
    if has_lines {
        // Other CPUs wait for the UART while a backtrace is printed, so the table is checked before.
        source_lines::check();
    }
    let functions = trace::of_task(task.id).map_err(|error| wanted.failure(error))?;
    println!("task {} ({}), {}:", task.id, task.name, task.state);
    match has_lines {
        true => print!("{}", functions.with_lines()),
        false => print!("{functions}"),
    }
    Ok(())
}

/// `poweroff`: switches the machine off.
pub(super) fn power_off(_: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    words.end()?;
    power::off()
}

/// `reboot`: resets the machine, which boots again.
pub(super) fn reboot(_: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    words.end()?;
    power::reset()
}
