//! The command that lists the network interfaces: their addresses, and their traffic.

use alloc::string::String;

use kprobes_console::session::Session;
use kprobes_console::words::{Failure, Words};

use crate::network::interface::Statistics;
use crate::{memory, network, println};

/// `network`: prints a line for each interface, and the memory in use.
pub(super) fn network(_: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    words.end()?;
    if network::interfaces().is_empty() {
        return Err(Failure::new("this machine has no network card"));
    }
    println!(
        "name  address             card               received       bytes  transmitted       bytes  lost  connections"
    );
    for interface in network::interfaces() {
        let address = match interface.address() {
            Some((address, bits)) => fallible::format(format_args!("{address}/{bits}"))?,
            None => String::new(),
        };
        let hardware_address = fallible::format(format_args!("{}", interface.hardware_address()))?;
        let Statistics { packets_received, bytes_received, packets_transmitted, bytes_transmitted, lost, connections } =
            interface.statistics();
        println!(
            "{:<4}  {address:<18}  {hardware_address:<17}  {packets_received:>8}  {bytes_received:>10}  {packets_transmitted:>11}  \
             {bytes_transmitted:>10}  {lost:>4}  {connections:>11}",
            interface.name(),
        );
    }
    println!("memory: {} bytes of the heap", memory::usage().heap);
    Ok(())
}
