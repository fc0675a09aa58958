//! Keys, and noise, in front of a terminal that is one long row.

use super::*;
use alloc::string::ToString;
use alloc::vec::Vec;

const PROMPT: &str = "> ";

/// What the terminal shows in the row of the cursor.
#[derive(Default)]
struct Terminal {
    row: Vec<char>,
    cursor: usize,
    escape: Option<String>,
    bells: usize,
}

impl Write for Terminal {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().for_each(|character| self.put(character));
        Ok(())
    }
}

impl Terminal {
    fn put(&mut self, character: char) {
        if let Some(mut escape) = self.escape.take() {
            escape.push(character);
            match escape.as_str() {
                "[K" => self.row.truncate(self.cursor),
                "[H" => self.cursor = 0,
                "[2J" => self.row.clear(),
                _ => match escape.strip_suffix('D') {
                    Some(count) => self.cursor -= count[1..].parse::<usize>().unwrap(),
                    None => self.escape = Some(escape),
                },
            }
            return;
        }
        match character {
            '\x07' => self.bells += 1,
            '\x08' => self.cursor -= 1,
            '\x1b' => self.escape = Some(String::new()),
            '\n' => (self.row, self.cursor) = (Vec::new(), 0),
            ' '..='~' => {
                if self.cursor == self.row.len() {
                    self.row.push(' ');
                }
                self.row[self.cursor] = character;
                self.cursor += 1;
            }
            _ => panic!("{character:?} was shown"),
        }
    }
}

struct Session {
    editor: LineEditor,
    terminal: Terminal,
    lines: Vec<String>,
}

impl Session {
    fn new() -> Self {
        let (editor, mut terminal) = (LineEditor::new(PROMPT), Terminal::default());
        editor.start(&mut terminal).unwrap();
        Self { editor, terminal, lines: Vec::new() }
    }

    /// Types `bytes`, and checks after each that the terminal shows the line.
    fn typed(mut self, bytes: &[u8]) -> Self {
        for &byte in bytes {
            if let Some(line) = self.editor.feed(byte, &mut self.terminal).unwrap() {
                self.lines.push(line);
                assert!(self.terminal.row.is_empty());
                self.editor.start(&mut self.terminal).unwrap();
            }
            let row: String = self.terminal.row.iter().collect();
            assert_eq!(row, PROMPT.to_string() + &self.editor.line);
            assert_eq!(self.terminal.cursor, PROMPT.len() + self.editor.cursor);
            assert!(self.editor.line.len() <= LINE_MAX);
        }
        self
    }
}

/// The lines that come out of `bytes`.
fn lines(bytes: &str) -> Vec<String> {
    Session::new().typed(bytes.as_bytes()).lines
}

#[test]
fn lines_end_with_a_carriage_return_a_line_feed_or_both() {
    assert_eq!(lines("a\rb\nc\r\nd\n\re\r"), ["a", "b", "c", "d", "", "e"]);
    assert_eq!(lines("a\r\r\n\n"), ["a", "", ""]);
}

#[test]
fn editing_inside_a_line() {
    assert_eq!(lines("ac\x1b[Db\r"), ["abc"]);
    assert_eq!(lines("abd\x08c\r"), ["abc"]);
    assert_eq!(lines("abd\x7fc\r"), ["abc"]);
    assert_eq!(lines("bc\x01a\x05d\r"), ["abcd"]);
    assert_eq!(lines("bc\x1b[Ha\x1b[Fd\r"), ["abcd"]);
    assert_eq!(lines("bc\x1bOHa\x1bOFd\r"), ["abcd"]);
    assert_eq!(lines("bc\x1b[1~a\x1b[4~d\r"), ["abcd"]);
    assert_eq!(lines("xabc\x01\x1b[3~\r"), ["abc"]);
    assert_eq!(lines("ab\x1b[D\x1b[D\x1b[D\x1b[C\x1b[C\x1b[Cc\r"), ["abc"]);
    assert_eq!(lines("\x08\x7f\x1b[3~a\r"), ["a"]);
    assert_eq!(lines("a\tb\r"), ["a b"]);
}

