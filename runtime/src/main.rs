//! The kernel with the console as its first task.

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
runtime::entry!(main);

#[cfg(target_os = "none")]
fn main() {
    runtime::network::start();
    runtime::console::run()
}

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("the kernel runs on the machine that it is built for: cargo xtask run");
}
