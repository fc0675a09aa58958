//! The resources of the HTTP server.

use kprobes_random::words::word;

/// The size of the megabyte in bytes.
pub(super) const MEGABYTE: usize = 1 << 20;

const INDEX: &str = "<!DOCTYPE html>\n\
    <title>aarch64-kprobes</title>\n\
    <p>A kernel in which every instruction can be probed, while it serves this page.\n\
    <p><a href=\"/megabyte\">/megabyte</a> is a megabyte of which every byte is known.\n";

/// The content of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// The start page.
    Index,
    /// The first megabyte of the disk of the QEMU machines, computed instead of read, so that a client on the host can
    /// compare it with the disk's file.
    Megabyte,
    /// Plain text.
    Text(&'static str),
}

impl Content {
    /// Returns the resource at this path.
    pub(super) fn at(path: &str) -> Option<Self> {
        match path {
            "/" => Some(Self::Index),
            "/megabyte" => Some(Self::Megabyte),
            _ => None,
        }
    }

    /// Returns the media type.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Index => "text/html; charset=utf-8",
            Self::Megabyte => "application/octet-stream",
            Self::Text(_) => "text/plain; charset=utf-8",
        }
    }

    /// Returns the length in bytes.
    pub(super) fn length(self) -> usize {
        match self {
            Self::Index => INDEX.len(),
            Self::Megabyte => MEGABYTE,
            Self::Text(text) => text.len(),
        }
    }

    /// Copies the bytes from `offset` on to `room`, which ends no later than the content.
    pub(super) fn copy(self, offset: usize, room: &mut [u8]) {
        match self {
            Self::Index => room.copy_from_slice(&INDEX.as_bytes()[offset..][..room.len()]),
            Self::Text(text) => room.copy_from_slice(&text.as_bytes()[offset..][..room.len()]),
            Self::Megabyte => copy_words(offset, room),
        }
    }
}

/// Copies the bytes from `offset` on of the disk's words.
fn copy_words(offset: usize, room: &mut [u8]) {
    let mut index = (offset / 8) as u64;
    let (first, rest) = room.split_at_mut(room.len().min(offset.wrapping_neg() % 8));
    if !first.is_empty() {
        first.copy_from_slice(&word(index).to_le_bytes()[offset % 8..][..first.len()]);
        index += 1;
    }
    let (words, last) = rest.as_chunks_mut::<8>();
    for place in words {
        *place = word(index).to_le_bytes();
        index += 1;
    }
    last.copy_from_slice(&word(index).to_le_bytes()[..last.len()]);
}
