//! A program as it is written on the host: in several lines, with a first line for the shell, with arguments, and with
//! imports of other files. The console takes it in one line. Only white space and arguments are changed in that line,
//! so that each of its bytes has its place in a file.

use std::{
    collections::BTreeSet,
    fmt, fs,
    ops::Range,
    path::{Path, PathBuf},
};

use super::import::{self, Prologue};

/// A program that can be typed.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    /// The program in one line.
    pub line: String,
    /// For each byte of the line, its place.
    origins: Vec<Origin>,
    /// The texts of the program: its own first, and those that it imports.
    texts: Vec<SourceText>,
}

/// A text of a program.
#[derive(Debug, PartialEq, Eq)]
struct SourceText {
    text: String,
    /// The file of the text, if it has one.
    name: Option<String>,
}

/// A place in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Origin {
    /// The number of the text.
    text: usize,
    /// The offset in it, in bytes.
    at: usize,
}

/// The reason why a program cannot be typed: a sentence, and the place in a text.
#[derive(Debug, PartialEq, Eq)]
pub struct Flaw {
    text: usize,
    place: Range<usize>,
    sentence: String,
}

impl Source {
    /// Prepares the program in `text`, which is from the file `name` if that is given, with these arguments. Imports
    /// are relative to the directory of that file; without one, to the current directory.
    ///
    /// As in bpftrace, `$1` in a probe is the text of the first argument, which must be given. Elsewhere the console
    /// puts arguments in their places.
    pub fn new(text: &str, name: Option<String>, arguments: &[String]) -> Result<Self, String> {
        let mut seen = BTreeSet::new();
        seen.extend(name.as_ref().and_then(|name| fs::canonicalize(name).ok()));
        let mut source =
            Self { line: String::new(), origins: Vec::new(), texts: vec![SourceText { text: text.into(), name }] };
        match source.add(0, arguments, &mut seen) {
            Ok(()) => Ok(source),
            Err(Flaw { text, place, sentence }) => Err(source.mark(text, place, &sentence)),
        }
    }

    /// Adds the text with the number `number`, after the texts that it imports and that are not `seen` yet.
    fn add(&mut self, number: usize, arguments: &[String], seen: &mut BTreeSet<PathBuf>) -> Result<(), Flaw> {
        let SourceText { text, name } = &self.texts[number];
        let text = text.clone();
        let directory = name.as_ref().and_then(|name| Path::new(name).parent()).unwrap_or(Path::new("")).to_path_buf();
        let flaw = |(place, sentence)| Flaw { text: number, place, sentence };
        let Prologue { imports, config, end } = import::prologue(&text).map_err(flaw)?;
        match config {
            Some(place) if number > 0 => {
                return Err(flaw((
                    place,
                    "only the program itself has a config block, not a file that it imports".into(),
                )));
            }
            Some(place) => {
                let start = place.start;
                self.read(number, place, arguments)?;
                self.put(" ", number, start);
            }
            None => {}
        }
        for import::Import { path, place } in imports {
            for file in import::resolve(&directory, path).map_err(|sentence| flaw((place.clone(), sentence)))? {
                let unread = |error| flaw((place.clone(), format!("{} cannot be imported: {error}", file.display())));
                if !seen.insert(fs::canonicalize(&file).map_err(unread)?) {
                    continue;
                }
                let text = fs::read_to_string(&file).map_err(unread)?;
                let next = self.texts.len();
                self.texts.push(SourceText { text, name: Some(file.display().to_string()) });
                self.add(next, arguments, seen)?;
                self.put(" ", next, 0);
            }
        }
        self.read(number, end..text.len(), arguments)
    }

