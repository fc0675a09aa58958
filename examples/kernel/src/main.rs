//! A small kernel that can be probed: four CPUs, tasks that the timer preempts, the MMU on and the text read-only, on
//! QEMU's `virt` machine.
//!
//! The kernel is the module `kernel`. The code for probes is the module `probes`, the lines that end in `// probes`, and
//! the lines of `kernel.ld` that end in a comment `probes`.

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod demonstration;
#[cfg(target_os = "none")]
mod kernel;
#[cfg(target_os = "none")]
mod probes;

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("this runs on QEMU's virt machine: see examples/kernel/README.md");
}
