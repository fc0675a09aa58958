//! Reading numbers from untrusted bytes.

use kprobes_symbols::frame;

use crate::model::{Source, Unknown, ValuePart, ValuePlace};

/// The bytes that are still to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a>(pub &'a [u8]);

impl<'a> Cursor<'a> {
    /// Reads a number. `None` if the bytes end, or the number exceeds 64 bits.
    pub fn number(&mut self) -> Option<u64> {
        frame::take(&mut self.0)
    }

    /// Reads a number of at most 32 bits.
    pub fn word(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    /// Reads `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    fn source(&mut self) -> Option<Source> {
        Some(match self.word()? {
            0 => Source::Lost,
            number @ 1..32 => Source::Register(number as u8 - 1),
            32 => {
                let (register, offset) = self.memory()?;
                Source::Memory { register, offset }
            }
            33 => {
                let (register, offset) = self.memory()?;
                Source::Sum { register, offset }
            }
            34 => {
                let number = |word: u32| u8::try_from(word).ok();
                let register = number(self.word()?).filter(|&register| register < Source::STACK_POINTER)?;
                Source::Bits { register, bits: number(self.word()?).filter(|bits| (1..64).contains(bits))? }
            }
            _ => return None,
        })
    }

    /// Reads a register and an offset from the address in it.
    fn memory(&mut self) -> Option<(u8, i32)> {
        let (register, offset) = (self.number()?, self.word()?);
        let register = u8::try_from(register).ok().filter(|&register| register <= Source::STACK_POINTER)?;
        Some((register, (offset >> 1).cast_signed() ^ -(offset & 1).cast_signed()))
    }

    fn part(&mut self) -> Option<ValuePart> {
        let (offset, bytes) = (self.word()?, self.word()?);
        let bytes = u8::try_from(bytes).ok().filter(|bytes| (1..=8).contains(bytes))?;
        Some(ValuePart { offset, bytes, source: self.source()? })
    }

    /// Reads a place.
    pub fn place(&mut self) -> Option<ValuePlace> {
        Some(match self.number()? {
            0 => ValuePlace::Nothing,
            1 => {
                let count = self.number()?;
                let first = self.part()?;
                let second = match count {
                    1 => None,
                    2 => Some(self.part()?),
                    _ => return None,
                };
                ValuePlace::Words { first, second }
            }
            2 => ValuePlace::At(self.source()?),
            3 => ValuePlace::Constant(self.number()?),
            4 => ValuePlace::Unknown(match self.number()? {
                0 => Unknown::OptimizedOut,
                1 => Unknown::Elsewhere { from: self.word()?, to: self.word()? },
                2 => Unknown::Contradiction,
                3 => Unknown::Layout,
                4 => Unknown::Unsaid,
                5 => Unknown::Form,
                _ => return None,
            }),
            5 => {
                let (register, offset) = self.memory()?;
                ValuePlace::Memory { register, offset }
            }
            _ => return None,
        })
    }
}
