//! Return probes: from the entry of a function to its return, in one task.
//!
//! At the entry x30 holds the return address. It is put into an instance, and `kretprobe_trampoline` into x30
//! in its place; or `kretprobe_lean`, where the probe has code for its returns. The instances of the calls that a task is in are in
//! a list of its own, newest first, which is changed only by the task itself; calls on one stack end in the opposite order of their
//! beginning, so the one that returns is nearly always found in front.
//!
//! *Which* calls end with a return is told by the stack pointer, which is the same at the entry of a function
//! and after its return (AAPCS64, section 6.4.5.1). Several instances share it when a function has several
//! return probes, or leaves by a tail call to another probed function; then all but the oldest hold the address
//! of the trampoline as what they found in x30, and all of them end at once.
//!
//! Newer instances than those are of two kinds:
//!
//! - A call that began lower on the same stack was abandoned, as by a handler that has moved the pc out of a function:
//!   nothing will ever return to it. It is missed, and its instance given back.
//! - A call on another stack of the task, as a fiber has one, is still to return. [`stack`](crate::platform::Platform::stack)
//!   tells; where it does not know, every call is taken to be of this kind.
//!
//! A return whose stack pointer is that of no call comes from a function that does not restore it. The newest call of its
//! stack is taken to have returned: the task goes on at the true return address, no handler is told of values that may be
//! those of another call, and the call counts as missed.
//!
//! The usual entry is dealt with by `follower`, in front of the stub, or in `trampoline/hit.S`, and the usual return in
//! `trampoline/kretprobe.S`: they do what is done here where little is to be done.

use core::fmt;
use core::marker::PhantomData;
use core::mem::{self, offset_of};
use core::ptr;
use core::sync::atomic::Ordering::Relaxed;

use super::Hit;
use super::counters::Counters;
use super::cpu::Cpu;
use super::instance::{Instance, Pool, Slot};
use super::list::List;
use super::place::Place;
use super::point::{Kind, Point, Watcher};
use super::{table, trampoline};
use crate::atomic::{AtomicPtr, AtomicU64};
use crate::exception::TrapFrame;
use crate::platform;
use crate::probe::aliasable::AliasableBox;

/// What an entry handler wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Decision {
    /// This call is followed to its return.
    Follow,
    /// This call is of no interest: its return is not reported, and nothing is counted.
    Decline,
}

called_by_assembly! {
    /// Called at the entry of the function, before its first instruction.
    pub type EntryHandler = fn(&mut Call<'_>) -> Decision;
}
called_by_assembly! {
    /// Called when the function has returned, before its caller goes on.
    pub type ReturnHandler = fn(&mut Call<'_>);
}

/// A call of a return-probed function, at its entry or at its return.
#[derive(Debug)]
#[repr(transparent)]
pub struct Call<'a> {
    frame: TrapFrame,
    _frame: PhantomData<&'a mut TrapFrame>,
}

impl<'a> Call<'a> {
    /// From the address of a call, at which its [`TrapFrame`] is, to the word that the probe was registered with, as
    /// [`Entry::DATA`](super::entry::Entry::DATA) has it.
    pub const DATA: [u16; 3] =
        [offset_of!(TrapFrame, watcher) as u16, Instance::OWNER as u16, offset_of!(ReturnProbe, data) as u16];

    /// The call of `instance`, which is held by the caller, and not given back before this is gone.
    #[inline]
    fn new(frame: &'a mut TrapFrame, instance: &Instance) -> &'a mut Self {
        frame.watcher = ptr::from_ref(instance).expose_provenance() as u64;
        // SAFETY: it has the layout of a frame, and the borrow of the frame goes over to it.
        unsafe { &mut *ptr::from_mut(frame).cast::<Self>() }
    }

    #[inline]
    fn instance(&self) -> &'a Instance {
        let place: *const Instance = ptr::with_exposed_provenance(self.frame.watcher as usize);
        // SAFETY: the routine that calls a handler stores the address there, and holds the instance until the handler returns.
        unsafe { &*place }
    }

    /// The registers: at the entry those that the function is called with, at the return those it returns with. But where it has
    /// ended in another function, the return of which is dealt with by a [`Snippet`](crate::probe::Snippet), x9 to x17 and the
    /// flags are what that has left, as after any call.
    #[inline]
    #[must_use]
    pub fn frame(&self) -> &TrapFrame {
        &self.frame
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
        &mut self.frame
    }

    /// The virtual address of the function.
    #[inline]
    #[must_use]
    pub fn function(&self) -> usize {
        self.instance().owner().function
    }

    /// The virtual address that the function returns to; at the entry of a function that was reached by a tail
    /// call from another return-probed one, that of the trampoline.
    #[inline]
    #[must_use]
    pub fn return_address(&self) -> usize {
        self.instance().return_address.load(Relaxed) as usize
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
        self.instance().owner().data
    }

    /// Reads the instance as its only holder: the model fails if another thread holds it.
    #[cfg(all(test, loom))]
    pub(crate) fn exclusive(&self) {
        self.instance().return_address.exclusive();
    }

    /// The private words of this call: zero at the entry, and at the return what the entry handler left.
    #[inline]
    #[must_use]
    pub fn instance_data(&self) -> &[u64] {
        let instance = self.instance();
        // SAFETY: the instance is held for this call, which is borrowed as long as the reference is used.
        unsafe { &*instance.owner().pool.data(instance) }
    }

    /// The same words, to be changed.
    #[inline]
    #[must_use]
    pub fn instance_data_mut(&mut self) -> &mut [u64] {
        let instance = self.instance();
        // SAFETY: the instance is held for this call, which is borrowed mutably as long as the reference is used.
        unsafe { &mut *instance.owner().pool.data(instance) }
    }
}

/// What a return probe has beyond a probe.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ReturnProbe {
    pool: Pool,
    /// The [`ReturnHandler`]; null when the probe is being unregistered: calls in progress return without a handler.
    handler: AtomicPtr<()>,
    /// Counts the returns.
    counters: Counters,
    function: usize,
    data: usize,
    entry: Option<EntryHandler>,
    /// The virtual address of what `kretprobe_lean` does with a call: code of the probe, or what leaves it to the trampoline.
    code: AtomicU64,
}

