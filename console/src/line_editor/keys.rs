//! Decodes bytes to keys: UTF-8 characters, control characters, and the escape sequences of a terminal's special keys.

use core::str;

use kprobes_wire::history;

/// A key, or a report of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Character(char),
    /// A carriage return, which a keyboard sends.
    Enter,
    /// A line feed, which ends each line of a peer that sends lines.
    LineEnd,
    /// A line feed right after a carriage return.
    LineEndAfterEnter,
    Tab,
    /// ^C.
    Interrupt,
    /// ^G.
    Abort,
    /// ^R.
    Search,
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
    RemoveToBlank,
    /// Alt-backspace.
    RemoveWordBefore,
    /// Alt-d.
    RemoveWordAfter,
    /// Alt-b.
    WordLeft,
    /// Alt-f.
    WordRight,
    /// ^Y.
    Yank,
    /// ^T.
    Transpose,
    /// Alt-period.
    LastWord,
    Previous,
    Next,
    /// The column of the cursor, in the answer to a request (DSR, ECMA-48, section 8.3.35).
    Column(u16),
    /// The beginning of an earlier line, from the host.
    EarlierBegin,
    /// The end of an earlier line.
    EarlierEnd,
    /// The host begins to keep the history.
    KeepHistory,
    /// The host no longer keeps the history.
    LeaveHistory,
}

/// The parameter of a sequence for a key that is pressed with Alt.
const ALT: u16 = 3;
/// The parameter of a sequence for a key that is pressed with Ctrl.
const CONTROL: u16 = 5;

/// The reason why bytes form no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noise {
    /// The bytes are not UTF-8.
    NotUtf8,
    /// The bytes are a control character or a sequence without a meaning here.
    NoKey,
}

/// The state of a partially received key.
#[derive(Clone, Copy, Debug, Default)]
enum PartialKey {
    /// No byte has been received.
    #[default]
    Start,
    /// The first bytes of a character, and their number.
    Character([u8; 4], usize),
    /// After ESC.
    Escape,
    /// After ESC `[`, with the first and the last parameter received so far (ECMA-48, section 5.4).
    Control { first: u16, last: u16, is_first: bool },
    /// After ESC `O`.
    Function,
}

/// Splits the bytes from a terminal into keys.
#[derive(Debug, Default)]
pub(super) struct Keys {
    partial: PartialKey,
    /// Whether the last byte was a carriage return.
    returned: bool,
}

impl Keys {
    /// Takes a byte. Returns the noise that the byte reveals, in itself or in the bytes before it, and the key that it
    /// completes.
    pub fn feed(&mut self, byte: u8) -> (Option<Noise>, Option<Key>) {
        let returned = core::mem::replace(&mut self.returned, byte == b'\r');
        // A control character ends an incomplete sequence, so that noise cannot swallow the end of a line.
        let partial = core::mem::take(&mut self.partial);
        match partial {
            PartialKey::Start => self.start(byte, returned),
            PartialKey::Character(bytes, length) if byte >= 0x80 => self.character(bytes, length, byte),
            PartialKey::Character(..) => (Some(Noise::NotUtf8), self.start(byte, false).1),
            PartialKey::Escape if let Some(key) = with_alt(byte) => known(Some(key)),
            _ if byte < b' ' => (Some(Noise::NoKey), self.start(byte, false).1),
            PartialKey::Escape if byte == b'[' => {
                self.continue_with(PartialKey::Control { first: 0, last: 0, is_first: true })
            }
            PartialKey::Escape if byte == b'O' => self.continue_with(PartialKey::Function),
            PartialKey::Escape => (Some(Noise::NoKey), None),
            PartialKey::Control { first, last, is_first } => match byte {
                b'0'..=b'9' => {
                    let last = last.saturating_mul(10).saturating_add((byte - b'0').into());
                    self.continue_with(PartialKey::Control {
                        first: if is_first { last } else { first },
                        last,
                        is_first,
                    })
                }
                b';' => self.continue_with(PartialKey::Control { first, last: 0, is_first: false }),
                // Other parameters and intermediate bytes have no effect.
                b' '..=b'?' => self.continue_with(partial),
                b'~' => known(match (first, last) {
                    (history::END_KEY, history::BEGIN) => Some(Key::EarlierBegin),
                    (history::END_KEY, history::END) => Some(Key::EarlierEnd),
                    (history::END_KEY, history::KEEP) => Some(Key::KeepHistory),
                    (history::END_KEY, history::LEAVE) => Some(Key::LeaveHistory),
                    (1 | 7, _) => Some(Key::Home),
                    (4 | 8, _) => Some(Key::End),
                    (3, _) => Some(Key::Delete),
                    _ => None,
                }),
                b'R' if !is_first => known(Some(Key::Column(last))),
                b'C' if matches!(last, ALT | CONTROL) => known(Some(Key::WordRight)),
                b'D' if matches!(last, ALT | CONTROL) => known(Some(Key::WordLeft)),
                _ => known(special(byte)),
            },
            PartialKey::Function => known(special(byte)),
        }
    }

