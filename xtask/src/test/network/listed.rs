//! Parses the reply to the kernel's command `network`.

use super::capture::{Packet, Passed};

/// The command that lists the interfaces.
pub const COMMAND: &str = "network";

/// An interface, as the kernel lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    pub hardware_address: String,
    pub has_address: bool,
    /// The packets and bytes that it has received and transmitted.
    pub passed: Passed,
    pub lost: u64,
}

impl Interface {
    /// Parses a line of the list. `None` if it is about no interface.
    fn parse(line: &str) -> Option<Self> {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let has_address = words.len() == 9;
        if has_address {
            words.remove(1);
        }
        let [name, hardware_address, packets_received, bytes_received, packets_transmitted, bytes_transmitted, lost, _] =
            words[..]
        else {
            return None;
        };
        let passed = Passed {
            packets_received: packets_received.parse().ok()?,
            bytes_received: bytes_received.parse().ok()?,
            packets_transmitted: packets_transmitted.parse().ok()?,
            bytes_transmitted: bytes_transmitted.parse().ok()?,
        };
        let lost = lost.parse().ok()?;
        Some(Self { name: name.into(), hardware_address: hardware_address.into(), has_address, passed, lost })
    }

    /// Whether the interface has counted exactly these packets, and lost none.
    pub fn has_counted(&self, packets: &[Packet]) -> bool {
        self.passed == Passed::of(packets) && self.lost == 0
    }
}

/// Returns the interfaces in a reply.
pub fn interfaces(reply: &[String]) -> Vec<Interface> {
    reply.iter().filter_map(|line| Interface::parse(line)).collect()
}

/// Returns the number of heap bytes in use. `None` if the reply has no such line.
pub fn heap(reply: &[String]) -> Option<u64> {
    reply.iter().find_map(|line| line.strip_prefix("memory: ")?.strip_suffix(" bytes of the heap")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::{Interface, Passed, heap};

    #[test]
    fn the_list_is_read() {
        let passed =
            Passed { packets_received: 2, bytes_received: 1180, packets_transmitted: 3, bytes_transmitted: 620 };
        let line = "net0  10.0.2.15/24        52:54:00:12:34:56         2        1180            3         620     4            0";
        let interface = Interface::parse(line).unwrap();
        assert_eq!((interface.passed, interface.lost, interface.has_address), (passed, 4, true));
        let interface = Interface::parse(&line.replace("10.0.2.15/24", "")).unwrap();
        assert_eq!((interface.passed, interface.lost, interface.has_address), (passed, 4, false));
        assert_eq!((&*interface.name, &*interface.hardware_address), ("net0", "52:54:00:12:34:56"));
        assert_eq!(Interface::parse(&line.replace("1180", "many")), None);
        assert_eq!(heap(&["x".into(), "memory: 12 bytes of the heap".into()]), Some(12));
        assert_eq!(heap(&["memory: no bytes of the heap".into()]), None);
    }
}
