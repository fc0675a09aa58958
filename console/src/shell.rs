//! Parses a line as a shell does: words with quotes, and a redirection of the output. That is enough to type the usual
//! commands for the tracefs of a Linux machine.
//!
//! Words are separated by white space. `'…'` takes all characters literally. In `"…"`, `\` quotes `"` and `\`. Outside
//! of quotes, `\` quotes any character. `> FILE` or `>> FILE` may stand anywhere outside of quotes, but not directly
//! after an unquoted number, where a shell redirects the file descriptor of that number. `$?`, where the caller
//! supplies it, tells whether the previous line was refused. There are no other variables and no patterns: `$retval`
//! and `*` are ordinary characters. Characters that connect commands in a shell are refused: `|`, `&`, `;` and `<`. The
//! characters that begin a substitution are refused, too: `` ` ``, `$(` and `${`; so is a `\` at the end of the line.

use alloc::string::String;
use alloc::vec::Vec;

use fallible::OutOfMemory;

use crate::words::Failure;

/// A parsed line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// The words, without their quotes.
    pub words: Vec<String>,
    /// The file that receives the output, if it does not go to the screen.
    pub output: Option<Output>,
}

/// A file that receives output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The path of the file.
    pub path: String,
    /// Whether the output is appended to the file.
    pub append: bool,
    /// The column of the `>`, in characters from 0.
    pub column: usize,
}

/// A problem with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// The problem, as a sentence without its full stop.
    pub problem: &'static str,
    /// The column of the problem, in characters from 0.
    pub column: usize,
}

/// The problem of a line for which there is no memory.
const NO_MEMORY: &str = "there is no memory for this line";

impl From<OutOfMemory> for Error {
    fn from(_: OutOfMemory) -> Self {
        Self { problem: NO_MEMORY, column: 0 }
    }
}

impl Error {
    /// Converts the error to a failure of a line whose first `before` characters precede the parsed text.
    pub fn failure(self, before: usize) -> Failure {
        if self.is_memory() { OutOfMemory.into() } else { Failure::at(before + self.column, self.problem) }
    }

    /// Returns whether the problem is a lack of memory.
    pub fn is_memory(self) -> bool {
        self.problem == NO_MEMORY
    }
}

/// A token of a line.
enum Token {
    Word(String),
    /// `>`, or `>>` if `append` is true.
    Redirection {
        append: bool,
    },
}

impl CommandLine {
    /// Parses a line. `$?` is not replaced.
    ///
    /// # Errors
    ///
    /// A quote is not closed, a redirection has no file or names a file descriptor, nothing follows a `\`, or there are
    /// several redirections; a special character of the shell is not quoted; or there is no memory for the words.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Self::of(tokens(text, None)?)
    }

    /// Parses a line, and replaces `$?` by 1 if the previous line was refused, and by 0 otherwise. `$?` is not replaced
    /// in `'…'` and after `\`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`parse`](Self::parse).
    pub fn parse_after(text: &str, was_refused: bool) -> Result<Self, Error> {
        Self::of(tokens(text, Some(if was_refused { '1' } else { '0' }))?)
    }

    fn of(tokens: Vec<(Token, usize)>) -> Result<Self, Error> {
        let mut line = Self::default();
        let mut redirection = None;
        for (token, column) in tokens {
            match (token, redirection.take()) {
                (Token::Word(_), Some((_, column))) if line.output.is_some() => {
                    return Err(Error { problem: "the output goes to one file only", column });
                }
                (Token::Word(path), Some((append, column))) => line.output = Some(Output { path, append, column }),
                (Token::Word(word), None) => fallible::push(&mut line.words, word)?,
                (Token::Redirection { .. }, Some(_)) => return Err(no_file(column)),
                (Token::Redirection { append }, None) => redirection = Some((append, column)),
            }
        }
        match redirection {
            Some((_, column)) => Err(no_file(column)),
            None => Ok(line),
        }
    }
}

