//! Connects sender and receiver by a faulty line, which loses, changes, repeats and invents bytes and is cut, while the
//! board is reset. The image that starts is the one that was sent, or the sender reports why none does.

use std::time::Duration;

use kprobes_random::Random;
use kprobes_random::tried::tried;

use crate::{
    BLOCK, CHECKSUM, Command, ImageRefusal, Reply, Transfer,
    frame::{LONGEST, LONGEST_REPLY, Piece, ROOM, Splitter, encode},
    package::{Package, unpack},
    receiver::{Reaction, Receiver},
    sender::{Failure, Sender, Stage},
};

const PATIENCE: Duration = Duration::from_secs(1);
const ROOM_FOR_IMAGE: u32 = if cfg!(miri) { 6 * BLOCK as u32 } else { 1 << 20 };

/// Whether something happens that happens once in `chances` times, or never if that is 0.
fn happens(random: &mut Random, chances: u64) -> bool {
    chances != 0 && random.one_in(chances)
}

/// Bytes that do not pack well.
fn bytes(random: &mut Random, length: usize) -> Vec<u8> {
    (0..length).map(|_| random.next() as u8).collect()
}

/// The faults of a line. Each number N means once in N bytes, and 0 means never.
#[derive(Clone, Copy, Debug, Default)]
struct Noise {
    flips: u64,
    losses: u64,
    repeats: u64,
    inventions: u64,
    /// Loses the rest of a message and all that follows it in the same direction.
    cuts: u64,
}

impl Noise {
    fn carry(&self, bytes: &[u8], random: &mut Random) -> Vec<u8> {
        let mut carried = Vec::new();
        for byte in bytes {
            if happens(random, self.cuts) {
                break;
            }
            if happens(random, self.inventions) {
                carried.push(random.next() as u8);
            }
            match () {
                () if happens(random, self.losses) => {}
                () if happens(random, self.flips) => carried.push(byte ^ 1 << (random.next() % 8)),
                () if happens(random, self.repeats) => carried.extend([byte, byte]),
                () => carried.push(*byte),
            }
        }
        carried
    }
}

/// A board with a loader. Its memory survives a reset.
struct Board {
    receiver: Receiver,
    splitter: Splitter<LONGEST>,
    memory: Vec<u8>,
    started: Option<Vec<u8>>,
}

impl Board {
    fn new() -> Self {
        let memory = vec![0xa5; ROOM_FOR_IMAGE as usize];
        Self { receiver: Self::receiver(), splitter: Splitter::new(), memory, started: None }
    }

    fn receiver() -> Receiver {
        Receiver::new(0xd08, ROOM_FOR_IMAGE)
    }

    fn reset(&mut self) {
        (self.receiver, self.splitter) = (Self::receiver(), Splitter::new());
    }

    /// Returns the loader's replies to these bytes.
    fn bytes(&mut self, bytes: &[u8]) -> Vec<Reply> {
        let mut replies = Vec::new();
        for &byte in bytes {
            match self.splitter.push::<Command>(byte) {
                Piece::Message(command) if self.started.is_none() => {
                    match self.receiver.command(&command, &mut self.memory) {
                        Reaction::Answer(reply) => replies.push(reply),
                        Reaction::Start(transfer) => replies.extend(self.start(&transfer)),
                    }
                }
                Piece::Text([_, _, ..]) if self.started.is_none() => replies.push(self.receiver.garbage()),
                _ => {}
            }
        }
        replies
    }

    fn start(&mut self, transfer: &Transfer) -> Vec<Reply> {
        let id = transfer.id;
        let mut image = vec![0; ROOM_FOR_IMAGE as usize];
        match unpack(transfer, &self.memory[..transfer.packed as usize], &mut image) {
            Ok(()) => {
                self.started = Some(image[..transfer.length as usize].to_vec());
                vec![Reply::Unpacking { id }, Reply::Started { id }, Reply::Started { id }, Reply::Started { id }]
            }
            Err(refusal) => vec![Reply::Unpacking { id }, self.receiver.refuse(id, refusal)],
        }
    }
}

fn framed(message: &impl serde::Serialize) -> Vec<u8> {
    encode(message, &mut [0; ROOM]).unwrap().to_vec()
}

