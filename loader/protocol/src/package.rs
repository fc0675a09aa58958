//! A UART carries some ten thousand bytes a second, and an image is a million: it is packed (RFC 1950) on the way.

use miniz_oxide::inflate;

use crate::{CHECKSUM, Refusal, Transfer};

/// Unpacks the packed image of `transfer` to the start of `image`.
///
/// # Errors
/// If its checksum, its length or the checksum of the image is another than `transfer` says.
pub fn unpack(transfer: &Transfer, packed: &[u8], image: &mut [u8]) -> Result<(), Refusal> {
    if CHECKSUM.checksum(packed) != transfer.id {
        return Err(Refusal::Damaged);
    }
    let image = image.get_mut(..transfer.length as usize).ok_or(Refusal::NotUnpackable)?;
    let length = inflate::decompress_slice_iter_to_slice(image, core::iter::once(packed), true, false);
    match length {
        Ok(length) if length == image.len() && CHECKSUM.checksum(image) == transfer.checksum => Ok(()),
        _ => Err(Refusal::NotUnpackable),
    }
}

/// An image, ready to be sent.
#[cfg(any(test, feature = "send"))]
pub struct Package {
    /// What the loader is told of it.
    pub transfer: Transfer,
    /// What is sent.
    pub packed: Vec<u8>,
}

#[cfg(any(test, feature = "send"))]
impl Package {
    /// Packs `image`. None if it is so long that its length has no place in a message.
    pub fn new(image: &[u8]) -> Option<Self> {
        /// The best that there is for the time.
        const LEVEL: u8 = 9;
        let packed = miniz_oxide::deflate::compress_to_vec_zlib(image, LEVEL);
        let transfer = Transfer {
            id: CHECKSUM.checksum(&packed),
            packed: packed.len().try_into().ok()?,
            length: image.len().try_into().ok()?,
            checksum: CHECKSUM.checksum(image),
        };
        Some(Self { transfer, packed })
    }
}
