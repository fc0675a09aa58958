//! The firmware's mailbox, and the properties that it reports (Raspberry Pi firmware documentation, "Mailbox property
//! interface").
//!
//! **What the firmware sees.** The firmware reads and writes the message in memory, not in this CPU's caches. So the
//! message is cleaned to the point of coherency and dropped from the caches before it is handed over. It is dropped
//! again before the answer is read, because a line of it may have been fetched meanwhile (Arm ARM, D7.5.9). No other
//! data shares its cache writeback granule, whose maximum is 2 KiB (CTR_EL0.CWG; Arm ARM, D24.2.37), so nothing is
//! written back over the answer. The barriers of the maintenance also complete it before the mailbox is written, and
//! before memory is read.

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use tock_registers::interfaces::{Readable, Writeable};
use tock_registers::registers::{ReadOnly, WriteOnly};
use tock_registers::{register_bitfields, register_structs};

use crate::memory::{self, MapError, Mmio};
use crate::time;

register_bitfields! {
    u32,
    Status [
        EMPTY OFFSET(30) NUMBITS(1) [],
        FULL OFFSET(31) NUMBITS(1) [],
    ],
}

register_structs! {
    Registers {
        /// Messages from the firmware.
        (0x00 => read: ReadOnly<u32>),
        (0x04 => _reserved0),
        (0x18 => read_status: ReadOnly<u32, Status::Register>),
        (0x1c => _reserved1),
        /// Messages to the firmware.
        (0x20 => write: WriteOnly<u32>),
        (0x24 => _reserved2),
        (0x38 => write_status: ReadOnly<u32, Status::Register>),
        (0x3c => @END),
    }
}

/// The property channel, in the low four bits of a mailbox word. The other bits are an address.
const PROPERTIES: u32 = 8;
/// The bus address at which the firmware sees the RAM of the Arm cores past its own caches, and the size of that
/// window.
const BUS_BASE: u32 = 0xc000_0000;
const BUS_SIZE: u64 = 0x4000_0000;
/// The tag that asks for the frequency of a clock in Hz, and the number of the first PL011's clock.
const GET_CLOCK_RATE: u32 = 0x0003_0002;
const UART_CLOCK: u32 = 2;
/// The bits in an answer that say that the request succeeded, and that this tag was answered.
const SUCCESS: u32 = 0x8000_0000;
const ANSWERED: u32 = 1 << 31;
/// How long the firmware may take to answer.
const PATIENCE: Duration = Duration::from_millis(100);

const WORDS: usize = 8;

#[repr(C, align(2048))]
struct Message([AtomicU32; WORDS]);

static MESSAGE: Message = Message([const { AtomicU32::new(0) }; WORDS]);

/// The mailbox. Only the boot CPU uses it, before other CPUs run.
pub(super) struct Mailbox(Mmio<Registers>);

impl Mailbox {
    pub(super) fn map(registers: &device_tree::RegisterBlock) -> Result<Self, MapError> {
        // SAFETY: the device tree says that the mailbox has its registers there.
        Ok(Self(unsafe { Mmio::map(registers.address)? }))
    }

    /// Returns the frequency in Hz of the first PL011's clock, or `None` if the firmware does not tell it.
    pub(super) fn uart_clock(&self) -> Option<u32> {
        let size = size_of_val(&MESSAGE.0) as u32;
        // Size, request code; tag, size of the value buffer, request code, value; end tag.
        let request = [size, 0, GET_CLOCK_RATE, 8, 0, UART_CLOCK, 0, 0];
        let answer = self.exchange(request)?;
        let answered = answer[1] == SUCCESS && answer[4] & ANSWERED != 0 && answer[5] == UART_CLOCK;
        Some(answer[6]).filter(|rate| answered && *rate != 0)
    }

    /// Hands a message to the firmware and returns the answer, or `None` if it takes too long.
    fn exchange(&self, request: [u32; WORDS]) -> Option<[u32; WORDS]> {
        let address = (&raw const MESSAGE).addr();
        let physical = memory::translate(address).filter(|physical| *physical < BUS_SIZE)?;
        let letter = BUS_BASE | physical as u32 | PROPERTIES;
        let deadline = time::counter().saturating_add(time::ticks(PATIENCE));
        let in_time = || time::counter() < deadline;
        // Discards answers to earlier requests.
        while !self.0.read_status.is_set(Status::EMPTY) && in_time() {
            self.0.read.get();
        }
        for (word, value) in MESSAGE.0.iter().zip(request) {
            word.store(value, Ordering::Relaxed);
        }
        memory::clean_to_coherency(address, size_of::<Message>());
        while self.0.write_status.is_set(Status::FULL) {
            in_time().then_some(())?;
        }
        self.0.write.set(letter);
        while self.0.read_status.is_set(Status::EMPTY) || self.0.read.get() != letter {
            in_time().then_some(())?;
        }
        memory::clean_to_coherency(address, size_of::<Message>());
        Some(core::array::from_fn(|index| MESSAGE.0[index].load(Ordering::Relaxed)))
    }
}