/// Runs a transfer over a faulty line. Returns how it ended, and how many blocks were sent.
fn transfer(
    board: &mut Board,
    package: &Package,
    noise: Noise,
    resets: u64,
    seed: u64,
) -> (Result<Stage, Failure>, u32) {
    let mut random = Random::new(seed);
    let mut sender = Sender::new(package, PATIENCE);
    let mut splitter = Splitter::<LONGEST_REPLY>::new();
    let mut blocks = 0;
    for millisecond in 0..4_000_000 {
        let now = Duration::from_millis(millisecond);
        blocks += u32::from(matches!(sender.stage(), Stage::Sending(_)));
        let Some(sent) = sender.poll(now) else {
            blocks -= u32::from(matches!(sender.stage(), Stage::Sending(_)));
            continue;
        };
        if happens(&mut random, resets) && board.started.is_none() {
            board.reset();
        }
        for reply in board.bytes(&noise.carry(&sent, &mut random)) {
            for byte in noise.carry(&framed(&reply), &mut random) {
                if let Piece::Message(reply) = splitter.push(byte)
                    && let Err(failure) = sender.reply(reply, now)
                {
                    return (Err(failure), blocks);
                }
            }
        }
        if sender.stage() == Stage::Started {
            break;
        }
    }
    (Ok(sender.stage()), blocks)
}

#[test]
#[cfg_attr(miri, ignore = "it sends 200 images")]
fn an_image_arrives_over_any_line_that_carries_something() {
    let image = bytes(&mut Random::new(7), 6 * BLOCK + 100);
    let package = Package::new(&image).unwrap();
    let quiet = Noise::default();
    let lines = [
        (quiet, 0),
        (Noise { flips: 4000, ..quiet }, 0),
        (Noise { losses: 4000, ..quiet }, 0),
        (Noise { repeats: 4000, ..quiet }, 0),
        (Noise { inventions: 4000, ..quiet }, 0),
        (Noise { cuts: 10_000, ..quiet }, 0),
        (quiet, 12),
        (Noise { flips: 9000, losses: 9000, repeats: 9000, inventions: 9000, cuts: 30_000 }, 40),
    ];
    for (noise, resets) in lines {
        for seed in 0..25 {
            let mut board = Board::new();
            let (result, _) = transfer(&mut board, &package, noise, resets, seed);
            assert_eq!(result, Ok(Stage::Started), "{noise:?}, resets {resets}, seed {seed}");
            assert!(board.started.as_deref() == Some(&image[..]), "{noise:?}, seed {seed}: another image has started");
        }
    }
}

#[test]
fn what_has_come_is_not_sent_again() {
    let image = bytes(&mut Random::new(1), if cfg!(miri) { 3 } else { 4 } * BLOCK + 1);
    let package = Package::new(&image).unwrap();
    let mut board = Board::new();
    let (result, blocks) = transfer(&mut board, &package, Noise::default(), 0, 0);
    assert_eq!((result, blocks), (Ok(Stage::Started), package.transfer.blocks()));
    // After a reset, the image is still in memory.
    board.reset();
    board.started = None;
    assert_eq!(transfer(&mut board, &package, Noise::default(), 0, 0), (Ok(Stage::Started), 0));
    // It is sent again if something has overwritten it meanwhile.
    board.memory[3] ^= 1;
    board.reset();
    board.started = None;
    let (_, blocks) = transfer(&mut board, &package, Noise::default(), 0, 0);
    assert_eq!(blocks, package.transfer.blocks());
    // If the host starts over and the loader does not, only the missing blocks are sent.
    let mut receiver = Board::receiver();
    let mut memory = vec![0; ROOM_FOR_IMAGE as usize];
    let id = package.transfer.id;
    let answer = |reply| Reaction::Answer(reply);
    let mut say = |command| receiver.command(&command, &mut memory);
    assert_eq!(say(Command::Begin(package.transfer)), answer(Reply::Have { id, next: 0 }));
    for index in [0, 1, 1, blocks - 1] {
        let bytes = &package.packed[package.transfer.block(index).unwrap()];
        say(Command::Data { id, index, bytes });
    }
    assert_eq!(say(Command::Begin(package.transfer)), answer(Reply::Have { id, next: 2 }));
    assert_eq!(say(Command::Start { id }), answer(Reply::Have { id, next: 2 }));
}

#[test]
#[cfg_attr(miri, ignore = "it waits for more than an hour of a clock of milliseconds")]
fn nothing_starts_over_a_line_that_carries_nothing() {
    let package = Package::new(&[0; 100]).unwrap();
    let mut board = Board::new();
    let (result, _) = transfer(&mut board, &package, Noise { cuts: 1, ..Noise::default() }, 0, 0);
    assert_eq!((result, board.started), (Ok(Stage::Greeting), None));
}

#[test]
fn a_loader_refuses_what_it_has_no_room_for() {
    let package = Package::new(&vec![0; ROOM_FOR_IMAGE as usize + 1]).unwrap();
    let (result, _) = transfer(&mut Board::new(), &package, Noise::default(), 0, 0);
    let refusal = ImageRefusal::TooLong { image: ROOM_FOR_IMAGE, packed: ROOM_FOR_IMAGE };
    assert_eq!(result, Err(Failure::Refused(refusal)));
}

