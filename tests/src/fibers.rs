//! Return probes on functions during which a task switches its stack, and on a function that does not restore the stack
//! pointer.

use core::cell::UnsafeCell;
use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use aarch64_kprobes::probe::Mode;
use aarch64_kprobes::{Call, Kprobe, Kretprobe, ProbeError};
use runtime::memory::stack::Stack;

use crate::test;

core::arch::global_asm!(
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../trampoline/preserved.S")),
    include_str!("fibers.S"),
);

unsafe extern "C" {
    fn fibers_switch(from: *const AtomicU64, to: u64);
    fn fibers_begin();
    safe fn fibers_call_push(argument: u64) -> u64;
    fn fibers_push();
    fn fibers_plain_push();
    fn fibers_adopt();
}

const FIBERS: usize = 3;

/// A stack that the kernel does not know. Its upper half is used, so that the bit of the stack pointer is set that the
/// vectors test.
#[repr(align(0x10000))]
struct Unknown(UnsafeCell<[u64; 0x10000 / 8]>);
// SAFETY: only one test uses it, in one task.
unsafe impl Sync for Unknown {}
static UNKNOWN: Unknown = Unknown(UnsafeCell::new([0; 0x10000 / 8]));

/// The stack pointers of the fibers that do not run, and of the task.
static FIBER: [AtomicU64; FIBERS] = [const { AtomicU64::new(0) }; FIBERS];
static TASK: AtomicU64 = AtomicU64::new(0);

/// The result of each fiber's calls.
static RETURNED: [AtomicU64; FIBERS] = [const { AtomicU64::new(0) }; FIBERS];
static SEEN: AtomicU64 = AtomicU64::new(0);

extern "C" fn add(call: &mut Call<'_>) {
    SEEN.fetch_add(call.return_value(), Relaxed);
}

/// Switches to the task before it returns.
#[inline(never)]
extern "C" fn inner(fiber: usize) -> u64 {
    // SAFETY: the task stored its stack pointer when it switched to this fiber.
    unsafe { fibers_switch(&raw const FIBER[fiber], TASK.load(Relaxed)) };
    black_box(fiber as u64 + 1)
}

/// Calls `inner`, and switches to the task before it returns.
#[inline(never)]
extern "C" fn outer(fiber: usize) -> u64 {
    let returned = inner(black_box(fiber)) * 10;
    // SAFETY: the task stored its stack pointer when it switched to this fiber.
    unsafe { fibers_switch(&raw const FIBER[fiber], TASK.load(Relaxed)) };
    black_box(returned)
}

extern "C" fn body(fiber: usize) {
    loop {
        RETURNED[fiber].store(outer(black_box(fiber)), Relaxed);
        // SAFETY: the task stored its stack pointer when it switched to this fiber.
        unsafe { fibers_switch(&raw const FIBER[fiber], TASK.load(Relaxed)) };
    }
}

/// Prepares a fiber that begins with `body`, on the stack that ends at `end`.
fn begin(fiber: usize, end: u64) {
    let registers = end - 96;
    for (offset, value) in [(0, fiber as u64), (8, body as *const () as u64), (88, fibers_begin as *const () as u64)] {
        // SAFETY: `end` is the end of a stack that nothing else uses, and the address is within it.
        unsafe { ((registers + offset) as *mut u64).write(value) };
    }
    FIBER[fiber].store(registers, Relaxed);
}

fn resume(fiber: usize) {
    // SAFETY: `begin` has prepared the fiber, and it does not run.
    unsafe { fibers_switch(&raw const TASK, FIBER[fiber].load(Relaxed)) };
}

test!(
    depends(cpus),
    fn calls_on_the_stacks_of_a_task_return_in_any_order() {
        let known = [Stack::allocate().unwrap(), Stack::allocate().unwrap()];
        let unknown = UNKNOWN.0.get().addr() + size_of::<Unknown>();
        let stacks = [known[0].range().end, unknown, known[1].range().end];
        (0..FIBERS).for_each(|fiber| begin(fiber, stacks[fiber] as u64));
        const ORDERS: [[usize; FIBERS]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        let mut turns = 0;
        for mode in [Mode::Optimized, Mode::Boosted] {
            let register =
                |address: *const ()| Kretprobe::at(address as usize).handler(add).at_most(mode).register().unwrap();
            let probes = [register(inner as *const ()), register(outer as *const ())];
            for turn in 0..6 * 6 * 6 {
                RETURNED.iter().for_each(|returned| returned.store(0, Relaxed));
                // The first turn enters both calls, the second leaves the inner one, and the third leaves the outer
                // one.
                for order in [turn, turn / 6, turn / 36] {
                    ORDERS[order % 6].into_iter().for_each(resume);
                }
                assert_eq!(RETURNED.each_ref().map(|returned| returned.load(Relaxed)), [10, 20, 30]);
                turns += 1;
            }
            let expected = 6 * 6 * 6 * FIBERS as u64;
            for probe in &probes {
                assert_eq!((probe.hits(), probe.missed(), probe.active()), (expected, 0, 0), "{mode}");
            }
        }
        assert_eq!(SEEN.load(Relaxed), turns * 66);
    }
);

test!(
    fn a_return_with_another_stack_pointer_goes_to_the_caller() {
        for mode in [Mode::Optimized, Mode::Boosted] {
            let register =
                |address: *const ()| Kretprobe::at(address as usize).handler(add).at_most(mode).register().unwrap();
            let pushes = register(fibers_push as *const ());
            let calls = register(fibers_call_push as *const ());
            for argument in 0..10 {
                assert_eq!(fibers_call_push(argument), argument + 1, "{mode}");
            }
            assert_eq!((pushes.hits(), pushes.missed(), pushes.active()), (0, 10, 0), "{mode}");
            assert_eq!((calls.hits(), calls.missed(), calls.active()), (10, 0, 0), "{mode}");
        }
    }
);

test!(
    fn a_return_probe_is_refused_where_the_stack_pointer_is_seen_to_move() {
        let address = fibers_plain_push as *const () as usize;
        let refused = Kretprobe::at(address).register().map(drop);
        assert_eq!(refused, Err(ProbeError::MovesStack { address, moved: -32 }));
    }
);

test!(
    fn a_return_probe_is_refused_where_the_task_is_seen_to_change() {
        let address = fibers_adopt as *const () as usize;
        let refused = Kretprobe::at(address).register().map(drop);
        assert_eq!(refused, Err(ProbeError::ChangesTask { address, writer: address + 4 }));
        assert!(Kprobe::at(address).register().is_ok());
    }
);
