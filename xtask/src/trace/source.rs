//! A program as it is written on the host: in several lines, with a first line for the shell, and with arguments. The
//! console takes it in one line. Only white space and arguments are changed in that line, so that each of its bytes has
//! its place in the text.

use std::fmt;

/// A program that can be typed.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    /// The program in one line.
    pub line: String,
    /// For each byte of the line, its place in the text.
    origins: Vec<usize>,
    text: String,
    /// The file of the text, if it has one.
    name: Option<String>,
}

/// The reason why a program cannot be typed: a sentence, and the place in the text.
#[derive(Debug, PartialEq, Eq)]
pub struct Flaw {
    at: usize,
    sentence: String,
}

impl Source {
    /// Prepares the program in `text`, which is from the file `name` if that is given, with these arguments.
    ///
    /// As in bpftrace, `$1` is the first argument as a number, `str($1)` the same as a string, and `$#` the number of
    /// arguments. An argument that is not given is 0, or an empty string. In a probe, `$1` is the text of the argument,
    /// which must be given.
    pub fn new(text: &str, name: Option<String>, arguments: &[String]) -> Result<Self, String> {
        let mut source = Self { line: String::new(), origins: Vec::new(), text: text.into(), name };
        match source.read(arguments) {
            Ok(()) => Ok(source),
            Err(Flaw { at, sentence }) => Err(source.mark(at..at + 1, &sentence)),
        }
    }

