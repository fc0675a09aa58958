//! The formats of those predefined events for which the kernel has no file: stacks, and the records of tracers.

use std::iter;

/// Returns the formats.
pub fn formats() -> impl Iterator<Item = String> {
    iter::once(String::from(KERNEL_STACK)).chain(TRACERS.iter().map(TracerRecord::text))
}

/// The format of the record of a stack, as Linux has it (kernel/trace/trace_entries.h).
const KERNEL_STACK: &str = "\
name: kernel_stack
ID: 4
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:int size;\toffset:8;\tsize:4;\tsigned:1;
\tfield:unsigned long caller[8];\toffset:16;\tsize:64;\tsigned:0;

print fmt: \"\\t=> %ps\\n\\t=> %ps\\n\\t=> %ps\\n\", (void *)REC->caller[0], (void *)REC->caller[1], (void *)REC->caller[2]
";

/// A record of a tracer: fields of eight bytes, one after the other.
struct TracerRecord {
    name: &'static str,
    number: u16,
    fields: &'static [&'static str],
    print: &'static str,
}

/// The records of the tracers. The record `function` is Linux's. The records of the graph have fields that Linux's do
/// not have, and therefore other names: readers have the fields of `funcgraph_entry` and `funcgraph_exit` built in.
const TRACERS: [TracerRecord; 3] = [
    TracerRecord {
        name: "function",
        number: 1,
        fields: &["ip", "parent_ip"],
        print: "\" %ps <-- %ps\", (void *)REC->ip, (void *)REC->parent_ip",
    },
    TracerRecord {
        name: "graph_return",
        number: 10,
        fields: &["func", "ret_ip", "sp"],
        print: "\"<-- %ps\", (void *)REC->func",
    },
    TracerRecord {
        name: "graph_call",
        number: 11,
        fields: &["func", "parent_ip", "sp"],
        print: "\"--> %ps\", (void *)REC->func",
    },
];

impl TracerRecord {
    /// Returns its format.
    fn text(&self) -> String {
        let Self { name, number, fields, print } = self;
        let common = KERNEL_STACK.lines().filter(|line| line.contains(" common_"));
        let common: String = common.map(|line| format!("{line}\n")).collect();
        let field = |(at, name)| format!("\tfield:unsigned long {name};\toffset:{};\tsize:8;\tsigned:0;\n", 8 + 8 * at);
        let own: String = fields.iter().enumerate().map(field).collect();
        format!("name: {name}\nID: {number}\nformat:\n{common}\n{own}\nprint fmt: {print}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::format::Format;

    #[test]
    fn the_records_of_tracers_have_formats() {
        let formats: Vec<_> = TRACERS.iter().map(|record| Format::parse("ftrace", &record.text()).unwrap()).collect();
        let layouts = formats.iter().map(|format| {
            let fields = format.arguments().map(|field| (field.name.as_str(), field.offset, field.size));
            (format.name.as_str(), format.number, fields.collect::<Vec<_>>())
        });
        let expected = [
            ("function", 1, vec![("ip", 8, 8), ("parent_ip", 16, 8)]),
            ("graph_return", 10, vec![("func", 8, 8), ("ret_ip", 16, 8), ("sp", 24, 8)]),
            ("graph_call", 11, vec![("func", 8, 8), ("parent_ip", 16, 8), ("sp", 24, 8)]),
        ];
        assert_eq!(layouts.collect::<Vec<_>>(), expected);
        assert_eq!(formats[0].text(None), TRACERS[0].text());
    }
}
