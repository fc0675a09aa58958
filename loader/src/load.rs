//! The loader's work, from the first byte on the UART to the jump to the kernel.

use core::arch::asm;

use aarch64_cpu::registers::{CNTFRQ_EL0, CNTPCT_EL0, Readable};
use kprobes_loader_protocol::{
    Command, ImageRefusal, Reply, Transfer,
    frame::{self, LONGEST, Piece, ROOM, Splitter},
    package,
    receiver::{Reaction, Receiver},
};

use crate::{
    board::{self, Board},
    place::{self, Memory},
    uart::Uart,
};

/// How often the last message is sent, because the host cannot ask for it again.
const LAST_WORDS: usize = 3;

unsafe extern "C" {
    /// Defined in start.S: restores the firmware's CPU state and jumps to the kernel.
    fn loader_leave(tree: u64, kernel: *const u8, control: u64, vectors: u64) -> !;
}

/// The state that the firmware left, which the kernel gets.
struct FirmwareState {
    /// The physical address of the device tree.
    tree: u64,
    /// SCTLR and VBAR of the current exception level.
    control: u64,
    vectors: u64,
}

/// The first Rust code, at the loader's link address and on its stack.
#[unsafe(no_mangle)]
extern "C" fn loader_main(tree: u64, control: u64, vectors: u64) -> ! {
    let Some(board) = Board::here() else { board::park() };
    // SAFETY: the board table says that a UART is there, and no other code runs.
    let mut uart = unsafe { Uart::at(board.uart) };
    // SAFETY: the board table says that the pin controller is there.
    unsafe { uart.initialize(board.pins) };
    uart.report(format_args!("loader: {}, exception level {}", board.name, exception_level()));
    // SAFETY: `loader_main` runs once for each start of the loader.
    let memory = unsafe { Memory::take() };
    Loader {
        receiver: Receiver::new(board.part, place::ROOM),
        uart,
        memory,
        state: FirmwareState { tree, control, vectors },
    }
    .run()
}

fn exception_level() -> u64 {
    let level: u64;
    // SAFETY: reading CurrentEL has no effect.
    unsafe { asm!("mrs {}, currentel", out(reg) level, options(nomem, nostack, preserves_flags)) };
    level >> 2
}

struct Loader {
    receiver: Receiver,
    uart: Uart,
    memory: Memory,
    state: FirmwareState,
}

impl Loader {
    fn run(mut self) -> ! {
        let mut splitter = Splitter::<LONGEST>::new();
        let mut announced = 0;
        loop {
            // The announcement reaches a host that begins to listen, or that has not noticed a reset of the board.
            let now = CNTPCT_EL0.get();
            if self.receiver.is_idle() && now >= announced {
                announced = now + CNTFRQ_EL0.get();
                self.say(&self.receiver.ready());
            }
            let Some(byte) = self.uart.receive() else { continue };
            match splitter.push::<Command>(byte) {
                Piece::Nothing => {}
                Piece::Message(command) => match self.receiver.command(&command, self.memory.packed) {
                    Reaction::Answer(reply) => self.say(&reply),
                    Reaction::Start(transfer) => self.start(&transfer),
                },
                // A single byte before a frame is noise.
                Piece::Text([] | [_]) => {}
                Piece::Text(_) => self.say(&self.receiver.garbage()),
            }
        }
    }

    fn say(&mut self, reply: &Reply) {
        if let Some(frame) = frame::encode(reply, &mut [0; ROOM]) {
            self.uart.send(frame);
        }
    }

    /// Unpacks the kernel and jumps to it. Returns if that is not possible.
    fn start(&mut self, transfer: &Transfer) {
        let id = transfer.id;
        self.say(&Reply::Unpacking { id });
        if let Err(refusal) = self.unpack(transfer) {
            let reply = self.receiver.refuse(id, refusal);
            return self.say(&reply);
        }
        for _ in 0..LAST_WORDS {
            self.say(&Reply::Started { id });
        }
        self.uart.finish();
        let FirmwareState { tree, control, vectors } = self.state;
        // SAFETY: `unpack` has written the whole image to memory and dropped its cache lines, and `state` is what the
        // firmware left of this CPU's state. No code of the loader runs after the jump.
        unsafe { loader_leave(tree, self.memory.kernel.as_ptr(), control, vectors) }
    }

    fn unpack(&mut self, transfer: &Transfer) -> Result<(), ImageRefusal> {
        place::check_device_tree(self.state.tree, transfer.length)?;
        let packed = self.memory.packed.get(..transfer.packed as usize).ok_or(ImageRefusal::NotUnpackable)?;
        package::unpack(transfer, packed, self.memory.kernel)?;
        self.memory.finish(transfer.length as usize);
        Ok(())
    }
}
