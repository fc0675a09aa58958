//! The imports of a program in a file: `import "PATH";` before its first probe.
//!
//! A path is relative to the directory of the file that imports it. It leads to a `.bt` file, or to a directory, which
//! stands for the `.bt` files in it. As in bpftrace, a directory that every user can write to is refused.

use std::{
    fs,
    ops::Range,
    path::{Path, PathBuf},
};

/// An import in the text of a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Import<'a> {
    /// The path, as written.
    pub path: &'a str,
    /// The place of the path with its quotes.
    pub place: Range<usize>,
}

/// The part of a file before its probes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Prologue<'a> {
    /// The imports, in the order of the text.
    pub imports: Vec<Import<'a>>,
    /// The place of the block `config = { … }`.
    pub config: Option<Range<usize>>,
    /// The offset at which everything else begins.
    pub end: usize,
}

/// A sentence about a part of a text.
pub type Wrong = (Range<usize>, String);

/// Reads the start of a file.
///
/// # Errors
///
/// An import has no path, or no `;` follows it.
pub fn prologue(text: &str) -> Result<Prologue<'_>, Wrong> {
    let mut prologue = Prologue::default();
    let first = if text.starts_with("#!") { text.find('\n').unwrap_or(text.len()) } else { 0 };
    let mut at = skip_blank(text, first);
    prologue.end = first;
    loop {
        if let Some(path) = word(text, at, "import") {
            let start = skip_blank(text, path);
            let length = text[start..].strip_prefix('"').and_then(|rest| rest.find(['"', '\n']));
            let end = length.map(|length| start + length + 1).filter(|&end| text[end..].starts_with('"'));
            let Some(end) = end else {
                let sentence = "the path of an import is in quotes, as in import \"helpers.bt\";";
                return Err((start..start + 1, sentence.into()));
            };
            let place = start..end + 1;
            prologue.imports.push(Import { path: &text[start + 1..end], place: place.clone() });
            let after = skip_blank(text, place.end);
            if !text[after..].starts_with(';') {
                return Err((place, "`;` is expected after this import".into()));
            }
            at = after + 1;
        } else if let Some(block) = config(text, at).filter(|_| prologue.config.is_none()) {
            at = block.end;
            prologue.config = Some(block);
        } else {
            return Ok(prologue);
        }
        prologue.end = at;
        at = skip_blank(text, at);
    }
}

/// Returns the offset after `expected`, if that word is at `at`.
fn word(text: &str, at: usize, expected: &str) -> Option<usize> {
    let rest = text[at..].strip_prefix(expected)?;
    let is_word = !rest.starts_with(|c: char| c.is_alphanumeric() || "_:".contains(c));
    is_word.then_some(at + expected.len())
}

/// Returns whether an import is at `at`.
pub fn is_import(text: &str, at: usize) -> bool {
    word(text, at, "import").is_some_and(|end| text[skip_blank(text, end)..].starts_with('"'))
}

/// Returns the place of the block `config = { … }`, with a `;` after it, if one begins at `at`.
fn config(text: &str, at: usize) -> Option<Range<usize>> {
    let sign = skip_blank(text, word(text, at, "config")?);
    let open = skip_blank(text, sign + text[sign..].strip_prefix('=').map(|_| 1)?);
    text[open..].strip_prefix('{')?;
    let end = closing_brace(text, open + 1)? + 1;
    let after = skip_blank(text, end);
    Some(at..if text[after..].starts_with(';') { after + 1 } else { end })
}

/// Returns the offset of the first `}` from `at` that is neither in a string nor in a comment.
fn closing_brace(text: &str, mut at: usize) -> Option<usize> {
    let mut in_string = false;
    loop {
        if !in_string {
            at = skip_blank(text, at);
        }
        let c = text[at..].chars().next()?;
        match c {
            '}' if !in_string => return Some(at),
            '"' => in_string = !in_string,
            // The character after it does not end the string.
            '\\' if in_string => at += text[at + 1..].chars().next().map_or(0, char::len_utf8),
            _ => {}
        }
        at += c.len_utf8();
    }
}

/// Returns the offset of the first character from `at` that is neither white space nor in a comment.
fn skip_blank(text: &str, mut at: usize) -> usize {
    loop {
        let rest = &text[at..];
        let length = match rest.chars().next() {
            Some(c) if c.is_whitespace() => c.len_utf8(),
            Some('/') if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            Some('/') => match closed_comment(rest) {
                Some(length) => length,
                None => return at,
            },
            _ => return at,
        };
        at += length;
    }
}

