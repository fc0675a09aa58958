//! Keys and noise, with a simulated terminal that reports the length of its rows, or does not.

use super::*;
use alloc::format;
use alloc::vec::Vec;
use kprobes_random::Random;

const PROMPT: &str = "> ";

/// The number of columns of the terminal.
const COLUMNS: usize = 48;

/// The contents of the terminal from the last prompt on.
struct Terminal {
    columns: usize,
    /// The cells. The first cell of a character holds the character and its combining characters.
    rows: Vec<Vec<String>>,
    cursor: Cell,
    /// Whether the last column was written. The next character then goes to the next row.
    is_full: bool,
    escape: Option<String>,
    /// The pending answers; `None` if the terminal does not answer.
    answers: Option<Vec<u8>>,
    bells: usize,
}

impl Write for Terminal {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().for_each(|character| self.put(character));
        Ok(())
    }
}

impl Terminal {
    fn new(columns: usize, answers: bool) -> Self {
        let cursor = Cell { row: 0, column: 0 };
        let answers = answers.then(Vec::new);
        Self { columns, rows: Vec::new(), cursor, is_full: false, escape: None, answers, bells: 0 }
    }

    fn control(&mut self, sequence: &str) -> bool {
        self.is_full = false;
        let count = sequence[1..].trim_end_matches(char::is_alphabetic).parse::<usize>().unwrap_or(1);
        match (sequence, sequence.chars().last()) {
            ("[J", _) => {
                self.rows.truncate(self.cursor.row + 1);
                if let Some(row) = self.rows.get_mut(self.cursor.row) {
                    row.truncate(self.cursor.column);
                }
            }
            ("[H", _) => self.cursor = Cell { row: 0, column: 0 },
            ("[2J", _) => self.rows.clear(),
            // Saving and restoring the cursor needs no work, because only the request is between them.
            ("7" | "8" | "[9999C", _) => {}
            ("[6n", _) => {
                let answer = format!("\x1b[24;{}R", self.columns);
                self.answers.iter_mut().for_each(|answers| answers.extend(answer.bytes()));
            }
            (_, Some('A')) => self.cursor.row -= count,
            (_, Some('B')) => self.cursor.row += count,
            (_, Some('C')) => self.cursor.column += count,
            (_, Some('D')) => self.cursor.column -= count,
            _ => return false,
        }
        true
    }

    fn put(&mut self, character: char) {
        if let Some(mut escape) = self.escape.take() {
            escape.push(character);
            if !self.control(&escape) {
                self.escape = Some(escape);
            }
            return;
        }
        match character {
            '\x07' => self.bells += 1,
            '\x08' => self.cursor.column -= 1,
            '\x1b' => self.escape = Some(String::new()),
            '\r' => self.cursor.column = 0,
            '\n' => self.cursor = Cell { row: self.cursor.row + 1, column: 0 },
            _ if character.is_control() => panic!("{character:?} was shown"),
            _ => return self.show(character),
        }
        self.is_full &= matches!(character, '\x07' | '\x1b');
        assert!(self.cursor.column < self.columns);
    }

    fn show(&mut self, character: char) {
        let width = rows::of(character);
        if width > 0 && (self.is_full || self.cursor.column + width > self.columns) {
            self.cursor = Cell { row: self.cursor.row + 1, column: 0 };
        }
        let Cell { row, column } = self.cursor;
        self.rows.resize(self.rows.len().max(row + 1), Vec::new());
        let cells = &mut self.rows[row];
        if width == 0 {
            let last = if self.is_full { column } else { column - 1 };
            cells[last].push(character);
            return;
        }
        cells.resize(cells.len().max(column + width), String::new());
        cells[column] = character.into();
        cells[column + 1..column + width].fill(String::new());
        self.is_full = column + width == self.columns;
        self.cursor.column = (column + width).min(self.columns - 1);
    }

