//! A program with a hit path of three functions, the last of which breaks a rule of the audit. `--cfg planted="…"` says
//! which rule. The tests of the audit compile and link the program for the target, and audit it.

#![no_std]
#![no_main]

extern crate alloc;

use alloc::alloc::{GlobalAlloc, Layout};
use core::hint::black_box;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

struct NoMemory;

// SAFETY: `alloc` always returns null, which means that there is no memory. So `dealloc` is never called.
unsafe impl GlobalAlloc for NoMemory {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static ALLOCATOR: NoMemory = NoMemory;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}

static COUNTER: AtomicU64 = AtomicU64::new(0);
/// Exported, so that the compiler cannot assume that nothing else stores to it.
#[unsafe(no_mangle)]
pub static LOCKED: AtomicBool = AtomicBool::new(false);
#[allow(dead_code)]
static TABLE: [u64; 5] = [2, 3, 5, 7, 11];

/// The root.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".kprobes.text.planted_root")]
pub extern "C" fn planted_root(argument: u64) -> u64 {
    middle(argument) + 1
}

/// Counts, as the hit path does.
#[inline(never)]
#[unsafe(link_section = ".kprobes.text.middle")]
fn middle(argument: u64) -> u64 {
    COUNTER.fetch_add(1, Ordering::Relaxed);
    culprit(argument) + 1
}

#[inline(never)]
#[unsafe(link_section = ".kprobes.text.culprit")]
fn culprit(argument: u64) -> u64 {
    #[cfg(any(planted = "nothing", planted = "forgotten", planted = "handler"))]
    return argument + 1;

    #[cfg(planted = "allocation")]
    return *black_box(alloc::boxed::Box::new(argument));

    #[cfg(planted = "indexing")]
    return TABLE[black_box(argument) as usize];

    #[cfg(planted = "expectation")]
    return black_box(Some(argument)).expect("there is one");

    #[cfg(planted = "probeable")]
    return core::str::from_utf8(&black_box(argument).to_le_bytes()).map_or(0, |text| text.len() as u64);

    #[cfg(planted = "pointer")]
    return black_box(callee as fn(u64) -> u64)(argument) + 1;

    #[cfg(planted = "vtable")]
    return black_box::<&dyn Fn() -> u64>(&|| argument)() + 1;

    #[cfg(planted = "floating")]
    {
        let result: u64;
        // SAFETY: fmov d0, x0 and fmov x0, d0, as words, since the target has no floating point. They change no
        // register but x0 and d0, which the compiler does not use.
        unsafe { core::arch::asm!(".inst 0x9e670000", ".inst 0x9e660000", inout("x0") argument => result) };
        return result;
    }

    #[cfg(planted = "status")]
    {
        let result: u64;
        // SAFETY: mrs x0, fpsr, as a word, which changes only x0.
        unsafe { core::arch::asm!(".inst 0xd53b4420", out("x0") result) };
        return result + argument;
    }

    #[cfg(planted = "lock")]
    {
        while LOCKED.swap(true, Ordering::Acquire) {}
        let result = black_box(argument);
        LOCKED.store(false, Ordering::Release);
        return result;
    }

    #[cfg(planted = "waiting")]
    {
        while LOCKED.load(Ordering::Relaxed) {}
        return argument;
    }

    #[cfg(planted = "stack")]
    {
        let mut memory = core::mem::MaybeUninit::<[u64; 512]>::uninit();
        return black_box(&mut memory).as_ptr() as u64 + argument;
    }

    #[cfg(planted = "recursion")]
    return if argument == 0 { 0 } else { middle(argument - 1) + 1 };

    #[cfg(planted = "trap")]
    {
        // SAFETY: a breakpoint exception, in a program that is never run.
        unsafe { core::arch::asm!("brk #1") };
        return argument;
    }
}

#[allow(dead_code)]
#[inline(never)]
#[unsafe(link_section = ".kprobes.text.callee")]
fn callee(argument: u64) -> u64 {
    black_box(argument)
}

/// In the region, and not reached from any root.
#[cfg(planted = "forgotten")]
#[unsafe(no_mangle)]
#[unsafe(link_section = ".kprobes.text.forgotten")]
pub extern "C" fn planted_forgotten() {}

/// Among the handlers, which the engine calls.
#[cfg(planted = "handler")]
#[unsafe(no_mangle)]
#[unsafe(link_section = ".kprobes.text.handlers.planted_handler")]
pub extern "C" fn planted_handler(argument: usize) -> u64 {
    TABLE[argument]
}
