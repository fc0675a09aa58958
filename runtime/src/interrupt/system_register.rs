//! Accessors of system registers that aarch64-cpu does not have.

/// Defines a module with the functions `read` and `write` of a system register. Neither access has an effect on memory.
macro_rules! system_register {
    ($name:ident, $encoding:literal) => {
        mod $name {
            #[allow(dead_code, reason = "some registers are only read, some only written")]
            pub(super) fn read() -> u64 {
                let value;
                // SAFETY: this is a register of the GIC's CPU interface or of the performance monitors. Reading the
                // acknowledge register has an effect on the GIC, which is wanted. No read has an effect on memory.
                unsafe { core::arch::asm!(concat!("mrs {}, ", $encoding), out(reg) value, options(nostack)) };
                value
            }

            #[allow(dead_code, reason = "some registers are only read, some only written")]
            pub(super) fn write(value: u64) {
                // SAFETY: this is a register of the GIC's CPU interface or of the performance monitors. Writing it has
                // no effect on memory.
                unsafe { core::arch::asm!(concat!("msr ", $encoding, ", {}"), in(reg) value, options(nostack)) };
            }
        }
    };
}
