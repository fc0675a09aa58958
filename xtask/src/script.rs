//! Reads a script of lines for the console. A text in `'…'` may go on in the next lines, and have comments there, as a
//! program in a file has.

use std::{
    io::{BufRead, BufReader, Read},
    mem,
};

/// Reads the lines of `script`, and passes each to `take` in the form in which it is typed, until `take` returns false.
/// An error says which line cannot be typed; it is the last.
pub fn read(script: impl Read, mut take: impl FnMut(Result<String, String>) -> bool) {
    let mut script = BufReader::new(script);
    let mut joiner = Joiner::default();
    for number in 1_u64.. {
        let mut bytes = Vec::new();
        // A closed standard input is an empty script.
        let is_over = !matches!(script.read_until(b'\n', &mut bytes), Ok(1..));
        if is_over {
            // The console says that the quote is not closed.
            if let Some(open) = joiner.end() {
                take(Ok(open));
            }
            return;
        }
        let line = match String::from_utf8(bytes) {
            Ok(line) => joiner.add(line.trim_end_matches(['\r', '\n'])).map(Ok),
            Err(_) => Some(Err(format!("line {number} of the script is not UTF-8"))),
        };
        let is_wrong = matches!(line, Some(Err(_)));
        if line.is_some_and(|line| !take(line)) || is_wrong {
            return;
        }
    }
}

/// The commands whose lines the console reads as a shell does, with quotes also within words.
const OF_SHELL: [&str; 5] = ["cat", "echo", "ls", "mkdir", "rmdir"];

/// Joins the lines of a text in quotes.
#[derive(Default)]
struct Joiner {
    /// The lines so far, if a quote is open.
    line: String,
    is_open: bool,
    /// Whether the line is for a command that takes a quote anywhere.
    is_for_shell: bool,
    /// Whether a string `"…"` is open in the text.
    in_string: bool,
}

impl Joiner {
    /// Adds a line. Returns the whole line if no quote is open at its end.
    fn add(&mut self, line: &str) -> Option<String> {
        if !self.is_open && line.trim_start().starts_with('#') {
            return Some(line.into());
        }
        if self.is_open {
            self.line.push_str(if self.in_string { "\\n" } else { " " });
        }
        if !self.is_open {
            self.is_for_shell = line.split_whitespace().next().is_some_and(|command| OF_SHELL.contains(&command));
        }
        let (mut in_double, mut begins_word, mut is_option) = (false, true, false);
        let mut rest = line;
        while let Some(c) = rest.chars().next() {
            let mut length = c.len_utf8();
            if !self.is_open && !in_double {
                is_option = if begins_word { c == '-' } else { is_option && !c.is_whitespace() };
            }
            // An apostrophe in a word, as in `<&'a T>::f`, is no quote; in an option, as in `-e'BEGIN { }'`, it is one.
            let may_quote = begins_word || is_option || self.is_for_shell;
            let before = (self.is_open, in_double);
            begins_word = c.is_whitespace() || c == '\\' && begins_word;
            match (self.is_open, c) {
                (true, '\'') => (self.is_open, self.in_string) = (false, false),
                (true, '/') if !self.in_string && rest.starts_with("//") && !rest.contains('\'') => break,
                (true, '"') => self.in_string = !self.in_string,
                (false, '\'') if !in_double && may_quote => self.is_open = true,
                (false, '"') if in_double || may_quote => in_double = !in_double,
                (_, '\\') if !self.is_open || self.in_string => {
                    length += rest[1..].chars().next().map_or(0, char::len_utf8);
                }
                _ => {}
            }
            // Another quote may follow one directly.
            begins_word |= before != (self.is_open, in_double);
            self.line.push_str(&rest[..length]);
            rest = &rest[length..];
        }
        if self.is_open { None } else { Some(mem::take(&mut self.line)) }
    }

    /// Returns the line whose quote is still open, if there is one.
    fn end(&mut self) -> Option<String> {
        mem::take(&mut self.is_open).then(|| mem::take(&mut self.line))
    }
}

#[cfg(test)]
mod tests {
    use super::read;

    fn lines(script: &[u8]) -> Vec<Result<String, String>> {
        let mut lines = Vec::new();
        read(script, |line| {
            lines.push(line);
            true
        });
        lines
    }

    fn typed(script: &str) -> Vec<String> {
        lines(script.as_bytes()).into_iter().map(Result::unwrap).collect()
    }

    #[test]
    fn a_text_in_quotes_goes_on() {
        let script =
            "# it's\nlist\r\ntrace 'BEGIN { // first\n  printf(\"a // b\n%d\", 1); }\n' -c 'run sha256 1'\n\nhelp";
        let program = "trace 'BEGIN {    printf(\"a // b\\n%d\", 1); } ' -c 'run sha256 1'";
        assert_eq!(typed(script), ["# it's", "list", program, "", "help"]);
        assert_eq!(typed("echo \\'a\necho \"it's\" '' 'a'\\''b'\n"), ["echo \\'a", "echo \"it's\" '' 'a'\\''b'"]);
        assert_eq!(typed("symbols *for<'a>*\nlist\n"), ["symbols *for<'a>*", "list"]);
        assert_eq!(typed("trace -e'BEGIN {\n}' --x=\"'y\"\nlist\n"), ["trace -e'BEGIN { }' --x=\"'y\"", "list"]);
        assert_eq!(typed("echo 'a'\\''b\nc'\n"), ["echo 'a'\\''b c'"]);
        for line in [
            "echo x='' > trace_marker",
            "echo x=\"'y\"",
            "echo a'b 'c",
            "echo a\"b 'c d\"",
            "f <&'a T>::g",
            "f &'a",
            "trace kprobe:f { } // caller's",
            "f a''b 'c'",
            "lines <T as U<'_>>::f",
        ] {
            assert_eq!(typed(&format!("{line}\nlist\n")), [line, "list"]);
        }
        assert_eq!(typed("echo a'b\nc' > trace_marker\nlist\n"), ["echo a'b c' > trace_marker", "list"]);
        assert_eq!(typed("trace kprobe:f /arg0 < 5/ { } -c 'a\nb'\n"), ["trace kprobe:f /arg0 < 5/ { } -c 'a b'"]);
        assert_eq!(typed("trace 'a // b' -c c\ntrace '{ \"\\\"'\n"), ["trace 'a // b' -c c", "trace '{ \"\\\"'"]);
    }

    #[test]
    fn what_cannot_be_typed_ends_the_script() {
        assert_eq!(typed("trace 'BEGIN {\n}"), ["trace 'BEGIN { }"]);
        let wrong = lines(b"list\n\xff\nlist\n");
        assert_eq!(wrong, [Ok("list".into()), Err("line 2 of the script is not UTF-8".into())]);
    }
}
