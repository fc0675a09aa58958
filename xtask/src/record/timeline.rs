//! Writes a recording as a timeline for Perfetto (`.pftrace`). Every event is on the track of its CPU, with its
//! arguments. If both the entry and the return of a function were recorded, its calls are slices on the tracks of their
//! tasks.
//!
//! The messages are those of Perfetto's `protos/perfetto/trace/*.proto`. They are few, so they are encoded here, byte
//! by byte.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
};

use kprobes_symbols::SymbolTable;

use super::{
    Recorded,
    format::{Field, Format},
    pages::{self, Event},
};

/// The sequence of all packets; any number but 0.
const SEQUENCE: u64 = 1;
/// The process of all tasks: the kernel has no processes.
const PROCESS: u64 = 1;
/// The track of a task is this number plus the task's number.
const TASKS: u64 = 1000;
/// The number of the records of stacks, as in Linux.
const STACK: u16 = 4;
/// `TrackEvent.type`.
const BEGIN: u64 = 1;
const END: u64 = 2;

/// Writes the timeline.
pub fn write(recorded: &Recorded, out: &mut impl Write) -> io::Result<()> {
    packet(out, None, |packet| {
        packet.message(60, |track| {
            track.number(1, PROCESS).message(3, |process| {
                process.number(1, PROCESS).text(6, "kernel");
            });
        });
    })?;
    for (&task, name) in &recorded.tasks {
        packet(out, None, |packet| {
            packet.message(60, |track| {
                track.number(1, TASKS + u64::from(task)).number(5, PROCESS).message(4, |thread| {
                    thread.number(1, PROCESS).number(2, task.into()).text(5, name);
                });
            });
        })?;
    }
    let formats: BTreeMap<u16, &Format> =
        recorded.formats.iter().chain(&recorded.ftrace).map(|format| (format.number, format)).collect();
    let symbols = recorded.symbols();
    for (cpu, pages) in recorded.pages.iter().enumerate() {
        write_cpu(cpu, pages, &formats, symbols.as_ref(), out)?;
    }
    write_calls(recorded, &formats, symbols.as_ref(), out)
}

/// Writes the events of a CPU, one bundle for each page.
fn write_cpu(
    cpu: usize,
    pages: &[u8],
    formats: &BTreeMap<u16, &Format>,
    symbols: Option<&SymbolTable<'_>>,
    out: &mut impl Write,
) -> io::Result<()> {
    for page in pages.chunks(pages::PAGE) {
        packet(out, None, |packet| {
            packet.message(1, |bundle| {
                bundle.number(1, cpu as u64);
                for event in pages::events(page) {
                    if event.lost.is_some() {
                        bundle.number(3, 1);
                    }
                    bundle.message(2, |of_ftrace| {
                        of_ftrace.number(1, event.time).number(2, event.task().into()).message(327, |generic| {
                            let format = formats.get(&event.number());
                            generic.text(1, format.map_or("unknown", |format| &format.name));
                            if event.number() == STACK {
                                generic.message(2, |argument| {
                                    argument.text(1, "stack").text(3, &stack_of_record(&event, symbols));
                                });
                                return;
                            }
                            format.iter().flat_map(|format| format.arguments()).for_each(|field| {
                                generic.message(2, |argument| {
                                    write_value(field, &event, symbols, argument.text(1, &field.name), [3, 4, 5]);
                                });
                            });
                        });
                    });
                }
            });
        })?;
    }
    Ok(())
}

/// Returns the functions in a record of a stack, as [`stack`] does.
fn stack_of_record(event: &Event<'_>, symbols: Option<&SymbolTable<'_>>) -> String {
    let addresses = (0..event.long(8) as u32 as usize).take(event.bytes.len() / 8);
    stack(addresses.map(|depth| event.long(16 + 8 * depth)), symbols)
}

/// Returns the functions in the stack whose place in the record is at `offset`, as [`stack`] does.
fn stack_at(event: &Event<'_>, offset: usize, symbols: Option<&SymbolTable<'_>>) -> String {
    let (start, length) = place_at(event, offset);
    let addresses = (start..start + length).step_by(8).map(|at| event.long(at));
    stack(addresses.take_while(|&address| address != 0), symbols)
}

