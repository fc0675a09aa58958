//! A recording on its way to the host: frames with a number, a length and a check, so that what is damaged or missing is noticed and
//! counted. A frame goes over a channel of its own as it is, and over a console as marked text ([`Base64`]).
//!
//! ```text
//! frame  "KPRF" │ u16 kind │ u16 CPU │ u32 number │ u32 length of the payload │ u32 CRC-32 of kind to length, and payload │ payload
//! ```

use core::fmt::{self, Write};

use crc::{CRC_32_ISO_HDLC, Crc};

/// What a frame begins with.
const MAGIC: [u8; 4] = *b"KPRF";
/// Bytes of a frame before its payload.
pub const HEADER: usize = 20;
/// Longer payloads are none.
pub const PAYLOAD_MAX: usize = 64 << 10;

/// What is in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A page of the ring of a CPU.
    Page,
    /// The number of a task, a space, and its name.
    Task,
    /// The recording is over: how many records there were, and how many are missing, as text.
    End,
}

impl Kind {
    const ALL: [(Self, u16); 3] = [(Self::Page, 1), (Self::Task, 2), (Self::End, 3)];

    fn number(self) -> u16 {
        Self::ALL.iter().find(|(kind, _)| *kind == self).map_or(0, |(_, number)| *number)
    }
}

/// Writes the first [`HEADER`] bytes of frame `number`, whose payload this is.
#[must_use]
pub fn header(kind: Kind, cpu: u16, number: u32, payload: &[u8]) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    let length = payload.len() as u32;
    let fields =
        [&MAGIC[..], &kind.number().to_le_bytes(), &cpu.to_le_bytes(), &number.to_le_bytes(), &length.to_le_bytes()];
    header.iter_mut().zip(fields.into_iter().flatten()).for_each(|(byte, field)| *byte = *field);
    let check = check(&header, payload).to_le_bytes();
    header.iter_mut().skip(HEADER - 4).zip(check).for_each(|(byte, check)| *byte = check);
    header
}

fn check(header: &[u8; HEADER], payload: &[u8]) -> u32 {
    const CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);
    let mut digest = CRC.digest();
    digest.update(header.get(MAGIC.len()..HEADER - 4).unwrap_or_default());
    digest.update(payload);
    digest.finalize()
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Bytes as text (RFC 4648, 4).
#[derive(Clone, Copy, Debug)]
pub struct Base64<'a>(pub &'a [u8]);

impl fmt::Display for Base64<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chunks(3).try_for_each(|chunk| {
            let word = chunk.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
            (0..4).try_for_each(|place| {
                let digit = DIGITS.get((word >> (18 - 6 * place)) as usize & 63).map_or('=', |digit| (*digit).into());
                f.write_char(if place <= chunk.len() { digit } else { '=' })
            })
        })
    }
}

/// The bytes that [`Base64`] has written; what is none ends them.
#[cfg(any(test, feature = "host"))]
#[must_use]
pub fn from_base64(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (mut word, mut bits) = (0_u32, 0);
    for digit in text.bytes().map_while(|byte| DIGITS.iter().position(|digit| *digit == byte)) {
        word = word << 6 | digit as u32;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((word >> bits) as u8);
        }
    }
    bytes
}

/// A frame that has come whole.
#[cfg(any(test, feature = "host"))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What is in it.
    pub kind: Kind,
    /// The CPU that it is about.
    pub cpu: u16,
    /// What was sent.
    pub payload: Vec<u8>,
}

/// Finds frames in a stream of bytes.
#[cfg(any(test, feature = "host"))]
#[derive(Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
    next: u32,
    /// How many frames are missing.
    pub missing: u64,
    /// How many bytes were in no frame.
    pub damaged: u64,
}

#[cfg(any(test, feature = "host"))]
impl Frames {
    /// The frames that the bytes that came next complete.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Frame> {
        self.bytes.extend_from_slice(bytes);
        self.scan(false)
    }

    /// The frames in the bytes that are left, after which none come: a frame that is not whole is damaged, and may hide others.
    pub fn finish(&mut self) -> Vec<Frame> {
        let frames = self.scan(true);
        self.damaged += self.bytes.len() as u64;
        self.bytes.clear();
        frames
    }

    fn scan(&mut self, is_last: bool) -> Vec<Frame> {
        let mut frames = Vec::new();
        let mut at = 0;
        while let Some(head) = self.bytes[at..].first_chunk::<HEADER>() {
            let long = |start: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| head[start + byte]));
            let short = |start: usize| u16::from_le_bytes([head[start], head[start + 1]]);
            let (number, length) = (long(8), long(12) as usize);
            let kind = Kind::ALL.iter().find(|(_, number)| *number == short(4));
            if let (true, Some((kind, _)), true) = (head[..4] == MAGIC, kind, length <= PAYLOAD_MAX) {
                let payload = self.bytes.get(at + HEADER..at + HEADER + length);
                if payload.is_none() && !is_last {
                    break;
                }
                if let Some(payload) = payload.filter(|payload| check(head, payload) == long(16)) {
                    frames.push(Frame { kind: *kind, cpu: short(6), payload: payload.to_vec() });
                    self.missing += u64::from(number.wrapping_sub(self.next));
                    self.next = number.wrapping_add(1);
                    at += HEADER + length;
                    continue;
                }
            }
            at += 1;
            self.damaged += 1;
        }
        self.bytes.drain(..at);
        frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(number: u32, payload: &[u8]) -> Vec<u8> {
        [&header(Kind::Page, 3, number, payload)[..], payload].concat()
    }

    #[test]
    fn frames_come_through_wherever_they_are_cut() {
        let payloads = [vec![], vec![1; 5], b"KPRFKPRF".to_vec(), (0..=255).cycle().take(4096).collect()];
        let stream: Vec<u8> = payloads.iter().zip(0..).flat_map(|(payload, number)| frame(number, payload)).collect();
        for cut in [0, 1, 19, 20, 21, 44, 45, 100, stream.len()] {
            let mut frames = Frames::default();
            let mut found = frames.feed(&stream[..cut]);
            found.extend(frames.feed(&stream[cut..]));
            assert!(found.iter().map(|frame| &frame.payload).eq(&payloads), "{cut}");
            assert!(found.iter().all(|frame| (frame.kind, frame.cpu) == (Kind::Page, 3)));
            assert_eq!(frames.finish(), []);
            assert_eq!((frames.missing, frames.damaged), (0, 0));
        }
    }

    /// Whatever bit changes, the frame is missing, and the others come through.
    #[test]
    fn what_is_damaged_is_noticed() {
        let stream = [frame(0, b"first"), frame(1, b"second"), frame(2, b"third")].concat();
        let second = HEADER + 5..2 * HEADER + 11;
        for bit in 0..8 * second.len() {
            let mut damaged = stream.clone();
            damaged[second.start + bit / 8] ^= 1 << (bit % 8);
            let mut frames = Frames::default();
            let mut found = frames.feed(&damaged);
            // A length that is too large hides the third until it is known that no more comes.
            found.extend(frames.finish());
            assert!(found.iter().map(|frame| &frame.payload[..]).eq([&b"first"[..], b"third"]), "{bit}");
            assert_eq!((frames.missing, frames.damaged), (1, second.len() as u64), "{bit}");
        }
    }

    #[test]
    fn text_is_base64() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(Base64(bytes.as_bytes()).to_string(), text);
            assert_eq!(from_base64(text), bytes.as_bytes());
        }
        let all: Vec<u8> = (0..=255).rev().collect();
        assert_eq!(from_base64(&Base64(&all).to_string()), all);
    }
}
