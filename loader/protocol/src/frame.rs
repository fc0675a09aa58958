//! Framing: messages travel on the UART between text, and both may be damaged.
//!
//! So a message is a frame with a checksum, between two zeros and without a zero inside (consistent overhead byte
//! stuffing). A receiver that has lost synchronization finds it again at the next zero. Bytes that form no message are
//! text.

use serde::{Deserialize, Serialize};

use crate::{BLOCK, CHECKSUM};

/// The length in bytes of the longest frame, with the zero at its end and without the one before it. A frame with a
/// block needs less: the message around the block takes 13 bytes at most, the checksum 4, and the stuffing one byte in
/// 254.
pub const LONGEST: usize = BLOCK + 64;
/// The upper bound of the length in bytes of a frame without a block, as every reply is, counted as in [`LONGEST`].
pub const LONGEST_REPLY: usize = 64;

/// The size in bytes of a buffer for a frame with both zeros.
pub const ROOM: usize = LONGEST + 1;

/// Encodes `message` as a frame in `room`. Returns `None` if the message is too long.
pub fn encode<'a>(message: &impl Serialize, room: &'a mut [u8; ROOM]) -> Option<&'a [u8]> {
    let mut plain = [0; LONGEST];
    let plain = postcard::to_slice_crc32(message, &mut plain, CHECKSUM.digest()).ok()?;
    if cobs::max_encoding_length(plain.len()) >= LONGEST {
        return None;
    }
    let length = cobs::encode(plain, &mut room[1..]);
    room[0] = 0;
    room[1 + length] = 0;
    Some(&room[..length + 2])
}

/// The piece of the stream that a byte completes.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'a, M> {
    /// No text or message is complete yet.
    Nothing,
    /// These bytes belong to no message.
    Text(&'a [u8]),
    /// A whole message with a correct checksum.
    Message(M),
}

/// Finds the messages in a stream of bytes. `N` is the upper bound of a frame's length, counted as in [`LONGEST`].
pub struct Splitter<const N: usize> {
    /// The bytes since the last zero.
    raw: [u8; N],
    length: usize,
    plain: [u8; N],
    /// A zero has come, so the bytes after it may be a frame.
    is_frame: bool,
}

impl<const N: usize> Splitter<N> {
    /// Creates a splitter at the start of a stream.
    pub const fn new() -> Self {
        Self { raw: [0; N], length: 0, plain: [0; N], is_frame: false }
    }

    /// Takes the next byte, and returns what it completes.
    pub fn push<'a, M: Deserialize<'a>>(&'a mut self, byte: u8) -> Piece<'a, M> {
        match (byte, self.is_frame) {
            (0, false) => {
                self.is_frame = true;
                Piece::Nothing
            }
            // Two zeros are between frames, or one if the other was lost.
            (0, true) if self.length == 0 => Piece::Nothing,
            (0, true) => {
                let length = core::mem::take(&mut self.length);
                let raw = &self.raw[..length];
                decode(raw, &mut self.plain).map_or(Piece::Text(raw), Piece::Message)
            }
            (_, false) => {
                self.raw[0] = byte;
                Piece::Text(&self.raw[..1])
            }
            (_, true) => {
                self.raw[self.length] = byte;
                self.length += 1;
                if self.length < N {
                    return Piece::Nothing;
                }
                self.flush().map_or(Piece::Nothing, Piece::Text)
            }
        }
    }

    /// Returns the bytes since the last zero as text. Call it when the line has gone quiet, so that they are no frame.
    pub fn flush(&mut self) -> Option<&[u8]> {
        self.is_frame = false;
        let length = core::mem::take(&mut self.length);
        (length != 0).then(|| &self.raw[..length])
    }
}

impl<const N: usize> Default for Splitter<N> {
    fn default() -> Self {
        Self::new()
    }
}

fn decode<'a, M: Deserialize<'a>>(raw: &[u8], plain: &'a mut [u8]) -> Option<M> {
    let length = cobs::decode(raw, plain).ok()?;
    postcard::from_bytes_crc32(plain.get(..length)?, CHECKSUM.digest()).ok()
}
