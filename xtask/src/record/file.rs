//! Writes a recording as `trace.dat` of version 6, which every `trace-cmd` and KernelShark read (trace-cmd,
//! Documentation/trace-cmd/trace-cmd.dat.v6.5.txt).

use std::io::{self, Write};

use super::{Recorded, pages::PAGE};

/// Writes the file.
pub fn write(recorded: &Recorded, out: &mut impl Write) -> io::Result<()> {
    let symbols = recorded.symbols();
    let mut head = Vec::new();
    head.extend([0x17, 0x08, 0x44]);
    head.extend(b"tracing6\0");
    // Little-endian, with a `long` of 8 bytes.
    head.extend([0, 8]);
    head.extend((PAGE as u32).to_le_bytes());
    for (name, text) in [("header_page", &recorded.header_page), ("header_event", &recorded.header_event)] {
        string(&mut head, name);
        long_text(&mut head, text);
    }
    word(&mut head, recorded.ftrace.len());
    recorded.ftrace.iter().for_each(|format| long_text(&mut head, &format.text(symbols.as_ref())));
    let mut groups: Vec<&str> = recorded.formats.iter().map(|format| format.group.as_str()).collect();
    groups.sort_unstable();
    groups.dedup();
    word(&mut head, groups.len());
    for group in groups {
        let formats: Vec<_> = recorded.formats.iter().filter(|format| format.group == group).collect();
        string(&mut head, group);
        word(&mut head, formats.len());
        formats.iter().for_each(|format| long_text(&mut head, &format.text(symbols.as_ref())));
    }
    let functions: String = symbols
        .iter()
        .flat_map(|symbols| symbols.iter())
        // In this file, a space ends a name.
        .map(|symbol| format!("{:016x} T {}\n", symbol.address, symbol.name.replace(' ', "\u{a0}")))
        .collect();
    word(&mut head, functions.len());
    head.extend(functions.as_bytes());
    // There are no texts of `trace_printk` by their addresses.
    word(&mut head, 0);
    let tasks: String = recorded.tasks.iter().map(|(task, name)| format!("{task} {name}\n")).collect();
    long_text(&mut head, &tasks);
    word(&mut head, recorded.pages.len());
    head.extend(b"flyrecord\0");
    let mut offset = (head.len() + 16 * recorded.pages.len()).next_multiple_of(PAGE);
    let start = offset;
    for pages in &recorded.pages {
        head.extend((offset as u64).to_le_bytes());
        head.extend((pages.len() as u64).to_le_bytes());
        offset += pages.len();
    }
    head.resize(start, 0);
    out.write_all(&head)?;
    recorded.pages.iter().try_for_each(|pages| out.write_all(pages))
}

fn word(out: &mut Vec<u8>, number: usize) {
    out.extend((number as u32).to_le_bytes());
}

fn string(out: &mut Vec<u8>, text: &str) {
    out.extend(text.as_bytes());
    out.push(0);
}

fn long_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}
