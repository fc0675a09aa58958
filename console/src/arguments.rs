//! Parses the arguments of a command: a name or a glob, or a program with an optional command to run meanwhile. Each
//! may be quoted as in a shell.

use alloc::string::String;

use fallible::OutOfMemory;
use kprobes_trace::definition;

use crate::shell::CommandLine;
use crate::words::{Failure, Words};

/// A parsed program or glob, with its command.
#[derive(Debug, PartialEq, Eq)]
pub struct TextArgument {
    /// The program or the glob.
    pub text: String,
    /// The column of the text, in characters from 0. It is exact only if the text stands in the line unchanged.
    pub column: usize,
    /// The command after `-c`.
    pub command: Option<String>,
}

/// Returns the rest of `words` as a name, which may be quoted as in a shell, with its column in characters from 0. A
/// quote at the start is unambiguous, because no name begins with one.
///
/// # Errors
///
/// A quote is not closed, or text follows it, or there is no memory for the name.
pub fn name(words: &mut Words<'_>) -> Result<(String, usize), Failure> {
    let rest = words.rest();
    if !rest.text.starts_with(['\'', '"']) {
        return Ok((fallible::copy(rest.text)?, rest.column));
    }
    let line = CommandLine::parse(rest.text).map_err(|error| error.failure(rest.column))?;
    match only_word(line) {
        Some(word) => Ok((word, rest.column + 1)),
        None => Err(rest.failure("one quoted name is expected here, and nothing after it")),
    }
}

/// Parses `TEXT [-c COMMAND]`. Each part may be quoted as in a shell. `what` names the text in error messages.
///
/// # Errors
///
/// The text is missing, a quote is not closed, other text follows, or there is no memory.
pub fn text_argument(words: &mut Words<'_>, what: &str) -> Result<TextArgument, Failure> {
    let rest = words.rest();
    if rest.text.is_empty() {
        words.expect(what)?;
    }
    if !rest.text.starts_with(['\'', '"']) {
        let (text, command) = match option(rest.text) {
            Some((_, "")) => {
                let end = rest.column + rest.text.chars().count();
                return Err(Failure::at(end + 1, "a command, as in run sha256, is missing here"));
            }
            Some((text, command)) => (text, Some(unquoted(command)?)),
            None => (rest.text, None),
        };
        return Ok(TextArgument { text: fallible::copy(text)?, column: rest.column, command });
    }
    let line = CommandLine::parse(rest.text).map_err(|error| error.failure(rest.column))?;
    let (is_redirected, mut words) = (line.output.is_some(), line.words.into_iter());
    // A command without quotes takes the rest of the line.
    if let Some(("", command)) = quoted(rest.text).and_then(|(_, behind)| option(behind))
        && !command.is_empty()
        && !command.starts_with(['\'', '"'])
        && let Some(text) = words.next()
    {
        return Ok(TextArgument { text, column: rest.column + 1, command: Some(fallible::copy(command)?) });
    }
    let (text, command) = match (words.next(), words.next(), words.next(), words.next()) {
        (Some(text), None, ..) => (text, None),
        (Some(text), Some(flag), Some(command), None) if flag == "-c" => (text, Some(command)),
        _ => return Err(rest.failure("one quoted text is expected here, optionally followed by -c 'COMMAND'")),
    };
    if is_redirected {
        return Err(rest.failure("the output of a program cannot be redirected"));
    }
    Ok(TextArgument { text, column: rest.column + 1, command })
}

/// Returns the word of a line that consists of a single word; `None` for other lines.
fn only_word(mut line: CommandLine) -> Option<String> {
    let is_alone = line.words.len() == 1 && line.output.is_none();
    if is_alone { line.words.pop() } else { None }
}

/// Splits `text` at the first `-c` that is a separate word, outside the strings and comments of a program.
pub(crate) fn option(text: &str) -> Option<(&str, &str)> {
    let mut rest = text;
    let mut follows_blank = false;
    while let Some(c) = rest.chars().next() {
        let at = text.len() - rest.len();
        let length = match c {
            '"' => string_length(rest).unwrap_or(rest.len()),
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => comment_length(rest).unwrap_or(rest.len()),
            '-' if follows_blank
                && let Some(command) = rest.strip_prefix("-c")
                && (command.is_empty() || command.starts_with(char::is_whitespace)) =>
            {
                return Some((text.get(..at)?.trim_end(), command.trim_start()));
            }
            _ => c.len_utf8(),
        };
        follows_blank = c.is_whitespace();
        rest = rest.get(length..)?;
    }
    None
}

/// Returns `line` with blanks for the quotes around its second word, in which most commands accept a name. All columns
/// stay as they are. Quotes stay if they are not closed, if text follows them, or if they contain more than a name.
///
/// # Errors
///
/// There is no memory for the line.
pub fn without_quotes(line: &str) -> Result<String, OutOfMemory> {
    let mut words = Words::new(line);
    words.next();
    let rest = words.rest().text;
    let before = line.trim_end().strip_suffix(rest).unwrap_or(line);
    match quoted(rest) {
        Some((name, behind))
            if (behind.is_empty() || behind.starts_with(char::is_whitespace))
                && (!name.contains(char::is_whitespace) || definition::parse_place(name).is_ok()) =>
        {
            fallible::format(format_args!("{before} {name} {behind}"))
        }
        _ => fallible::copy(line),
    }
}

