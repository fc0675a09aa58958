//! A kernel with only a UART and a heap that has the whole console: one CPU, identity-mapped, without tasks and
//! interrupts, on QEMU's `virt` machine, or on its `raspi3b`.
//!
//! The code for the console is in the module `probes`, in the lines of this file that end in `// probes`, and in the
//! lines of `console.ld` that end in a comment `probes`.

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod kernel {
    use core::arch::{asm, global_asm};
    use core::fmt::{self, Write};
    use core::hint::black_box;
    use core::panic::PanicInfo;

    use talc::cell::TalcSyncCell;
    use talc::source::Claim;
    use talc::{DefaultBinning, TalcCell};

    use crate::probes; // probes

    global_asm!(
        ".section .text.start, \"ax\"",
        ".global start",
        "start:",
        "adrp x0, stack_end",
        "add x0, x0, :lo12:stack_end",
        "mov sp, x0",
        "adrp x0, vectors",
        "add x0, x0, :lo12:vectors",
        "msr vbar_el1, x0",
        // Maps the devices and the memory.
        "adrp x0, tables",
        "add x0, x0, :lo12:tables",
        "msr ttbr0_el1, x0",
        "mov x0, #0xff00",
        "msr mair_el1, x0",
        "ldr x0, =0x100803519",
        "msr tcr_el1, x0",
        "isb",
        "mrs x0, sctlr_el1",
        "mov x1, #0x1005",
        "orr x0, x0, x1",
        "msr sctlr_el1, x0",
        "isb",
        "msr daifclr, #0b1111", // probes
        "b main",
        // The fifth vector is for synchronous exceptions from EL1.
        ".balign 2048",
        "vectors:",
        ".rept 4",
        ".balign 128",
        "b unexpected",
        ".endr",
        ".balign 128",
        "b kprobes_vector",                                  // probes
        ".global kprobes_host_vector; kprobes_host_vector:", // probes
        "b unexpected",
        ".type kprobes_host_vector, function; .size kprobes_host_vector, . - kprobes_host_vector", // probes
        ".rept 11",
        ".balign 128",
        "b unexpected",
        ".endr",
    );

    // The devices are in the first GiB, the memory in the second.
    #[cfg(not(feature = "raspi3b"))]
    global_asm!(
        ".section .rodata.tables, \"a\"",
        ".balign 4096",
        ".global tables",
        "tables:",
        ".quad 0x0060000000000401, 0x0000000040000705",
        ".balign 4096, 0",
    );

    // The devices are in the last 16 MiB of the first GiB, the memory before them.
    #[cfg(feature = "raspi3b")]
    global_asm!(
        ".section .rodata.tables, \"a\"",
        ".balign 4096",
        ".global tables",
        "tables:",
        ".quad level_2 + 0b11",
        ".balign 4096, 0",
        "level_2:",
        ".set address, 0",
        ".rept 504",
        ".quad 0x0000000000000705 + address",
        ".set address, address + 0x200000",
        ".endr",
        ".rept 8",
        ".quad 0x0060000000000401 + address",
        ".set address, address + 0x200000",
        ".endr",
    );

    #[cfg(feature = "raspi3b")]
    global_asm!(include_str!("../../raspi3b.S"));

    #[unsafe(no_mangle)]
    extern "C" fn main() -> ! {
        probes::run() // probes
    }

    /// Code to trace.
    pub mod shop {
        use core::hint::black_box;

        /// A customer.
        #[derive(Debug)]
        pub struct Customer {
            pub number: u32,
            pub pays: Payment,
        }

        #[derive(Clone, Copy, Debug)]
        pub enum Payment {
            Cash,
            Card,
        }

        /// Returns the price of `count` pieces, in cents.
        #[inline(never)]
        pub fn price(customer: &Customer, count: u64) -> u64 {
            let Customer { number, pays } = black_box(customer);
            let discount = u64::from(matches!(pays, Payment::Cash) && *number > 0);
            black_box(count * 250 - discount * count)
        }

        /// Serves `customers` customers, and returns what they paid, in cents.
        #[inline(never)]
        pub fn open(customers: u32) -> u64 {
            let pays = |number: u32| if number.is_multiple_of(3) { Payment::Cash } else { Payment::Card };
            (0..customers).map(|number| price(&Customer { number, pays: pays(number) }, u64::from(number % 4))).sum()
        }
    }

    /// The PL011's registers, as an array of words.
    const UART: *mut u32 = if cfg!(feature = "raspi3b") { 0x3f20_1000 } else { 0x900_0000 } as *mut u32;
    const FLAGS: usize = 6;
    const RECEIVE_EMPTY: u32 = 1 << 4;

    pub struct Uart;

    impl Uart {
        pub fn read(&self) -> Option<u8> {
            // SAFETY: reads the flag register of the UART, and its data register only if it has a byte. Both are mapped
            // as device memory.
            unsafe {
                let is_empty = UART.add(FLAGS).read_volatile() & RECEIVE_EMPTY != 0;
                (!is_empty).then(|| UART.read_volatile() as u8)
            }
        }
    }

    impl Write for Uart {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            for byte in text.bytes() {
                if byte == b'\n' {
                    self.write_char('\r')?;
                }
                // SAFETY: writes the data register of the UART, which is mapped as device memory. QEMU's UART is always
                // ready for a byte.
                unsafe { UART.write_volatile(byte.into()) };
            }
            Ok(())
        }
    }

    #[unsafe(no_mangle)]
    extern "C" fn unexpected() -> ! {
        let (esr, elr, far): (u64, u64, u64);
        // SAFETY: reads three system registers, and has no other effect.
        unsafe {
            asm!("mrs {}, esr_el1", "mrs {}, elr_el1", "mrs {}, far_el1", out(reg) esr, out(reg) elr, out(reg) far)
        };
        panic!("exception {esr:#x} at {elr:#x}, address {far:#x}")
    }

    pub fn power_off() -> ! {
        if cfg!(feature = "raspi3b") {
            // SAFETY: registers of the watchdog, which are mapped as device memory: a reset, with the boot partition
            // that means to stay off.
            unsafe {
                (0x3f10_0020 as *mut u32).write_volatile(0x5a00_0555);
                (0x3f10_001c as *mut u32).write_volatile(0x5a00_0020);
            }
            loop {
                core::hint::spin_loop();
            }
        }
        // SAFETY: the hypervisor call is SYSTEM_OFF of PSCI, which does not return.
        unsafe { asm!("hvc #0", in("x0") 0x8400_0008_u64, options(noreturn)) }
    }

    #[panic_handler]
    fn panic(info: &PanicInfo<'_>) -> ! {
        let _ = writeln!(Uart, "{info}");
        power_off()
    }

    const HEAP_SIZE: usize = 16 << 20;
    static mut HEAP: [u8; HEAP_SIZE] = [0; HEAP_SIZE];

    #[global_allocator]
    // SAFETY: only this allocator uses the array. There is one CPU without interrupts, and no handler of a probe
    // allocates.
    static ALLOCATOR: TalcSyncCell<Claim, DefaultBinning> =
        unsafe { TalcSyncCell::new(TalcCell::new(Claim::array(&raw mut HEAP))) };

    /// Opens the shop, and prints the total.
    pub fn open(customers: u32) {
        let _ = writeln!(Uart, "{} cents", shop::open(black_box(customers)));
    }
}

