//! What QEMU has captured of a network: a file in the format of libpcap, as QEMU writes it in the byte order of the host.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};

/// Bytes of the head of a file, and of each packet.
const FILE_HEAD: usize = 24;
const PACKET_HEAD: usize = 16;
/// What a file begins with whose packets have times in microseconds.
const MAGIC: u32 = 0xa1b2_c3d4;

/// Packets that have passed a card, and bytes of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capture {
    pub packets_received: u64,
    pub bytes_received: u64,
    pub packets_transmitted: u64,
    pub bytes_transmitted: u64,
}

impl Capture {
    /// What has passed the card with this address, as it is usually written.
    pub fn read(file: &Path, hardware_address: &str) -> Result<Self> {
        let bytes = fs::read(file).with_context(|| format!("{} cannot be read", file.display()))?;
        let address: Result<Vec<u8>, _> =
            hardware_address.split(':').map(|byte| u8::from_str_radix(byte, 16)).collect();
        Self::parse(&bytes, &address?).with_context(|| format!("{} is no capture", file.display()))
    }

    fn parse(bytes: &[u8], address: &[u8]) -> Result<Self> {
        let word = |bytes: &[u8]| Some(u32::from_ne_bytes(*bytes.first_chunk()?));
        ensure!(word(bytes) == Some(MAGIC), "it begins with other bytes");
        let mut capture = Self::default();
        let mut rest = bytes.get(FILE_HEAD..).context("its head is not whole")?;
        // A packet that is not whole is being written.
        while let Some((head, behind)) = rest.split_at_checked(PACKET_HEAD)
            && let Some(captured) = word(&head[8..])
            && let Some((packet, behind)) = behind.split_at_checked(captured as usize)
        {
            let length = word(&head[12..]).unwrap_or_default();
            // The source stands behind the destination.
            let (packets, bytes) = match packet.get(6..12) {
                Some(source) if source == address => (&mut capture.packets_transmitted, &mut capture.bytes_transmitted),
                _ => (&mut capture.packets_received, &mut capture.bytes_received),
            };
            *packets += 1;
            *bytes += u64::from(length);
            rest = behind;
        }
        Ok(capture)
    }
}

#[cfg(test)]
mod tests {
    use super::{Capture, MAGIC};

    #[test]
    fn packets_are_counted_by_their_direction() {
        let mut file: Vec<u8> = MAGIC.to_ne_bytes().into_iter().chain([0; 20]).collect();
        for (source, length) in [(1, 60_u32), (2, 1514), (1, 70)] {
            let head = [0, 0, 20, length].map(u32::to_ne_bytes).concat();
            let packet = [[0; 6], [source; 6]].concat().into_iter().chain([0; 8]);
            file.extend(head.into_iter().chain(packet));
        }
        let all = Capture { packets_received: 1, bytes_received: 1514, packets_transmitted: 2, bytes_transmitted: 130 };
        assert_eq!(Capture::parse(&file, &[1; 6]).unwrap(), all);
        file.pop();
        let fewer = Capture { packets_transmitted: 1, bytes_transmitted: 60, ..all };
        assert_eq!(Capture::parse(&file, &[1; 6]).unwrap(), fewer);
        file[0] ^= 1;
        assert!(Capture::parse(&file, &[1; 6]).is_err());
    }
}
