//! Return probes: from the entry of a function to its return, in one task.
//!
//! At the entry x30 holds the return address. It is put into an instance, and `kretprobe_trampoline` into x30
//! in its place. The instances of the calls in progress are in a hash table by task, newest first; calls of a
//! task end in the opposite order of their beginning, so the one that returns is found in front.
//!
//! *Which* calls end with a return is told by the stack pointer, which is the same at the entry of a function
//! and after its return (AAPCS64, section 6.4.5.1). Several instances share it when a function has several
//! return probes, or leaves by a tail call to another probed function; then all but the oldest hold the address
//! of the trampoline as what they found in x30, and all of them end at once. Instances in front of those
//! belong to calls that were abandoned, as by a handler that has moved the pc out of a function: nothing will
//! ever return to them.

use core::cell::UnsafeCell;
use core::fmt;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::Hit;
use super::cpu::Cpu;
use super::instance::{Instance, Pool};
use super::list::{List, Wanted};
use super::point::{Kind, Probe, Watcher};
use super::trampoline;
use crate::atomic::{AtomicBool, spin_loop};
use crate::exception::TrapFrame;
use crate::platform;

/// What an entry handler wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// This call is followed to its return.
    Follow,
    /// This call is of no interest: its return is not reported, and nothing is counted.
    Decline,
}

/// Called at the entry of the function, before its first instruction.
pub type EntryHandler = fn(&mut Call<'_>) -> Decision;
/// Called when the function has returned, before its caller goes on.
pub type ReturnHandler = fn(&mut Call<'_>);

/// A call of a return-probed function, at its entry or at its return.
#[derive(Debug)]
pub struct Call<'a> {
    frame: &'a mut TrapFrame,
    function: usize,
    return_address: usize,
    data: usize,
    instance_data: &'a mut [u64],
}

impl Call<'_> {
    /// The registers: at the entry those that the function is called with, at the return those it returns with.
    #[inline]
    #[must_use]
    pub fn frame(&self) -> &TrapFrame {
        self.frame
    }

    /// The registers, to be changed. At the entry, x30 still holds the return address, and is replaced after
    /// the handler; a new value is where the function will return to.
    ///
    /// # Safety
    ///
    /// The function, or its caller, goes on with what is written here: it must be something that it can go on
    /// with.
    #[inline]
    pub unsafe fn frame_mut(&mut self) -> &mut TrapFrame {
        self.frame.written = 1;
        self.frame
    }

    /// The virtual address of the function.
    #[inline]
    #[must_use]
    pub fn function(&self) -> usize {
        self.function
    }

    /// The virtual address that the function returns to; at the entry of a function that was reached by a tail
    /// call from another return-probed one, that of `kretprobe_trampoline`.
    #[inline]
    #[must_use]
    pub fn return_address(&self) -> usize {
        self.return_address
    }

    /// What the function returns, if it is an integer or a pointer: x0.
    #[inline]
    #[must_use]
    pub fn return_value(&self) -> u64 {
        self.frame.x[0]
    }

    /// The word that the probe was registered with.
    #[inline]
    #[must_use]
    pub fn data(&self) -> usize {
        self.data
    }

    /// The private words of this call: zero at the entry, and at the return what the entry handler left.
    #[inline]
    #[must_use]
    pub fn instance_data(&mut self) -> &mut [u64] {
        self.instance_data
    }
}

/// What a return probe has beyond a probe.
#[derive(Debug)]
pub(crate) struct ReturnProbe {
    pub(crate) function: usize,
    pub(crate) entry: Option<EntryHandler>,
    pub(crate) handler: Option<ReturnHandler>,
    pub(crate) pool: Pool,
    /// The probe is being unregistered: calls in progress return without a handler.
    pub(crate) retired: AtomicBool,
}

/// In models two: the tasks there have the same.
const BUCKETS: usize = if cfg!(all(test, loom)) { 2 } else { 256 };

/// The calls in progress of the tasks that have this bucket's hash, newest first.
///
/// The lock is taken only with interrupts masked, in the hit path or by [`with_bucket`], and held across no
/// handler: whoever waits for it waits for another CPU that is in a few dozen instructions. Each has a cache line of its
/// own, so that tasks on several CPUs do not meet unless they have the same hash.
#[repr(align(64))]
struct Bucket {
    locked: AtomicBool,
    calls: UnsafeCell<List>,
}

// SAFETY: `calls`, and the links of the instances in it, are reached only with `locked` held.
unsafe impl Sync for Bucket {}

#[cfg(not(all(test, loom)))]
static TABLE: [Bucket; BUCKETS] =
    [const { Bucket { locked: AtomicBool::new(false), calls: UnsafeCell::new(List::new()) } }; BUCKETS];
