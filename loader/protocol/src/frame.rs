//! On the UART, messages come between text, and either may be damaged. A message is therefore a frame with a checksum
//! between two zeros, and has no zero in it (consistent overhead byte stuffing): a receiver that has lost the thread finds it again
//! at the next zero, and what is no message is text.

use serde::{Deserialize, Serialize};

use crate::{BLOCK, CHECKSUM};

/// More than a frame with a block needs, without its zeros: the message around the block takes 14 bytes, the checksum 4,
/// the stuffing one of 254.
pub const LONGEST: usize = BLOCK + 64;
/// The same of a frame without a block, such as every reply is.
pub const LONGEST_REPLY: usize = 64;

/// Bytes of a frame with its zeros.
pub const ROOM: usize = LONGEST + 2;

/// Makes the frame of `message` in `room`, of at least [`ROOM`] bytes. None if it is too small.
pub fn encode<'a>(message: &impl Serialize, room: &'a mut [u8; ROOM]) -> Option<&'a [u8]> {
    let mut plain = [0; LONGEST];
    let plain = postcard::to_slice_crc32(message, &mut plain, CHECKSUM.digest()).ok()?;
    if cobs::max_encoding_length(plain.len()) > LONGEST {
        return None;
    }
    let length = cobs::encode(plain, &mut room[1..]);
    room[0] = 0;
    room[1 + length] = 0;
    Some(&room[..length + 2])
}

/// What a byte completes.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'a, M> {
    /// Nothing yet.
    Nothing,
    /// These bytes belong to no message.
    Text(&'a [u8]),
    /// A message.
    Message(M),
}

/// Finds the messages in a stream of bytes; no frame is longer than `N`.
pub struct Splitter<const N: usize> {
    /// What has come since the last zero.
    raw: [u8; N],
    length: usize,
    plain: [u8; N],
    /// A zero has come, and what follows may be a frame.
    is_frame: bool,
}

impl<const N: usize> Splitter<N> {
    /// At the start of a stream.
    pub const fn new() -> Self {
        Self { raw: [0; N], length: 0, plain: [0; N], is_frame: false }
    }

    /// What `byte`, the next one, completes.
    pub fn push<'a, M: Deserialize<'a>>(&'a mut self, byte: u8) -> Piece<'a, M> {
        match (byte, self.is_frame) {
            (0, false) => {
                self.is_frame = true;
                Piece::Nothing
            }
            // The zero that was thought to begin a frame may have ended one whose beginning was lost.
            (0, true) if self.length == 0 => Piece::Nothing,
            (0, true) => {
                let length = core::mem::take(&mut self.length);
                let raw = &self.raw[..length];
                match decode(raw, &mut self.plain) {
                    Some(message) => {
                        self.is_frame = false;
                        Piece::Message(message)
                    }
                    None => Piece::Text(raw),
                }
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

    /// What has come since a zero, as text: no more is coming for now, so that it is no frame.
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
