//! Keys and noise, with a simulated terminal that may or may not report the length of its rows.

use super::history::HISTORY_MAX;
use super::rows::Cell;
use super::*;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use kprobes_random::Random;
use kprobes_wire::history;

const PROMPT: &str = "$ ";

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
    /// The reports to a program on the host, which a terminal does not show.
    reports: Vec<String>,
}

impl Write for Terminal {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        assert_eq!(text.contains("\x1b_"), text.ends_with("\x1b\\"), "a report is written in pieces: {text:?}");
        text.chars().for_each(|character| self.put(character));
        Ok(())
    }
}

impl Terminal {
    fn new(columns: usize, answers: bool) -> Self {
        let cursor = Cell { row: 0, column: 0 };
        let answers = answers.then(Vec::new);
        Self { columns, rows: Vec::new(), cursor, is_full: false, escape: None, answers, bells: 0, reports: Vec::new() }
    }

    fn control(&mut self, sequence: &str) -> bool {
        if let Some(report) = sequence.strip_prefix('_') {
            self.reports.extend(report.strip_suffix("\x1b\\").map(String::from));
            return report.ends_with("\x1b\\");
        }
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

    fn text(&self, first: usize) -> String {
        self.rows.iter().skip(first).flatten().map(String::as_str).collect()
    }
}

/// Completes the word after the last blank from a few names, and goes on in a next row after a `{`.
struct Names;

const NAMES: [&str; 6] = ["trace ", "tracing_on ", "trace_pipe ", "events/", "b\u{e4}r(", "b\u{e4}ren("];

impl Completer for Names {
    fn complete(&mut self, before: &str, found: &mut Candidates) -> Result<(), OutOfMemory> {
        found.look_for(before.rsplit(char::is_whitespace).next().unwrap_or_default())?;
        if found.word().is_empty() {
            return Ok(());
        }
        if let Some(count) =
            found.word().strip_prefix("many").and_then(|rest| rest.split('-').next()?.parse::<usize>().ok())
        {
            return (0..count).try_for_each(|number| found.offer(&format!("many{count}-{number:05}"), " "));
        }
        NAMES.iter().try_for_each(|name| found.offer(name, ""))
    }

    fn is_open(&mut self, line: &str) -> bool {
        line.matches('{').count() > line.matches('}').count()
    }
}

struct Session {
    editor: LineEditor,
    terminal: Terminal,
    lines: Vec<Result<String, LineRefusal>>,
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
        if let Some(line) = self.editor.feed(byte, &mut Names, &mut self.terminal).unwrap() {
            self.lines.push(line);
            assert_eq!(self.terminal.cursor.column, 0);
            self.terminal.rows.clear();
            self.terminal.cursor.row = 0;
            self.editor.start(&mut self.terminal).unwrap();
        }
    }

    fn check(&self) {
        let Self { editor, terminal, .. } = self;
        let LineEditor { rows, line, cursor, .. } = editor;
        assert!(rows.len() + line.text.len() <= LINE_MAX);
        let Cell { row, column } = terminal.cursor;
        // After a full row, the terminal's cursor stays in the last column.
        let shown = if terminal.is_full { Cell { row: row + 1, column: 0 } } else { Cell { row, column } };
        let expected = Cell::of(editor.prompt(), &line.text, *cursor, terminal.columns);
        // A list of names and earlier rows may precede the row.
        let first = shown.row - expected.row;
        assert_eq!(terminal.text(first), editor.prompt().concat() + &line.text);
        assert_eq!(shown.column, expected.column, "{line:?}");
    }
}

/// Returns the lines that result from typing `bytes`.
fn lines(bytes: &str) -> Vec<String> {
    Session::new().typed(bytes.as_bytes()).lines.into_iter().map(|line| line.expect(bytes)).collect()
}

/// Returns the result of sending `bytes` and a line feed.
fn line(bytes: &[u8]) -> Result<String, LineRefusal> {
    Session::new().typed(bytes).typed(b"\n").lines.pop().unwrap()
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
    assert_eq!(lines("ab\x02c\x06d\x02\x02\x04\r"), ["acd"]);
    assert_eq!(lines("\x04a\x04\r"), ["a"]);
}

