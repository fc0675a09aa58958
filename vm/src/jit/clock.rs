//! The time: the generic timer's virtual counter, converted to nanoseconds.

use aarch64_kprobes::insn::encode::compute::{self as a64, Binary};

use super::operation::CommonStep;

/// The conversion of CNTVCT_EL0 to nanoseconds: subtract the counter at the start of the machine, multiply, and divide
/// by 2³². All CPUs have the same counter. The counter may be read earlier than in program order (Arm ARM, D12.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// The counter at the start of the machine.
    pub start: u64,
    /// The nanoseconds per tick, times 2³².
    pub per_tick: u64,
}

impl Clock {
    /// Reads the nanoseconds since the time `since` into `target`, with the steps that `add` is called with. They also
    /// change `one` and `other`.
    pub(super) fn read<E>(
        self,
        target: u8,
        since: u64,
        [one, other]: [u8; 2],
        mut add: impl FnMut(CommonStep) -> Result<(), E>,
    ) -> Result<(), E> {
        add(CommonStep::Word(a64::read_counter(target)))?;
        add(CommonStep::Number(one, self.start))?;
        add(CommonStep::Word(a64::compute(Binary::Subtract, target, target, one)))?;
        let (whole, part) = (self.per_tick >> 32, self.per_tick as u32);
        if part == 0 && whole.is_power_of_two() {
            let shift = whole.trailing_zeros() as u8;
            if shift > 0 {
                add(CommonStep::Word(a64::shift_left(target, target, shift)))?;
            }
        } else {
            add(CommonStep::Number(one, self.per_tick))?;
            // Take the middle 64 bits of the 128-bit product.
            add(CommonStep::Word(a64::compute(Binary::MultiplyHigh, other, target, one)))?;
            add(CommonStep::Word(a64::compute(Binary::Multiply, target, target, one)))?;
            add(CommonStep::Word(a64::shift_right(target, target, 32)))?;
            add(CommonStep::Word(a64::or_shifted(target, target, other, 32)))?;
        }
        if since == 0 {
            return Ok(());
        }
        add(CommonStep::Number(one, since))?;
        add(CommonStep::Word(a64::compute(Binary::Subtract, target, target, one)))
    }
}
