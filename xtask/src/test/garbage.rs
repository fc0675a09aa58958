//! Sends garbage to the console, as a loose line, a terminal at the wrong speed, or a file sent by mistake would. The
//! console must go on, and definitions from before must still be there and work. The garbage is first sent at once,
//! much faster than the console reads, so that input is lost; then piece by piece, so that the console takes every
//! byte.

use kprobes_random::Random;

use super::session::{Player, Session};
use crate::{
    console::Event,
    conversation::PROMPT,
    dialogue::{Reply, Subject},
};

/// The number of bytes of garbage in a thorough run.
pub const WHOLE_LENGTH: usize = 96 * 1024;
/// The number of bytes of garbage in a usual run: the first quarter. It has all kinds of fragments, but fewer
/// successions of them.
pub const USUAL_LENGTH: usize = WHOLE_LENGTH / 4;
/// The length of the pieces that are sent the second time. A piece fits into the receive buffer of the kernel.
const PIECE: usize = 3000;
/// The seed of the random numbers. It is constant, so that a failure can be repeated.
const SEED: u64 = 1;

/// Garbage for a line editor: noise, text without end, keys, and the beginnings of real lines.
const FRAGMENTS: [&[u8]; 16] = [
    b"\x1b[A",
    b"\x1b[B",
    b"\x1b[C",
    b"\x1b[D",
    b"\x1b[3~",
    b"\x1b[1;5H",
    b"\x1b[999999999999",
    b"\x1bO",
    b"\x1b[",
    b"\r",
    b"\n",
    b"\x7f",
    b"\x01",
    b"p:",
    b"r99:",
    b"cat trace ",
];

/// Returns garbage of at least this length.
fn garbage(length: usize) -> Vec<u8> {
    let mut random = Random::new(SEED);
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        match random.below(8) {
            0..=3 => bytes.extend((0..64).map(|_| random.next() as u8)),
            4 | 5 => bytes.extend((0..16).map(|_| random.below(32))),
            6 => bytes.extend_from_slice(random.of(&FRAGMENTS)),
            // This is rarely longer than the longest allowed line.
            _ => {
                let length = 1 << random.below(12);
                bytes.extend((0..length).map(|_| b' ' + random.below(95)));
            }
        }
    }
    bytes
}

/// The state of the test.
enum State {
    /// The session before the garbage, which defines something.
    Before,
    /// Garbage is sent. After each piece comes a line whose reply shows that the piece has been read.
    During,
    /// The last line was read, and its prompt is awaited.
    Between,
    /// The session after the garbage, which checks that the definitions are still there.
    After,
}

/// Sends garbage between two sessions.
pub struct Garbage {
    before: Player,
    after: Player,
    state: State,
    pieces: Vec<Vec<u8>>,
    /// The line whose reply shows that the current piece has been read.
    mark: String,
    marks: usize,
}

impl Garbage {
    /// Creates a test for a machine that was just started, with garbage of this length between the sessions `before`
    /// and `after`.
    pub fn new(before: Session, after: Session, length: usize) -> Self {
        let garbage = garbage(length);
        // In reverse order, so that the next one is the last.
        let mut pieces: Vec<_> = garbage.chunks(PIECE).map(<[u8]>::to_vec).collect();
        pieces.push(garbage);
        let (before, after) = (Player::new(before), Player::new(after));
        Self { before, after, state: State::Before, pieces, mark: String::new(), marks: 0 }
    }

    /// Returns keys that abandon a search and the current line, which may contain garbage, and type a new line that can
    /// be recognized.
    fn mark(&mut self) -> Vec<u8> {
        self.marks += 1;
        self.mark = format!("#{}", self.marks);
        format!("\x03\x03\n{}\n", self.mark).into_bytes()
    }

    fn next_piece(&mut self) -> Reply<()> {
        match self.pieces.pop() {
            Some(mut piece) => {
                piece.extend(self.mark());
                Reply::Keys(piece)
            }
            None => {
                self.state = State::Between;
                Reply::Wait
            }
        }
    }
}

