//! The frames of a recording on its way to the host. Each has a number, a length and a checksum, so that damaged and
//! missing frames are noticed and counted. A frame goes over its own channel as it is, or over a console as marked text
//! ([`Base64`]).
//!
//! ```text
//! frame  "KPRF" │ u16 kind │ u16 CPU │ u32 number │ u32 length of the payload │ u32 CRC-32 of kind to length, and payload │ payload
//! ```

use core::fmt::{self, Write};

use crc::{CRC_32_ISO_HDLC, Crc};

/// The first bytes of every frame.
const MAGIC: [u8; 4] = *b"KPRF";
/// The number of bytes in a frame before its payload.
pub const HEADER: usize = 20;
/// The upper bound of a payload's length in bytes. The reader takes a longer one as damage.
pub const PAYLOAD_MAX: usize = 64 << 10;

/// The kind of a frame's payload, with its number in the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum PayloadKind {
    /// A page of the ring of a CPU.
    Page = 1,
    /// The number of a task, a space, and the task's name.
    Task = 2,
    /// The end of the recording: the numbers of records sent and lost, as text.
    End = 3,
}

/// Returns the header of frame `number` with this payload: the bytes before the payload.
#[must_use]
pub fn header(kind: PayloadKind, cpu: u16, number: u32, payload: &[u8]) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    let length = payload.len() as u32;
    let fields =
        [&MAGIC[..], &(kind as u16).to_le_bytes(), &cpu.to_le_bytes(), &number.to_le_bytes(), &length.to_le_bytes()];
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

/// Formats bytes as Base64 (RFC 4648, 4).
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

/// Decodes text that [`Base64`] has written, up to the first character that is not a digit of Base64.
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

/// A whole frame with a correct checksum.
#[cfg(any(test, feature = "host"))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The kind of the payload.
    pub kind: PayloadKind,
    /// The CPU whose ring the page is from; 0 for other kinds.
    pub cpu: u16,
    /// The payload, unchecked beyond the checksum.
    pub payload: Vec<u8>,
}

/// Finds frames in a stream of bytes.
#[cfg(any(test, feature = "host"))]
#[derive(Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
    next: u32,
    /// The number of missing frames: the gaps between frame numbers. A number below the expected one is no gap: it
    /// begins another recording, or repeats a frame.
    pub missing: u64,
    /// The number of bytes that belong to no whole frame.
    pub damaged: u64,
}

#[cfg(any(test, feature = "host"))]
impl Frames {
    /// Takes the next bytes, and returns the frames that they complete.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Frame> {
        self.bytes.extend_from_slice(bytes);
        self.scan(false)
    }

    /// Returns the frames in the remaining bytes, at the end of the stream. An incomplete frame counts as damage, and
    /// may have hidden others.
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
            let kinds = [PayloadKind::Page, PayloadKind::Task, PayloadKind::End];
            let kind = kinds.into_iter().find(|kind| *kind as u16 == short(4));
            if let (true, Some(kind), true) = (head[..4] == MAGIC, kind, length <= PAYLOAD_MAX) {
                let payload = self.bytes.get(at + HEADER..at + HEADER + length);
                if payload.is_none() && !is_last {
                    break;
                }
                if let Some(payload) = payload.filter(|payload| check(head, payload) == long(16)) {
                    frames.push(Frame { kind, cpu: short(6), payload: payload.to_vec() });
                    let gap = number.wrapping_sub(self.next).cast_signed();
                    self.missing += u64::try_from(gap).unwrap_or(0);
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
        [&header(PayloadKind::Page, 3, number, payload)[..], payload].concat()
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
            assert!(found.iter().all(|frame| (frame.kind, frame.cpu) == (PayloadKind::Page, 3)));
            assert_eq!(frames.finish(), []);
            assert_eq!((frames.missing, frames.damaged), (0, 0));
        }
    }

    /// If any bit of a frame changes, only that frame is missing.
    #[test]
    fn what_is_damaged_is_noticed() {
        let stream = [frame(0, b"first"), frame(1, b"second"), frame(2, b"third")].concat();
        let second = HEADER + 5..2 * HEADER + 11;
        for bit in 0..8 * second.len() {
            let mut damaged = stream.clone();
            damaged[second.start + bit / 8] ^= 1 << (bit % 8);
            let mut frames = Frames::default();
            let mut found = frames.feed(&damaged);
            // A length that is too large hides the third frame until the end of the stream is known.
            found.extend(frames.finish());
            assert!(found.iter().map(|frame| &frame.payload[..]).eq([&b"first"[..], b"third"]), "{bit}");
            assert_eq!((frames.missing, frames.damaged), (1, second.len() as u64), "{bit}");
        }
    }

    #[test]
    fn numbers_that_begin_again_are_no_gap() {
        let numbers = [0, 1, 0, 1, 3, u32::MAX, 0];
        let mut frames = Frames::default();
        let missing = numbers.map(|number| {
            assert_eq!(frames.feed(&frame(number, b"page")).len(), 1, "{number}");
            frames.missing
        });
        assert_eq!(missing, [0, 0, 0, 0, 1, 1, 1]);
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
