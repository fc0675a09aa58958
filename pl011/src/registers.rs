//! The registers, as declarations. Those for interrupts and FIFOs are public, because the kernel and the loader use
//! them in different ways.
#![expect(missing_docs, reason = "the macros generate constants that cannot be documented")]

use tock_registers::registers::{ReadOnly, ReadWrite, WriteOnly};
use tock_registers::{register_bitfields, register_structs};

register_bitfields! {
    u32,
    /// Data and receive errors (3.3.1).
    pub Data [
        /// The byte received, or the byte to send.
        BYTE OFFSET(0) NUMBITS(8) [],
        /// The receive FIFO was full, and bytes before this one were lost.
        OVERRUN OFFSET(11) NUMBITS(1) [],
    ],
    /// The state of the UART (3.3.3).
    pub Flags [
        /// The UART is sending, or has bytes to send.
        BUSY OFFSET(3) NUMBITS(1) [],
        /// The receive FIFO is empty.
        RECEIVE_EMPTY OFFSET(4) NUMBITS(1) [],
        /// The transmit FIFO is full.
        TRANSMIT_FULL OFFSET(5) NUMBITS(1) [],
    ],
    /// The format of a byte on the line (3.3.7).
    pub(super) LineControl [
        /// The FIFOs are on; otherwise there is room for one byte.
        FIFOS OFFSET(4) NUMBITS(1) [],
        /// The number of bits in a byte.
        WORD_LENGTH OFFSET(5) NUMBITS(2) [
            /// 8 bits.
            Eight = 3
        ],
    ],
    /// The enable bits (3.3.8).
    pub(super) Control [
        /// Enables the UART.
        ENABLE OFFSET(0) NUMBITS(1) [],
        /// Enables the transmitter.
        TRANSMIT OFFSET(8) NUMBITS(1) [],
        /// Enables the receiver.
        RECEIVE OFFSET(9) NUMBITS(1) [],
    ],
    /// The causes of interrupts (3.3.10, 3.3.13).
    pub Interrupts [
        /// The receive FIFO has reached its threshold.
        RECEIVE OFFSET(4) NUMBITS(1) [],
        /// Bytes are in the FIFO, but fewer than its threshold.
        RECEIVE_TIMEOUT OFFSET(6) NUMBITS(1) [],
        /// All causes.
        ALL OFFSET(0) NUMBITS(11) [],
    ],
}

register_structs! {
    /// The registers (3.2).
    pub Pl011 {
        (0x000 => pub data: ReadWrite<u32, Data::Register>),
        (0x004 => _reserved0),
        (0x018 => pub flags: ReadOnly<u32, Flags::Register>),
        (0x01c => _reserved1),
        /// The divisor of the clock: the integer part, then the fraction in 64ths.
        (0x024 => pub(super) divisor: ReadWrite<u32>),
        (0x028 => pub(super) divisor_fraction: ReadWrite<u32>),
        (0x02c => pub(super) line_control: ReadWrite<u32, LineControl::Register>),
        (0x030 => pub(super) control: ReadWrite<u32, Control::Register>),
        (0x034 => _reserved2),
        (0x038 => pub interrupt_mask: ReadWrite<u32, Interrupts::Register>),
        (0x03c => _reserved3),
        (0x044 => pub interrupt_clear: WriteOnly<u32, Interrupts::Register>),
        (0x048 => _reserved4),
        (0xfe0 => pub(super) peripheral_id: [ReadOnly<u32>; 4]),
        (0xff0 => pub(super) component_id: [ReadOnly<u32>; 4]),
        (0x1000 => @END),
    }
}