    fn continue_with(&mut self, partial: PartialKey) -> (Option<Noise>, Option<Key>) {
        self.partial = partial;
        (None, None)
    }

    /// Takes the first byte of a key. `returned` tells whether a carriage return precedes it.
    fn start(&mut self, byte: u8, returned: bool) -> (Option<Noise>, Option<Key>) {
        match byte {
            b'\n' if returned => known(Some(Key::LineEndAfterEnter)),
            b'\n' => known(Some(Key::LineEnd)),
            b'\r' => known(Some(Key::Enter)),
            b'\t' => known(Some(Key::Tab)),
            b' '..=b'~' => known(Some(Key::Character(byte.into()))),
            0x08 | 0x7f => known(Some(Key::Backspace)),
            0x1b => self.continue_with(PartialKey::Escape),
            0x80.. => self.character([0; 4], 0, byte),
            _ => known(match byte | 0x40 {
                b'A' => Some(Key::Home),
                b'B' => Some(Key::Left),
                b'C' => Some(Key::Interrupt),
                b'D' => Some(Key::Delete),
                b'E' => Some(Key::End),
                b'F' => Some(Key::Right),
                b'G' => Some(Key::Abort),
                b'K' => Some(Key::RemoveAfter),
                b'L' => Some(Key::ClearScreen),
                b'N' => Some(Key::Next),
                b'P' => Some(Key::Previous),
                b'R' => Some(Key::Search),
                b'T' => Some(Key::Transpose),
                b'U' => Some(Key::RemoveBefore),
                b'W' => Some(Key::RemoveToBlank),
                b'Y' => Some(Key::Yank),
                _ => None,
            }),
        }
    }

    /// Takes a byte of a character outside ASCII, of which `length` bytes have been received.
    fn character(&mut self, mut bytes: [u8; 4], length: usize, byte: u8) -> (Option<Noise>, Option<Key>) {
        bytes[length] = byte;
        match str::from_utf8(&bytes[..=length]) {
            // Terminals obey control characters, the last of which is U+009F.
            Ok(text) => match text.chars().find(|character| !character.is_control()) {
                Some(character) => known(Some(Key::Character(character))),
                None => known(None),
            },
            Err(error) if error.error_len().is_none() => self.continue_with(PartialKey::Character(bytes, length + 1)),
            // The byte may be the first of the next character.
            Err(_) if length > 0 => (Some(Noise::NotUtf8), self.start(byte, false).1),
            Err(_) => (Some(Noise::NotUtf8), None),
        }
    }
}

/// Returns `key`, or noise if it is `None`.
fn known(key: Option<Key>) -> (Option<Noise>, Option<Key>) {
    (key.is_none().then_some(Noise::NoKey), key)
}

/// Returns the key that a terminal sends as ESC and `byte`.
fn with_alt(byte: u8) -> Option<Key> {
    Some(match byte {
        b'b' => Key::WordLeft,
        b'f' => Key::WordRight,
        b'd' => Key::RemoveWordAfter,
        0x08 | 0x7f => Key::RemoveWordBefore,
        b'.' => Key::LastWord,
        _ => return None,
    })
}

/// Returns the key of a sequence that ends with `byte`.
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