    /// Adds a part of a text. Every clause that begins in a file that is imported ends there.
    fn read(&mut self, number: usize, part: Range<usize>, arguments: &[String]) -> Result<(), Flaw> {
        let text = self.texts[number].text.clone();
        let (mut at, end) = (part.start, part.end);
        // The offset in the line after the last clause.
        let mut done = self.line.len();
        // The place of the string that is open.
        let mut string = at;
        let mut in_string = false;
        // The number of open braces, and whether the probes of the clause are over.
        let (mut depth, mut is_past_probes) = (0_usize, false);
        while let Some(c) = text[at..end].chars().next() {
            let rest = &text[at..end];
            let flaw = |place, sentence: &str| Flaw { text: number, place, sentence: sentence.into() };
            let mut length = c.len_utf8();
            match c {
                '"' => {
                    (in_string, string) = (!in_string, at);
                    self.put("\"", number, at);
                }
                '\\' if in_string => {
                    length += rest[1..].chars().next().map_or(0, char::len_utf8);
                    self.put(&rest[..length], number, at);
                }
                '\n' if in_string => self.put("\\n", number, at),
                '\t' if in_string => self.put("\\t", number, at),
                _ if in_string => self.put(&rest[..length], number, at),
                '/' if rest.starts_with("//") => {
                    length = rest.find('\n').unwrap_or(rest.len());
                    self.put(" ", number, at);
                }
                '/' if rest.starts_with("/*") => {
                    let Some(closed) = import::closed_comment(rest) else {
                        return Err(flaw(at..at + 2, "this comment is not closed"));
                    };
                    length = closed;
                    self.put(" ", number, at);
                }
                '$' if depth == 0
                    && !is_past_probes
                    && !self.line[done..]
                        .trim_start()
                        .strip_prefix("let")
                        .is_some_and(|rest| rest.starts_with([' ', '@']))
                    && rest[1..].starts_with(|c: char| c.is_ascii_digit()) =>
                {
                    length = 1 + rest[1..].find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len() - 1);
                    self.put_probe(&rest[..length], number, at, arguments)
                        .map_err(|sentence| flaw(at..at + 1, &sentence))?;
                }
                '/' if depth == 0 && !is_past_probes && is_in_path(rest) => self.put("/", number, at),
                '/' | '{' | '}' => {
                    match c {
                        '{' => depth += 1,
                        '}' => depth = depth.saturating_sub(1),
                        _ => {}
                    }
                    is_past_probes = depth > 0 || c == '/';
                    self.put(&rest[..length], number, at);
                    if c == '}' && depth == 0 {
                        done = self.line.len();
                    }
                }
                ';' if depth == 0 => {
                    self.put(";", number, at);
                    done = self.line.len();
                }
                'i' if depth == 0 && self.line[done..].trim().is_empty() && import::is_import(&text, at) => {
                    return Err(flaw(at..at + "import".len(), "imports stand before the first probe"));
                }
                _ if c.is_whitespace() => self.put(" ", number, at),
                _ => self.put(&rest[..length], number, at),
            }
            at += length;
        }
        let rest = self.line[done..].trim_start();
        match self.origins.get(self.line.len() - rest.len()) {
            Some(_) if in_string && number > 0 => {
                let sentence = "this string is not closed by `\"` in this file".into();
                Err(Flaw { text: number, place: string..string + 1, sentence })
            }
            Some(&Origin { at, .. }) if number > 0 => {
                let sentence = "this does not end in this file: a file that is imported has whole clauses".into();
                Err(Flaw { text: number, place: at..at + 1, sentence })
            }
            _ => Ok(()),
        }
    }

    /// Replaces `name`, which is `$N` in a probe, by the text of the argument.
    fn put_probe(&mut self, name: &str, number: usize, at: usize, arguments: &[String]) -> Result<(), String> {
        let Some(argument) = argument(name, arguments) else {
            return Err(format!("{name} is not given, and this needs it"));
        };
        if let Some(c) = argument.chars().find(|c| c.is_control()) {
            return Err(format!("{name} has the control character {c:?}, and is in a probe"));
        }
        self.put(argument, number, at);
        Ok(())
    }

    /// Appends `text`. It stands for the place `at` of the text with the number `number`, or, if it is unchanged,
    /// begins there.
    fn put(&mut self, text: &str, number: usize, at: usize) {
        let is_kept = self.texts[number].text[at..].starts_with(text);
        self.line.push_str(text);
        let origin = |byte| Origin { text: number, at: if is_kept { at + byte } else { at } };
        self.origins.extend((0..text.len()).map(origin));
    }

    /// Returns the sentence with the part of the text that is its cause. `cause` has the bytes in the line.
    pub fn refusal(&self, cause: Option<(usize, usize)>, sentence: &str) -> String {
        let own = &self.texts[0];
        let Some((start, end)) = cause else {
            let name = own.name.as_ref().map(|name| format!("{name}: ")).unwrap_or_default();
            return format!("{name}error: {sentence}");
        };
        // The line ends with the program's own text.
        let origin = |at: usize| self.origins.get(at).copied().unwrap_or(Origin { text: 0, at: own.text.len() });
        let (first, last) = (origin(start), origin(end.max(start.saturating_add(1)) - 1));
        let text = &self.texts[first.text].text;
        let end = match last.text == first.text {
            true => {
                let last = text.floor_char_boundary(last.at);
                last + text[last..].chars().next().map_or(0, char::len_utf8)
            }
            // A cause in several files is shown in the first.
            false => text.len(),
        };
        self.mark(first.text, text.floor_char_boundary(first.at)..end, sentence)
    }

    /// Returns the sentence with a part of the text with the number `number`.
    fn mark(&self, number: usize, cause: Range<usize>, sentence: &str) -> String {
        let SourceText { text, name } = &self.texts[number];
        let start = text[..cause.start].rfind('\n').map_or(0, |end| end + 1);
        let line = text[start..].lines().next().unwrap_or("");
        let before = &text[start..cause.start];
        let within = line.get(before.len()..).unwrap_or("");
        let within = within.get(..cause.len().min(within.len())).unwrap_or(within);
        let place = name.as_ref().map(|name| {
            let number = text[..start].matches('\n').count() + 1;
            format!("{name}:{number}:{}: ", before.chars().count() + 1)
        });
        let indent: String = before.chars().map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let marks = "^".repeat(within.chars().count().max(1));
        format!("{}error: {sentence}\n  {line}\n  {indent}{marks}", place.unwrap_or_default())
    }
}

