//! A new kernel goes to a board over the UART that its console is on, which loses and garbles bytes, is unplugged, and
//! carries the text of whatever runs there besides. This is what the host and the chain-loader say to each other so that
//! the kernel arrives whole, or both know that it has not.
//!
//! The host asks, the loader answers; one block is under way at a time, as a loader without caches cannot take bytes while
//! it looks at others. An image is known by the checksum of its packed form, so that a transfer goes on where it was
//! interrupted, and an image that the loader still has in its memory is not sent again.
//!
//! | module | what it is |
//! |---|---|
//! | [`frame`] | messages as bytes, between other bytes |
//! | [`receiver`] | the loader's side |
//! | [`package`] | images, packed and unpacked |
//! | `sender` | the host's side |
//!
//! Nothing here knows of a UART or a clock.

#![cfg_attr(not(any(test, feature = "send")), no_std)]

pub mod frame;
pub mod package;
pub mod receiver;
#[cfg(any(test, feature = "send"))]
pub mod sender;
#[cfg(test)]
mod tests;

use core::{fmt, ops::Range};

use crc::{CRC_32_ISO_HDLC, Crc};
use serde::{Deserialize, Serialize};

/// Both sides have the same, or say so: it changes with every message.
pub const VERSION: u16 = 1;

/// Bytes of a packed image that are sent at a time.
pub const BLOCK: usize = 4096;

/// Of frames, of packed images and of images.
pub(crate) const CHECKSUM: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);

/// An image that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// The checksum of the packed image, by which the transfer is known.
    pub id: u32,
    /// Bytes of the packed image.
    pub packed: u32,
    /// Bytes of the image.
    pub length: u32,
    /// The checksum of the image.
    pub checksum: u32,
}

impl Transfer {
    /// How many blocks there are.
    pub fn blocks(&self) -> u32 {
        self.packed.div_ceil(BLOCK as u32)
    }

    /// Where in the packed image this block is.
    pub fn block(&self, index: u32) -> Option<Range<usize>> {
        let start = usize::try_from(index).ok()?.checked_mul(BLOCK)?;
        let end = start.checked_add(BLOCK)?.min(self.packed as usize);
        (start < end).then_some(start..end)
    }
}

/// What the host says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command<'a> {
    /// Whether a loader is there, to be answered with [`Reply::Ready`].
    Hello,
    /// Which image follows; how much of it is there is the answer.
    Begin(Transfer),
    /// A block of it.
    Data {
        /// [`Transfer::id`].
        id: u32,
        /// The number of the block, from 0.
        index: u32,
        /// What is in it.
        bytes: &'a [u8],
    },
    /// To start the image.
    Start {
        /// [`Transfer::id`].
        id: u32,
    },
}

/// What the loader says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The loader runs, and knows of no transfer, or not of this one.
    Ready {
        /// [`VERSION`] of the loader.
        version: u16,
        /// The part number of its CPU (MIDR_EL1), which tells the board.
        part: u16,
    },
    /// All blocks before this one have come.
    Have {
        /// [`Transfer::id`].
        id: u32,
        /// The number of the block that is next.
        next: u32,
    },
    /// What came was no message; if it was a block, then this one.
    Again {
        /// [`Transfer::id`].
        id: u32,
        /// The number of the block that is next.
        next: u32,
    },
    /// The image is being unpacked. Until another reply the loader does not listen.
    Unpacking {
        /// [`Transfer::id`].
        id: u32,
    },
    /// The image has the board now. What comes next on the UART is its own.
    Started {
        /// [`Transfer::id`].
        id: u32,
    },
    /// The image cannot be started, and the transfer is forgotten.
    Refused {
        /// [`Transfer::id`].
        id: u32,
        /// Why.
        refusal: Refusal,
    },
}

/// Why an image is not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The loader has room for an image of so many bytes, or for so many packed ones.
    TooLong {
        /// Bytes of an image.
        image: u32,
        /// Bytes of a packed image.
        packed: u32,
    },
    /// The packed image has another checksum in memory than it was sent with.
    Damaged,
    /// The packed image does not unpack to what the transfer says.
    NotUnpackable,
    /// The device tree, at this physical address, lies where the image or the loader is to be.
    DeviceTree {
        /// Its physical address.
        address: u64,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::TooLong { image, packed } => {
                write!(f, "it is too long: there is room for {image} bytes, and for {packed} when it is packed")
            }
            Self::Damaged => {
                write!(f, "its checksum is wrong after every block of it has come right: the memory is faulty")
            }
            Self::NotUnpackable => write!(f, "it cannot be unpacked"),
            Self::DeviceTree { address } => {
                write!(f, "the firmware has put the device tree at {address:#x}, where the loader needs the memory")
            }
        }
    }
}
