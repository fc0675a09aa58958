//! The host's side: what is to be said next, given what the loader has answered and how long it has not.

use std::{fmt, time::Duration};

use crate::{
    Command, Refusal, Reply, VERSION,
    frame::{self, ROOM},
    package::Package,
};

/// How long unpacking may take: more than a CPU without caches needs for the longest image.
const TIME_TO_UNPACK: Duration = Duration::from_secs(90);

/// Where the transfer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Whether there is a loader is not known.
    Greeting,
    /// The loader is told what comes.
    Beginning,
    /// This block is sent.
    Sending(u32),
    /// All is there.
    Starting,
    /// The loader unpacks the image.
    Unpacking,
    /// The image runs.
    Started,
}

/// Why a transfer cannot succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The loader speaks another version of the protocol.
    Version(u16),
    /// The loader refuses the image.
    Refused(Refusal),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Version(version) => write!(
                f,
                "the loader on the card speaks version {version} of the protocol, and this command version {VERSION}: \
                 put the loader of this repository on the card"
            ),
            Self::Refused(refusal) => write!(f, "the loader does not take the image: {refusal}"),
        }
    }
}

/// A transfer.
pub struct Sender<'a> {
    package: &'a Package,
    stage: Stage,
    /// How long an answer may take.
    patience: Duration,
    /// When the last command is to be repeated, if nothing has come by then.
    deadline: Duration,
    /// The image was refused because it arrived damaged, and is sent anew.
    is_second: bool,
    /// The part number of the CPU of the board.
    part: Option<u16>,
}

impl<'a> Sender<'a> {
    /// A transfer of `package` over a line on which answers take at most `patience`.
    pub fn new(package: &'a Package, patience: Duration) -> Self {
        Self { package, stage: Stage::Greeting, patience, deadline: Duration::ZERO, is_second: false, part: None }
    }

    /// Where it is.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// The part number of the board's CPU, if the loader has told it.
    pub fn part(&self) -> Option<u16> {
        self.part
    }

    /// What is to be sent at the time `now`, which is that since any fixed moment, if anything.
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
                // The loader should long have said something: perhaps it did.
                self.stage = Stage::Greeting;
                Command::Hello
            }
            Stage::Started => return None,
        };
        self.deadline = now + self.patience;
        frame::encode(&command, &mut [0; ROOM]).map(<[u8]>::to_vec)
    }

    /// The loader has said `reply`, at the time `now`.
    pub fn reply(&mut self, reply: Reply, now: Duration) -> Result<(), Failure> {
        let own = self.package.transfer.id;
        let (stage, deadline) = match reply {
            Reply::Ready { version, .. } if version != VERSION => return Err(Failure::Version(version)),
            Reply::Ready { part, .. } => {
                self.part = Some(part);
                // Said once more to the first block, as it was on its way, it changes nothing.
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
                let may_be_line = matches!(refusal, Refusal::Damaged | Refusal::NotUnpackable);
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
