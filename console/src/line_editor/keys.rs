//! From bytes to keys: characters in UTF-8, control characters, and the escape sequences of a terminal's special keys.

use core::str;

/// A key, or what a terminal says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Character(char),
    Enter,
    /// ^C.
    GiveUp,
    /// ^L.
    ClearScreen,
    Left,
    Right,
    Home,
    End,
    Backspace,
    Delete,
    /// ^U.
    RemoveBefore,
    /// ^K.
    RemoveAfter,
    /// ^W.
    RemoveWord,
    Previous,
    Next,
    /// Where the cursor is: the answer to a request (DSR, ECMA-48, section 8.3.35).
    Column(u16),
}

/// Why bytes are no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noise {
    /// They are not UTF-8.
    NotUtf8,
    /// They are control characters, or a sequence that begins with one, without a meaning here.
    NoKey,
}

/// How far a key has been read.
#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// No byte of it has come.
    #[default]
    Start,
    /// The first bytes of a character, and how many.
    Character([u8; 4], usize),
    /// After ESC.
    Escape,
    /// After ESC `[`, with the first and the last parameter so far (ECMA-48, section 5.4).
    Control { first: u16, last: u16, is_first: bool },
    /// After ESC `O`.
    Function,
}

/// Cuts what a terminal sends into keys.
#[derive(Debug, Default)]
pub(super) struct Keys {
    state: State,
    /// The last byte was a carriage return: a line feed right after it is part of it.
    returned: bool,
}

impl Keys {
    /// Takes a byte. Tells what it shows of the bytes before it or of itself to be noise, and the key that it completes.
    pub fn feed(&mut self, byte: u8) -> (Option<Noise>, Option<Key>) {
        let returned = core::mem::replace(&mut self.returned, byte == b'\r');
        // A control character ends what noise has begun, so that no line is swallowed by a sequence.
        let state = core::mem::take(&mut self.state);
        match state {
            State::Start => self.start(byte, returned),
            State::Character(bytes, length) if byte >= 0x80 => self.character(bytes, length, byte),
            State::Character(..) => (Some(Noise::NotUtf8), self.start(byte, false).1),
            _ if byte < b' ' => (Some(Noise::NoKey), self.start(byte, false).1),
            State::Escape if byte == b'[' => self.goes_on(State::Control { first: 0, last: 0, is_first: true }),
            State::Escape if byte == b'O' => self.goes_on(State::Function),
            State::Escape => (Some(Noise::NoKey), None),
            State::Control { first, last, is_first } => match byte {
                b'0'..=b'9' => {
                    let last = last.saturating_mul(10).saturating_add((byte - b'0').into());
                    self.goes_on(State::Control { first: if is_first { last } else { first }, last, is_first })
                }
                b';' => self.goes_on(State::Control { first, last: 0, is_first: false }),
                // Other parameters and intermediate bytes change nothing.
                b' '..=b'?' => self.goes_on(state),
                b'~' => known(match first {
                    1 | 7 => Some(Key::Home),
                    4 | 8 => Some(Key::End),
                    3 => Some(Key::Delete),
                    _ => None,
                }),
                b'R' if !is_first => known(Some(Key::Column(last))),
                _ => known(special(byte)),
            },
            State::Function => known(special(byte)),
        }
    }

    fn goes_on(&mut self, state: State) -> (Option<Noise>, Option<Key>) {
        self.state = state;
        (None, None)
    }

    /// The first byte of a key; `returned` if a carriage return precedes it.
    fn start(&mut self, byte: u8, returned: bool) -> (Option<Noise>, Option<Key>) {
        match byte {
            b'\n' if returned => (None, None),
            b'\r' | b'\n' => known(Some(Key::Enter)),
            b'\t' => known(Some(Key::Character(' '))),
            b' '..=b'~' => known(Some(Key::Character(byte.into()))),
            0x08 | 0x7f => known(Some(Key::Backspace)),
            0x1b => self.goes_on(State::Escape),
            0x80.. => self.character([0; 4], 0, byte),
            _ => known(match byte | 0x40 {
                b'A' => Some(Key::Home),
                b'C' => Some(Key::GiveUp),
                b'E' => Some(Key::End),
                b'K' => Some(Key::RemoveAfter),
                b'L' => Some(Key::ClearScreen),
                b'N' => Some(Key::Next),
                b'P' => Some(Key::Previous),
                b'U' => Some(Key::RemoveBefore),
                b'W' => Some(Key::RemoveWord),
                _ => None,
            }),
        }
    }

    /// A byte of a character outside ASCII, of which there are `length` already.
    fn character(&mut self, mut bytes: [u8; 4], length: usize, byte: u8) -> (Option<Noise>, Option<Key>) {
        bytes[length] = byte;
        match str::from_utf8(&bytes[..=length]) {
            // Terminals take these, of which the last is U+009F, for controls.
            Ok(text) => match text.chars().find(|character| !character.is_control()) {
                Some(character) => known(Some(Key::Character(character))),
                None => known(None),
            },
            Err(error) if error.error_len().is_none() => self.goes_on(State::Character(bytes, length + 1)),
            // It may be the first of the next one.
            Err(_) if length > 0 => (Some(Noise::NotUtf8), self.start(byte, false).1),
            Err(_) => (Some(Noise::NotUtf8), None),
        }
    }
}

/// `key`, or noise if there is none.
fn known(key: Option<Key>) -> (Option<Noise>, Option<Key>) {
    (key.is_none().then_some(Noise::NoKey), key)
}

/// The key of a sequence that ends with `byte`.
fn special(byte: u8) -> Option<Key> {
    Some(match byte {
        b'A' => Key::Previous,
        b'B' => Key::Next,
        b'C' => Key::Right,
        b'D' => Key::Left,
        b'H' => Key::Home,
        b'F' => Key::End,
        _ => return None,
    })
}
