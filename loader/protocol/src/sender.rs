//! The host's side: the next command, as a function of the loader's replies and of the time without one.

use std::{fmt, time::Duration};

use crate::{
    Command, ImageRefusal, Reply, VERSION,
    frame::{self, ROOM},
    package::Package,
};

/// How long unpacking may take. A CPU without caches needs less for the longest image.
const TIME_TO_UNPACK: Duration = Duration::from_secs(90);

/// The stage of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The host does not know whether a loader is there.
    Greeting,
    /// The host announces the image.
    Beginning,
    /// The host sends the block with this number.
    Sending(u32),
    /// All blocks have arrived; the host asks the loader to start the image.
    Starting,
    /// The loader unpacks the image.
    Unpacking,
    /// The image runs.
    Started,
}

/// Why a transfer cannot succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The loader has this version of the protocol, and the host another.
    Version(u16),
    /// The loader has refused the image.
    Refused(ImageRefusal),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Version(version) => write!(
                f,
                "the loader on the card speaks version {version} of the protocol, and this command version {VERSION}: \
                 put the loader of this repository on the card"
            ),
            Self::Refused(refusal) => write!(f, "the loader refuses the image: {refusal}"),
        }
    }
}

/// A transfer, as the host sees it.
pub struct Sender<'a> {
    package: &'a Package,
    stage: Stage,
    /// How long a reply may take.
    patience: Duration,
    /// When to repeat the last command if no reply has come.
    deadline: Duration,
    /// The image is being sent for the second time, because it was refused as damaged.
    is_second: bool,
    /// The part number of the board's CPU, once the loader has told it.
    part: Option<u16>,
}

impl<'a> Sender<'a> {
    /// Creates a transfer of `package` over a line on which a reply takes at most `patience`.
    pub fn new(package: &'a Package, patience: Duration) -> Self {
        Self { package, stage: Stage::Greeting, patience, deadline: Duration::ZERO, is_second: false, part: None }
    }

    /// Returns the current stage.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Returns the part number of the board's CPU, if the loader has told it.
    pub fn part(&self) -> Option<u16> {
        self.part
    }

    /// Returns the bytes to send at the time `now`, if any. `now` counts from any fixed moment.
    pub fn poll(&mut self, now: Duration) -> Option<Vec<u8>> {
        if now < self.deadline {
            return None;
        }
        let id = self.package.transfer.id;
        let command = match self.stage {
            Stage::Greeting => Command::Hello,
            Stage::Beginning => Command::Begin(self.package.transfer),
            Stage::Sending(index) => {
                let bytes = self.package.transfer.block(index).map(|range| &self.package.packed[range]);
                Command::Data { id, index, bytes: bytes.unwrap_or_default() }
            }
            Stage::Starting => Command::Start { id },
            Stage::Unpacking => {
                // The loader should have replied long ago. The reply may have been lost, so ask again.
                self.stage = Stage::Greeting;
                Command::Hello
            }
            Stage::Started => return None,
        };
        self.deadline = now + self.patience;
        frame::encode(&command, &mut [0; ROOM]).map(<[u8]>::to_vec)
    }

    /// Handles a reply of the loader that came at the time `now`. Returns an error if the transfer cannot succeed.
    pub fn reply(&mut self, reply: Reply, now: Duration) -> Result<(), Failure> {
        let own = self.package.transfer.id;
        let (stage, deadline) = match reply {
            Reply::Ready { version, .. } if version != VERSION => return Err(Failure::Version(version)),
            Reply::Ready { part, .. } => {
                self.part = Some(part);
                // The loader repeats this reply while the announcement is on its way. The repetition changes nothing.
                match self.stage {
                    Stage::Beginning | Stage::Started => return Ok(()),
                    _ => (Stage::Beginning, now),
                }
            }
            Reply::Have { id, next } | Reply::Again { id, next } if id == own => {
                let stage = self.stage_at(next);
                let is_new = stage != self.stage || matches!(reply, Reply::Again { .. });
                match self.stage {
                    Stage::Beginning | Stage::Sending(_) | Stage::Starting if is_new => (stage, now),
                    _ => return Ok(()),
                }
            }
            Reply::Unpacking { id } if id == own && self.stage == Stage::Starting => {
                (Stage::Unpacking, now + TIME_TO_UNPACK)
            }
            Reply::Started { id } if id == own => (Stage::Started, now),
            Reply::Refused { id, refusal } if id == own => {
                let may_be_line = matches!(refusal, ImageRefusal::Damaged | ImageRefusal::NotUnpackable);
                if self.is_second || !may_be_line {
                    return Err(Failure::Refused(refusal));
                }
                self.is_second = true;
                (Stage::Beginning, now)
            }
            _ => return Ok(()),
        };
        (self.stage, self.deadline) = (stage, deadline);
        Ok(())
    }

    fn stage_at(&self, next: u32) -> Stage {
        if next < self.package.transfer.blocks() { Stage::Sending(next) } else { Stage::Starting }
    }
}
