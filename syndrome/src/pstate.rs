//! PSTATE in words, from the layout in which SPSR_EL1 saves it (Arm ARM, C5.2.19).

use core::fmt;

/// A saved processor state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessorState(pub u64);

impl ProcessorState {
    const fn bit(self, number: usize) -> bool {
        self.0 >> number & 1 == 1
    }
}

/// Prints, for example, `nZCv dAIf EL1h`. A letter is upper case if its bit is set. Other bits are named only if they
/// are set.
impl fmt::Display for ProcessorState {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for (highest, names) in [(31, "nzcv"), (9, "daif")] {
            for (index, name) in names.chars().enumerate() {
                write!(f, "{}", if self.bit(highest - index) { name.to_ascii_uppercase() } else { name })?;
            }
            f.write_str(" ")?;
        }
        for (number, name) in [(25, "TCO"), (24, "DIT"), (23, "UAO"), (22, "PAN"), (21, "SS"), (20, "IL"), (12, "SSBS")]
        {
            if self.bit(number) {
                write!(f, "{name} ")?;
            }
        }
        if self.0 >> 10 & 0b11 != 0 {
            write!(f, "BTYPE={} ", self.0 >> 10 & 0b11)?;
        }
        match self.0 & 0x1f {
            0b0_0000 => f.write_str("EL0t"),
            0b0_0100 => f.write_str("EL1t"),
            0b0_0101 => f.write_str("EL1h"),
            0b0_1000 => f.write_str("EL2t"),
            0b0_1001 => f.write_str("EL2h"),
            mode if mode & 0x10 != 0 => f.write_str("AArch32"),
            mode => write!(f, "M={mode:#x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ProcessorState;

    #[test]
    fn flags_masks_and_mode_are_named() {
        assert_eq!(ProcessorState(0x6000_03c5).to_string(), "nZCv DAIF EL1h");
        assert_eq!(ProcessorState(0x8000_0004).to_string(), "Nzcv daif EL1t");
        assert_eq!(ProcessorState(0x0040_0085).to_string(), "nzcv daIf PAN EL1h");
    }
}
