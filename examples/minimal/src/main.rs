//! The smallest kernel that can be probed: one CPU, the MMU off, without tasks and interrupts, on QEMU's `virt`
//! machine, or on its `raspi3b`.
//!
//! The code for probes is in the module `probes`, in the lines of this file that end in `// probes`, and in the lines
//! of `minimal.ld` that end in a comment `probes`.

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod kernel {
    use core::alloc::{GlobalAlloc, Layout};
    use core::arch::{asm, global_asm};
    use core::fmt::{self, Write};
    use core::hint::black_box;
    use core::panic::PanicInfo;
    use core::sync::atomic::{AtomicUsize, Ordering};

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
        ".rept 11",
        ".balign 128",
        "b unexpected",
        ".endr",
    );

    #[cfg(feature = "raspi3b")]
    global_asm!(include_str!("../../raspi3b.S"));

    #[unsafe(no_mangle)]
    extern "C" fn main() -> ! {
        probes::run(); // probes
        println(format_args!("the sum is {}", sum(black_box(4))));
        power_off()
    }

    /// Returns 1 + 2 + … + `n`.
    #[inline(never)]
    #[unsafe(link_section = "probed")] // probes
    pub extern "C" fn sum(n: u64) -> u64 {
        if n == 0 { 0 } else { n + black_box(sum(black_box(n - 1))) }
    }

    #[unsafe(no_mangle)]
    extern "C" fn unexpected() -> ! {
        let (esr, elr): (u64, u64);
        // SAFETY: reads two system registers, and has no other effect.
        unsafe { asm!("mrs {}, esr_el1", "mrs {}, elr_el1", out(reg) esr, out(reg) elr) };
        panic!("exception {esr:#x} at {elr:#x}")
    }

    /// The address of the PL011's data register.
    const UART: usize = if cfg!(feature = "raspi3b") { 0x3f20_1000 } else { 0x900_0000 };

    struct Uart;

    impl Write for Uart {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            // SAFETY: writes the data register of the PL011, which is always ready for a byte in QEMU.
            text.bytes().for_each(|byte| unsafe { (UART as *mut u32).write_volatile(byte.into()) });
            Ok(())
        }
    }

    pub fn println(text: fmt::Arguments<'_>) {
        let _ = writeln!(Uart, "{text}");
    }

    fn power_off() -> ! {
        if cfg!(feature = "raspi3b") {
            // SAFETY: registers of the watchdog: a reset, with the boot partition that means to stay off.
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
        println(format_args!("{info}"));
        power_off()
    }

    /// A heap that never frees memory.
    struct Heap;

    const HEAP_SIZE: usize = 1 << 20;
    #[repr(align(4096))]
    struct Memory([AtomicUsize; HEAP_SIZE / 8]);
    static MEMORY: Memory = Memory([const { AtomicUsize::new(0) }; HEAP_SIZE / 8]);

    #[global_allocator]
    static HEAP: Heap = Heap;

    // SAFETY: each call takes a range of the array that no other call gets, because `USED` only grows.
    unsafe impl GlobalAlloc for Heap {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            static USED: AtomicUsize = AtomicUsize::new(0);
            let memory = (&raw const MEMORY.0).cast::<u8>().cast_mut();
            let start = |used: usize| (memory.addr() + used).next_multiple_of(layout.align()) - memory.addr();
            let fits = |used: usize| Some(start(used) + layout.size()).filter(|&end| end <= HEAP_SIZE);
            match USED.try_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
                Ok(used) => memory.wrapping_add(start(used)),
                Err(_) => core::ptr::null_mut(),
            }
        }
        unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
    }
}

#[cfg(target_os = "none")]
mod probes {
    use core::hint::black_box;
    use core::ops::Range;

    use aarch64_kprobes::platform::Platform;
    use aarch64_kprobes::{Call, Context, Hit, Kprobe, Kretprobe};

    use crate::kernel::{println, sum};

    unsafe extern "C" {
        safe static __text_start: u8;
        safe static __text_end: u8;
        safe static __probed_start: u8;
        safe static __probed_end: u8;
    }

    struct Minimal;
    aarch64_kprobes::platform!(Minimal);

    // SAFETY: the vector leads to the engine. The defaults fit a kernel with one CPU, without interrupts, and with the
    // MMU off.
    unsafe impl Platform for Minimal {
        fn text() -> Range<usize> {
            &raw const __text_start as usize..&raw const __text_end as usize
        }
        fn function(address: usize) -> Option<Range<usize>> {
            let probed = &raw const __probed_start as usize..&raw const __probed_end as usize;
            probed.contains(&address).then_some(probed)
        }
    }

    extern "C" fn entered(hit: &mut Hit<'_>) {
        println(format_args!("sum({})", hit.frame().x[0]));
    }

    extern "C" fn returned(call: &mut Call<'_>) {
        println(format_args!("sum returns {}", call.return_value()));
    }

    pub fn run() {
        static CONTEXT: Context = Context::new();
        // SAFETY: this is the only CPU, and nothing else uses TPIDR_EL1.
        unsafe { CONTEXT.install(0) };
        let address = sum as *const () as usize;
        let kprobe = Kprobe::at(address).pre(entered).register().unwrap_or_else(|error| panic!("{error}"));
        let kretprobe = Kretprobe::at(address).handler(returned).register().unwrap_or_else(|error| panic!("{error}"));
        sum(black_box(3));
        println(format_args!("{} hits, {} returns", kprobe.hits(), kretprobe.hits()));
    }
}

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("this runs on QEMU's virt machine: see examples/minimal/README.md");
}
