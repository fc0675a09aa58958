//! Shows what this kernel supports: `trace --info`.

use aarch64_kprobes::event;
use aarch64_kprobes::probe::Snippet;
use fallible::Text;
use kprobes_program::syntax::{DEPTH_MAX, PROGRAM_MAX};
use kprobes_vm::ir::{ITEMS_MAX, LOOP_OPS_MAX, OPS_MAX, STACK_MAX};
use kprobes_vm::maps::{KEYS_MAX, Limits};

use crate::host::{self, host};
use crate::words::Failure;
use crate::{symbol, types};

/// Runs `trace --info`.
pub(super) fn show() -> Result<(), Failure> {
    let yes = |is: bool| if is { "yes" } else { "no" };
    println!("Kernel");
    println!("  version: aarch64-kprobes {}", env!("CARGO_PKG_VERSION"));
    println!("  CPUs: {} of {} run", host::running_cpus(), host::cpus());
    println!("  tasks: {}", yes(host().spawn().is_some()));
    println!("  atomic instructions (FEAT_LSE): {}", yes(Snippet::would_have_atomics()));
    let mut own = Text::default();
    // A text is incomplete only if there is no memory for it.
    let _ = host().write_features(&mut own);
    own.0.lines().for_each(|line| println!("  {line}"));
    match host().memory_to_spare() {
        Some(bytes) => println!("  memory for programs: {} KiB", bytes >> 10),
        None => println!("  memory for programs: unknown"),
    }
    println!("Image");
    println!("  functions: {}", symbol::table().map_or(0, |table| table.iter().count()));
    println!("  static events: {}", event::all().count());
    println!("  types of arguments: {}", yes(types::table().is_ok()));
    println!("Probes");
    println!("  kprobe, kretprobe, fentry, fexit, return, insn, inline, tracepoint, rawtracepoint");
    println!("  interval, profile, software, hardware, watchpoint, BEGIN, END");
    println!("Limits");
    println!("  program: {PROGRAM_MAX} bytes, {ITEMS_MAX} clauses, nested {DEPTH_MAX} deep");
    println!("  clause: {OPS_MAX} ops, and {LOOP_OPS_MAX} in loops at a hit");
    let Limits { entries, output_bytes, .. } = Limits::usual(host::cpus());
    println!("  map: {entries} keys, or up to {KEYS_MAX} with -k");
    println!("  stack: {STACK_MAX} frames");
    println!("  output: {} KiB for each CPU", output_bytes >> 10);
    Ok(())
}