#[cfg(target_os = "none")]
mod probes {
    use core::fmt::{self, Write};
    use core::ops::Range;

    use aarch64_kprobes::Context;
    use aarch64_kprobes::platform::Platform;
    use kprobes_console::command::Command;
    use kprobes_console::{Host, symbol};

    use crate::kernel::{self, Uart};

    unsafe extern "C" {
        safe static __text_start: u8;
        safe static __text_end: u8;
    }

    struct Kernel;
    aarch64_kprobes::platform!(Kernel);
    kprobes_trace::context_layout!(Kernel);

    // SAFETY: the vector leads to the engine. The defaults fit a kernel with one CPU, without interrupts, and with
    // writable text.
    unsafe impl Platform for Kernel {
        fn text() -> Range<usize> {
            &raw const __text_start as usize..&raw const __text_end as usize
        }
        fn function(address: usize) -> Option<Range<usize>> {
            symbol::function(address)
        }
        fn has_data(addresses: Range<usize>) -> bool {
            symbol::has_data(addresses)
        }
        fn survey() -> &'static [u8] {
            symbol::survey()
        }
    }

    // SAFETY: `run` sets TPIDR_EL1 to the address of a `Context` before the first probe can be hit.
    unsafe impl kprobes_trace::context::ContextLayout for Kernel {}

    // SAFETY: the default `masked` sets PSTATE.DAIF, which masks all interrupts. The only CPU has number 0.
    unsafe impl Host for Kernel {
        fn write(&self, text: fmt::Arguments<'_>) {
            let _ = Uart.write_fmt(text);
        }
        fn read(&self) -> Option<u8> {
            Uart.read()
        }
    }

    static COMMANDS: [Command; 2] = [
        Command::new("open", "[N]", "serve N customers", |_, words| {
            let customers = words.number(10, 1_000_000)?;
            words.end()?;
            kernel::open(customers as u32);
            Ok(())
        }),
        Command::new("poweroff", "", "switch the machine off", |_, _| kernel::power_off()),
    ];

    pub fn run() -> ! {
        static CONTEXT: Context = Context::of_task(1, "kernel");
        // SAFETY: this is the only CPU, and nothing else uses TPIDR_EL1.
        unsafe { CONTEXT.install(0) };
        kprobes_console::init(&Kernel);
        kprobes_console::run(&COMMANDS)
    }
}

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("this runs on QEMU's virt machine: see examples/console/README.md");
}
