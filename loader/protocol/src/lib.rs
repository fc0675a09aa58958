//! The protocol by which a host sends a new kernel to a board.
//!
//! The kernel goes over the UART that the board's console is on. That line loses and garbles bytes, is unplugged, and
//! also carries the text of whatever runs on the board. With this protocol, either the kernel arrives whole, or both
//! sides know that it has not.
//!
//! The host asks and the loader answers. Only one block is under way at a time, because a loader without caches cannot
//! take bytes while it processes others. An image is identified by the checksum of its packed form. So a transfer goes
//! on where it was interrupted, and an image that is still in the loader's memory is not sent again.
//!
//! | module | what it owns |
//! |---|---|
//! | [`frame`] | messages as bytes, between other bytes |
//! | [`receiver`] | the loader's side |
//! | [`package`] | images, packed and unpacked |
//! | `sender` | the host's side |
//!
//! The protocol knows of no UART and no clock; its callers provide both.

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

/// The version of the protocol, which changes with every change of a message. The host refuses a loader of another
/// version.
pub const VERSION: u16 = 1;

/// Bytes of a packed image in one [`Command::Data`].
pub const BLOCK: usize = 4096;

/// The checksum of frames, of packed images and of images.
pub(crate) const CHECKSUM: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);

/// The description of an image that is being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// The checksum of the packed image, which identifies the transfer.
    pub id: u32,
    /// The length of the packed image in bytes.
    pub packed: u32,
    /// The length of the image in bytes.
    pub length: u32,
    /// The checksum of the image.
    pub checksum: u32,
}

impl Transfer {
    /// Returns the number of blocks.
    pub fn blocks(&self) -> u32 {
        self.packed.div_ceil(BLOCK as u32)
    }

    /// Returns the range of block `index` in the packed image, or `None` if there is no such block.
    pub fn block(&self, index: u32) -> Option<Range<usize>> {
        let start = usize::try_from(index).ok()?.checked_mul(BLOCK)?;
        let end = start.checked_add(BLOCK)?.min(self.packed as usize);
        (start < end).then_some(start..end)
    }
}

/// A message from the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command<'a> {
    /// Asks whether a loader is there. The answer is [`Reply::Ready`].
    Hello,
    /// Announces an image. The answer tells how much of it the loader has.
    Begin(Transfer),
    /// Carries a block of the image.
    Data {
        /// [`Transfer::id`].
        id: u32,
        /// The number of the block, from 0.
        index: u32,
        /// The contents of the block.
        bytes: &'a [u8],
    },
    /// Asks the loader to start the image.
    Start {
        /// [`Transfer::id`].
        id: u32,
    },
}

/// A message from the loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The loader runs and knows of no transfer, or not of the one in question.
    Ready {
        /// [`VERSION`] of the loader.
        version: u16,
        /// The part number of its CPU (MIDR_EL1), which identifies the board.
        part: u16,
    },
    /// All blocks before `next` have arrived.
    Have {
        /// [`Transfer::id`].
        id: u32,
        /// The number of the block to send next.
        next: u32,
    },
    /// The loader received bytes that were no message. If they were a block, it was `next`.
    Again {
        /// [`Transfer::id`].
        id: u32,
        /// The number of the block to send next.
        next: u32,
    },
    /// The loader unpacks the image, and does not listen until its next reply.
    Unpacking {
        /// [`Transfer::id`].
        id: u32,
    },
    /// The image runs on the board. Everything that follows on the UART comes from the image.
    Started {
        /// [`Transfer::id`].
        id: u32,
    },
    /// The image cannot be started, and the loader has forgotten the transfer.
    Refused {
        /// [`Transfer::id`].
        id: u32,
        /// The reason.
        refusal: ImageRefusal,
    },
}

/// Why an image is not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ImageRefusal {
    /// The image is too long. The fields are the limits of the loader.
    TooLong {
        /// The longest image in bytes.
        image: u32,
        /// The longest packed image in bytes.
        packed: u32,
    },
    /// The checksum of the packed image in memory differs from the one that was announced.
    Damaged,
    /// The packed image does not unpack to the length and checksum that were announced.
    NotUnpackable,
    /// The device tree lies where the image or the loader has to be.
    DeviceTree {
        /// Its physical address.
        address: u64,
    },
}

impl fmt::Display for ImageRefusal {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::TooLong { image, packed } => {
                write!(f, "it is too long: there is room for {image} bytes, and for {packed} bytes of a packed image")
            }
            Self::Damaged => {
                write!(f, "its checksum is wrong although each block arrived intact: the memory is faulty")
            }
            Self::NotUnpackable => write!(f, "it cannot be unpacked"),
            Self::DeviceTree { address } => {
                write!(f, "the firmware has put the device tree at {address:#x}, where the loader needs the memory")
            }
        }
    }
}
