//! The time: what the generic timer's virtual counter says, as nanoseconds.

use aarch64_kprobes::insn::encode::compute::{self as a64, Binary};

/// How the kernel has nanoseconds of CNTVCT_EL0: less what it was at the start of the machine, times a number, by 2³². All CPUs have
/// the same counter. It may be read earlier than the program says (Arm ARM, D12.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// What the counter was.
    pub start: u64,
    /// Nanoseconds of a tick, times 2³².
    pub per_tick: u64,
}

/// What reading the time takes.
pub(super) enum Part {
    /// An instruction.
    Word(u32),
    /// Has this register hold a number.
    Number(u8, u64),
}

impl Clock {
    /// Has `target` hold the time, by what `add` is called with; `one` and `other` are changed.
    pub(super) fn read<E>(
        self,
        target: u8,
        [one, other]: [u8; 2],
        mut add: impl FnMut(Part) -> Result<(), E>,
    ) -> Result<(), E> {
        add(Part::Word(a64::read_counter(target)))?;
        add(Part::Number(one, self.start))?;
        add(Part::Word(a64::compute(Binary::Subtract, target, target, one)))?;
        let (whole, part) = (self.per_tick >> 32, self.per_tick as u32);
        if part == 0 && whole.is_power_of_two() {
            let shift = whole.trailing_zeros() as u8;
            return if shift > 0 { add(Part::Word(a64::shift_left(target, target, shift))) } else { Ok(()) };
        }
        add(Part::Number(one, self.per_tick))?;
        // The middle of a product of 128 bits.
        add(Part::Word(a64::compute(Binary::MultiplyHigh, other, target, one)))?;
        add(Part::Word(a64::compute(Binary::Multiply, target, target, one)))?;
        add(Part::Word(a64::shift_right(target, target, 32)))?;
        add(Part::Word(a64::or_shifted(target, target, other, 32)))
    }
}