#[test]
fn removing_more_than_a_character() {
    assert_eq!(lines("abcd\x1b[D\x1b[D\x15x\r"), ["xcd"]);
    assert_eq!(lines("abcd\x1b[D\x1b[D\x0bx\r"), ["abx"]);
    assert_eq!(lines("one two  \x17x\r"), ["one x"]);
    assert_eq!(lines("one\x17\x17x\r"), ["x"]);
}

#[test]
fn a_line_is_given_up_with_control_c() {
    assert_eq!(lines("abc\x1b[D\x03d\r"), ["", "d"]);
}

#[test]
fn the_screen_is_cleared_and_the_line_shown_again() {
    assert_eq!(lines("abd\x1b[D\x0cc\r"), ["abcd"]);
}

#[test]
fn earlier_lines_come_back() {
    let up = "\x1b[A";
    let down = "\x1b[B";
    assert_eq!(lines(&alloc::format!("a\rb\r{up}{up}{up}\r")), ["a", "b", "a"]);
    assert_eq!(lines(&alloc::format!("a\rb\r{up}{up}{down}x\r")), ["a", "b", "bx"]);
    assert_eq!(lines(&alloc::format!("a\rdraft{up}{down}{down}!\r")), ["a", "draft!"]);
    assert_eq!(lines(&alloc::format!("x\ra\ra\rb\r \r{up}{up}{up}\r")), ["x", "a", "a", "b", " ", "x"]);
    assert_eq!(lines("a\r\x10\x10\x0e\x10\r"), ["a", "a"]);
    let many: String = (0..HISTORY_MAX + 5).map(|number| alloc::format!("{number}\r")).collect();
    assert_eq!(lines(&alloc::format!("{many}{}\r", up.repeat(99))).pop().unwrap(), "5");
}

#[test]
fn a_line_stays_within_its_limit() {
    let session = Session::new().typed(&[b'x'; LINE_MAX + 10]);
    assert_eq!((session.editor.line.len(), session.terminal.bells), (LINE_MAX, 10));
    let session = session.typed(b"\x01y\r");
    assert_eq!(session.lines, ["x".repeat(LINE_MAX)]);
}

#[test]
fn unknown_bytes_and_sequences_are_dropped() {
    assert_eq!(lines("a\u{e4}\u{65e5}b\r"), ["ab"]);
    assert_eq!(lines("a\x00\x02\x1c\x1fb\r"), ["ab"]);
    assert_eq!(lines("a\x1b[5~\x1b[99999999999m\x1b[1;5C\x1bOP\x1bxb\r"), ["ab"]);
    assert_eq!(lines("a\x1b[1;2\rb\x1b\rc\x1bO\r"), ["a", "b", "c"]);
    assert_eq!(lines("a\x1b\x1b[Db\r"), ["ba"]);
}

/// Noise, in which the bytes that mean something are frequent: the checks are those of every key.
#[test]
fn noise_harms_nothing() {
    let frequent = b"\r\n\x1b\x1b\x1b[[OABCDHF~13478;\x01\x03\x05\x08\x0b\x0c\x0e\x10\x15\x17\x7fab c";
    let mut state = 1_u64;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as usize
    };
    for _ in 0..300 {
        let noise: Vec<u8> = (0..3000)
            .map(|_| match next() % 4 {
                0 => next() as u8,
                _ => frequent[next() % frequent.len()],
            })
            .collect();
        let session = Session::new().typed(&noise).typed(b"\x03still here\r");
        assert_eq!(session.lines.last().unwrap(), "still here");
        assert!(session.lines.iter().all(|line| line.bytes().all(|byte| (b' '..=b'~').contains(&byte))));
    }
}
