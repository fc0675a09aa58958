//! A small kernel that can be probed: four CPUs, tasks that the timer preempts, the MMU on and the text read-only, on
//! QEMU's `virt` machine, or on its `raspi3b`.
//!
//! | module | what it is |
//! |---|---|
//! | `kernel` | the kernel: without the marked lines, it runs and has no probes |
//! | `probes` | what the kernel tells the engine, with the lines that end in `// probes`, and one of `kernel.ld` |
//! | `patching` | what a kernel needs that changes its text, with the lines that end in `// patching` |
//! | `demonstration` | two kprobes and two kretprobes |

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod demonstration;
#[cfg(target_os = "none")]
mod kernel;
#[cfg(target_os = "none")]
mod patching;
#[cfg(target_os = "none")]
mod probes;

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("this runs on QEMU's virt machine: see examples/kernel/README.md");
}
