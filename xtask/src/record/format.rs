//! The file `format` of an event: the places of its fields, and the `print fmt` by which programs print it.
//!
//! The kernel prints addresses as functions. A `print fmt` prints them as numbers, in Linux, too, and `trace-cmd`
//! follows it. So the `print fmt` in a recording names the function for each address in the recorded events, and
//! `trace-cmd report` then prints the same as the kernel. The fields and the records stay unchanged.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    mem,
};

use kprobes_symbols::SymbolTable;

use super::pages::Event;

/// The format of an event.
#[derive(Debug, PartialEq, Eq)]
pub struct Format {
    pub group: String,
    pub name: String,
    /// The value of `common_type` in its records.
    pub number: u16,
    pub fields: Vec<Field>,
    /// The text before the line `print fmt`.
    head: String,
    /// The string in that line, and its arguments.
    print: (String, Vec<String>),
    /// The addresses in its records, by their field.
    addresses: BTreeMap<String, BTreeSet<u64>>,
}

/// A field of an event.
#[derive(Debug, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    pub offset: usize,
    pub size: usize,
    pub is_signed: bool,
    /// The number of elements; 0 if it is not an array.
    pub count: usize,
    /// Whether it refers to a text elsewhere in the record.
    pub is_text: bool,
    /// Whether it refers to a stack elsewhere in the record: addresses up to a zero.
    pub is_stack: bool,
    /// Whether it is a text of fixed length, which ends at the first zero.
    pub is_fixed_text: bool,
}

/// Fields of probes that are places in functions.
const PLACES: [&str; 2] = ["__probe_ip", "__probe_ret_ip"];
/// The field of return probes that is the probed function.
const FUNCTION: &str = "__probe_func";
/// The start of the string of a return probe. An event on a return has the same fields, but the name of the return in
/// their place.
const RETURN_PLACES: &str = "(%lx <- %lx)";

impl Format {
    /// Parses the file of an event in `group`. `None` if it is not such a file.
    pub fn parse(group: &str, text: &str) -> Option<Self> {
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        let (head, print) = text.split_once("print fmt: ")?;
        let print = print.trim().strip_prefix('"')?;
        let (string, rest) = print.split_at_checked(end_of_string(print)?)?;
        let arguments = rest.get(1..)?.trim_start_matches(',').trim();
        Some(Self {
            group: group.into(),
            name: value("name:")?.into(),
            number: value("ID:")?.parse().ok()?,
            fields: head.lines().filter_map(Field::parse).collect(),
            head: head.into(),
            print: (string.into(), arguments_in(arguments).map(Into::into).collect()),
            addresses: BTreeMap::new(),
        })
    }

    /// Returns the arguments of a probe: the fields other than the common ones and the place of the hit.
    pub fn arguments(&self) -> impl Iterator<Item = &Field> {
        let is_own = |field: &&Field| !field.name.starts_with("common_") && !field.name.starts_with("__probe_");
        self.fields.iter().filter(is_own)
    }

    /// Whether its events are returns of a function.
    pub fn is_return(&self) -> bool {
        self.fields.iter().any(|field| field.name == FUNCTION)
    }

    /// Whether its events are hits of a probe: at an instruction, or at the return of a function.
    pub fn is_probe(&self) -> bool {
        self.is_return() || self.fields.iter().any(|field| field.name == PLACES[0])
    }

    /// Adds the addresses in a record.
    pub fn note(&mut self, event: &Event<'_>) {
        let (string, arguments) = &self.print;
        let shown = conversions(string).zip(arguments).filter(|((_, conversion), _)| is_function(conversion));
        let names = shown.filter_map(|(_, argument)| field_of(argument));
        for name in names.chain(PLACES).chain([FUNCTION]) {
            if let Some(offset) = self.offset_of(name) {
                self.addresses.entry(name.into()).or_default().insert(event.long(offset));
            }
        }
    }

    /// Returns the offset of the address that `print fmt` calls by this name: a field, or an element of an array.
    fn offset_of(&self, name: &str) -> Option<usize> {
        let (name, index) = match name.split_once('[') {
            Some((name, index)) => (name, index.strip_suffix(']')?.parse::<usize>().ok()?),
            None => (name, 0),
        };
        let field = self.fields.iter().find(|field| field.name == name)?;
        (index < field.count.max(1) && field.size == 8 * field.count.max(1)).then_some(field.offset + 8 * index)
    }

    /// Returns the text of the file, with functions for addresses.
    pub fn text(&self, symbols: Option<&SymbolTable<'_>>) -> String {
        let (string, mut arguments) = self.print.clone();
        let Some(symbols) = symbols.filter(|_| !self.addresses.is_empty()) else {
            return self.with_print(&string, &arguments);
        };
        let string = if string.starts_with(RETURN_PLACES) {
            // The kernel shows the return address first.
            if let [function, place, ..] = &mut arguments[..] {
                mem::swap(function, place);
            }
            string.replacen(RETURN_PLACES, "(%pS <- %ps)", 1)
        } else {
            string.replacen("(%lx)", "(%pS)", 1)
        };
        let (mut shown, mut done) = (String::new(), 0);
        for (argument, (at, conversion)) in arguments.iter_mut().zip(conversions(&string)) {
            if is_function(conversion)
                && let Some(addresses) = field_of(argument).and_then(|name| self.addresses.get(name))
            {
                *argument = symbolic(argument, addresses, conversion == PLACE, symbols);
                shown += &string[done..at];
                shown += "%s";
                done = at + conversion.len();
            }
        }
        shown += &string[done..];
        self.with_print(&shown, &arguments)
    }

