//! The file `format` of an event.

use core::fmt;

use super::{Base, Field, Format, Shape};
use crate::print;

impl Format {
    /// Writes the contents of the file `format` for the event numbered `id`.
    ///
    /// # Errors
    ///
    /// Returns the error of `out`.
    pub fn write(&self, out: &mut dyn fmt::Write, event: &str, id: u16) -> fmt::Result {
        writeln!(out, "name: {event}\nID: {id}\nformat:")?;
        for (number, field) in self.fields.iter().enumerate() {
            if number == Self::COMMON {
                out.write_char('\n')?;
            }
            write_field(out, field)?;
        }
        out.write_str("\nprint fmt: ")?;
        if self.shape == Shape::Static {
            match self.print {
                Some(print) => out.write_str(print)?,
                None => print::write_default(out, self.arguments())?,
            }
            return out.write_char('\n');
        }
        out.write_char('"')?;
        if self.shape == Shape::Synthetic {
            return self.write_synthetic(out);
        }
        match (&self.base_event, self.shape) {
            (Some(base_event), _) => write!(out, "({base_event})")?,
            (None, Shape::Probe) => out.write_str("(%lx)")?,
            (None, Shape::Return) => out.write_str("(%lx <- %lx)")?,
            (None, Shape::Synthetic | Shape::Static) => {}
        }
        for field in self.arguments() {
            write!(out, " {}=", field.name)?;
            let conversion = field.kind.base.conversion();
            match field.kind.count {
                0 => out.write_str(conversion)?,
                count => {
                    write!(out, "{{{conversion}")?;
                    (1..count).try_for_each(|_| write!(out, ",{conversion}"))?;
                    out.write_char('}')?;
                }
            }
        }
        out.write_str(match (&self.base_event, self.shape) {
            (None, Shape::Probe) => "\", REC->__probe_ip",
            (None, Shape::Return) => "\", REC->__probe_func, REC->__probe_ret_ip",
            (Some(_), _) | (None, Shape::Synthetic | Shape::Static) => "\"",
        })?;
        for field in self.arguments() {
            let (before, after) = if field.kind.base.is_text() { ("__get_str(", ")") } else { ("REC->", "") };
            match field.kind.count {
                0 => write!(out, ", {before}{}{after}", field.name)?,
                count => {
                    (0..count).try_for_each(|index| write!(out, ", {before}{}[{index}]{after}", field.name))?;
                }
            }
        }
        out.write_char('\n')
    }

    /// Writes the `print fmt` of a synthetic event, from the first field on.
    fn write_synthetic(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        for (number, field) in self.arguments().iter().enumerate() {
            let before = if number > 0 { ", " } else { "" };
            write!(out, "{before}{}={}", field.name, conversion(&field.text))?;
        }
        out.write_char('"')?;
        for field in self.arguments() {
            let (before, after) = match field.kind.base {
                Base::Stack => ("__get_stacktrace(", ")"),
                base if base.is_text() => ("__get_str(", ")"),
                _ => ("REC->", ""),
            };
            write!(out, ", {before}{}{after}", field.name)?;
        }
        out.write_char('\n')
    }
}

/// Returns the conversion of a field of this type in `print fmt`.
fn conversion(kind: &str) -> &'static str {
    match kind {
        "s64" => "%lld",
        "long" => "%ld",
        "unsigned long" => "%lu",
        "s32" | "s16" | "s8" | "char" | "int" | "bool" | "pid_t" => "%d",
        "u32" | "u16" | "u8" | "unsigned char" | "unsigned int" => "%u",
        "gfp_t" => "%x",
        _ if kind.contains("char[") || kind.contains("long[") => "%s",
        _ => "%llu",
    }
}

/// Writes a line of `format`. The number of values of an array follows the name, as in C.
fn write_field(out: &mut dyn fmt::Write, field: &Field) -> fmt::Result {
    let Field { name, text, offset, size, signed, .. } = field;
    let (text, dimension) = match text.find('[') {
        Some(at) if !field.is_located() => text.split_at(at),
        _ => (text.as_ref(), ""),
    };
    let signed = u8::from(*signed);
    writeln!(out, "\tfield:{text} {name}{dimension};\toffset:{offset};\tsize:{size};\tsigned:{signed};")
}