#[test]
fn an_image_that_is_not_what_it_says_is_sent_twice_and_given_up() {
    let good = Package::new(&[7; 5000]).unwrap();
    let lie = |change: fn(&mut Package)| {
        let mut package = Package { packed: good.packed.clone(), ..good };
        change(&mut package);
        transfer(&mut Board::new(), &package, Noise::default(), 0, 0)
    };
    let refused = |refusal| Err(Failure::Refused(refusal));
    assert_eq!(lie(|package| package.transfer.id ^= 1), (refused(ImageRefusal::Damaged), 2));
    for change in tried([
        (|package| package.transfer.checksum ^= 1) as fn(&mut Package),
        |package| package.transfer.length += 1,
        |package| package.transfer.length -= 1,
        |package| {
            package.packed[0] ^= 0x10;
            package.transfer.id = CHECKSUM.checksum(&package.packed);
        },
    ]) {
        assert_eq!(lie(change).0, refused(ImageRefusal::NotUnpackable));
    }
}

#[test]
fn another_version_is_named() {
    let package = Package::new(&[]).unwrap();
    let mut sender = Sender::new(&package, PATIENCE);
    let failure = sender.reply(Reply::Ready { version: 77, part: 0 }, Duration::ZERO).unwrap_err();
    assert!(failure.to_string().contains("version 77"), "{failure}");
}

#[test]
fn messages_are_found_between_text() {
    let reply = Reply::Have { id: 3, next: 5 };
    let mut stream = b"hello\r\n".to_vec();
    stream.extend(framed(&reply));
    stream.extend(b"kprobes> ");
    stream.extend(&framed(&reply)[..4]);
    stream.extend(b" cut short, and text that is longer than any reply, which is therefore text and no part of one");
    stream.extend(framed(&reply));
    stream.extend(b"\0half");
    let mut splitter = Splitter::<LONGEST_REPLY>::new();
    let (mut text, mut replies) = (Vec::new(), Vec::new());
    for byte in stream {
        match splitter.push::<Reply>(byte) {
            Piece::Nothing => {}
            Piece::Text(bytes) => text.extend(bytes),
            Piece::Message(reply) => replies.push(reply),
        }
    }
    assert_eq!(replies, [reply; 2]);
    let text = String::from_utf8_lossy(&text);
    assert!(text.starts_with("hello\r\nkprobes> ") && text.ends_with("no part of one"), "{text}");
    assert_eq!(splitter.flush(), Some(&b"half"[..]));
    assert_eq!(splitter.flush(), None);
}

/// One zero between two frames separates them. The text after the last message is complete.
#[test]
fn a_lost_zero_costs_no_message() {
    let frame = framed(&Reply::Have { id: 3, next: 5 });
    let stream = [&frame[..], &frame, &frame, b"text"].concat();
    for lost in [frame.len() - 1, frame.len(), 2 * frame.len() - 1, 2 * frame.len()] {
        let mut splitter = Splitter::<LONGEST_REPLY>::new();
        let bytes = stream.iter().enumerate().filter(|(place, _)| *place != lost).map(|(_, byte)| *byte);
        let messages = bytes.filter(|byte| matches!(splitter.push::<Reply>(*byte), Piece::Message(_)));
        assert_eq!(messages.count(), 3, "without byte {lost}");
        assert_eq!(splitter.flush(), Some(&b"text"[..]), "without byte {lost}");
    }
}

#[test]
fn any_bytes_are_harmless() {
    let mut random = Random::new(3);
    let mut board = Board::new();
    let mut splitter = Splitter::<LONGEST_REPLY>::new();
    for _ in tried(0..300) {
        let mut bytes = bytes(&mut random, if cfg!(miri) { 200 } else { 2000 });
        bytes.iter_mut().for_each(|byte| *byte = if random.one_in(9) { 0 } else { *byte });
        for byte in &bytes {
            let _ = splitter.push::<Reply>(*byte);
        }
        board.bytes(&bytes);
    }
    assert!(board.receiver.is_idle() && board.started.is_none());
}

/// Bytes that are not zero need the most stuffing.
#[test]
fn the_longest_frame_has_room_for_a_block_and_is_found() {
    let command = |length| Command::Data { id: u32::MAX, index: u32::MAX, bytes: &[1; LONGEST][..length] };
    let is_encoded = |length: &usize| encode(&command(*length), &mut [0; ROOM]).is_some();
    let longest = (0..LONGEST).rev().find(is_encoded).unwrap();
    let frame = framed(&command(longest));
    assert!(longest >= BLOCK && frame.len() == ROOM, "{longest} bytes in a frame of {}", frame.len());
    let mut splitter = Splitter::<LONGEST>::new();
    let mut found = false;
    for byte in frame {
        found |= matches!(splitter.push::<Command>(byte), Piece::Message(message) if message == command(longest));
    }
    assert!(found);
}