/// Returns the length of the comment `/* … */` at the start of `text`. `None` if there is none, or if it is not closed.
pub fn closed_comment(text: &str) -> Option<usize> {
    text.strip_prefix("/*")?.find("*/").map(|end| end + 4)
}

/// Returns the files that `path` means in a file of `directory`, sorted by their names.
///
/// # Errors
///
/// There is no such file, it is not a `.bt` file or a directory with such files, or every user can write there. The
/// error is a sentence.
pub fn resolve(directory: &Path, path: &str) -> Result<Vec<PathBuf>, String> {
    let whole = directory.join(path);
    let shown = whole.display();
    let metadata = fs::metadata(&whole).map_err(|error| format!("{shown} cannot be imported: {error}"))?;
    if metadata.is_dir() {
        check_permissions(&whole)?;
        let entries = fs::read_dir(&whole).map_err(|error| format!("{shown} cannot be imported: {error}"))?;
        let files = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|file| is_program(file));
        let mut files: Vec<_> = files.filter(|file| file.is_file()).collect();
        files.sort();
        return if files.is_empty() { Err(format!("the directory {shown} has no .bt files")) } else { Ok(files) };
    }
    if !is_program(&whole) {
        let sentence = match whole.extension().and_then(|extension| extension.to_str()) {
            Some(kind @ ("c" | "h" | "o")) => {
                format!("a .{kind} file cannot be imported: there is no C and no BPF here, and the image has its types")
            }
            _ => format!("{shown} is neither a .bt file nor a directory"),
        };
        return Err(sentence);
    }
    check_permissions(whole.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")))?;
    Ok(vec![whole])
}

fn is_program(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "bt")
}

/// Checks that not every user can write to a directory.
fn check_permissions(directory: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    const OTHERS_WRITE: u32 = 0o002;
    let shown = directory.display();
    let metadata = fs::metadata(directory).map_err(|error| format!("{shown} cannot be read: {error}"))?;
    match metadata.permissions().mode() & OTHERS_WRITE {
        0 => Ok(()),
        _ => Err(format!("everybody can write in the directory {shown}, so nothing is imported from it")),
    }
}

#[cfg(test)]
mod tests {
    use super::{Import, Prologue, is_import, prologue};

    #[test]
    fn imports_stand_before_the_probes() {
        let text =
            "#!/usr/bin/env bpftrace\n// é\nimport \"a.bt\"; /* b */ import\n\"b/c\" ;config = { x = 1 };\nBEGIN { }";
        let Prologue { imports, config, end } = prologue(text).unwrap();
        let paths: Vec<_> = imports.iter().map(|Import { path, place }| (*path, &text[place.clone()])).collect();
        assert_eq!(paths, [("a.bt", "\"a.bt\""), ("b/c", "\"b/c\"")]);
        assert_eq!(&text[config.unwrap()], "config = { x = 1 };");
        assert_eq!(&text[end..], "\nBEGIN { }");
        for text in ["BEGIN { import \"a\"; }", "", "imports:f { }", "import:f { }", "/* import \"a\";", "config { }"] {
            assert_eq!(prologue(text), Ok(Prologue::default()), "{text}");
        }
        let block = "config = { // }\n x = \"}\\\"}\"; /* } */ }";
        let text = format!("{block} import \"a.bt\";");
        let Prologue { imports, config, .. } = prologue(&text).unwrap();
        assert_eq!((&text[config.unwrap()], imports.len()), (block, 1), "a block ends at its own brace");
        let commented = "/*/ import \"a\"; */import \"b\";";
        assert_eq!(prologue(commented).unwrap().imports[0].path, "b", "a comment ends after its beginning");
    }

    #[test]
    fn what_is_no_import_is_pointed_at() {
        for (text, start) in [("import a.bt;", 7), ("import \"a.bt", 7), ("import \"a\nb\";", 7), ("import", 6)] {
            let (place, sentence) = prologue(text).unwrap_err();
            assert_eq!(place.start, start, "{text}");
            assert!(sentence.starts_with("the path of an import is in quotes"), "{sentence}");
        }
        assert_eq!(prologue("import \"é\" BEGIN").unwrap_err(), (7..11, "`;` is expected after this import".into()));
        assert!(is_import("import /* */ \"a\"", 0) && !is_import("import:f", 0));
    }
}