/// Returns whether the `/` at the start of `text` is part of the path of a source file, as in `net/tcp.rs:12`, and not
/// the start of a predicate: see `program/src/syntax/probe.rs`. Parts of the path may be arguments, as in `net/$1:12`.
fn is_in_path(text: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || "_-./$".contains(c);
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
    let (path, behind) = text.split_at(end);
    let is_source = [".rs", ".S"].iter().any(|ending| path.ends_with(ending));
    let argument = path.find('$').map(|at| path[at + 1..].starts_with(|c: char| c.is_ascii_digit()));
    behind.starts_with(':') && (is_source || argument == Some(true) && !behind.starts_with("::"))
}

/// Returns the argument that `name`, which is `$N`, stands for. `None` if it is not given.
fn argument<'a>(name: &str, arguments: &'a [String]) -> Option<&'a str> {
    let number: usize = name[1..].parse().ok()?;
    arguments.get(number.checked_sub(1)?).map(String::as_str)
}

/// Shows a word in quotes, as the console and the shells of hosts take it.
pub struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}'", self.0.replace('\'', r"'\''"))
    }
}

/// Returns the end of a line of the console that passes these parameters to its program.
pub fn after(parameters: &[String]) -> String {
    let words: String = parameters.iter().map(|word| format!(" {}", Quoted(word))).collect();
    if words.is_empty() { words } else { format!(" --{words}") }
}

