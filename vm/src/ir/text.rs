//! Ops as text, one a line, to show the lowered form of a program.

use core::fmt::{self, Display, Formatter};

use super::{Op, Operand, Word};

impl Display for Word {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "w{}", self.0)
    }
}

impl Display for Operand {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => word.fmt(f),
            Self::Constant(value) if *value < 1 << 32 => write!(f, "{value}"),
            Self::Constant(value) => write!(f, "{value:#x}"),
        }
    }
}

impl Display for Op {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let sign = |signed| if signed { 's' } else { 'u' };
        match *self {
            Self::Set { to, from } => write!(f, "{to} = {from}"),
            Self::Copy { to, from, words } => write!(f, "{to} = {from} for {words}"),
            Self::Load { to, what } => write!(f, "{to} = {what:?}"),
            Self::Comm { to } => write!(f, "{to} = Comm"),
            Self::Stack { to, frames } => write!(f, "{to} = Stack of {frames}"),
            Self::Compute { to, how, left, right } => write!(f, "{to} = {how:?} {left}, {right}"),
            Self::Extend { to, from, bits, signed } => write!(f, "{to} = {}{bits} {from}", sign(signed)),
            Self::Compare { to, how, left, right } => write!(f, "{to} = {how:?} {left}, {right}"),
            Self::Differ { to, left, right, bytes } => write!(f, "{to} = Differ {left}, {right} in {bytes}"),
            Self::Find { to, text, text_words, part, part_words } => {
                write!(f, "{to} = Find {part} for {part_words} in {text} for {text_words}")
            }
            Self::Length { to, text, words } => write!(f, "{to} = Length of {text} for {words}"),
            Self::Frames { to, stack } => write!(f, "{to} = Frames of {stack}"),
            Self::Branch { how, left, right, target } => write!(f, "to {target} if {how:?} {left}, {right}"),
            Self::Jump { target } => write!(f, "to {target}"),
            Self::Again { target } => write!(f, "again from {target}"),
            Self::Next { place, map } => write!(f, "{place} = next of map {map}"),
            Self::Read { to, address, bytes, signed } => {
                write!(f, "{to} = {}{} at {address}", sign(signed), u16::from(bytes) * 8)
            }
            Self::ReadText { to, words, address, length } => {
                write!(f, "{to} = text at {address} of {length} for {words}")
            }
            Self::ReadBytes { to, words, address, length } => {
                write!(f, "{to} = bytes at {address} of {length} for {words}")
            }
            Self::Has { to, map, key } => write!(f, "{to} = map {map} has [{key}]"),
            Self::Keys { to, map } => write!(f, "{to} = keys of map {map}"),
            Self::Get { to, map, key } => write!(f, "{to} = map {map} [{key}]"),
            Self::Total { to, map, key } => write!(f, "{to} = total of map {map} [{key}]"),
            Self::Put { map, key, from } => write!(f, "map {map} [{key}] = {from}"),
            Self::Modify { to, map, key, how, by, after } => {
                let (before, behind) = if after { ("", " after") } else { (" before", "") };
                write!(f, "{to} = map {map} [{key}]{before} {how:?} {by}{behind}")
            }
            Self::Collect { map, key, value } => write!(f, "map {map} [{key}] collects {value}"),
            Self::Delete { map, key } => write!(f, "delete map {map} [{key}]"),
            Self::Emit { action, from, words } => write!(f, "action {action} with {from} for {words}"),
            Self::Exit { status } => write!(f, "exit {status}"),
        }
    }
}