#[test]
fn removing_more_than_a_character() {
    assert_eq!(lines("abcd\x1b[D\x1b[D\x15x\r"), ["xcd"]);
    assert_eq!(lines("abcd\x1b[D\x1b[D\x0bx\r"), ["abx"]);
    assert_eq!(lines("one two  \x17x\r"), ["one x"]);
    assert_eq!(lines("one\x17\x17x\r"), ["x"]);
}

#[test]
fn words_are_passed_removed_and_inserted_again() {
    for (left, right) in [("\x1bb", "\x1bf"), ("\x1b[1;5D", "\x1b[1;5C"), ("\x1b[1;3D", "\x1b[1;3C")] {
        let keys = format!("a_b  c::d{left}!{left}{left}{left}?{right}{right};{right}{right}.\r");
        assert_eq!(lines(&keys), ["?a_b;  c::!d."], "{left:?}");
    }
    assert_eq!(lines("a::b c\x1b\x7f\x1b\x08x\r"), ["a::x"]);
    assert_eq!(lines("a::b c\x01\x1bd\x1bdx\r"), ["x c"]);
    assert_eq!(lines("one two\x17\x19\x19\r"), ["one twotwo"]);
    assert_eq!(lines("one two\x01\x0bx\x19\r\x19\x1bb\x15\r"), ["xone two", "two"]);
    assert_eq!(lines("a\x7f\x19\x15\x0b\x17\x1bdb\r"), ["b"]);
    let doubled = format!("{}\x15\x19\x19\x19\r", "x".repeat(LINE_MAX / 2));
    assert_eq!(lines(&doubled), ["x".repeat(LINE_MAX / 2 * 2)]);
}

#[test]
fn characters_are_exchanged() {
    assert_eq!(lines("a\u{1f4a5}\x14\r"), ["\u{1f4a5}a"]);
    assert_eq!(lines("abcd\x02\x02\x14x\r"), ["acbxd"]);
    assert_eq!(lines("\x14a\x14\x01\x14\r"), ["a"]);
    // The exchange moves a wide character to the next row.
    let text = "x".repeat(COLUMNS - PROMPT.len() - 2);
    assert_eq!(lines(&format!("{text}\u{1f4a5}y\x14\r")), [format!("{text}y\u{1f4a5}")]);
}

#[test]
fn the_last_word_of_the_line_before_is_inserted() {
    assert_eq!(lines("cat a b \rls \x1b.\r\x1b.\r"), ["cat a b ", "ls b", "b"]);
    assert_eq!(lines("\x1b.a\r"), ["a"]);
}

#[test]
fn earlier_lines_are_searched() {
    let earlier = "cat trace\rls events\rcat set_event\r";
    for (keys, line) in [
        ("\x12cat\r", "cat set_event"),
        ("\x12cat\x12\r", "cat trace"),
        ("\x12cat\x12\x12x\r", "cat trace"),
        ("\x12trac\x05!\r", "cat trace!"),
        ("\x12ev\x02_\r", "cat set__event"),
        ("\x12t\x12\x7f\r", "cat set_event"),
        ("\x12ls\x1b[A\r", "cat trace"),
        ("draft\x12ls\x07s\r", "drafts"),
        ("draft\x02\x12ls\x03s\r", "drafst"),
        ("draft\x12ls\x1b[B\x1b[B\x0e!\r", "draft!"),
        ("draft\x12nothing\r", "cat set_event"),
        ("\x1b[A\x12\x12\r", "ls events"),
        ("\x12\u{e4}\x7f\x07!\r", "!"),
    ] {
        assert_eq!(lines(&format!("{earlier}{keys}")).last().unwrap(), line, "{keys:?}");
    }
    // The prompt and the line take several rows.
    let long = format!("{}end\r{}", "\u{1f4a5}x".repeat(40), "y".repeat(99));
    assert_eq!(lines(&format!("{long}\x12{}\x05en\x12end\x06\x06!\r", "\u{1f4a5}x".repeat(30)))[1].len(), 204);
}

