//! The registers of a task that is not running, and the switch between two tasks (`trampoline/context.S`).

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::offset_of;
use core::ptr;

use super::Task;

/// What a procedure call preserves (AAPCS64, section 6.1.1): a switch is a call, so nothing else lives across it.
///
/// There is no SIMD and floating-point state: the image is built without. The interrupt masks are not part of it
/// either: a switch happens with interrupts masked, and each task restores, on its own way out, what it had.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// x19 to x28.
    callee_saved: [u64; 10],
    /// x29: the frame record of the function that switched.
    pub frame_pointer: u64,
    /// x30: where the switch returns to.
    pub link: u64,
    stack_pointer: u64,
}

/// The saved registers of a task. They belong to the scheduler; backtraces read them.
pub struct ContextCell(UnsafeCell<Context>);

// SAFETY: written by the switch away from the task and read by the switch to it, which the scheduler keeps apart;
// others read them, of a task that does not run, by `read`, and take what they see as a hint.
unsafe impl Sync for ContextCell {}

unsafe extern "C" {
    /// Saves the registers in the context of the task `from`, takes those of the task `to`, and makes that the
    /// current task.
    fn context_switch(from: *const c_void, to: *const c_void);
    /// Where a new task begins; not a function to call.
    fn context_first_entry();
}

core::arch::global_asm!(
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../trampoline/preserved.S")),
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../trampoline/context.S")),
    TASK_CONTEXT = const offset_of!(Task, context),
    CONTEXT_SP = const offset_of!(Context, stack_pointer),
);

impl ContextCell {
    /// Of a task that is running: the first switch away from it fills it.
    pub const fn running() -> Self {
        Self(UnsafeCell::new(Context { callee_saved: [0; 10], frame_pointer: 0, link: 0, stack_pointer: 0 }))
    }

    /// Of a task that has yet to run, on a stack whose highest address is `top`.
    pub fn new(top: usize) -> Self {
        Self(UnsafeCell::new(Context {
            callee_saved: [0; 10],
            frame_pointer: 0,
            link: context_first_entry as *const () as u64,
            stack_pointer: top as u64,
        }))
    }

    /// The registers as they were saved last; of use only while the task does not run.
    pub fn read(&self) -> Context {
        // SAFETY: plain integers, always initialised. A task that is switched out meanwhile may tear them, and the
        // walk that starts from them checks every address.
        unsafe { self.0.get().read_volatile() }
    }
}

/// Switches from the current task to `to`; returns when the task is switched to again.
///
/// # Safety
///
/// Interrupts are masked. `from` is the current task. `to` is not running on any CPU, its context is complete, and
/// it and its stack stay until it is switched away from.
pub unsafe fn switch(from: &Task, to: &Task) {
    // SAFETY: the caller's promise; both contexts lie where the assembly is told by TASK_CONTEXT.
    unsafe { context_switch(ptr::from_ref(from).cast(), ptr::from_ref(to).cast()) }
}
