//! Reads QEMU's capture of a network: a file in the format of libpcap, which QEMU writes in the byte order of the host.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};

/// The size in bytes of the header of a file, and of each packet.
const FILE_HEAD: usize = 24;
const PACKET_HEAD: usize = 16;
/// The first word of a file whose packets have times in microseconds.
const MAGIC: u32 = 0xa1b2_c3d4;

/// A packet that has passed a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Whether the card has sent it. Otherwise the card has received it.
    pub is_transmitted: bool,
    /// Its length in bytes, with the Ethernet header.
    pub length: u64,
    /// Which of SYN, FIN, RST and PSH a TCP segment has, in the words of smoltcp's `Control`. `None` for other packets.
    pub control: Option<&'static str>,
}

/// Counts of packets that have passed a card, and of their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    pub packets_received: u64,
    pub bytes_received: u64,
    pub packets_transmitted: u64,
    pub bytes_transmitted: u64,
}

impl Passed {
    /// Counts these packets.
    pub fn of(packets: &[Packet]) -> Self {
        let mut passed = Self::default();
        for packet in packets {
            let (packets, bytes) = match packet.is_transmitted {
                true => (&mut passed.packets_transmitted, &mut passed.bytes_transmitted),
                false => (&mut passed.packets_received, &mut passed.bytes_received),
            };
            *packets += 1;
            *bytes += packet.length;
        }
        passed
    }
}

/// Reads the packets that have passed the card with this address, in its usual notation, since the file had `since`
/// bytes.
pub fn read(file: &Path, hardware_address: &str, since: u64) -> Result<Vec<Packet>> {
    let bytes = fs::read(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let address: Result<Vec<u8>, _> = hardware_address.split(':').map(|byte| u8::from_str_radix(byte, 16)).collect();
    parse(&bytes, &address?, usize::try_from(since)?).with_context(|| format!("{} is not a capture", file.display()))
}

fn parse(bytes: &[u8], address: &[u8], since: usize) -> Result<Vec<Packet>> {
    let word = |bytes: &[u8]| Some(u32::from_ne_bytes(*bytes.first_chunk()?));
    ensure!(word(bytes) == Some(MAGIC), "it begins with other bytes");
    let mut packets = Vec::new();
    let mut rest = bytes.get(since.max(FILE_HEAD)..).context("it is shorter than it was")?;
    // An incomplete packet is still being written.
    while let Some((head, behind)) = rest.split_at_checked(PACKET_HEAD)
        && let Some(captured) = word(&head[8..])
        && let Some((packet, behind)) = behind.split_at_checked(captured as usize)
    {
        let length = word(&head[12..]).unwrap_or_default().into();
        // The source address follows the destination address.
        let is_transmitted = packet.get(6..12) == Some(address);
        packets.push(Packet { is_transmitted, length, control: control(packet) });
        rest = behind;
    }
    Ok(packets)
}

/// Returns the control flags of a packet. `None` if it is not a TCP segment over IPv4 (RFC 791, section 3.1; RFC 9293,
/// section 3.1).
fn control(packet: &[u8]) -> Option<&'static str> {
    const ETHERNET: usize = 14;
    let is_ipv4 = packet.get(12..ETHERNET) == Some(&[8, 0]);
    let header = packet.get(ETHERNET..).filter(|header| is_ipv4 && header.get(9) == Some(&6))?;
    let flags = *header.get(usize::from(header.first()? & 0xf) * 4 + 13)?;
    Some(match (flags & 2 != 0, flags & 1 != 0, flags & 4 != 0, flags & 8 != 0) {
        (true, ..) => "Syn",
        (_, true, ..) => "Fin",
        (_, _, true, _) => "Rst",
        (.., true) => "Psh",
        _ => "None",
    })
}

#[cfg(test)]
mod tests {
    use super::{MAGIC, Packet, Passed, parse};

    #[test]
    fn control_flags_are_those_of_tcp_segments() {
        let mut packet = [0; 14 + 24 + 20];
        (packet[12], packet[14], packet[14 + 9]) = (8, 0x46, 6);
        for (flags, control) in [(2, "Syn"), (0x12, "Syn"), (0x11, "Fin"), (4, "Rst"), (0x18, "Psh"), (0x10, "None")] {
            packet[14 + 24 + 13] = flags;
            assert_eq!(super::control(&packet), Some(control));
        }
        packet[14 + 9] = 17;
        assert_eq!(super::control(&packet), None);
        assert_eq!(super::control(&packet[..20]), None);
    }

    #[test]
    fn packets_are_told_apart_by_their_direction() {
        let mut file: Vec<u8> = MAGIC.to_ne_bytes().into_iter().chain([0; 20]).collect();
        let mut ends = Vec::new();
        for (source, length) in [(1, 60_u32), (2, 1514), (1, 70)] {
            let head = [0, 0, 20, length].map(u32::to_ne_bytes).concat();
            let packet = [[0; 6], [source; 6]].concat().into_iter().chain([0; 8]);
            file.extend(head.into_iter().chain(packet));
            ends.push(file.len());
        }
        let packet = |is_transmitted, length| Packet { is_transmitted, length, control: None };
        let packets = [packet(true, 60), packet(false, 1514), packet(true, 70)];
        assert_eq!(parse(&file, &[1; 6], 0).unwrap(), packets);
        assert_eq!(parse(&file, &[1; 6], ends[0]).unwrap(), packets[1..]);
        assert_eq!(parse(&file, &[1; 6], ends[2]).unwrap(), []);
        let all = Passed { packets_received: 1, bytes_received: 1514, packets_transmitted: 2, bytes_transmitted: 130 };
        assert_eq!(Passed::of(&packets), all);
        file.pop();
        assert_eq!(parse(&file, &[1; 6], 0).unwrap(), packets[..2]);
        assert!(parse(&file, &[1; 6], ends[2]).is_err());
        file[0] ^= 1;
        assert!(parse(&file, &[1; 6], 0).is_err());
    }
}