/// Splits `text` into the text in quotes at its start and what follows these quotes. Returns `None` if `text` does not
/// begin with a quote, or if the quote is not closed.
pub(crate) fn quoted(text: &str) -> Option<(&str, &str)> {
    if let Some(inner) = text.strip_prefix('\'') {
        return inner.split_once('\'');
    }
    let length = text.starts_with('"').then(|| string_length(text))??;
    Some((text.get(1..length - 1)?, text.get(length..)?))
}

/// Returns whether `text` ends in quotes or, if it is a program, in brackets or a comment. An apostrophe in a word, as
/// in `<&'a T>::f`, is no quote.
pub(crate) fn is_unfinished(text: &str, is_program: bool) -> bool {
    let (mut rest, mut depth, mut begins_word) = (text, 0_usize, true);
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '\'' if begins_word => rest.get(1..).and_then(|inner| inner.find('\'')).map(|end| end + 2),
            '"' if begins_word || is_program => string_length(rest),
            '/' if is_program && rest.starts_with("/*") => comment_length(rest),
            '/' if is_program && rest.starts_with("//") => Some(rest.find('\n').unwrap_or(rest.len())),
            '\\' if !is_program => Some(1 + rest.chars().nth(1).map_or(0, char::len_utf8)),
            _ => Some(c.len_utf8()),
        };
        match c {
            '{' | '(' | '[' if is_program => depth += 1,
            '}' | ')' | ']' if is_program => depth = depth.saturating_sub(1),
            _ => {}
        }
        let Some(behind) = length.and_then(|length| rest.get(length..)) else { return true };
        begins_word = c.is_whitespace() || matches!(c, '\'' | '"');
        rest = behind;
    }
    depth > 0
}

/// Returns the length of the comment `/* … */` at the start of `text`, in bytes; `None` if it is not closed.
fn comment_length(text: &str) -> Option<usize> {
    text.strip_prefix("/*")?.find("*/").map(|end| end + 4)
}

/// Returns the length of the string at the start of `text` with its quotes, in bytes; `None` if it is not closed.
fn string_length(text: &str) -> Option<usize> {
    let mut is_escaped = true;
    let end = text.char_indices().find(|&(_, c)| {
        let ends = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        ends
    });
    end.map(|(at, _)| at + 1)
}