    /// Returns the text of the file with this string and these arguments.
    fn with_print(&self, string: &str, arguments: &[String]) -> String {
        let comma = if arguments.is_empty() { "" } else { ", " };
        format!("{}print fmt: \"{string}\"{comma}{}\n", self.head, arguments.join(", "))
    }
}

/// Returns the place of the first quote in `text` that is not escaped.
fn end_of_string(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.char_indices().find_map(|(at, c)| {
        let ends = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        ends.then_some(at)
    })
}

/// Returns the arguments in a list: they are separated by commas that are neither in brackets nor in strings.
fn arguments_in(list: &str) -> impl Iterator<Item = &str> {
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    let arguments = list.split(move |c: char| {
        match c {
            '"' if !is_escaped => in_string = !in_string,
            '(' | '[' | '{' if !in_string => depth += 1,
            ')' | ']' | '}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        is_escaped = c == '\\' && !is_escaped;
        c == ',' && depth == 0 && !in_string
    });
    arguments.map(str::trim).filter(|argument| !argument.is_empty())
}

/// The conversions that show an address as a place in a function, and as the function's name.
const PLACE: &str = "%pS";
const NAME: &str = "%ps";

fn is_function(conversion: &str) -> bool {
    matches!(conversion, PLACE | NAME)
}

/// Returns the field in an argument of `print fmt`.
fn field_of(argument: &str) -> Option<&str> {
    argument.strip_prefix("(void *)").unwrap_or(argument).strip_prefix("REC->")
}

impl Field {
    /// Parses a line `field:TYPE NAME; offset:N; size:N; signed:N;`.
    fn parse(line: &str) -> Option<Self> {
        let line = line.trim().strip_prefix("field:")?;
        let value = |key: &str| line.split(';').find_map(|part| part.trim().strip_prefix(key)?.parse::<usize>().ok());
        let declaration = line.split(';').next()?;
        let (kind, name) = declaration.rsplit_once(' ')?;
        let (name, dimension) = name.split_once('[').unwrap_or((name, ""));
        // The number of texts follows their type, as in `__data_loc char[][2] NAME`.
        let dimension = kind.split_once("[][").map_or(dimension, |(_, dimension)| dimension);
        let is_elsewhere = kind.starts_with("__data_loc");
        Some(Self {
            name: name.into(),
            offset: value("offset:")?,
            size: value("size:")?,
            is_signed: value("signed:") == Some(1),
            count: dimension.trim_end_matches(']').parse().unwrap_or(0),
            is_text: is_elsewhere && !kind.contains("long["),
            is_stack: is_elsewhere && kind.contains("long["),
            is_fixed_text: kind == "char" && !dimension.is_empty(),
        })
    }
}

/// Returns the conversions of a `printf` in `text`, with their places. `%%` is not a conversion.
fn conversions(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let ends = |c: char| c.is_ascii_alphabetic() && !matches!(c, 'l' | 'L' | 'h' | 'p');
    let mut second = None;
    text.match_indices('%').filter_map(move |(at, _)| {
        let rest = &text[at + 1..];
        if second.take() == Some(at) {
            return None;
        }
        if rest.starts_with('%') {
            second = Some(at + 1);
            return None;
        }
        let length = rest.find(ends).map_or(rest.len(), |end| end + 1);
        Some((at, &text[at..at + 1 + length]))
    })
}

/// Returns an argument of `print fmt` that shows `argument` as one of the functions that contain `addresses`.
fn symbolic(argument: &str, addresses: &BTreeSet<u64>, has_offset: bool, symbols: &SymbolTable<'_>) -> String {
    let mut text = format!("__print_symbolic({argument}");
    for &address in addresses {
        let shown = match symbols.lookup(address) {
            Some(symbol) if has_offset => {
                format!("{}+{:#x}/{:#x}", symbol.name, address - symbol.address, symbol.size)
            }
            Some(symbol) => symbol.name.into(),
            // The origin of texts that were written to `trace_marker`.
            None if address == 0 && !has_offset => "tracing_mark_write".into(),
            None => format!("{address:#x}"),
        };
        // Writing to a string cannot fail.
        let _ = write!(text, ", {{ {address:#x}, \"{}\" }}", shown.replace('"', "'"));
    }
    text + ")"
}

#[cfg(test)]
mod tests {
    use super::*;
    use kprobes_symbols::{Contents, Symbol};

    const RETURN: &str = "name: r\nID: 70\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
        \tfield:unsigned long __probe_func;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned long __probe_ret_ip;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:u64 s;\toffset:24;\tsize:8;\tsigned:0;\n\
        \tfield:s8 n[2];\toffset:32;\tsize:2;\tsigned:1;\n\
        \tfield:__data_loc char[] t;\toffset:34;\tsize:4;\tsigned:1;\n\
        \tfield:u64 m[2];\toffset:40;\tsize:16;\tsigned:0;\n\n\
        print fmt: \"(%lx <- %lx) s=%pS n={%d,%d} t=\\\"%s\\\" m={%pS,%pS} %pS\", \
        REC->__probe_func, REC->__probe_ret_ip, REC->s, REC->n[0], REC->n[1], __get_str(t), REC->m[0], REC->m[1], REC->other\n";

    #[test]
    fn addresses_are_shown_as_the_kernel_shows_them() {
        let mut format = Format::parse("kprobes", RETURN).unwrap();
        assert_eq!((format.name.as_str(), format.number, format.fields.len()), ("r", 70, 7));
        assert_eq!(
            format.arguments().map(|field| (field.name.as_str(), field.count)).collect::<Vec<_>>(),
            [("s", 0), ("n", 2), ("t", 0), ("m", 2)]
        );
        assert_eq!(format.text(None), RETURN);
        let mut bytes = vec![0; 56];
        for (at, address) in [(8, 0x1000_u64), (16, 0x1104), (24, 0x9000), (40, 0x1008), (48, 0x1100)] {
            bytes[at..at + 8].copy_from_slice(&address.to_le_bytes());
        }
        format.note(&Event { time: 0, lost: None, bytes: &bytes });
        let functions = [
            Symbol { name: "<a as b>::f", address: 0x1000, size: 0x100 },
            Symbol { name: "g", address: 0x1100, size: 0x20 },
        ];
        let contents = Contents { functions: &functions, ..Contents::default() };
        let table = kprobes_symbols::write(0, &contents).unwrap();
        let text = format.text(Some(&SymbolTable::parse(&table).unwrap()));
        let print = text.lines().last().unwrap();
        let expected = "print fmt: \"(%s <- %s) s=%s n={%d,%d} t=\\\"%s\\\" m={%s,%s} %pS\", \
            __print_symbolic(REC->__probe_ret_ip, { 0x1104, \"g+0x4/0x20\" }), \
            __print_symbolic(REC->__probe_func, { 0x1000, \"<a as b>::f\" }), \
            __print_symbolic(REC->s, { 0x9000, \"0x9000\" }), REC->n[0], REC->n[1], __get_str(t), \
            __print_symbolic(REC->m[0], { 0x1008, \"<a as b>::f+0x8/0x100\" }), \
            __print_symbolic(REC->m[1], { 0x1100, \"g+0x0/0x20\" }), REC->other";
        assert_eq!(print, expected);
    }

    #[test]
    fn an_event_on_a_return_keeps_the_order_of_its_arguments() {
        let (head, _) = RETURN.split_once("print fmt: ").unwrap();
        let text = format!("{head}print fmt: \"(kprobes.r) s=%pS n={{%d,%d}}\", REC->s, REC->n[0], REC->n[1]\n");
        let mut format = Format::parse("eprobes", &text).unwrap();
        format.note(&Event { time: 0, lost: None, bytes: &[0; 56] });
        let table = kprobes_symbols::write(0, &Contents::default()).unwrap();
        let text = format.text(Some(&SymbolTable::parse(&table).unwrap()));
        let expected = "print fmt: \"(kprobes.r) s=%s n={%d,%d}\", \
            __print_symbolic(REC->s, { 0x0, \"0x0\" }), REC->n[0], REC->n[1]";
        assert_eq!(text.lines().last(), Some(expected));
    }

    #[test]
    fn a_format_that_lost_an_argument_on_its_way_is_written() {
        let damaged = RETURN.split_once(", REC->__probe_ret_ip").unwrap().0;
        let mut format = Format::parse("kprobes", damaged).unwrap();
        format.note(&Event { time: 0, lost: None, bytes: &[0; 56] });
        let table = kprobes_symbols::write(0, &Contents::default()).unwrap();
        assert!(format.text(Some(&SymbolTable::parse(&table).unwrap())).starts_with("name: r\n"));
    }

    #[test]
    fn a_percent_sign_takes_no_argument() {
        let found: Vec<_> = conversions("%d%% %pS %%%ps").collect();
        assert_eq!(found, [(0, "%d"), (5, "%pS"), (11, "%ps")]);
    }

    #[test]
    fn what_is_printed_is_read_whole() {
        for print in [
            "\"(sched.sched_switch)\"",
            "\"irq=%d ret=%s\", REC->irq, REC->ret ? \"handled\" : \"un, handled\"",
            "\"%s \\\"%s\\\"\", __print_symbolic(REC->a, { 0, \"a\" }, { 1, \"b)\" }), REC->b",
        ] {
            let text = format!("name: e\nID: 7\nformat:\n\nprint fmt: {print}\n");
            assert_eq!(Format::parse("g", &text).unwrap().text(None), text);
        }
    }
}