    fn read(&mut self, arguments: &[String]) -> Result<(), Flaw> {
        let text = self.text.clone();
        let mut at = if text.starts_with("#!") { text.find('\n').unwrap_or(text.len()) } else { 0 };
        let mut in_string = false;
        // The number of open braces, and whether the probes of the clause are over.
        let (mut depth, mut is_past_probes) = (0_usize, false);
        while let Some(c) = text[at..].chars().next() {
            let rest = &text[at..];
            let mut length = c.len_utf8();
            match c {
                '"' => {
                    in_string = !in_string;
                    self.put("\"", at);
                }
                '\\' if in_string => {
                    length += rest[1..].chars().next().map_or(0, char::len_utf8);
                    self.put(&rest[..length], at);
                }
                '\n' if in_string => self.put("\\n", at),
                '\t' if in_string => self.put("\\t", at),
                _ if in_string => self.put(&rest[..length], at),
                '/' if rest.starts_with("//") => {
                    length = rest.find('\n').unwrap_or(rest.len());
                    self.put(" ", at);
                }
                '/' if rest.starts_with("/*") => {
                    let Some(end) = rest.find("*/") else {
                        return Err(Flaw { at, sentence: "this comment is not closed".into() });
                    };
                    length = end + 2;
                    self.put(" ", at);
                }
                '$' if rest[1..].starts_with('#') => {
                    length = 2;
                    self.put(&arguments.len().to_string(), at);
                }
                '$' if rest[1..].starts_with(|c: char| c.is_ascii_digit()) => {
                    length = 1 + rest[1..].find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len() - 1);
                    length += match depth == 0 && !is_past_probes {
                        true => self.put_probe(&rest[..length], at, arguments).map(|()| 0),
                        false => self.put_argument(rest, length, at, arguments),
                    }?;
                }
                '/' | '{' | '}' => {
                    match c {
                        '{' => depth += 1,
                        '}' => depth = depth.saturating_sub(1),
                        _ => {}
                    }
                    is_past_probes = depth > 0 || c == '/';
                    self.put(&rest[..length], at);
                }
                _ if c.is_whitespace() => self.put(" ", at),
                _ => self.put(&rest[..length], at),
            }
            at += length;
        }
        Ok(())
    }

    /// Replaces `name`, which is `$N` in a probe, by the text of the argument.
    fn put_probe(&mut self, name: &str, at: usize, arguments: &[String]) -> Result<(), Flaw> {
        let Some(argument) = argument(name, arguments) else {
            return Err(Flaw { at, sentence: format!("{name} is not given, and the probe needs it") });
        };
        if let Some(c) = argument.chars().find(|c| c.is_control()) {
            return Err(Flaw { at, sentence: format!("{name} has the control character {c:?}, and is in a probe") });
        }
        self.put(argument, at);
        Ok(())
    }

    /// Replaces `$N`, the first `length` bytes of `rest`, by the argument; or `str($N)`, if the line ends with the
    /// beginning of that. Returns how many more bytes this takes.
    fn put_argument(&mut self, rest: &str, length: usize, at: usize, arguments: &[String]) -> Result<usize, Flaw> {
        let name = &rest[..length];
        let argument = argument(name, arguments);
        let after = rest[length..].trim_start();
        if after.starts_with(')')
            && let Some(start) = self.line.trim_end().strip_suffix('(').map(str::trim_end)
            && let Some(before) = start.strip_suffix("str")
            && !before.ends_with(|c: char| c.is_alphanumeric() || c == '_')
        {
            let (kept, start) = (before.len(), self.origins[before.len()]);
            self.line.truncate(kept);
            self.origins.truncate(kept);
            let mut quoted = String::from("\"");
            for c in argument.unwrap_or_default().chars() {
                match c {
                    '"' | '\\' => quoted.extend(['\\', c]),
                    '\n' => quoted += "\\n",
                    '\t' => quoted += "\\t",
                    '\r' => quoted += "\\r",
                    _ if c.is_control() => {
                        let sentence = format!("{name} has the control character {c:?}, which strings cannot contain");
                        return Err(Flaw { at, sentence });
                    }
                    _ => quoted.push(c),
                }
            }
            self.put(&(quoted + "\""), start);
            return Ok(rest.len() - after.len() + 1 - length);
        }
        let value = argument.map_or("0", str::trim);
        let digits = value.strip_prefix('-').unwrap_or(value);
        let is_number = digits.starts_with(|c: char| c.is_ascii_digit())
            && digits.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !is_number {
            let sentence = format!("{name} is `{value}`, which is not a number; str({name}) is its value as a string");
            return Err(Flaw { at, sentence });
        }
        // In `$x-$1` the sign and the operator before it would be read as `--`.
        let negative = value.starts_with('-').then(|| format!("({value})"));
        self.put(negative.as_deref().unwrap_or(value), at);
        Ok(0)
    }

    /// Appends `text`. It stands for the place `at`, or, if it is unchanged, begins there.
    fn put(&mut self, text: &str, at: usize) {
        let is_kept = self.text[at..].starts_with(text);
        self.line.push_str(text);
        self.origins.extend((0..text.len()).map(|byte| if is_kept { at + byte } else { at }));
    }

    /// Returns the sentence with the part of the text that is its cause. `cause` has the bytes in the line.
    pub fn refusal(&self, cause: Option<(usize, usize)>, sentence: &str) -> String {
        let Some((start, end)) = cause else {
            let name = self.name.as_ref().map(|name| format!("{name}: ")).unwrap_or_default();
            return format!("{name}error: {sentence}");
        };
        let origin = |at: usize| self.origins.get(at).copied().unwrap_or(self.text.len());
        let last = origin(end.max(start + 1) - 1);
        let last = last + self.text[last..].chars().next().map_or(1, char::len_utf8);
        self.mark(origin(start)..last, sentence)
    }

    fn mark(&self, cause: std::ops::Range<usize>, sentence: &str) -> String {
        let start = self.text[..cause.start].rfind('\n').map_or(0, |end| end + 1);
        let line = self.text[start..].lines().next().unwrap_or("");
        let before = &self.text[start..cause.start];
        let within = line.get(before.len()..).unwrap_or("");
        let within = within.get(..cause.len().min(within.len())).unwrap_or(within);
        let place = self.name.as_ref().map(|name| {
            let number = self.text[..start].matches('\n').count() + 1;
            format!("{name}:{number}:{}: ", before.chars().count() + 1)
        });
        let indent: String = before.chars().map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let marks = "^".repeat(within.chars().count().max(1));
        format!("{}error: {sentence}\n  {line}\n  {indent}{marks}", place.unwrap_or_default())
    }
}

/// Returns the argument that `name`, which is `$N`, stands for. `None` if it is not given.
fn argument<'a>(name: &str, arguments: &'a [String]) -> Option<&'a str> {
    let number: usize = name[1..].parse().ok()?;
    arguments.get(number.checked_sub(1)?).map(String::as_str)
}