    fn text(&self) -> String {
        self.rows.iter().flatten().map(String::as_str).collect()
    }
}

struct Session {
    editor: LineEditor,
    terminal: Terminal,
    lines: Vec<Result<String, Refusal>>,
}

impl Session {
    fn new() -> Self {
        Self::with(Terminal::new(COLUMNS, true))
    }

    fn with(mut terminal: Terminal) -> Self {
        let editor = LineEditor::new(PROMPT);
        editor.start(&mut terminal).unwrap();
        Self { editor, terminal, lines: Vec::new() }
    }

    /// Types `bytes`, and checks after each that the terminal shows the line. The terminal answers before the next
    /// byte.
    fn typed(mut self, bytes: &[u8]) -> Self {
        for &byte in bytes {
            self.feed(byte);
            while let Some(answers) = self.terminal.answers.as_mut().map(mem::take).filter(|all| !all.is_empty()) {
                answers.into_iter().for_each(|byte| self.feed(byte));
            }
            self.check();
        }
        self
    }

    fn feed(&mut self, byte: u8) {
        if let Some(line) = self.editor.feed(byte, &mut self.terminal).unwrap() {
            self.lines.push(line);
            assert_eq!(self.terminal.cursor.column, 0);
            self.terminal.rows.clear();
            self.terminal.cursor.row = 0;
            self.editor.start(&mut self.terminal).unwrap();
        }
    }

    fn check(&self) {
        let Self { editor: LineEditor { line, cursor, .. }, terminal, .. } = self;
        assert!(line.text.len() <= LINE_MAX);
        assert_eq!(terminal.text(), String::from(PROMPT) + &line.text);
        let Cell { row, column } = terminal.cursor;
        // After a full row, the terminal's cursor stays in the last column.
        let shown = if terminal.is_full { Cell { row: row + 1, column: 0 } } else { Cell { row, column } };
        assert_eq!(shown, Cell::of(&line.text, *cursor, PROMPT.len(), terminal.columns), "{line:?}");
    }
}

/// Returns the lines that result from typing `bytes`.
fn lines(bytes: &str) -> Vec<String> {
    Session::new().typed(bytes.as_bytes()).lines.into_iter().map(|line| line.expect(bytes)).collect()
}

/// Returns the result of typing `bytes` and a return key.
fn line(bytes: &[u8]) -> Result<String, Refusal> {
    Session::new().typed(bytes).typed(b"\r").lines.pop().unwrap()
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
    assert_eq!(lines(&format!("a\rb\r{up}{up}{up}\r")), ["a", "b", "a"]);
    assert_eq!(lines(&format!("a\rb\r{up}{up}{down}x\r")), ["a", "b", "bx"]);
    assert_eq!(lines(&format!("a\rdraft{up}{down}{down}!\r")), ["a", "draft!"]);
    assert_eq!(lines(&format!("x\ra\ra\rb\r \r{up}{up}{up}\r")), ["x", "a", "a", "b", " ", "x"]);
    assert_eq!(lines("a\r\x10\x10\x0e\x10\r"), ["a", "a"]);
    let many: String = (0..HISTORY_MAX + 5).map(|number| format!("{number}\r")).collect();
    assert_eq!(lines(&format!("{many}{}\r", up.repeat(99))).pop().unwrap(), "5");
}

/// Edits lines of every length around the length of a row, and of some others, in several rows.
#[test]
fn long_lines_are_shown_in_rows() {
    let up = "\x1b[A";
    for length in (0..4 * COLUMNS).chain([999, LINE_MAX - 2]) {
        for of in ["x", "x\u{1f4a5}"] {
            let text: String = of
                .chars()
                .cycle()
                .scan(0, |taken, character| {
                    *taken += character.len_utf8();
                    (*taken <= length).then_some(character)
                })
                .collect();
            let keys = format!("{text}\rshort\r{up}{up}{up}\x1b[B\x10\x01ab\x05\x7f\x1b[Dc\x1b[H\x1b[3~\x0c\x17\x0e\r");
            let lines = lines(&keys);
            assert_eq!(lines[0], text);
        }
    }
    // The cursor moves through the whole line, a character at a time.
    let keys = format!("{}{}{}z\r", "x\u{1f4a5}".repeat(60), "\x1b[D".repeat(150), "\x1b[C".repeat(60));
    assert_eq!(lines(&keys), [format!("{}z{}", "x\u{1f4a5}".repeat(30), "x\u{1f4a5}".repeat(30))]);
}

