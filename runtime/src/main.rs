//! The kernel with the console as its first task.

#![no_std]
#![no_main]

runtime::entry!(main);

fn main() {
    runtime::network::start();
    runtime::console::run()
}