/// Removes the quotes of a command that is quoted as a whole.
fn unquoted(command: &str) -> Result<String, OutOfMemory> {
    match CommandLine::parse(command) {
        Err(error) if error.is_memory() => Err(OutOfMemory),
        line => line.ok().and_then(only_word).map_or_else(|| fallible::copy(command), Ok),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> (String, Option<String>) {
        let TextArgument { text, command, .. } =
            text_argument(&mut Words::new(line), "a program").unwrap_or_else(|error| panic!("{error:?}"));
        (text, command)
    }

    #[test]
    fn a_command_follows_the_program() {
        for (line, program, command) in [
            ("kprobe:f { @ = count(); } -c run sha256 10", "kprobe:f { @ = count(); }", Some("run sha256 10")),
            ("kprobe:f { @ = count(); }  -c  'run sha256'", "kprobe:f { @ = count(); }", Some("run sha256")),
            ("kprobe:f { @ = count(); }", "kprobe:f { @ = count(); }", None),
            ("kprobe:f -c run", "kprobe:f", Some("run")),
            (r#"kprobe:f { printf("a -c b"); } -c run"#, r#"kprobe:f { printf("a -c b"); }"#, Some("run")),
            (r#"kprobe:f { printf("a -c b"); }"#, r#"kprobe:f { printf("a -c b"); }"#, None),
            (r#"kprobe:f { printf("\" -c \\"); } -c run"#, r#"kprobe:f { printf("\" -c \\"); }"#, Some("run")),
            (
                r#"kprobe:f { printf("\\"); } -c echo "a -c b""#,
                r#"kprobe:f { printf("\\"); }"#,
                Some(r#"echo "a -c b""#),
            ),
            ("kprobe:f { /* -c */ } -c run", "kprobe:f { /* -c */ }", Some("run")),
            ("kprobe:f { /*/ -c */ } -c run", "kprobe:f { /*/ -c */ }", Some("run")),
            ("kprobe:f { } // x -c run", "kprobe:f { } // x -c run", None),
            ("kprobe:f { } /* // */ -c run", "kprobe:f { } /* // */", Some("run")),
            (r#"kprobe:f { printf("//"); } -c run"#, r#"kprobe:f { printf("//"); }"#, Some("run")),
            ("kprobe:f { @ = 1 -cpu; } -c run", "kprobe:f { @ = 1 -cpu; }", Some("run")),
            (
                "kprobe:f { @ = 1-c; } -c trace BEGIN { } -c run",
                "kprobe:f { @ = 1-c; }",
                Some("trace BEGIN { } -c run"),
            ),
            ("kprobe:<&'a T>::f { } -c run", "kprobe:<&'a T>::f { }", Some("run")),
            (r#"kprobe:f { printf("open -c run"#, r#"kprobe:f { printf("open -c run"#, None),
            ("kprobe:f { /* open -c run", "kprobe:f { /* open -c run", None),
            (
                "'kprobe:f { print(\"a -c b\"); }' -c 'run sha256'",
                "kprobe:f { print(\"a -c b\"); }",
                Some("run sha256"),
            ),
            ("'kprobe:f { print(\"a -c b\"); }' -c run sha256", "kprobe:f { print(\"a -c b\"); }", Some("run sha256")),
            (r#""<a::B as c::D>::f" -c run sha256 10"#, "<a::B as c::D>::f", Some("run sha256 10")),
            ("'f' -c echo > trace", "f", Some("echo > trace")),
            (r#"'f' -c echo "a  b" > trace_marker"#, "f", Some(r#"echo "a  b" > trace_marker"#)),
        ] {
            assert_eq!(read(line), (program.into(), command.map(String::from)), "{line}");
        }
    }

    #[test]
    fn a_name_may_be_in_quotes() {
        let read = |line: &str| {
            let mut words = Words::new(line);
            words.next();
            name(&mut words)
        };
        for (line, text, column) in [
            ("symbols  sha2::*  ", "sha2::*", 9),
            ("symbols 'sha2::*'", "sha2::*", 9),
            ("symbols \"<a::B as c::D<'x'>>::f\" ", "<a::B as c::D<'x'>>::f", 9),
            ("symbols <&'a T>::f", "<&'a T>::f", 8),
            ("symbols", "", 7),
        ] {
            assert_eq!(read(line), Ok((text.into(), column)), "{line}");
        }
        assert_eq!(read("why 'a"), Err(Failure::at(4, "this quote is not closed")));
        for line in ["why 'a' b", "why 'a' > b"] {
            assert!(read(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_definition_may_have_its_place_in_quotes() {
        for (line, expected) in [
            (r#"p:a "<a::B as c::D>::f" %x0"#, "p:a  <a::B as c::D>::f  %x0"),
            ("  r:a  'f'  ", "  r:a   f "),
            (r#"-:a "f"  %x0"#, "-:a  f   %x0"),
            ("p:a f", "p:a f"),
            ("p:a <&'a T>::f 'x'", "p:a <&'a T>::f 'x'"),
            ("p:a \"f", "p:a \"f"),
            ("p:a '", "p:a '"),
            ("p:a 'f'+4", "p:a 'f'+4"),
            ("p:a \"f'", "p:a \"f'"),
            ("p:a 'f\"", "p:a 'f\""),
            ("p:a 'f s=\"x\"", "p:a 'f s=\"x\""),
            ("p:a \"f\\\"", "p:a \"f\\\""),
            ("p:a 'f %x0'", "p:a 'f %x0'"),
            ("p:a", "p:a"),
            ("", ""),
        ] {
            assert_eq!(without_quotes(line).as_deref(), Ok(expected), "{line:?}");
        }
    }

    /// 0 to 5 white space characters before, between and after the words.
    #[test]
    fn blanks_change_nothing() {
        let blank = |count: usize| &"  \t   "[..count];
        for counts in 0..6_usize.pow(3) {
            let [before, between, behind] = [counts % 6, counts / 6 % 6, counts / 36].map(blank);
            let between = if between.is_empty() { " " } else { between };
            for (text, command) in [("kprobe:f { }", "run sha256"), ("'kprobe:f { }'", "'run sha256'")] {
                let line = [before, text, between, "-c", between, command, behind].concat();
                assert_eq!(read(&line), ("kprobe:f { }".into(), Some("run sha256".into())), "{line:?}");
                let line = [before, text, behind].concat();
                assert_eq!(read(&line), ("kprobe:f { }".into(), None), "{line:?}");
                let quoted = name(&mut Words::new(&line));
                assert_eq!(quoted.map(|(name, _)| name), Ok("kprobe:f { }".into()), "{line:?}");
            }
        }
    }

    #[test]
    fn what_is_missing_is_pointed_at() {
        let refused = |line: &str| text_argument(&mut Words::new(line), "a program").expect_err(line);
        assert_eq!(refused("kprobe:f { } -c "), Failure::at(16, "a command, as in run sha256, is missing here"));
        assert_eq!(refused("'kprobe:f"), Failure::at(0, "this quote is not closed"));
        assert_eq!(refused(""), Failure::at(1, "a program is missing here"));
        for more in ["'f' g h i", "'f' g -c run", "'f'g -c run sha256", "'f' -cx run sha256", "'f' -c 'run sha256' x"] {
            let expected = "one quoted text is expected here, optionally followed by -c 'COMMAND'";
            assert_eq!(refused(more), Failure::at(0, expected), "{more}");
        }
    }
}