impl ReturnProbe {
    // For the assembly.
    #[cfg(target_os = "none")]
    pub(super) const HANDLER: usize = offset_of!(Self, handler);
    #[cfg(target_os = "none")]
    pub(super) const COUNTERS: usize = offset_of!(Self, counters);
    #[cfg(target_os = "none")]
    pub(super) const CODE: usize = offset_of!(Self, code);

    /// The probe on the returns of the function at the virtual address `function`, with the instances of `pool`.
    pub(crate) fn new(
        function: usize,
        entry: Option<EntryHandler>,
        handler: Option<ReturnHandler>,
        pool: Pool,
    ) -> Self {
        let handler = AtomicPtr::new(handler.unwrap_or(call_nobody) as *mut ());
        let code = AtomicU64::new(trampoline::lean_unusual_address());
        Self { pool, handler, counters: Counters::NOBODY, function, data: 0, entry, code }
    }

    /// Has the returns counted by `counters`, and `data` given to the handlers.
    pub(crate) fn register(owned: &mut AliasableBox<Self>, counters: Counters, data: usize) {
        // SAFETY: the box is borrowed alone, and no instance leads to the probe yet.
        let probe = unsafe { owned.place().as_mut() };
        (probe.counters, probe.data) = (counters, data);
        owned.pool.adopt(owned.place());
    }

    /// Has the code at the virtual address `code` deal with returns. It begins and ends as `kretprobe_lean` has it.
    pub(crate) fn set_code(&self, code: usize) {
        self.code.store(code as u64, Relaxed);
    }

    /// Where a function returns to that was entered with nothing else to do but to follow the call.
    pub(crate) fn trampoline(&self) -> u64 {
        if self.code.load(Relaxed) == trampoline::lean_unusual_address() {
            trampoline::kretprobe_address()
        } else {
            trampoline::kretprobe_lean_address()
        }
    }

    /// Calls in progress return without a handler, and without code, from now on.
    pub(crate) fn retire(&self) {
        self.handler.store(ptr::null_mut(), Relaxed);
        self.code.store(trampoline::lean_leave_address(), Relaxed);
    }

    /// Whether nothing is to be done at an entry but to take an instance.
    pub(crate) fn is_plain(&self) -> bool {
        self.entry.is_none() && self.pool.data_words() == 0
    }

    /// Where a CPU finds an instance: the slots of its pool.
    pub(crate) fn slots(&self) -> *const Slot {
        self.pool.slots()
    }

    /// How many calls are in progress.
    pub(crate) fn active(&self) -> u32 {
        self.pool.taken()
    }

    /// Takes an instance, if there is one, or counts that a call is missed.
    #[inline]
    fn take(&self, cpu: &Cpu) -> Option<&Instance> {
        let instance = self.pool.take(cpu);
        if instance.is_none() {
            self.counters.miss(cpu);
        }
        instance
    }
}

