//! The registers, as declarations: public where they serve interrupts and FIFOs, which the kernel and the loader do in ways
//! of their own.
#![expect(missing_docs, reason = "the macros make constants to which no text can be given")]

use tock_registers::registers::{ReadOnly, ReadWrite, WriteOnly};
use tock_registers::{register_bitfields, register_structs};

register_bitfields! {
    u32,
    /// Data and receive errors (3.3.1).
    pub Data [
        /// What was received, or is to be sent.
        BYTE OFFSET(0) NUMBITS(8) [],
        /// The receive FIFO was full, and what came after this byte is lost.
        OVERRUN OFFSET(11) NUMBITS(1) [],
    ],
    /// What goes on (3.3.3).
    pub Flags [
        /// Something is being sent, or waits for it.
        BUSY OFFSET(3) NUMBITS(1) [],
        /// The receive FIFO is empty.
        RECEIVE_EMPTY OFFSET(4) NUMBITS(1) [],
        /// The transmit FIFO is full.
        TRANSMIT_FULL OFFSET(5) NUMBITS(1) [],
    ],
    /// How a byte looks on the line (3.3.7).
    pub(super) LineControl [
        /// There are FIFOs, and not only a byte of room.
        FIFOS OFFSET(4) NUMBITS(1) [],
        /// The bits of a byte.
        WORD_LENGTH OFFSET(5) NUMBITS(2) [
            /// 8 bits.
            Eight = 3
        ],
    ],
    /// What is switched on (3.3.8).
    pub(super) Control [
        /// The UART.
        ENABLE OFFSET(0) NUMBITS(1) [],
        /// Its transmitter.
        TRANSMIT OFFSET(8) NUMBITS(1) [],
        /// Its receiver.
        RECEIVE OFFSET(9) NUMBITS(1) [],
    ],
    /// Reasons for an interrupt (3.3.10, 3.3.13).
    pub Interrupts [
        /// The receive FIFO has reached its threshold.
        RECEIVE OFFSET(4) NUMBITS(1) [],
        /// Bytes wait in the FIFO, below its threshold.
        RECEIVE_TIMEOUT OFFSET(6) NUMBITS(1) [],
        /// All that there are.
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
        /// The divisor of the clock: its integer part, and 64ths.
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