#[test]
fn what_is_not_closed_goes_on_in_a_next_row() {
    assert_eq!(lines("a {\rb\x01x\r}\rc\r"), ["a {\nxb\n}", "c"]);
    assert_eq!(lines("a {\rb\x03c\r"), ["", "c"]);
    // Rows are in the history one by one.
    assert_eq!(lines("a {\rb\r}\r\x10\x10\r"), ["a {\nb\n}", "b"]);
    // A peer that sends lines ends each with a line feed.
    assert_eq!(lines("a {\nb\n{\r\nc\r\n"), ["a {", "b", "{\n", "c"]);
    assert_eq!(line(b"a\xff {"), Err(LineRefusal::NotUtf8), "it does not go on");
    let long = "x".repeat(LINE_MAX - 3);
    assert_eq!(lines(&format!("{{{long}\r}}\r")), [format!("{{{long}\n}}")]);
    // A line of the history for which there is no room is not shown: nothing is added to the row.
    assert_eq!(lines(&format!("{long}\r{{{long}\r\x10}}\r"))[1], format!("{{{long}\n}}"));
    assert_eq!(line(format!("{{{long}\r}}{long}").as_bytes()), Err(LineRefusal::TooLong));
    assert_eq!(line(format!("{{{long}xx\r").as_bytes()), Ok(format!("{{{long}xx")), "there is no room for a next row");
}

/// Returns what the terminal shows after `keys`, row by row.
fn shown(columns: usize, keys: &str) -> (Vec<String>, usize) {
    let Session { terminal, .. } = Session::with(Terminal::new(columns, true)).typed(keys.as_bytes());
    (terminal.rows.iter().map(|row| row.concat()).collect(), terminal.bells)
}

#[test]
fn words_are_completed() {
    assert_eq!(lines("ev\tx\r"), ["events/x"]);
    assert_eq!(lines("cat traci\tx\r"), ["cat tracing_on x"]);
    assert_eq!(lines("tx\x02\tx\r"), ["tracxx"]);
    assert_eq!(lines("b\t\x7f\t\r"), ["b\u{e4}r"]);
    assert_eq!(shown(COLUMNS, "tr\t").0, ["$ trac"]);
    assert_eq!(shown(COLUMNS, "trac\t"), (vec!["$ trac".into()], 1));
    let both = ["$ trac", "trace       trace_pipe  tracing_on", "$ trac"].map(String::from);
    assert_eq!(shown(COLUMNS, "trac\t\t"), (both.to_vec(), 1));
    assert_eq!(shown(COLUMNS, "tr\t\t").0, both);
    assert_eq!(shown(14, "trac x\x02\x02\t\t").0, ["$ trac x", "trace", "trace_pipe", "tracing_on", "$ trac x"]);
    // Another key is between the tabs.
    assert_eq!(shown(COLUMNS, "trac\t\x05\t"), (vec!["$ trac".into()], 2));
    // Nothing matches.
    assert_eq!(shown(COLUMNS, "a\t\t"), (vec!["$ a".into()], 2));
    assert_eq!(lines("\ta \tb\r"), [" a  b"]);
    let full = "x".repeat(LINE_MAX - 3);
    assert_eq!(lines(&format!("{full} e\t\r")), [format!("{full} e")]);
}

#[test]
fn a_long_list_is_cut() {
    for (count, columns, rows, more) in
        [(100, 40, 1 + 20 + 1 + 1, Some(60)), (2000, 14, 20 + 3, Some(1980)), (36, 40, 20, None)]
    {
        let (rows_shown, _) = shown(columns, &format!("many{count}\t\t"));
        assert_eq!(rows_shown.len(), rows, "{rows_shown:?}");
        assert!(rows_shown.iter().all(|row| row.len() <= columns));
        let last = &rows_shown[rows_shown.len() - 2];
        match more {
            Some(more) => assert_eq!(*last, format!("and {more} more")),
            None => assert!(last.starts_with("many36-00017")),
        }
    }
}