#[cfg(all(test, loom))]
kprobes_models::loom::lazy_static! {
    static ref TABLE: [Bucket; BUCKETS] =
        [(); BUCKETS].map(|()| Bucket { locked: AtomicBool::new(false), calls: UnsafeCell::new(List::new()) });
}

/// Calls `f` with the list of the bucket of `task`. To be called with interrupts masked.
#[inline]
fn with_bucket<R>(task: u64, f: impl FnOnce(&mut List) -> R) -> R {
    // Tasks have small numbers, or addresses: the lower bits of the one and the next of the other spread.
    let hash = task ^ task >> 8;
    let bucket = &TABLE[hash as usize % BUCKETS];
    while bucket.locked.compare_exchange_weak(false, true, Acquire, Relaxed).is_err() {
        spin_loop();
    }
    // SAFETY: the lock is held, so this is the only reference.
    let result = f(unsafe { &mut *bucket.calls.get() });
    bucket.locked.store(false, Release);
    result
}

/// Calls `f` with each instance of `list`, which may give it back, and the probe that it is an instance of.
#[inline]
fn for_each(list: &List, mut f: impl FnMut(&Instance, &Probe, &ReturnProbe)) {
    for instance in list.iter() {
        // SAFETY: a probe is freed only when none of its instances is taken.
        let probe = unsafe { &*instance.probe.load(Relaxed) };
        if let Kind::Return(return_probe) = &probe.kind {
            f(instance, probe, return_probe);
        }
    }
}

/// The pre-handler of a return probe: a probed function has been entered.
#[inline(never)]
pub(crate) fn function_entered(hit: &mut Hit<'_>) {
    let probe = &*Watcher::of(hit).probe;
    let Kind::Return(return_probe) = &probe.kind else { return };
    let cpu = Cpu::current();
    let frame = &mut hit.frame;
    let Some(instance) = return_probe.pool.take(cpu) else { return probe.counters.miss(cpu) };
    if let Some(handler) = return_probe.entry {
        let mut call = Call {
            function: return_probe.function,
            return_address: frame.x[30] as usize,
            data: probe.data,
            // SAFETY: the instance has just been taken, and the reference ends with the call of the handler.
            instance_data: unsafe { return_probe.pool.data(instance) },
            frame,
        };
        if handler(&mut call) == Decision::Decline {
            return return_probe.pool.give_back(cpu, instance);
        }
    }
    let task = platform::task();
    instance.task.store(task, Relaxed);
    instance.stack_pointer.store(frame.sp, Relaxed);
    instance.return_address.store(frame.x[30], Relaxed);
    instance.probe.store(ptr::from_ref(probe).cast_mut(), Relaxed);
    frame.x[30] = trampoline::kretprobe_address();
    with_bucket(task, |calls| calls.push(instance));
}

/// The first instruction of the function at `function` has faulted, so that the function has not been entered yet: undoes
/// what [`function_entered`] has done in this hit.
pub(super) fn take_back(function: usize, frame: &mut TrapFrame) {
    if frame.x[30] != trampoline::kretprobe_address() {
        return;
    }
    let task = platform::task();
    let stack_pointer = frame.sp;
    let mut return_address = None;
    // The newest calls of the task are those of this hit, one of each probe. Another of the first one's probe is older: the
    // function has come back to its beginning by a tail call.
    let mut first: *mut Probe = ptr::null_mut();
    let mut is_over = false;
    let taken = with_bucket(task, |calls| {
        calls.take(|call| {
            if is_over || !call.belongs_to(task) {
                return Wanted::No;
            }
            let probe = call.probe.load(Relaxed);
            // SAFETY: a probe is freed only when none of its instances is taken.
            let is_here = matches!(unsafe { &(*probe).kind }, Kind::Return(probe) if probe.function == function);
            is_over = !is_here || probe == first || call.stack_pointer.load(Relaxed) != stack_pointer;
            if is_over {
                return Wanted::No;
            }
            if first.is_null() {
                first = probe;
            }
            return_address = Some(call.return_address.load(Relaxed));
            Wanted::Yes
        })
    });
    if let Some(return_address) = return_address {
        frame.x[30] = return_address;
    }
    let cpu = Cpu::current();
    for_each(&taken, |instance, _, return_probe| return_probe.pool.give_back(cpu, instance));
}

/// A return that no instance knows of: there is no address to go on at.
struct Lost {
    task: u64,
    stack_pointer: u64,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "task {} has returned to kretprobe_trampoline with sp {:#x}, and no return address is known for it",
            self.task, self.stack_pointer
        )
    }
}

/// A probed function has returned: called by `kretprobe_trampoline` with all registers as it left them, on
/// which the caller goes on.
#[unsafe(no_mangle)]
extern "C" fn kprobes_function_returned(frame: &mut TrapFrame) {
    function_returned(frame);
}