/// Parses the word at the start of `text`. Returns it without its quotes, and the number of bytes that it takes with
/// them.
///
/// # Errors
///
/// Returns the errors of [`CommandLine::parse`] for the word; a redirection is a problem, too.
pub fn first_word(text: &str) -> Result<(String, usize), Error> {
    let (mut quote, mut is_escaped) = (None, false);
    let ends = |(_, c): &(usize, char)| {
        match (quote, *c) {
            _ if is_escaped => is_escaped = false,
            (None | Some('"'), '\\') => is_escaped = true,
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(*c),
            (None, c) => return c.is_whitespace(),
            _ => {}
        }
        false
    };
    let length = text.char_indices().find(ends).map_or(text.len(), |(at, _)| at);
    let CommandLine { mut words, output } = CommandLine::parse(&text[..length])?;
    match (words.pop(), output) {
        (Some(word), None) if words.is_empty() => Ok((word, length)),
        (_, Some(Output { column, .. })) => Err(Error { problem: "the output goes to no file", column }),
        _ => Err(Error { problem: "a word is expected here", column: 0 }),
    }
}

fn no_file(column: usize) -> Error {
    Error { problem: "the name of a file is missing after this", column }
}

/// Splits a line into tokens with their columns. `status` replaces `$?`.
fn tokens(text: &str, status: Option<char>) -> Result<Vec<(Token, usize)>, Error> {
    let mut tokens = Vec::new();
    let mut word: Option<(String, usize)> = None;
    let mut characters = text.chars().enumerate().peekable();
    while let Some((column, character)) = characters.next() {
        match character {
            '>' => {
                if let Some((_, start)) = word
                    && text.chars().skip(start).take(column - start).all(|character| character.is_ascii_digit())
                {
                    let problem = "a number directly before `>` is a file descriptor to a shell, and there are none \
                                   here; put a blank between them to write the number, or leave it out";
                    return Err(Error { problem, column: start });
                }
                fallible::extend(&mut tokens, word.take().map(|(word, column)| (Token::Word(word), column)))?;
                let append = characters.next_if(|&(_, next)| next == '>').is_some();
                fallible::push(&mut tokens, (Token::Redirection { append }, column))?;
                continue;
            }
            '|' | '&' | ';' | '<' => {
                let problem =
                    "pipes, lists and input redirections are not supported; quote this to use it as a character";
                return Err(Error { problem, column });
            }
            '$' | '`' if character == '`' || matches!(characters.peek(), Some((_, '(' | '{'))) => {
                let problem = "there are no substitutions here; in quotes this is just a character";
                return Err(Error { problem, column });
            }
            _ if character.is_whitespace() => {
                fallible::extend(&mut tokens, word.take().map(|(word, column)| (Token::Word(word), column)))?;
                continue;
            }
            _ => {}
        }
        let (word, _) = word.get_or_insert_with(|| (String::new(), column));
        match character {
            '\'' | '"' => loop {
                match characters.next() {
                    None => return Err(Error { problem: "this quote is not closed", column }),
                    Some((_, end)) if end == character => break,
                    Some((_, '\\')) if character == '"' => {
                        match characters.next_if(|&(_, next)| matches!(next, '"' | '\\')) {
                            Some((_, escaped)) => fallible::push_char(word, escaped)?,
                            None => fallible::push_char(word, '\\')?,
                        }
                    }
                    Some((_, '$'))
                        if character == '"'
                            && let Some(status) = status =>
                    {
                        let is_status = characters.next_if(|&(_, next)| next == '?').is_some();
                        fallible::push_char(word, if is_status { status } else { '$' })?;
                    }
                    Some((_, inner)) => fallible::push_char(word, inner)?,
                }
            },
            '$' if let Some(status) = status
                && characters.next_if(|&(_, next)| next == '?').is_some() =>
            {
                fallible::push_char(word, status)?;
            }
            '\\' => match characters.next() {
                Some((_, escaped)) => fallible::push_char(word, escaped)?,
                None => return Err(Error { problem: "a character is missing after this", column }),
            },
            _ => fallible::push_char(word, character)?,
        }
    }
    fallible::extend(&mut tokens, word.map(|(word, column)| (Token::Word(word), column)))?;
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use kprobes_random::Random;

    fn read(text: &str) -> (Vec<String>, Option<(String, bool)>) {
        let line = CommandLine::parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        (line.words, line.output.map(|Output { path, append, .. }| (path, append)))
    }

    fn words(text: &str) -> Vec<String> {
        read(text).0
    }

    #[test]
    fn words_are_read_as_a_shell_reads_them() {
        assert_eq!(words("  echo   p:x f  "), ["echo", "p:x", "f"]);
        assert_eq!(words("echo 'a  b' c\"d 'e\"'f'"), ["echo", "a  b", "cd 'ef"]);
        assert_eq!(words(r#"echo "a\"b\\c\d" \'e\ f\> '\'"#), ["echo", r#"a"b\c\d"#, "'e f>", r"\"]);
        assert_eq!(words("echo '' \"\""), ["echo", "", ""]);
        assert_eq!(words("echo $retval *"), ["echo", "$retval", "*"]);
        assert_eq!(words(""), [""; 0]);
    }

    #[test]
    fn the_outcome_of_the_line_before_is_a_variable() {
        let line = r#"echo $? a$?b "$?$" '$?' \$? $x? > $?"#;
        for (was_refused, status) in [(false, "0"), (true, "1")] {
            let CommandLine { words, output } = CommandLine::parse_after(line, was_refused).unwrap();
            let (inner, quoted) = (["a", status, "b"].concat(), [status, "$"].concat());
            assert_eq!(words, ["echo", status, &inner, &quoted, "$?", "$?", "$x?"]);
            assert_eq!(output.unwrap().path, status);
        }
        assert_eq!(words("echo $? \"$?\""), ["echo", "$?", "$?"]);
    }

    #[test]
    fn output_goes_to_a_file() {
        let to = |path: &str, append| Some((path.to_string(), append));
        assert_eq!(read("echo 1 > tracing_on"), (words("echo 1"), to("tracing_on", false)));
        assert_eq!(read("echo a1>tracing_on"), (words("echo a1"), to("tracing_on", false)));
        assert_eq!(read("echo x >>a"), (words("echo x"), to("a", true)));
        assert_eq!(read("> a"), (words(""), to("a", false)));
        assert_eq!(read("echo 'u > 3'>'a b'"), (words("echo 'u > 3'"), to("a b", false)));
    }

    #[test]
    fn what_cannot_be_read_is_pointed_at() {
        let refused = |text: &str| CommandLine::parse(text).expect_err(text).column;
        assert_eq!(refused("echo 'a"), 5);
        assert_eq!(refused("echo a\"b'"), 6);
        assert_eq!(refused("echo >"), 5);
        assert_eq!(refused("echo > > a"), 7);
        assert_eq!(refused("echo a > b > c"), 11);
        for line in ["cat a | sort", "cat a; sort", "cat a & b", "cat a < b"] {
            assert!(refused(line) < 7, "{line}");
        }
        assert_eq!(words(r#"'a | b' "c;d" \& e\<"#), ["a | b", "c;d", "&", "e<"]);
        assert_eq!(["echo a\\", "echo \\"].map(refused), [6, 5]);
        let problem = CommandLine::parse("echo a\\").expect_err("nothing follows").problem;
        assert_eq!(problem, "a character is missing after this");
        assert_eq!(["echo `ls`", "echo a$(ls)", "echo ${a}"].map(refused), [5, 6, 5]);
        assert_eq!(words(r#"'`a`' "$(b)" \${c} \` $ $x(y)"#), ["`a`", "$(b)", "${c}", "`", "$", "$x(y)"]);
    }

    #[test]
    fn a_word_is_split_from_what_follows() {
        let first = |text: &str| first_word(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        for (text, word, length) in [
            ("'a b' c", "a b", 5),
            (r"'a'\''b' 'c'", "a'b", 8),
            (r#""a \" b" > c"#, "a \" b", 8),
            (r"a\ b c", "a b", 4),
            ("'a'", "a", 3),
        ] {
            assert_eq!(first(text), (word.to_string(), length), "{text}");
        }
        assert_eq!(["'a b", "a;b"].map(|text| first_word(text).unwrap_err().column), [0, 1]);
        assert!(first_word("a>b").is_err());
        assert!(first_word("").is_err());
    }

    /// A number is a file descriptor only if it is a whole word, has no quotes, and touches the `>`.
    #[test]
    fn file_descriptors_are_not_redirected() {
        for (line, column) in [
            ("echo 1 2> file", 7),
            ("echo 1 2>> file", 7),
            ("echo 1 2>file", 7),
            ("echo 1 2>&1", 7),
            ("echo 1>file", 5),
            ("10>file echo", 0),
            ("echo \u{e9} 1>file", 7),
        ] {
            let error = CommandLine::parse(line).expect_err(line);
            assert!(error.problem.starts_with("a number directly before `>`"), "{line}: {error:?}");
            assert_eq!(error.column, column, "{line}");
        }
        for line in
            ["echo 2 >file", "echo '2'>file", "echo \"2\">file", "echo \\2>file", "echo ''2>file", "echo a2>file"]
        {
            assert_eq!(read(line).1, Some(("file".to_string(), false)), "{line}");
        }
    }

    /// 0 to 5 white space characters before, between and after the words.
    #[test]
    fn blanks_change_nothing() {
        let blank = |count: usize| &"  \t   "[..count];
        for counts in 0..6_usize.pow(3) {
            let [before, between, behind] = [counts % 6, counts / 6 % 6, counts / 36].map(blank);
            let between_words = if between.is_empty() { " " } else { between };
            let line = [before, "echo", between_words, "'a  b'", between, ">", between, "file", behind].concat();
            let expected = CommandLine {
                words: words("echo 'a  b'"),
                output: Some(Output {
                    path: "file".into(),
                    append: false,
                    column: line.chars().take_while(|&c| c != '>').count(),
                }),
            };
            assert_eq!(CommandLine::parse(&line), Ok(expected), "{line:?}");
        }
    }

    /// All words can be typed, in each way to quote them.
    #[test]
    fn every_word_can_be_typed() {
        const CHARACTERS: [char; 12] = ['a', ' ', '\'', '"', '\\', '>', '$', '\t', '\u{e9}', '|', '#', '*'];
        let mut random = Random::new(1);
        let text =
            |random: &mut Random, length: usize| -> String { (0..length).map(|_| random.of(&CHARACTERS)).collect() };
        for _ in 0..20_000 {
            let original: Vec<String> = (0..random.below(4))
                .map(|_| {
                    let length = 1 + random.below(6);
                    text(&mut random, length)
                })
                .collect();
            let typed: Vec<String> = original
                .iter()
                .map(|word: &String| match random.below(3) {
                    0 => alloc::format!("'{}'", word.replace('\'', "'\\''")),
                    1 => alloc::format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\"")),
                    _ => word.chars().flat_map(|character| ['\\', character]).collect(),
                })
                .collect();
            assert_eq!(words(&typed.join(" ")), original, "{typed:?}");
            // Random text is parsed, or refused with a column within it.
            let length = random.below(20);
            let noise = text(&mut random, length);
            if let Err(Error { column, .. }) = CommandLine::parse(&noise) {
                assert!(column < noise.chars().count(), "{noise}");
            }
        }
    }
}
