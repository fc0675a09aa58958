//! The text that `echo` writes: its words with blanks between them and a line end, as in bash.
//!
//! The options are letters after a `-`: `n` leaves out the line end, `e` replaces escapes, `E` does not. A word with
//! another letter is no option. The escapes are those of bash, except `\u` and `\U`:
//!
//! | escape | is |
//! |---|---|
//! | `\\`, `\a`, `\b`, `\e`, `\E`, `\f`, `\n`, `\r`, `\t`, `\v` | the character |
//! | `\0NNN` | the byte with this octal number of at most three digits |
//! | `\xHH` | the byte with this hexadecimal number of at most two digits |
//! | `\c` | the end of the output |

use alloc::string::String;
use alloc::vec::Vec;

use fallible::OutOfMemory;

use crate::words::joined;

/// Returns the bytes that `echo` writes with these arguments.
pub(super) fn echoed(words: &[String]) -> Result<Vec<u8>, OutOfMemory> {
    let (mut has_end, mut has_escapes) = (true, false);
    let is_option = |word: &&String| {
        word.strip_prefix('-')
            .is_some_and(|letters| !letters.is_empty() && letters.bytes().all(|c| b"neE".contains(&c)))
    };
    let options = words.iter().take_while(is_option);
    let count = options.clone().count();
    for letter in options.flat_map(|word| word.bytes()) {
        match letter {
            b'n' => has_end = false,
            b'e' => has_escapes = true,
            b'E' => has_escapes = false,
            _ => {}
        }
    }
    let text = fallible::format(format_args!("{}", joined(words.get(count..).unwrap_or_default(), " ")))?;
    let (mut bytes, is_ended) = match has_escapes {
        true => unescaped(text.as_bytes())?,
        false => (fallible::collect(text.bytes())?, false),
    };
    if has_end && !is_ended {
        fallible::push(&mut bytes, b'\n')?;
    }
    Ok(bytes)
}

/// Returns `text` with its escapes replaced, and whether `\c` has ended it.
fn unescaped(text: &[u8]) -> Result<(Vec<u8>, bool), OutOfMemory> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let [first, behind @ ..] = rest {
        let (byte, taken) = match (first, behind.first()) {
            (b'\\', Some(b'c')) => return Ok((bytes, true)),
            (b'\\', Some(b'0')) => {
                let (number, digits) = number(behind.get(1..).unwrap_or_default(), 8, 3);
                (number, 2 + digits)
            }
            (b'\\', Some(b'x')) => match number(behind.get(1..).unwrap_or_default(), 16, 2) {
                (_, 0) => (b'\\', 1),
                (number, digits) => (number, 2 + digits),
            },
            (b'\\', Some(letter)) => character(*letter).map_or((b'\\', 1), |character| (character, 2)),
            (other, _) => (*other, 1),
        };
        fallible::push(&mut bytes, byte)?;
        rest = rest.get(taken..).unwrap_or_default();
    }
    Ok((bytes, false))
}

/// Returns the character that a letter after a `\` stands for.
fn character(letter: u8) -> Option<u8> {
    Some(match letter {
        b'\\' => b'\\',
        b'a' => 0x07,
        b'b' => 0x08,
        b'e' | b'E' => 0x1b,
        b'f' => 0x0c,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 0x0b,
        _ => return None,
    })
}

/// Returns the low byte of the number at the beginning of `text`, which has at most `most` digits, and the number of
/// its digits.
fn number(text: &[u8], radix: u32, most: usize) -> (u8, usize) {
    let digits = text.iter().take(most).map_while(|&digit| char::from(digit).to_digit(radix));
    let number = digits.clone().fold(0, |number, digit| number * radix + digit);
    (number as u8, digits.count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::CommandLine;

    fn echo(line: &str) -> Vec<u8> {
        echoed(&CommandLine::parse(line).unwrap().words).unwrap()
    }

    #[test]
    fn words_are_written_with_blanks_and_a_line_end() {
        assert_eq!(echo("a  'b  c'"), b"a b  c\n");
        assert_eq!(echo(""), b"\n");
        assert_eq!(echo("-n a"), b"a");
        assert_eq!(echo("-x a"), b"-x a\n");
        assert_eq!(echo("-nx a"), b"-nx a\n");
        assert_eq!(echo("- a -n"), b"- a -n\n");
        assert_eq!(echo(r"'a\n\x41'"), b"a\\n\\x41\n");
    }

    #[test]
    fn escapes_are_those_of_bash() {
        for (line, expected) in [
            (r"-e '\x41\x4\x0g\xff' ", &b"A\x04\x00g\xff\n"[..]),
            (r"-n -e '\001\0101\0\08'", b"\x01\x41\0\x008"),
            (r"-ne '\a\b\e\E\f\n\r\t\v\\'", b"\x07\x08\x1b\x1b\x0c\n\r\t\x0b\\"),
            (r"-e '\q\xg\'", b"\\q\\xg\\\n"),
            (r"-e 'a\cb' c", b"a"),
            (r"-e -E '\x41'", b"\\x41\n"),
            ("-en 'gr\u{fc}n'", "gr\u{fc}n".as_bytes()),
            (r"-ne '\0777\x414'", b"\xff\x414"),
        ] {
            assert_eq!(echo(line), expected, "{line}");
        }
    }
}