called_by_assembly! {
    /// The handler of a probe that has none.
    fn call_nobody(_: &mut Call<'_>) {}
}

/// The calls of return-probed functions that a task is in: what the engine keeps in each task.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct TaskCalls(List);

#[cfg(not(all(test, loom)))]
impl TaskCalls {
    /// Those of a task that has not run yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(List::new())
    }
}

/// There is a hit with `return_address` in x30, after which several instances will be in the list, or none that is new: what is
/// there by then is older.
#[inline]
pub(super) fn note(return_address: u64) {
    if trampoline::is_kretprobe(return_address)
        && let Some(newest) = platform::calls().0.iter().next()
    {
        newest.hit.store(Instance::OLDER, Relaxed);
    }
}

called_by_assembly! {
    /// The pre-handler of a return probe that is alone at its point: the function has been entered.
    #[inline(never)]
    pub(crate) fn function_entered(hit: &mut Hit<'_>) {
        if !follow(hit, Instance::ALONE) {
            note(hit.frame.x[30]);
        }
    }
}

called_by_assembly! {
    /// The pre-handler of a return probe with others at its point.
    #[inline(never)]
    pub(crate) fn function_entered_among_others(hit: &mut Hit<'_>) {
        follow(hit, Instance::AMONG_OTHERS);
    }
}

/// Bytes that a stub makes room for which only follows calls.
pub(crate) const FOLLOW_SIZE: usize = 48;

/// A function that is to be followed has been entered, with `return_address` in x30, where that was not usual, or there was no
/// instance in the slot of this CPU. Returns what x30 is to be.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".kprobes.text.entered")]
extern "C" fn kprobes_entered(point: Option<&Point>, return_address: u64, stack_pointer: u64) -> u64 {
    // It may have been disarmed just now.
    let Some(point) = point else { return return_address };
    let cpu = Cpu::current();
    // Other probes may have been armed since the CPU came to the stub. Those that want something of the entry wait for the next hit.
    let plain = || {
        point.watchers().iter().filter_map(|watcher| match &watcher.probe.kind {
            Kind::Return(probe) if probe.is_plain() => Some(probe),
            _ => None,
        })
    };
    let mut rest = plain();
    let (first, is_alone) = (rest.next(), rest.next().is_none());
    if first.is_none() || cpu.is_handling() {
        point.miss(cpu);
        return return_address;
    }
    if !is_alone {
        note(return_address);
    }
    let mut link = return_address;
    for probe in plain() {
        let Some(instance) = probe.take(cpu) else {
            if is_alone {
                note(return_address);
            }
            continue;
        };
        instance.return_address.store(link, Relaxed);
        begin(instance, if is_alone { Instance::ALONE } else { Instance::AMONG_OTHERS }, stack_pointer);
        link = if is_alone { probe.trampoline() } else { trampoline::kretprobe_address() };
    }
    link
}

/// Follows the call that has begun with `hit` to its return, unless the entry handler declines, or there is no instance.
#[inline(always)]
fn follow(hit: &mut Hit<'_>, kind: u64) -> bool {
    let probe = Watcher::of(hit).probe;
    let Kind::Return(probe) = &probe.kind else { return false };
    let cpu = Cpu::current();
    let frame = &mut hit.frame;
    let Some(instance) = probe.take(cpu) else { return false };
    instance.return_address.store(frame.x[30], Relaxed);
    if let Some(handler) = probe.entry {
        let watcher = frame.watcher;
        let decision = handler(Call::new(frame, instance));
        // The rest of the hit is not one of the call alone.
        frame.watcher = watcher;
        if decision == Decision::Decline {
            probe.pool.give_back(cpu, instance);
            return false;
        }
        instance.return_address.store(frame.x[30], Relaxed);
    }
    begin(instance, kind, frame.sp);
    frame.x[30] = trampoline::kretprobe_address();
    true
}

/// Makes `instance`, which has its return address, the one of the newest call of the task.
#[inline]
fn begin(instance: &Instance, kind: u64, stack_pointer: u64) {
    instance.stack_pointer.store(stack_pointer, Relaxed);
    instance.hit.store(kind, Relaxed);
    platform::calls().0.push(instance);
}