/// Shows a word in quotes of the console's shell.
pub struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}'", self.0.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::{Quoted, Source};

    fn read(text: &str, arguments: &[&str]) -> Result<Source, String> {
        let arguments: Vec<_> = arguments.iter().map(|argument| argument.to_string()).collect();
        Source::new(text, Some("f.bt".into()), &arguments)
    }

    fn line(text: &str, arguments: &[&str]) -> String {
        read(text, arguments).unwrap().line
    }

    #[test]
    fn lines_and_comments_become_white_space() {
        let text =
            "#!/usr/bin/env bpftrace\n// all of it\nBEGIN\n{\n\tprintf(\"// é\t/* \\\" $1\"); /* a\nb */ }\n// end";
        assert_eq!(line(text, &[]), "   BEGIN {  printf(\"// é\\t/* \\\" $1\");   }  ");
        assert_eq!(line("BEGIN { } /* #! */", &[]), "BEGIN { }  ");
    }

    #[test]
    fn arguments_are_numbers_and_strings() {
        for (text, expected) in [
            ("@[$1] = $2;", "@[7] = (-0x1f);"),
            ("$x = str( $3 );", "$x = \"a \\\"b\\\" c'd\";"),
            ("str($1) strx($1) str($1, 2)", "\"7\" strx(7) str(7, 2)"),
            ("$# $9 str($9) $10", "3 0 \"\" 0"),
            ("$x1 \"$1\"", "$x1 \"$1\""),
        ] {
            let text = &format!("BEGIN {{ {text} }}");
            let expected = format!("BEGIN {{ {expected} }}");
            assert_eq!(line(text, &["7", "-0x1f", "a \"b\" c'd"]), expected, "{text}");
        }
        assert_eq!(line("{ str($1) $x-$2", &["é→\\\t\r\n'", "-1"]), "{ \"é→\\\\\\t\\r\\n'\" $x-(-1)");
        assert!(read("{ str($1)", &["\u{1b}"]).unwrap_err().contains("$1 has the control character '\\u{1b}'"));
        let refused = read("BEGIN {\n  @ = $1;\n}", &["seven"]).unwrap_err();
        let sentence = "f.bt:2:7: error: $1 is `seven`, which is not a number; str($1) is its value as a string";
        assert_eq!(refused, format!("{sentence}\n    @ = $1;\n        ^"));
        assert!(read("/* x", &[]).unwrap_err().starts_with("f.bt:1:1: error: this comment is not closed"));
    }

    #[test]
    fn arguments_are_parts_of_probes() {
        let text = "kprobe:$1, kretprobe:$1 /arg0 > $2/ { @ = $2; if (1) { } } interval:s:$2 { }";
        let expected =
            "kprobe:<a::B as c>::*, kretprobe:<a::B as c>::* /arg0 > 5/ { @ = 5; if (1) { } } interval:s:5 { }";
        assert_eq!(line(text, &["<a::B as c>::*", "5"]), expected);
        assert!(read(text, &["f", "five"]).unwrap_err().contains("$2 is `five`, which is not a number"));
        assert!(read(text, &[]).unwrap_err().starts_with("f.bt:1:8: error: $1 is not given, and the probe needs it\n"));
        assert!(read(text, &["\n"]).unwrap_err().contains("$1 has the control character '\\n', and is in a probe"));
    }

    #[test]
    fn what_is_refused_is_shown_in_the_file() {
        let source = read("// é\nBEGIN {\n\t@ = str($1);\tfoo(é);\n}\n", &["argument"]).unwrap();
        let start = source.line.find("foo").unwrap();
        let shown = source.refusal(Some((start, start + 3)), "no");
        assert_eq!(shown, "f.bt:3:15: error: no\n  \t@ = str($1);\tfoo(é);\n  \t            \t^^^");
        let start = source.line.find("\"argument\"").unwrap();
        assert!(source.refusal(Some((start, start + 10)), "no").starts_with("f.bt:3:6: error: no\n"));
        assert_eq!(source.refusal(None, "no"), "f.bt: error: no");
        let end = source.line.len();
        assert!(source.refusal(Some((end, end)), "no").starts_with("f.bt:5:1: error: no\n  \n  ^"));
        let alone = Source::new("BEGIN", None, &[]).unwrap();
        assert_eq!(alone.refusal(Some((5, 5)), "no"), "error: no\n  BEGIN\n       ^");
    }

    #[test]
    fn words_are_quoted() {
        assert_eq!(Quoted("a 'b'").to_string(), r"'a '\''b'\'''");
    }
}