#[test]
fn a_terminal_is_asked_only_to_go_back_in_a_long_line() {
    let asked = |keys: &str| {
        let session = Session::new().typed(keys.as_bytes());
        session.editor.columns.is_some()
    };
    assert!(!asked(&"x".repeat(999)));
    assert!(!asked(&format!("{}\x1b[A\x7f\x01y", "x".repeat(30))));
    assert!(!asked(&format!("{}\r", "x".repeat(99))));
    assert!(!asked(&format!("{}\r\x1b[A", "x".repeat(99))));
    assert!(asked(&format!("{}\x7f", "x".repeat(99))));
    assert!(asked(&format!("{}\r\x1b[A\x1b[A", "x".repeat(99))));
}

#[test]
fn a_terminal_may_answer_nothing_or_late() {
    let mut session = Session::with(Terminal::new(USUAL_COLUMNS, false));
    // The first key is held until the next arrives.
    for &byte in format!("{}\x7f\x7fyz\r", "x".repeat(200)).as_bytes() {
        session.feed(byte);
    }
    assert_eq!(session.lines, [Ok(format!("{}yz", "x".repeat(198)))]);
    session = session.typed(b"\x1b[24;80Rlist\r");
    assert_eq!(session.lines[1], Ok("list".into()));
    // An answer that was not asked for is noise.
    assert_eq!(line(b"list\x1b[24;80R"), Err(Refusal::NoKey));
}

/// Lines of every length from 1,000 to 5,000 bytes are accepted or refused as a whole.
#[test]
fn a_line_that_does_not_fit_is_refused() {
    for length in 1000..=5000 {
        for last in ["y", "\u{e9}", "\u{1f4a5}"] {
            let mut editor = LineEditor::new(PROMPT);
            let text = "x".repeat(length - last.len()) + last;
            let mut terminal = String::new();
            let mut outcome = None;
            for byte in text.bytes().chain(*b"\r") {
                outcome = editor.feed(byte, &mut terminal).unwrap();
            }
            let expected = if length <= LINE_MAX { Ok(text) } else { Err(Refusal::TooLong) };
            assert!(outcome == Some(expected), "{length}");
        }
    }
}

/// Inserts every byte at every position of a definition, a filter and a program. The resulting line contains the byte as
/// sent, has the effect of a key, or is refused.
#[test]
fn every_byte_is_understood_or_refuses_the_line() {
    const LINES: [&str; 3] = [
        "p:g/b1 f::<[u8; 4]>::O+4 a=%x0:u8[2] s=\\\"\u{e9}\u{1f4a5}\"",
        "echo 'a < 0x1f && s ~ \"*\u{e9}[!r-t]\"' > events/kprobes/b1/filter",
        "trace kprobe:f /arg0 > 5/ { printf(\"\\n\u{1f4a5}\"); @[func] = count(); } -c run",
    ];
    for (text, place) in LINES.iter().flat_map(|text| (0..=text.len()).map(move |place| (text, place))) {
        let (before, behind) = text.as_bytes().split_at(place);
        let splits_character = !text.is_char_boundary(place);
        for byte in 0..=255_u8 {
            let sent = [before, &[byte], behind].concat();
            let outcome = line(&sent);
            let is_key = matches!(byte, 1 | 3 | 5 | 8 | 9 | 10 | 11 | 12 | 13 | 14 | 16 | 21 | 23 | 27 | 127);
            match (core::str::from_utf8(&sent), &outcome) {
                (_, Err(_)) if byte >= 0x80 || splits_character => {}
                (_, Err(Refusal::NoKey)) if !is_key || byte == 27 => {}
                (Ok(sent), Ok(line)) if !is_key => assert_eq!(line, sent),
                (Ok(_), Ok(_)) if byte != 27 => {}
                // The byte made `ESC [` or `ESC O`, or ended a key.
                (Ok(sent), Ok(_)) if sent.contains("\x1b[") || sent.contains("\x1bO") => {}
                _ => panic!("{byte:#x} at {place}: {outcome:?}"),
            }
        }
    }
}