/// Returns the functions at these addresses of a stack, the innermost first, a line each.
fn stack(addresses: impl Iterator<Item = u64>, symbols: Option<&SymbolTable<'_>>) -> String {
    let frames = addresses.enumerate().map(|(depth, address)| {
        // If a call does not return, its return address may belong to the next function.
        let within = if depth == 0 { address } else { address.wrapping_sub(1) };
        symbols
            .and_then(|symbols| symbols.lookup(within))
            .map_or_else(|| format!("{address:#x}"), |symbol| symbol.name.into())
    });
    frames.collect::<Vec<_>>().join("\n")
}

/// Writes the value of a field to a message, as a text, a signed or an unsigned number, in the message's field for
/// that.
fn write_value(
    field: &Field,
    event: &Event<'_>,
    symbols: Option<&SymbolTable<'_>>,
    message: &mut Message,
    [text, signed, unsigned]: [u32; 3],
) {
    let size = field.size.checked_div(field.count).unwrap_or(field.size);
    let shown = |index: usize| match field.is_text {
        true => text_at(event, field.offset + index * size),
        false => value(event, field.offset + index * size, size, field.is_signed).to_string(),
    };
    match field.count {
        0 if field.is_text => message.text(text, &shown(0)),
        0 if field.is_stack => message.text(text, &stack_at(event, field.offset, symbols)),
        // The rest of the record is a text.
        0 if field.size == 0 => {
            let rest = event.bytes.get(field.offset..).unwrap_or_default().split(|byte| *byte == 0).next();
            message.text(text, &String::from_utf8_lossy(rest.unwrap_or_default()))
        }
        0 => {
            let value = value(event, field.offset, size, field.is_signed);
            message.number(if field.is_signed { signed } else { unsigned }, value as u64)
        }
        _ if field.is_fixed_text => {
            let bytes = event.bytes.get(field.offset..field.offset + field.size).unwrap_or_default();
            let shown = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
            message.text(text, &String::from_utf8_lossy(shown))
        }
        count => message.text(text, &format!("{{{}}}", (0..count).map(shown).collect::<Vec<_>>().join(","))),
    };
}

