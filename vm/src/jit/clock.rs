//! The time: the generic timer's virtual counter, converted to nanoseconds.

use aarch64_kprobes::insn::encode::compute::{self as a64, Binary};

/// The conversion of CNTVCT_EL0 to nanoseconds: subtract the counter at the start of the machine, multiply, and divide
/// by 2³². All CPUs have the same counter. The counter may be read earlier than in program order (Arm ARM, D12.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// The counter at the start of the machine.
    pub start: u64,
    /// The nanoseconds per tick, times 2³².
    pub per_tick: u64,
}

/// A step of the code that reads the time.
pub(super) enum ClockStep {
    /// An instruction.
    Word(u32),
    /// Load this number into this register.
    Number(u8, u64),
}

impl Clock {
    /// Reads the time into `target`, with the steps that `add` is called with. They also change `one` and `other`.
    pub(super) fn read<E>(
        self,
        target: u8,
        [one, other]: [u8; 2],
        mut add: impl FnMut(ClockStep) -> Result<(), E>,
    ) -> Result<(), E> {
        add(ClockStep::Word(a64::read_counter(target)))?;
        add(ClockStep::Number(one, self.start))?;
        add(ClockStep::Word(a64::compute(Binary::Subtract, target, target, one)))?;
        let (whole, part) = (self.per_tick >> 32, self.per_tick as u32);
        if part == 0 && whole.is_power_of_two() {
            let shift = whole.trailing_zeros() as u8;
            return if shift > 0 { add(ClockStep::Word(a64::shift_left(target, target, shift))) } else { Ok(()) };
        }
        add(ClockStep::Number(one, self.per_tick))?;
        // Take the middle 64 bits of the 128-bit product.
        add(ClockStep::Word(a64::compute(Binary::MultiplyHigh, other, target, one)))?;
        add(ClockStep::Word(a64::compute(Binary::Multiply, target, target, one)))?;
        add(ClockStep::Word(a64::shift_right(target, target, 32)))?;
        add(ClockStep::Word(a64::or_shifted(target, target, other, 32)))
    }
}