#[test]
fn text_outside_ascii_is_kept() {
    assert_eq!(lines("a\u{e4}\u{65e5}b\u{1f4a5}\r"), ["a\u{e4}\u{65e5}b\u{1f4a5}"]);
    assert_eq!(lines("\u{1f4a5}\u{e4}\x7f\x1b[Da\x1b[3~b\r"), ["ab"]);
    assert_eq!(lines("\u{1f4a5}\u{e4}\x1b[D\x1b[Da\x1b[C\x1b[Cb\x17c\r"), ["c"]);
}

#[test]
fn what_is_no_text_and_no_key_refuses_the_line() {
    for noise in [&b"\xff"[..], b"\xc3", b"\xf0\x9f\x92", b"\x80", b"\xc3\xf0\x9f\x92\xa5", b"\xed\xa0\x80"] {
        assert_eq!(line(&[b"ab", noise, b"c"].concat()), Err(Refusal::NotUtf8), "{noise:x?}");
    }
    for noise in [
        "\x00",
        "\x02",
        "\x1c",
        "\u{9b}",
        "\x1b[5~",
        "\x1b[99999999999m",
        "\x1bOP",
        "\x1bx",
        "\x1b",
        "\x1b[1;2",
        "\x1bO",
    ] {
        assert_eq!(line(format!("ab{noise}").as_bytes()), Err(Refusal::NoKey), "{noise:?}");
    }
    assert_eq!(lines("ab\x1b[1;5Dc\x1b[3;5~\r"), ["ac"]);
}

#[test]
fn a_refused_line_can_be_recalled_as_it_was_shown() {
    let session = Session::new().typed(b"ab\xff\r\x1b[A\r");
    assert_eq!(session.lines, [Err(Refusal::NotUtf8), Ok("ab".into())]);
    assert_eq!(session.terminal.bells, 1);
    // After it is discarded or emptied, the line is a new one.
    assert_eq!(lines("ab\x02\x03c\r"), ["", "c"]);
    assert_eq!(lines("ab\x02\x15c\r"), ["c"]);
    // Leaving the line for the history does not make it a new one.
    assert_eq!(line(b"c\rab\x02\x1b[A\x1b[B"), Err(Refusal::NoKey));
}

/// Random bytes, in which meaningful bytes are frequent. The checks after every byte must hold.
#[test]
fn noise_harms_nothing() {
    let frequent =
        b"\r\n\x1b\x1b\x1b[[OABCDHF~13478;\x01\x03\x05\x08\x0b\x0c\x0e\x10\x15\x17\x7fab c\xc3\xa9\xf0\x9f\x92\xa5";
    let mut random = Random::new(1);
    for _ in 0..300 {
        let noise: Vec<u8> = (0..3000)
            .map(|_| match random.below(4) {
                0 => random.below(0x80),
                _ => random.of(frequent),
            })
            .collect();
        let session = Session::new().typed(&noise).typed(b"\x03still here\r");
        assert_eq!(session.lines.last().unwrap().as_deref(), Ok("still here"));
        let mut lines = session.lines.iter().flatten();
        assert!(lines.all(|line| !line.contains(char::is_control)));
    }
}
