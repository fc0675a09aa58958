//! Packing of images (RFC 1950). A UART carries some ten thousand bytes a second, and an image has millions.

use miniz_oxide::inflate;

use crate::{CHECKSUM, ImageRefusal, Transfer};

/// Unpacks the packed image of `transfer` to the start of `image`.
///
/// # Errors
///
/// [`ImageRefusal::Damaged`] if the checksum of `packed` is not the one in `transfer`; [`ImageRefusal::NotUnpackable`]
/// if `packed` cannot be unpacked, or if the length or the checksum of the image is not the one in `transfer`.
pub fn unpack(transfer: &Transfer, packed: &[u8], image: &mut [u8]) -> Result<(), ImageRefusal> {
    if CHECKSUM.checksum(packed) != transfer.id {
        return Err(ImageRefusal::Damaged);
    }
    let image = image.get_mut(..transfer.length as usize).ok_or(ImageRefusal::NotUnpackable)?;
    let length = inflate::decompress_slice_iter_to_slice(image, core::iter::once(packed), true, false);
    match length {
        Ok(length) if length == image.len() && CHECKSUM.checksum(image) == transfer.checksum => Ok(()),
        _ => Err(ImageRefusal::NotUnpackable),
    }
}

/// An image, ready to be sent.
#[cfg(any(test, feature = "send"))]
pub struct Package {
    /// The description that the loader gets in [`Command::Begin`](crate::Command::Begin).
    pub transfer: Transfer,
    /// The packed image.
    pub packed: Vec<u8>,
}

#[cfg(any(test, feature = "send"))]
impl Package {
    /// Packs `image`. Returns `None` if its length does not fit into a [`Transfer`].
    pub fn new(image: &[u8]) -> Option<Self> {
        /// The best compression for the time that it takes.
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