/// The instruction at the virtual address `address` has faulted in its slot, or where it was simulated. Where it is the
/// first of a function, that has not been entered yet: undoes what [`function_entered`] has done in this hit.
pub(super) fn take_back(address: usize, frame: &mut TrapFrame) {
    if !trampoline::is_kretprobe(frame.x[30]) {
        return;
    }
    // SAFETY: this is the hit path.
    let Some(point) = (unsafe { table::lookup(address) }) else { return };
    let calls = &platform::calls().0;
    let cpu = Cpu::current();
    while let Some(call) = calls.iter().next() {
        let hit = call.hit.load(Relaxed);
        let is_of_this_hit = hit != Instance::OLDER
            && call.stack_pointer.load(Relaxed) == frame.sp
            && point.watchers().iter().any(|watcher| watcher.probe.is(call.owner()));
        if !is_of_this_hit {
            return;
        }
        frame.x[30] = call.return_address.load(Relaxed);
        calls.take(call, |_| true);
        call.owner().pool.give_back(cpu, call);
        if hit == Instance::ALONE || !trampoline::is_kretprobe(frame.x[30]) {
            return;
        }
    }
}

/// A return in a task of which no call is known: there is no address to go on at.
struct Lost {
    stack_pointer: u64,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a function has returned to kretprobe_trampoline with sp {:#x}, and no return address is known for it",
            self.stack_pointer
        )
    }
}

called_by_assembly! {
    /// A probed function has returned: called by `kretprobe_trampoline` with all registers as it left them, on
    /// which the caller goes on.
    #[unsafe(no_mangle)]
    #[unsafe(link_section = ".kprobes.text.function_returned")]
    pub(crate) fn kprobes_function_returned(frame: &mut TrapFrame) {
        let stack_pointer = frame.sp;
        let calls = &platform::calls().0;
        let place = Place::of(stack_pointer);
        let Some(last) = place.returned(calls) else { platform::fatal(frame, &Lost { stack_pointer }) };
        let return_address = last.return_address.load(Relaxed);
        let entered_with = last.stack_pointer.load(Relaxed);
        let has_ended = |call: &Instance| {
            let pointer = call.stack_pointer.load(Relaxed);
            pointer == entered_with || pointer < stack_pointer && place.is_on_its_stack(pointer)
        };
        // As a RET leaves them.
        frame.set_interrupted(return_address);
        frame.x[30] = return_address;
        let cpu = Cpu::current();
        cpu.enter();
        for call in calls.take(last, has_ended).iter() {
            let probe = call.owner();
            if call.stack_pointer.load(Relaxed) == stack_pointer {
                call.return_address.store(return_address, Relaxed);
                report(cpu, call, frame);
            } else {
                probe.counters.miss(cpu);
            }
            probe.pool.give_back(cpu, call);
        }
        cpu.leave();
    }
}

/// Calls the handler of a return probe, for a call that has returned.
#[inline]
fn report(cpu: &Cpu, call: &Instance, frame: &mut TrapFrame) {
    let probe = call.owner();
    let handler = probe.handler.load(Relaxed);
    if handler.is_null() {
        return;
    }
    // SAFETY: `new` has stored such a function, and nothing else is stored but null.
    let handler = unsafe { mem::transmute::<*mut (), ReturnHandler>(handler) };
    probe.counters.hit(cpu);
    handler(Call::new(frame, call));
}

/// A call has returned, and this CPU's slot is full: the rest of [`Pool::give_back`].
#[unsafe(no_mangle)]
#[unsafe(link_section = ".kprobes.text.recycle")]
extern "C" fn kprobes_recycle(call: &Instance) {
    call.owner().pool.push(call);
}

/// The calls of a task will never return. Their instances are recycled, and counted as missed.
///
/// Not inlined, as it has to lie where nothing can be probed.
///
/// # Safety
///
/// Interrupts are masked, and the task does not run again.
#[inline(never)]
pub(crate) unsafe fn task_exited(calls: &TaskCalls) {
    let cpu = Cpu::current();
    for call in calls.0.take_all().iter() {
        let probe = call.owner();
        probe.counters.miss(cpu);
        probe.pool.give_back(cpu, call);
    }
}

/// The true return address of a call in progress, where its frame shows a trampoline: that of the call that began
/// with a stack pointer of at least `floor`, on the same stack. Not inlined, for the reason of [`task_exited`].
///
/// # Safety
///
/// Interrupts are masked. The task of `calls` runs on this CPU, or on none until this returns.
#[inline(never)]
pub(crate) unsafe fn true_return_address(calls: &TaskCalls, floor: u64) -> Option<u64> {
    Place::of(floor).true_return_address(&calls.0)
}