#[inline(always)]
pub(crate) fn function_returned(frame: &mut TrapFrame) {
    let task = platform::task();
    let stack_pointer = frame.sp;
    let ended = with_bucket(task, |calls| {
        // The usual return ends the newest call of the bucket, and no other.
        let is_usual = |call: &Instance| {
            call.belongs_to(task)
                && call.stack_pointer.load(Relaxed) == stack_pointer
                && call.return_address.load(Relaxed) != trampoline::kretprobe_address()
        };
        calls.pop_if(is_usual)
    });
    let cpu = Cpu::current();
    let Some(instance) = ended else { return several_returned(cpu, task, frame) };
    let return_address = instance.return_address.load(Relaxed);
    go_on_at(return_address, frame);
    // SAFETY: a probe is freed only when none of its instances is taken.
    let probe = unsafe { &*instance.probe.load(Relaxed) };
    let Kind::Return(return_probe) = &probe.kind else { return };
    cpu.enter();
    call_handler(cpu, (probe, return_probe), instance, return_address, frame);
    return_probe.pool.give_back(cpu, instance);
    cpu.leave();
}

/// The same where calls of several probes end, or calls that were abandoned are in front of the one that does.
#[inline(never)]
fn several_returned(cpu: &Cpu, task: u64, frame: &mut TrapFrame) {
    let stack_pointer = frame.sp;
    let mut return_address = None;
    let ended = with_bucket(task, |calls| {
        if !calls.iter().any(|call| call.belongs_to(task) && call.stack_pointer.load(Relaxed) == stack_pointer) {
            return List::new();
        }
        calls.take(|call| {
            let address = call.return_address.load(Relaxed);
            if !call.belongs_to(task) {
                Wanted::No
            } else if call.stack_pointer.load(Relaxed) == stack_pointer && address != trampoline::kretprobe_address() {
                return_address = Some(address);
                Wanted::Last
            } else {
                Wanted::Yes
            }
        })
    });
    let Some(return_address) = return_address else { platform::fatal(frame, &Lost { task, stack_pointer }) };
    go_on_at(return_address, frame);
    cpu.enter();
    for_each(&ended, |instance, probe, return_probe| {
        if instance.stack_pointer.load(Relaxed) != stack_pointer {
            probe.counters.miss(cpu);
        } else {
            call_handler(cpu, (probe, return_probe), instance, return_address, frame);
        }
        return_probe.pool.give_back(cpu, instance);
    });
    cpu.leave();
}

/// Has execution resume at the virtual address `return_address`, with the registers as a RET leaves them.
#[inline]
fn go_on_at(return_address: u64, frame: &mut TrapFrame) {
    frame.pc = return_address;
    frame.x[30] = return_address;
    frame.record[1] = return_address;
}

/// Calls the handler of a return probe, for a call that has returned, whose instance is in no list any more.
#[inline]
fn call_handler(
    cpu: &Cpu,
    (probe, return_probe): (&Probe, &ReturnProbe),
    instance: &Instance,
    return_address: u64,
    frame: &mut TrapFrame,
) {
    if return_probe.retired.load(Relaxed) {
        return;
    }
    probe.counters.hit(cpu);
    if let Some(handler) = return_probe.handler {
        handler(&mut Call {
            function: return_probe.function,
            return_address: return_address as usize,
            data: probe.data,
            // SAFETY: the instance is in no list, so it is held here, and the reference ends with the call of the handler.
            instance_data: unsafe { return_probe.pool.data(instance) },
            frame,
        });
    }
}

/// The calls of `task` will never return. Their instances are recycled, and counted as missed. To be called
/// with interrupts masked.
///
/// Not inlined, since callers outside this region could be probed while the lock is held.
#[inline(never)]
pub(crate) fn task_exited(task: u64) {
    let abandoned =
        with_bucket(task, |calls| calls.take(|call| if call.belongs_to(task) { Wanted::Yes } else { Wanted::No }));
    let cpu = Cpu::current();
    for_each(&abandoned, |instance, probe, return_probe| {
        probe.counters.miss(cpu);
        return_probe.pool.give_back(cpu, instance);
    });
}

/// The true return address of a call in progress of `task`, where its frame shows `kretprobe_trampoline`:
/// that of the newest call that began with a stack pointer of at least `floor`. To be called with interrupts
/// masked. Not inlined, for the reason of [`task_exited`].
#[inline(never)]
pub(crate) fn true_return_address(task: u64, floor: u64) -> Option<u64> {
    with_bucket(task, |calls| {
        calls
            .iter()
            .filter(|call| call.belongs_to(task) && call.stack_pointer.load(Relaxed) >= floor)
            .map(|call| call.return_address.load(Relaxed))
            .find(|&address| address != trampoline::kretprobe_address())
    })
}