/// Returns the text whose place in the record is at `offset`.
fn text_at(event: &Event<'_>, offset: usize) -> String {
    let (start, length) = place_at(event, offset);
    let bytes = event.bytes.get(start..start + length.saturating_sub(1)).unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the place in the record that is at `offset`: an offset and a length in bytes.
fn place_at(event: &Event<'_>, offset: usize) -> (usize, usize) {
    let place = event.long(offset);
    ((place & 0xffff) as usize, (place >> 16 & 0xffff) as usize)
}

/// Returns the number of `size` bytes at `offset`.
fn value(event: &Event<'_>, offset: usize, size: usize, is_signed: bool) -> i128 {
    let unused = 64 - 8 * size.clamp(1, 8) as u32;
    let bits = event.long(offset) << unused;
    if is_signed { (bits.cast_signed() >> unused).into() } else { (bits >> unused).into() }
}

/// A call, with the numbers of the events of its entry, or of its return, that have come. Several events may be on one
/// function.
struct Call {
    function: u64,
    events: BTreeSet<u16>,
}

impl Call {
    fn new(function: u64, event: u16) -> Self {
        Self { function, events: BTreeSet::from([event]) }
    }

    /// Returns whether an event of `function` is one of this call, and adds it then. Of each call, an event comes once,
    /// or not at all if it has a filter: an event of a call of its own within this one may be taken for one of this.
    fn has_also(&mut self, function: u64, event: u16) -> bool {
        self.function == function && self.events.insert(event)
    }
}

/// The calls of a task.
#[derive(Default)]
struct Calls {
    /// Those in progress, the outermost first.
    open: Vec<Call>,
    /// The one that returned last, if none has begun since.
    returned: Option<Call>,
}

/// Writes the calls: each from the first event at the entry of a function to the first event at its return, in the same
/// task. If an outer call returns first, the calls inside it end with it.
fn write_calls(
    recorded: &Recorded,
    formats: &BTreeMap<u16, &Format>,
    symbols: Option<&SymbolTable<'_>>,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut events: Vec<Event<'_>> = recorded.pages.iter().flat_map(|pages| pages::events(pages)).collect();
    // The sort is stable: events of a CPU stay in their order.
    events.sort_by_key(|event| event.time);
    let is_return = |event: &Event<'_>| formats.get(&event.number()).is_some_and(|format| format.is_return());
    let is_probe = |event: &Event<'_>| formats.get(&event.number()).is_some_and(|format| format.is_probe());
    // Both have the address of the function in the same place: for a probe at the entry, that of its first instruction.
    let function = |event: &Event<'_>| event.long(8);
    let returning: BTreeSet<u64> = events.iter().filter(|event| is_return(event)).map(function).collect();
    let mut calls: BTreeMap<u32, Calls> = BTreeMap::new();
    for event in events.iter().filter(|event| is_probe(event) && returning.contains(&function(event))) {
        let Calls { open, returned } = calls.entry(event.task()).or_default();
        let (function, number) = (function(event), event.number());
        let mut slice = |kind: u64, name: Option<&str>| {
            packet(out, Some(event.time), |packet| {
                packet.message(11, |slice| {
                    slice.number(9, kind).number(11, TASKS + u64::from(event.task()));
                    if let Some(name) = name {
                        slice.text(23, name);
                    }
                });
            })
        };
        if !is_return(event) {
            *returned = None;
            if open.last_mut().is_some_and(|call| call.has_also(function, number)) {
                continue;
            }
            open.push(Call::new(function, number));
            let symbol = symbols.and_then(|symbols| symbols.lookup(function));
            slice(BEGIN, Some(symbol.map_or("?", |symbol| symbol.name)))?;
        } else if returned.as_mut().is_none_or(|call| !call.has_also(function, number))
            && let Some(call) = open.iter().rposition(|open| open.function == function)
        {
            for _ in call..open.len() {
                slice(END, None)?;
            }
            open.truncate(call);
            *returned = Some(Call::new(function, number));
        }
    }
    Ok(())
}

/// Writes a packet of the trace, with this time if there is one.
fn packet(out: &mut impl Write, time: Option<u64>, fill: impl FnOnce(&mut Message)) -> io::Result<()> {
    let mut trace = Message::default();
    trace.message(1, |packet| {
        if let Some(time) = time {
            packet.number(8, time);
        }
        packet.number(10, SEQUENCE);
        fill(packet);
    });
    out.write_all(&trace.0)
}

/// A message of Protocol Buffers.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn number(&mut self, field: u32, number: u64) -> &mut Self {
        self.varint(u64::from(field) << 3);
        self.varint(number);
        self
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) -> &mut Self {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    fn text(&mut self, field: u32, text: &str) -> &mut Self {
        self.bytes(field, text.as_bytes())
    }

    fn message(&mut self, field: u32, fill: impl FnOnce(&mut Message)) -> &mut Self {
        let mut message = Self::default();
        fill(&mut message);
        self.bytes(field, &message.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the fields of a message: numbers, or bytes.
    fn fields(mut bytes: &[u8]) -> Vec<(u64, Result<u64, &[u8]>)> {
        fn varint(bytes: &mut &[u8]) -> u64 {
            let length = bytes.iter().position(|byte| *byte < 0x80).unwrap() + 1;
            let (number, rest) = bytes.split_at(length);
            *bytes = rest;
            number.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f))
        }
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let number = varint(&mut bytes);
            fields.push(match key & 7 {
                0 => (key >> 3, Ok(number)),
                _ => {
                    let (inner, rest) = bytes.split_at(number as usize);
                    bytes = rest;
                    (key >> 3, Err(inner))
                }
            });
        }
        fields
    }

    fn find<'a>(fields: &[(u64, Result<u64, &'a [u8]>)], wanted: u64) -> Option<Result<u64, &'a [u8]>> {
        fields.iter().find(|(field, _)| *field == wanted).map(|(_, value)| *value)
    }

    /// Returns a page of events: times, tasks, format numbers, and the data after these.
    fn page(events: &[(u64, u32, u16, &[u64])]) -> Vec<u8> {
        let mut data = Vec::new();
        let mut last = events[0].0;
        for (time, task, number, words) in events {
            data.extend((((time - last) as u32) << 5 | (2 + 2 * words.len() as u32)).to_le_bytes());
            data.extend(u32::from(*number).to_le_bytes());
            data.extend(task.to_le_bytes());
            words.iter().for_each(|word| data.extend(word.to_le_bytes()));
            last = *time;
        }
        let mut page = [events[0].0.to_le_bytes(), (data.len() as u64).to_le_bytes()].concat();
        page.extend(data);
        page.resize(pages::PAGE, 0);
        page
    }

    /// Returns the slices of a trace: the time, the task, and whether it begins or ends.
    fn slices(trace: &[u8]) -> Vec<(u64, u64, u64)> {
        let slice = |(_, packet): (u64, Result<u64, &[u8]>)| {
            let packet = fields(packet.unwrap_err());
            let slice = fields(find(&packet, 11)?.unwrap_err());
            let number = |field| find(&slice, field).unwrap().unwrap();
            Some((find(&packet, 8).unwrap().unwrap(), number(11) - TASKS, number(9)))
        };
        fields(trace).into_iter().filter_map(slice).collect()
    }

    /// Returns the texts of the arguments of a record of these words after the common fields. Its event has the format
    /// `text`, with the number 7.
    fn arguments(text: &str, words: &[u64]) -> Vec<String> {
        let recorded = Recorded {
            pages: vec![page(&[(10, 5, 7, words)])],
            formats: vec![Format::parse("kprobes", text).unwrap()],
            ..Recorded::default()
        };
        let mut trace = Vec::new();
        write(&recorded, &mut trace).unwrap();
        let mut packets = fields(&trace).into_iter();
        let bundle = packets.find_map(|(_, packet)| find(&fields(packet.unwrap_err()), 1)?.err()).unwrap();
        let event = find(&fields(bundle), 2).unwrap().unwrap_err();
        let generic = find(&fields(event), 327).unwrap().unwrap_err();
        let arguments = fields(generic).into_iter().filter(|(field, _)| *field == 2);
        let text = |argument| find(&fields(argument), 3).unwrap().unwrap_err();
        arguments.map(|(_, argument)| String::from_utf8_lossy(text(argument.unwrap_err())).into_owned()).collect()
    }

    #[test]
    fn all_texts_of_a_list_are_shown() {
        let format = "name: e\nID: 7\nformat:\n\tfield:__data_loc char[][2] t;\toffset:8;\tsize:8;\tsigned:1;\n\n\
            print fmt: \"t={%s,%s}\", __get_str(t[0]), __get_str(t[1])\n";
        // The texts, each with its zero, are at the offsets 16 and 19 in the record.
        let places = (3 << 16 | 16) | (2 << 16 | 19) << 32;
        assert_eq!(arguments(format, &[places, u64::from_le_bytes(*b"ab\0c\0\0\0\0")]), ["{ab,c}"]);
    }

    #[test]
    fn a_stack_in_a_field_is_shown_as_its_functions() {
        let format = "name: e\nID: 7\nformat:\n\tfield:__data_loc unsigned long[] s;\toffset:8;\tsize:8;\tsigned:1;\n\n\
            print fmt: \"s=%s\", __get_stacktrace(s)\n";
        // The stack is at the offset 16 in the record.
        assert_eq!(arguments(format, &[24 << 16 | 16, 0x1000, 0x2004, 0]), ["0x1000\n0x2004"]);
        assert_eq!(arguments(format, &[0]), [""], "the stack could not be read");
    }

    #[test]
    fn a_call_with_several_events_is_one_slice() {
        let all = [(7, "__probe_ip"), (8, "__probe_ip"), (9, "__probe_func"), (10, "__probe_func")];
        let formats = all.map(|(number, field)| {
            let fields = format!("\tfield:unsigned long {field};\toffset:8;\tsize:8;\tsigned:0;\n");
            let text = format!("name: e\nID: {number}\nformat:\n{fields}\nprint fmt: \"(%lx)\", REC->{field}\n");
            Format::parse("kprobes", &text).unwrap()
        });
        let f: &[u64] = &[0x1000];
        // A call, one that calls itself, and one after it.
        let events = [
            [(10, 5, 7, f), (11, 5, 8, f), (20, 5, 9, f), (21, 5, 10, f)],
            [(30, 5, 7, f), (31, 5, 8, f), (40, 5, 7, f), (41, 5, 8, f)],
            [(50, 5, 9, f), (51, 5, 10, f), (60, 5, 9, f), (61, 5, 10, f)],
            [(70, 5, 7, f), (71, 5, 8, f), (80, 5, 9, f), (81, 5, 10, f)],
        ];
        let recorded =
            Recorded { pages: vec![page(events.as_flattened())], formats: formats.into(), ..Recorded::default() };
        let mut trace = Vec::new();
        write(&recorded, &mut trace).unwrap();
        let expected = [(10, BEGIN), (20, END), (30, BEGIN), (40, BEGIN), (50, END), (60, END), (70, BEGIN), (80, END)];
        assert_eq!(slices(&trace), expected.map(|(time, kind)| (time, 5, kind)));
    }

    #[test]
    fn calls_are_slices_that_nest() {
        let entry = "name: e\nID: 7\nformat:\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\
            \tfield:unsigned long __probe_ip;\toffset:8;\tsize:8;\tsigned:0;\n\
            \tfield:s8 x;\toffset:16;\tsize:1;\tsigned:1;\n\nprint fmt: \"(%lx) x=%d\", REC->__probe_ip, REC->x\n";
        let exit = "name: r\nID: 8\nformat:\n\tfield:unsigned long __probe_func;\toffset:8;\tsize:8;\tsigned:0;\n\
            \tfield:unsigned long __probe_ret_ip;\toffset:16;\tsize:8;\tsigned:0;\n\n\
            print fmt: \"(%lx <- %lx)\", REC->__probe_func, REC->__probe_ret_ip\n";
        let other = "name: o\nID: 9\nformat:\n\tfield:u64 func;\toffset:8;\tsize:8;\tsigned:0;\n\n\
            print fmt: \"func=%llu\", REC->func\n";
        let (f, g, h) = (0x1000, 0x2000, 0x3000);
        let first = page(&[
            (10, 5, 7, &[f, 0xff]),
            (20, 5, 7, &[g, 0]),
            // A function whose returns are not recorded has no slices.
            (25, 5, 7, &[h, 0]),
            // An event that is no hit of a probe begins no call, also if it has the address of a function.
            (26, 5, 9, &[f, 0]),
            (30, 5, 8, &[f, 0]),
            // The return of a call whose entry was not recorded.
            (40, 5, 8, &[g, 0]),
        ]);
        let recorded = Recorded {
            pages: vec![first, page(&[(12, 6, 7, &[g, 0]), (22, 6, 8, &[g, 0])])],
            tasks: [(5, "a".to_string()), (6, "b".to_string())].into(),
            formats: [entry, exit, other].map(|text| Format::parse("kprobes", text).unwrap()).into(),
            ..Recorded::default()
        };
        let mut trace = Vec::new();
        write(&recorded, &mut trace).unwrap();
        let (mut tracks, mut slices, mut bundles) = (Vec::new(), Vec::new(), Vec::new());
        for (field, packet) in fields(&trace) {
            let packet = fields(packet.unwrap_err());
            assert!(field == 1 && find(&packet, 10) == Some(Ok(SEQUENCE)));
            if let Some(Err(track)) = find(&packet, 60) {
                tracks.push(find(&fields(track), 1).unwrap().unwrap());
            }
            if let Some(Err(slice)) = find(&packet, 11) {
                let slice = fields(slice);
                let number = |field| find(&slice, field).unwrap().unwrap();
                // A track must be described before it is used.
                assert!(tracks.contains(&number(11)));
                slices.push((find(&packet, 8).unwrap().unwrap(), number(11) - TASKS, number(9)));
            }
            if let Some(Err(bundle)) = find(&packet, 1) {
                bundles.push(fields(bundle));
            }
        }
        let expected = [(10, 5, BEGIN), (12, 6, BEGIN), (20, 5, BEGIN), (22, 6, END), (30, 5, END), (30, 5, END)];
        assert_eq!(slices, expected);
        assert_eq!(tracks, [PROCESS, TASKS + 5, TASKS + 6]);
        assert_eq!(bundles.iter().map(Vec::len).collect::<Vec<_>>(), [7, 3]);
        let event = fields(find(&bundles[0], 2).unwrap().unwrap_err());
        assert_eq!((find(&event, 1), find(&event, 2)), (Some(Ok(10)), Some(Ok(5))));
        let generic = fields(find(&event, 327).unwrap().unwrap_err());
        assert_eq!(find(&generic, 1), Some(Err(&b"e"[..])));
        let argument = fields(find(&generic, 2).unwrap().unwrap_err());
        assert_eq!((find(&argument, 1), find(&argument, 4)), (Some(Err(&b"x"[..])), Some(Ok(u64::MAX))));
    }
}
