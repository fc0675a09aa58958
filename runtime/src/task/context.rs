//! The registers of a task that is not running, and the switch between two tasks (`trampoline/context.S`).

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::offset_of;
use core::ptr;

use super::Task;

/// The registers that a procedure call preserves (AAPCS64, section 6.1.1). A switch is a call, so no other register
/// lives across it.
///
/// There is no SIMD and floating-point state, because the image is built without it. The interrupt masks are not part
/// of it either: a switch happens with interrupts masked, and each task restores its own masks on its way out.
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

// SAFETY: the switch away from the task writes the registers and the switch to it reads them; the scheduler's locks
// order the two. `read` may race with a switch; its callers take the values as a hint.
unsafe impl Sync for ContextCell {}

unsafe extern "C" {
    /// Saves the registers in the context of the task `from`, loads those of the task `to`, and makes `to` the current
    /// task.
    fn context_switch(from: *const c_void, to: *const c_void);
    /// The entry point of a new task. Not a function to call.
    fn context_first_entry();
}

core::arch::global_asm!(
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../trampoline/preserved.S")),
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../trampoline/context.S")),
    TASK_CONTEXT = const offset_of!(Task, context),
    CONTEXT_SP = const offset_of!(Context, stack_pointer),
);

impl ContextCell {
    /// Creates the context of a task that is running. The first switch away from the task fills it.
    pub const fn running() -> Self {
        Self(UnsafeCell::new(Context { callee_saved: [0; 10], frame_pointer: 0, link: 0, stack_pointer: 0 }))
    }

    /// Creates the context of a task that has yet to run, on a stack that ends at the address `top`, exclusive.
    pub fn new(top: usize) -> Self {
        Self(UnsafeCell::new(Context {
            callee_saved: [0; 10],
            frame_pointer: 0,
            link: context_first_entry as *const () as u64,
            stack_pointer: top as u64,
        }))
    }

    /// Returns the registers as they were saved last. They are valid only while the task does not run.
    pub fn read(&self) -> Context {
        // SAFETY: the context holds plain integers that are always initialized. If the task is switched meanwhile, the
        // values may be torn; the walk that starts from them checks every address.
        unsafe { self.0.get().read_volatile() }
    }
}

/// Switches from the current task to `to`. Returns when the current task is switched to again.
///
/// # Safety
///
/// Interrupts are masked. `from` is the current task. `to` is not running on any CPU, and its context is complete. `to`
/// and its stack live until it is switched away from.
pub unsafe fn switch(from: &Task, to: &Task) {
    // SAFETY: the caller guarantees the state of both tasks (see # Safety). TASK_CONTEXT tells the assembly where their
    // contexts lie.
    unsafe { context_switch(ptr::from_ref(from).cast(), ptr::from_ref(to).cast()) }
}