/// A tab of a peer that does not answer, or that sends more first, is a space.
#[test]
fn tabs_of_pasted_text_are_spaces() {
    let mut session = Session::with(Terminal::new(COLUMNS, false));
    for &byte in b"cat\ttr\t\tx\rev\t" {
        session.feed(byte);
    }
    // The terminal answers late.
    session = session.typed(b"\x1b[24;48R\x1b[24;48R\x1b[24;48R\x1b[24;48R\r\x1b[24;48R\r");
    assert_eq!(session.lines, [Ok("cat tr  x".into()), Ok("events/".into()), Err(LineRefusal::NoKey)]);
    let mut session = Session::with(Terminal::new(USUAL_COLUMNS, false));
    for &byte in format!("{}\t{}\x01\ty\r", "x".repeat(50), "x".repeat(50)).as_bytes() {
        session.feed(byte);
    }
    assert_eq!(session.lines, [Ok(format!(" y{0} {0}", "x".repeat(50)))]);
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

/// The keys by which a host keeps the history, and hands over `line`.
fn keep() -> String {
    history::key(history::KEEP)
}

/// The host sends earlier lines while a line is typed, searched or recalled. This line does not change.
#[test]
fn a_host_hands_earlier_lines_over() {
    let earlier = history::earlier;
    let (one, two) = (earlier("one \u{e9}"), earlier("two"));
    for (keys, line, reports) in [
        (format!("{}{two}{one}\x10\x10\r", keep()), "one \u{e9}", &["f", "n", "n", "lone \u{e9}"][..]),
        (format!("x\r{}{two}{two}\x10{one}\x10!\r", keep()), "two!", &["f", "n", "n", "n", "ltwo!"]),
        (format!("dr{}aft{two}\x10\x0e\r", keep()), "draft", &["f", "n", "ldraft"]),
        (format!("{}x\r\x12x{two}\x07y\x10\x10\r", keep()), "two", &["f", "lx", "n", "ltwo"]),
        // The editor asks once. A line that a program sends is not kept, and no line is reported after the host has
        // left.
        (format!("{0}{0}a\nb\r\rb\rc\n\x10\x10\r", keep()), "b", &["f", "lb"]),
        (format!("{}{}a\r", keep(), history::key(history::LEAVE)), "a", &["f"]),
        (format!("{}a {{\r}}\r", keep()), "a {\n}", &["f", "la {", "l}"]),
        // An earlier line that is cut off, or too long, is left out.
        (format!("{}{}\x15{two}\x10\x10\r", keep(), &one[..11]), "two", &["f", "n"]),
        (format!("{}{}{two}\x10\x10\r", keep(), earlier(&"x".repeat(LINE_MAX + 1))), "two", &["f", "n", "n"]),
    ] {
        let session = Session::new().typed(keys.as_bytes());
        assert_eq!(session.lines.last().unwrap().as_deref(), Ok(line), "{keys:?}");
        assert_eq!(session.terminal.reports, reports, "{keys:?}");
    }
    assert_eq!(line(format!("ab{}", history::key(history::END)).as_bytes()), Err(LineRefusal::NoKey));
    // A number that the editor does not know.
    assert_eq!(line(format!("ac\x1b[D{}b", history::key(999)).as_bytes()).as_deref(), Ok("acb"));
    // The terminal is asked for its columns, and the host speaks before it answers.
    let mut session = Session::with(Terminal::new(COLUMNS, false));
    for &byte in format!("{}\x1b[A{}{two}\x1b[24;{COLUMNS}R!\r", "x".repeat(60), keep()).as_bytes() {
        session.feed(byte);
    }
    assert_eq!(session.lines, [Ok("two!".into())]);
    // When the history is full, no more lines are asked for.
    let all: String = (0..HISTORY_MAX + 5).map(|number| earlier(&number.to_string())).collect();
    let session = Session::new().typed(format!("a\r{}{all}{}\r", keep(), "\x10".repeat(99)).as_bytes());
    assert_eq!(session.lines.last().unwrap().as_deref(), Ok((HISTORY_MAX - 2).to_string().as_str()));
    assert_eq!(
        session.terminal.reports.iter().filter(|report| matches!(report.as_str(), "f" | "n")).count(),
        HISTORY_MAX - 1
    );
}

/// Edits lines in several rows: of every length up to four rows, and of two larger lengths.
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
    assert_eq!(line(b"list\x1b[24;80R"), Err(LineRefusal::NoKey));
}