impl Subject<()> for Garbage {
    fn event(&mut self, event: Event) -> Reply<()> {
        match (&self.state, event) {
            (State::Before, event) => match self.before.event(event) {
                Reply::Done(Ok(())) => {
                    self.state = State::During;
                    self.next_piece()
                }
                other => other,
            },
            (State::During, Event::Line(line)) if line.strip_prefix(PROMPT) == Some(&self.mark) => self.next_piece(),
            (State::During, _) | (State::Between, Event::Line(_)) => Reply::Wait,
            (State::Between, Event::Prompt) => {
                self.state = State::After;
                self.after.event(Event::Prompt)
            }
            (State::After, event) => self.after.event(event),
        }
    }

    /// The line after a piece may be lost with the rest, as when a person types it. It is then typed again.
    fn silence(&mut self) -> Reply<()> {
        match self.state {
            State::During => Reply::Keys(self.mark()),
            State::Before => self.before.silence(),
            State::After => self.after.silence(),
            State::Between => Reply::Wait,
        }
    }
}

/// Parses the two sessions of a text with a line `GARBAGE` between them, which stands for garbage of this length.
pub fn parse(text: &str, length: usize) -> Result<Garbage, String> {
    let (before, after) = text.split_once("\nGARBAGE\n").ok_or("it has no line GARBAGE")?;
    Ok(Garbage::new(Session::parse(before)?, Session::parse(after)?, length))
}

#[cfg(test)]
mod tests {
    use super::{PIECE, USUAL_LENGTH, WHOLE_LENGTH, garbage, parse};
    use crate::{
        console::Event,
        dialogue::{Reply, Subject},
        serial::QUIT,
    };

    #[test]
    fn garbage_is_always_the_same_and_everything() {
        for length in [USUAL_LENGTH, WHOLE_LENGTH] {
            let bytes = garbage(length);
            assert!(bytes == garbage(length) && bytes.len() >= length);
            assert!((0..=255).all(|byte| bytes.contains(&byte)));
            let longest = bytes.split(|byte| !matches!(byte, b' '..=b'~')).map(<[u8]>::len).max();
            assert!(longest > Some(1024));
            assert!(!bytes.windows(QUIT.len()).any(|piece| piece == QUIT), "it would stop the machine, as it is to");
        }
    }

    #[test]
    fn the_console_must_take_it_and_go_on() {
        let mut test = parse("kprobes> one\nGARBAGE\nkprobes> two\n2\n", USUAL_LENGTH).unwrap();
        let line = |text: &str| Event::Line(text.into());
        assert_eq!(test.event(Event::Prompt), Reply::Type("one".into()));
        assert_eq!(test.event(line("kprobes> one")), Reply::Wait);
        let Reply::Keys(first) = test.event(Event::Prompt) else { panic!() };
        assert!(first.len() > USUAL_LENGTH && first.ends_with(b"\x03\x03\n#1\n"));
        // The mark was lost.
        assert_eq!(test.silence(), Reply::Keys(b"\x03\x03\n#2\n".to_vec()));
        let mut mark = 2;
        while let Reply::Keys(piece) = test.event(line(&format!("kprobes> #{mark}"))) {
            mark += 1;
            assert!(piece.ends_with(format!("\x03\x03\n#{mark}\n").as_bytes()));
            assert_eq!(test.event(line("noise")), Reply::Wait);
            assert_eq!(test.event(Event::Prompt), Reply::Wait);
        }
        assert!(mark > USUAL_LENGTH / PIECE);
        assert_eq!(test.event(Event::Prompt), Reply::Type("two".into()));
        test.event(line("kprobes> two"));
        assert_eq!(test.silence(), Reply::Wait);
        assert!(matches!(test.event(Event::Prompt), Reply::Done(Err(_))));
    }
}