#[cfg(test)]
mod tests {
    use std::{env, fs, os::unix::fs::PermissionsExt, path::PathBuf, process};

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
        assert_eq!(line("/*/ a */BEGIN { /*/*/ }", &[]), " BEGIN {   }", "a comment ends after its beginning");
    }

    #[test]
    fn arguments_outside_of_probes_are_left_to_the_console() {
        for text in [
            "BEGIN { @[$1] = str($2); $x = $#; } ",
            "kprobe:f /arg0 > $1/ { @ = $1; } ",
            "let @x = hash($1); BEGIN { } ",
            "let@x=hash($1);let @y = hash($2); BEGIN { } ",
        ] {
            assert_eq!(line(text, &["7", "two"]), text);
        }
    }

    #[test]
    fn arguments_are_parts_of_probes() {
        let text = "kprobe:$1, kretprobe:$1 /arg0 > $2/ { @ = $2; if (1) { } } interval:s:$2 { }";
        let expected =
            "kprobe:<a::B as c>::*, kretprobe:<a::B as c>::* /arg0 > $2/ { @ = $2; if (1) { } } interval:s:5 { }";
        assert_eq!(line(text, &["<a::B as c>::*", "5"]), expected);
        let lines = "kprobe:net/tcp.rs:$1, kprobe:a/$2/b.S:$1 /$1 == 2/ { } kprobe:f /$1/ { }";
        let expected = "kprobe:net/tcp.rs:12, kprobe:a/x/b.S:12 /$1 == 2/ { } kprobe:f /$1/ { }";
        assert_eq!(line(lines, &["12", "x"]), expected);
        let whole = "kprobe:net/$1:12, kprobe:$2/$1:$3/arg0/ { } kprobe:f/$3?1:2/ { }";
        let expected = "kprobe:net/tcp.rs:12, kprobe:net/tcp.rs:7/arg0/ { } kprobe:f/$3?1:2/ { }";
        assert_eq!(line(whole, &["tcp.rs", "net", "7"]), expected);
        assert!(read(text, &[]).unwrap_err().starts_with("f.bt:1:8: error: $1 is not given, and this needs it\n"));
        assert!(read(text, &["\n"]).unwrap_err().contains("$1 has the control character '\\n', and is in a probe"));
    }

    #[test]
    fn what_is_refused_is_shown_in_the_file() {
        let source = read("// é\nBEGIN {\n\t@ = str($1);\tfoo(é);\n} kprobe:$1 { }\n", &["argument"]).unwrap();
        let start = source.line.find("foo").unwrap();
        let shown = source.refusal(Some((start, start + 3)), "no");
        assert_eq!(shown, "f.bt:3:15: error: no\n  \t@ = str($1);\tfoo(é);\n  \t            \t^^^");
        let start = source.line.find("argument").unwrap();
        assert!(source.refusal(Some((start, start + 8)), "no").starts_with("f.bt:4:10: error: no\n"));
        // A line may damage the numbers.
        let within = source.line.find("é)").unwrap() + 1;
        assert!(source.refusal(Some((within, within + 1)), "no").starts_with("f.bt:3:19: error: no\n"));
        assert!(source.refusal(Some((usize::MAX, 0)), "no").starts_with("f.bt:5:1: error: no\n"));
        assert_eq!(source.refusal(None, "no"), "f.bt: error: no");
        let end = source.line.len();
        assert!(source.refusal(Some((end, end)), "no").starts_with("f.bt:5:1: error: no\n  \n  ^"));
        let alone = Source::new("BEGIN", None, &[]).unwrap();
        assert_eq!(alone.refusal(Some((5, 5)), "no"), "error: no\n  BEGIN\n       ^");
    }

    /// A directory with files, which is removed at the end.
    struct Files(PathBuf);

    impl Files {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let directory = env::temp_dir().join(format!("kprobes-{}-{name}", process::id()));
            for (file, text) in files {
                let path = directory.join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Self(directory)
        }

        /// Reads the program in `file`. Names of files in errors are relative to the directory.
        fn read(&self, file: &str, arguments: &[String]) -> Result<Source, String> {
            let path = self.0.join(file);
            let text = fs::read_to_string(&path).unwrap();
            Source::new(&text, Some(path.display().to_string()), arguments).map_err(|sentence| self.relative(&sentence))
        }

        fn relative(&self, sentence: &str) -> String {
            sentence.replace(&format!("{}/", self.0.display()), "")
        }
    }

    impl Drop for Files {
        fn drop(&mut self) {
            // A failed test may have left nothing.
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn compact(line: &str) -> String {
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn files_are_imported_once_before_what_imports_them() {
        let files = Files::new(
            "once",
            &[
                ("main.bt", "#!x\nimport \"a.bt\"; // first\nimport \"lib\"; import \"./lib/../a.bt\";\nEND { $1 }"),
                ("a.bt", "import \"lib/c.bt\";\nBEGIN { a($1); }"),
                ("lib/b.bt", "import \"../main.bt\"; import \"b.bt\";\nBEGIN { b(); }"),
                ("lib/c.bt", "BEGIN { c(); } // end"),
                ("lib/notes.txt", "BEGIN {"),
                ("lib/d.bt/e.bt", "BEGIN {"),
            ],
        );
        let line = files.read("main.bt", &["7".into()]).unwrap().line;
        assert_eq!(compact(&line), "BEGIN { c(); } BEGIN { a($1); } BEGIN { b(); } END { $1 }");
        let config = Files::new(
            "root-config",
            &[("m.bt", "import \"a.bt\"; config = { x = 1 } END { }"), ("a.bt", "BEGIN { }")],
        );
        assert_eq!(compact(&config.read("m.bt", &[]).unwrap().line), "config = { x = 1 } BEGIN { } END { }");
    }

    #[test]
    fn what_cannot_be_imported_is_pointed_at() {
        for (name, text, imported, start) in [
            ("none", "import \"no.bt\";", "", "m.bt:1:8: error: no.bt cannot be imported: "),
            ("header", "\nimport \"a.h\";", "", "m.bt:2:8: error: a .h file cannot be imported: there is no C"),
            ("object", "import \"a.o\";", "", "m.bt:1:8: error: a .o file cannot be imported: "),
            ("source", "import \"a.c\";", "", "m.bt:1:8: error: a .c file cannot be imported: "),
            ("text", "import \"a.txt\";", "", "m.bt:1:8: error: a.txt is neither a .bt file nor a directory"),
            ("empty", "import \"empty\";", "", "m.bt:1:8: error: the directory empty has no .bt files"),
            ("late", "BEGIN { }\nimport \"a.bt\";", "", "m.bt:2:1: error: imports stand before the first probe"),
            ("quotes", "import a.bt;", "", "m.bt:1:8: error: the path of an import is in quotes"),
            ("config", "import \"a.bt\";", "\nconfig = { }", "a.bt:2:1: error: only the program itself has a config"),
            ("open", "import \"a.bt\";", "END { }\nBEGIN { f();", "a.bt:2:1: error: this does not end in this file"),
            ("probe", "import \"a.bt\";", "\n  kprobe:f", "a.bt:2:3: error: this does not end in this file"),
            ("string", "import \"a.bt\";", "BEGIN { \"a }", "a.bt:1:9: error: this string is not closed"),
            ("comment", "import \"a.bt\";", "/* ", "a.bt:1:1: error: this comment is not closed"),
            ("probe-argument", "import \"a.bt\";", "\nkprobe:$2 { }", "a.bt:2:8: error: $2 is not given, and this"),
        ] {
            let all = ["a.h", "a.o", "a.c", "a.txt", "empty/a.txt"].map(|file| (file, ""));
            let files = Files::new(name, &[&all[..], &[("m.bt", text), ("a.bt", imported)]].concat());
            let sentence = files.read("m.bt", &["seven".into()]).expect_err(text);
            assert!(sentence.starts_with(start), "{sentence}");
        }
        let files = Files::new("writable", &[("m.bt", "import \"open\";"), ("open/a.bt", "BEGIN { }")]);
        fs::set_permissions(files.0.join("open"), fs::Permissions::from_mode(0o777)).unwrap();
        let refused = files.read("m.bt", &[]).unwrap_err();
        assert!(refused.starts_with("m.bt:1:8: error: everybody can write in the directory open, so"), "{refused}");
    }

    #[test]
    fn what_is_refused_is_shown_in_the_imported_file() {
        let files = Files::new(
            "refused",
            &[("m.bt", "import \"a.bt\";\nEND { bar(); }"), ("a.bt", "// é\nBEGIN {\n\tfoo(); }")],
        );
        let source = files.read("m.bt", &[]).unwrap();
        let shown = |word: &str| {
            let start = source.line.find(word).unwrap();
            files.relative(&source.refusal(Some((start, start + word.len())), "no"))
        };
        assert_eq!(shown("foo"), "a.bt:3:2: error: no\n  \tfoo(); }\n  \t^^^");
        assert_eq!(shown("bar"), "m.bt:2:7: error: no\n  END { bar(); }\n        ^^^");
        let whole = files.relative(&source.refusal(Some((0, source.line.len())), "no"));
        assert!(whole.starts_with("a.bt:1:1: error: no\n"), "{whole}");
        let end = source.line.len();
        assert!(files.relative(&source.refusal(Some((end, end)), "no")).starts_with("m.bt:2:15: error: no\n"));
    }

    #[test]
    fn words_are_quoted() {
        assert_eq!(Quoted("a 'b'").to_string(), r"'a '\''b'\'''");
    }
}
