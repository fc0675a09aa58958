//! The loader's side: its answers, and the state of the transfer.

use crate::{CHECKSUM, Command, ImageRefusal, Reply, Transfer, VERSION};

/// The next step of the loader after a command.
#[derive(Debug, PartialEq, Eq)]
pub enum Reaction {
    /// Send this reply.
    Answer(Reply),
    /// Start this image, which is complete in memory.
    Start(Transfer),
}

/// The loader's state of the transfer.
pub struct Receiver {
    /// The part number of the CPU in MIDR_EL1.
    part: u16,
    /// The length in bytes of the longest image that fits.
    room: u32,
    /// The current transfer, and the number of the next block.
    current: Option<(Transfer, u32)>,
}

impl Receiver {
    /// Creates the state of a loader that has just been started.
    pub const fn new(part: u16, room: u32) -> Self {
        Self { part, room, current: None }
    }

    /// Returns the reply that the loader also sends unasked.
    pub fn ready(&self) -> Reply {
        Reply::Ready { version: VERSION, part: self.part }
    }

    /// Returns whether no transfer has begun.
    pub fn is_idle(&self) -> bool {
        self.current.is_none()
    }

    /// Handles `command`. `memory` holds the packed image; only this function changes it.
    pub fn command(&mut self, command: &Command, memory: &mut [u8]) -> Reaction {
        match command {
            Command::Hello => Reaction::Answer(self.ready()),
            Command::Begin(transfer) => Reaction::Answer(self.begin(transfer, memory)),
            Command::Data { id, index, bytes } => Reaction::Answer(self.data(*id, *index, bytes, memory)),
            Command::Start { id } => self.start(*id),
        }
    }

    /// Returns the reply to bytes that were no message.
    pub fn garbage(&self) -> Reply {
        match self.current {
            Some((Transfer { id, .. }, next)) => Reply::Again { id, next },
            None => self.ready(),
        }
    }

    /// Gives the transfer up. The host has to announce it again, and to send all its blocks again, unless the whole
    /// packed image is in memory undamaged.
    pub fn refuse(&mut self, id: u32, refusal: ImageRefusal) -> Reply {
        self.current = None;
        Reply::Refused { id, refusal }
    }

    fn begin(&mut self, transfer: &Transfer, memory: &[u8]) -> Reply {
        let id = transfer.id;
        if let Some((current, next)) = self.current
            && current == *transfer
        {
            return Reply::Have { id, next };
        }
        let Some(place) = memory.get(..transfer.packed as usize).filter(|_| transfer.length <= self.room) else {
            let packed = memory.len().try_into().unwrap_or(u32::MAX);
            return self.refuse(id, ImageRefusal::TooLong { image: self.room, packed });
        };
        // The packed image may still be in memory from before the board was reset.
        let next = if CHECKSUM.checksum(place) == id { transfer.blocks() } else { 0 };
        self.current = Some((*transfer, next));
        Reply::Have { id, next }
    }

    fn data(&mut self, id: u32, index: u32, bytes: &[u8], memory: &mut [u8]) -> Reply {
        let Some((transfer, next)) = self.current.as_mut().filter(|(transfer, _)| transfer.id == id) else {
            return self.ready();
        };
        let place = transfer.block(index).and_then(|range| memory.get_mut(range));
        if let Some(place) = place.filter(|place| index == *next && place.len() == bytes.len()) {
            place.copy_from_slice(bytes);
            *next += 1;
        }
        Reply::Have { id, next: *next }
    }

    fn start(&self, id: u32) -> Reaction {
        match self.current {
            Some((transfer, next)) if transfer.id == id => match next < transfer.blocks() {
                true => Reaction::Answer(Reply::Have { id, next }),
                false => Reaction::Start(transfer),
            },
            _ => Reaction::Answer(self.ready()),
        }
    }
}