/// Lines of every length from 1,000 to 5,000 bytes are accepted or refused as a whole.
#[test]
fn a_line_that_does_not_fit_is_refused() {
    // Lengths near the limit are all tested, and a few far from it.
    let near = LINE_MAX - 8..=LINE_MAX + 8;
    for length in (1000..=5000).step_by(61).chain(near) {
        for last in ["y", "\u{e9}", "\u{1f4a5}"] {
            let mut editor = LineEditor::new(PROMPT);
            let text = "x".repeat(length - last.len()) + last;
            let mut terminal = String::new();
            let mut outcome = None;
            for byte in text.bytes().chain(*b"\r") {
                outcome = editor.feed(byte, &mut Names, &mut terminal).unwrap();
            }
            let expected = if length <= LINE_MAX { Ok(text) } else { Err(LineRefusal::TooLong) };
            assert!(outcome == Some(expected), "{length}");
        }
    }
}

/// Inserts every byte at every position of a definition, a filter and a program. The resulting line contains the byte
/// as sent, has the effect of a key, or is refused.
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
            let is_key = matches!(byte, 1..=14 | 16 | 18 | 20 | 21 | 23 | 25 | 27 | 127);
            match (core::str::from_utf8(&sent), &outcome) {
                (_, Err(_)) if byte >= 0x80 || splits_character => {}
                (_, Err(LineRefusal::NoKey)) if !is_key || byte == 27 => {}
                (Ok(sent), Ok(line)) if !is_key => assert_eq!(line, sent),
                (Ok(_), Ok(_)) if byte != 27 => {}
                // The byte made `ESC [` or `ESC O`, or ended a key.
                (Ok(sent), Ok(_))
                    if ["\x1b[", "\x1bO", "\x1bb", "\x1bf", "\x1bd"].iter().any(|key| sent.contains(key)) => {}
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
        assert_eq!(line(&[b"ab", noise, b"c"].concat()), Err(LineRefusal::NotUtf8), "{noise:x?}");
    }
    for noise in [
        "\x00",
        "\x0f",
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
        assert_eq!(line(format!("ab{noise}").as_bytes()), Err(LineRefusal::NoKey), "{noise:?}");
    }
    assert_eq!(lines("ab\x1b[1;2Dc\x1b[3;5~\r"), ["ac"]);
}

#[test]
fn a_refused_line_can_be_recalled_as_it_was_shown() {
    let session = Session::new().typed(b"ab\xff\r\x1b[A\r");
    assert_eq!(session.lines, [Err(LineRefusal::NotUtf8), Ok("ab".into())]);
    assert_eq!(session.terminal.bells, 1);
    // After it is discarded or emptied, the line is a new one.
    assert_eq!(lines("ab\x0f\x03c\r"), ["", "c"]);
    assert_eq!(lines("ab\x0f\x15c\r"), ["c"]);
    // Noise in a search refuses the line found, and noise before one the line that it gives back.
    let searched = |keys: &[u8]| line(&[b"found\r", keys].concat());
    assert_eq!(searched(b"\x12f\x0fo"), Err(LineRefusal::NoKey));
    for (keys, outcome) in [
        (&b"a\x0f\x12f"[..], Ok("found".into())),
        (b"a\x0f\x12f\x07", Err(LineRefusal::NoKey)),
        (b"a\x0f\x12\x05", Err(LineRefusal::NoKey)),
    ] {
        assert_eq!(searched(keys), outcome);
    }
    // A line that is left for the history, and shown again, is still refused.
    assert_eq!(line(b"c\rab\x0f\x1b[A\x1b[B"), Err(LineRefusal::NoKey));
}

/// Random bytes, in which meaningful bytes are frequent. The checks after every byte must hold.
#[test]
fn noise_harms_nothing() {
    let frequent =
        b"\r\n\t\x1b\x1b\x1b[[OABCDHF~13478;{}\x01\x03\x05\x07\x08\x0b\x0c\x0e\x10\x12\x12\x14\x15\x17\x19\x7fabtr c\xc3\xa9\xf0\x9f\x92\xa5";
    let mut random = Random::new(1);
    for _ in 0..300 {
        let noise: Vec<u8> = (0..3000)
            .map(|_| match random.below(4) {
                0 => random.below(0x80),
                _ => random.of(frequent),
            })
            .collect();
        let session = Session::new().typed(&noise).typed(b"\x03\x03still here\r");
        assert_eq!(session.lines.last().unwrap().as_deref(), Ok("still here"));
        let mut lines = session.lines.iter().flatten();
        assert!(lines.all(|line| !line.contains(|c: char| c.is_control() && c != '\n')));
    }
}
