//! Return probes: from the entry of a function to its return, in one task.
//!
//! At the entry, x30 holds the return address. The hit there stores it in an instance, and puts into x30 the address of
//! `kretprobe_trampoline`, or of `kretprobe_lean` if the probe has code for its returns. The instances of the calls
//! that a task is in form a list of the task, newest first. Only the task itself changes it. On one stack, the newest
//! call ends first, so a call that returns is nearly always at the head.
//!
//! The stack pointer tells *which* calls a return ends: it is the same at the entry of a function and after its return
//! (AAPCS64, section 6.4.5.1). Several instances have the same stack pointer if a function has several return probes,
//! or leaves by a tail call to another probed function. All but the oldest of these have found the address of a
//! trampoline in x30, and all of them end at once.
//!
//! Newer instances than those are of two kinds:
//!
//! - A call that began lower on the same stack was abandoned, for example because a handler moved the pc out of a
//!   function: it will never return. It counts as missed, and its instance is given back.
//! - A call on another stack of the task, such as that of a fiber, will still return.
//!   [`stack`](crate::platform::Platform::stack) tells the two kinds apart. Where it does not know the stack, every
//!   call is taken to be of this kind.
//!
//! A return whose stack pointer belongs to no call comes from a function that does not restore its stack pointer. The
//! newest call of that stack is taken to have returned: the task goes on at the true return address, no handler sees
//! values that may belong to another call, and the call counts as missed.
//!
//! Once a CPU has been abandoned, no handler sees the returns on it. The calls of the task that it runs then count as
//! missed when they return.
//!
//! The simple entries are handled by `follower`, in front of the stub, or in `trampoline/hit.S`; the simple returns in
//! `trampoline/kretprobe.S`. They do what this module does in these cases.

use core::fmt;
use core::marker::PhantomData;
use core::mem::{self, offset_of};
use core::ptr;
use core::sync::atomic::Ordering::Relaxed;

use super::Hit;
use super::counters::Counters;
use super::cpu::Cpu;
use super::instance::{Instance, Pool};
use super::list::TaskCalls;
use super::point::{ArmedProbe, Handlers, Point};
use super::result::{self, ResultHandler};
use super::stack_position::StackPosition;
use super::{table, trampoline};
use crate::atomic::{AtomicPtr, AtomicU64};
use crate::exception::frame::TrapFrame;
use crate::insn::Registers;
use crate::kernel;
use crate::probe::Fallback;
use crate::probe::aliasable::AliasableBox;

/// The decision of an entry handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Decision {
    /// Follow this call to its return. If the handler sends the task elsewhere, and the function does not return, decline
    /// instead: a call that is followed and does not return takes up an instance until an older call on its stack
    /// returns, or the task ends.
    Follow,
    /// Do not follow this call: its return is not reported, and nothing is counted.
    Decline,
}

called_by_assembly! {
    /// Called at the entry of the function, before its first instruction. [`Hit`] says what a handler may do.
    pub type EntryHandler = fn(&mut Call<'_>) -> Decision;
}
called_by_assembly! {
    /// Called when the function has returned, before its caller continues. [`Hit`] says what a handler may do.
    pub type ReturnHandler = fn(&mut Call<'_>);
}

/// What is called when a function has returned.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Returned {
    /// No handler.
    Nothing,
    /// A handler that sees all registers, and may change them.
    Call(ReturnHandler),
    /// A handler that sees what a function returns.
    Result(ResultHandler),
}

/// A call of a return-probed function, at its entry or at its return.
#[derive(Debug)]
#[repr(transparent)]
pub struct Call<'a> {
    frame: TrapFrame,
    /// The pointer keeps it on its CPU: a call is neither `Send` nor `Sync`, because [`each_outer`](Self::each_outer)
    /// looks at the task that runs.
    _frame: PhantomData<(&'a mut TrapFrame, *mut ())>,
}

impl<'a> Call<'a> {
    /// Byte offsets that lead from the address of a `Call`, at which its [`TrapFrame`] lies, to the word that the probe
    /// was registered with, in the form of [`CallArguments::DATA`](super::arguments::CallArguments::DATA).
    #[doc(hidden)]
    pub const DATA: [u16; 3] =
        [offset_of!(TrapFrame, called_for) as u16, Instance::OWNER as u16, offset_of!(ReturnProbe, data) as u16];

    /// Makes the call of `instance`. The caller holds the instance, and gives it back only after the result is gone.
    #[inline]
    fn new(frame: &'a mut TrapFrame, instance: &Instance) -> &'a mut Self {
        frame.called_for = ptr::from_ref(instance).expose_provenance() as u64;
        // SAFETY: `Call` is `repr(transparent)` over `TrapFrame`, and the borrow of the frame passes to the result.
        unsafe { &mut *ptr::from_mut(frame).cast::<Self>() }
    }

    #[inline]
    pub(super) fn instance(&self) -> &'a Instance {
        let place: *const Instance = ptr::with_exposed_provenance(self.frame.called_for as usize);
        // SAFETY: the routine that calls a handler stores the address there, and holds the instance until the handler
        // returns.
        unsafe { &*place }
    }

    /// Returns the registers: at the entry, those that the function is called with; at the return, those that it
    /// returns with.
    ///
    /// If the function ended in a tail call, and a [`ResultHandler`](crate::probe::ResultHandler) or a
    /// [compiled](crate::probe::Mode::Compiled) probe has handled the return of the other function, x9 to x17 and the
    /// flags have the values that these left, as after any call.
    #[inline]
    #[must_use]
    pub fn frame(&self) -> &TrapFrame {
        &self.frame
    }

    /// Returns the registers, for modification. At the entry, x30 still holds the return address. A handler may change
    /// it, and the function then returns to the new address; the address of a trampoline is put there after the
    /// handler.
    ///
    /// # Safety
    ///
    /// The function, or its caller, continues with the values that are written here, and must be able to. Only
    /// `x`, `sp`, `pc` and `pstate` are written: a frame that was copied earlier is not put in the place of this one.
    #[inline]
    pub unsafe fn frame_mut(&mut self) -> &mut TrapFrame {
        self.frame.written = 1;
        &mut self.frame
    }

    /// Returns the virtual address of the function.
    #[inline]
    #[must_use]
    pub fn function(&self) -> usize {
        self.instance().owner().function
    }

    /// Returns the virtual address that the function returns to. At the entry of a function that was reached by a tail
    /// call from another return-probed function, it is the address of a trampoline.
    #[inline]
    #[must_use]
    pub fn return_address(&self) -> usize {
        self.instance().return_address.load(Relaxed) as usize
    }

    /// Returns x0, which is the function's result if that is an integer or a pointer.
    #[inline]
    #[must_use]
    pub fn return_value(&self) -> u64 {
        self.frame.x[0]
    }

    /// Returns the word that the probe was registered with.
    #[inline]
    #[must_use]
    pub fn data(&self) -> usize {
        self.instance().owner().data
    }

    /// Calls `act` for each call in progress of this task whose probe has the return handler `handler`, newest first.
    /// `act` gets the word that the probe was registered with, and returns whether to go on.
    ///
    /// At the entry of a function, these are the calls that contain it.
    #[inline(always)]
    pub fn each_outer(&self, handler: ReturnHandler, mut act: impl FnMut(usize) -> bool) {
        for instance in TaskCalls::current().0.iter() {
            let owner = instance.owner();
            if owner.handler.load(Relaxed) == handler as *mut () && !act(owner.data) {
                break;
            }
        }
    }

    /// Reads the instance as its only holder. The model fails if another thread holds it.
    #[cfg(all(test, loom))]
    pub(crate) fn exclusive(&self) {
        self.instance().return_address.exclusive();
    }

    /// Returns the private words of this call: zero at the entry, and at the return as the entry handler left them.
    #[inline]
    #[must_use]
    pub fn instance_data(&self) -> &[u64] {
        let instance = self.instance();
        // SAFETY: the instance is held for this call, which is borrowed as long as the reference exists.
        unsafe { &*instance.owner().pool.data(instance) }
    }

    /// Returns the private words of this call, for modification.
    #[inline]
    #[must_use]
    pub fn instance_data_mut(&mut self) -> &mut [u64] {
        let instance = self.instance();
        // SAFETY: the instance is held for this call, which is borrowed mutably as long as the reference exists.
        unsafe { &mut *instance.owner().pool.data(instance) }
    }
}

/// The part of a return probe that a kprobe does not have.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ReturnProbe {
    pool: Pool,
    /// The [`ReturnHandler`]; null while the probe is being unregistered, when calls in progress return without a
    /// handler.
    handler: AtomicPtr<()>,
    /// Counts the returns.
    counters: Counters,
    /// The handler that `kretprobe_result` calls.
    result: Option<ResultHandler>,
    function: usize,
    data: usize,
    entry: Option<EntryHandler>,
    /// Whether the bounds of the function came with the probe, so that less is known of the functions around it.
    is_given: bool,
    /// For listings: why all registers are saved at the return; `None` if they are not, or if the probe needs them.
    obstacle: Option<Fallback>,
    /// The places for the spares of `pool`, from [`register`](Self::register) on.
    spares: Counters,
    /// The virtual address of the probe's code, or of code that leaves the call to the trampoline. `kretprobe_lean`
    /// goes on at the address in the instance. That is this one, or
    ///
    /// - of code that leaves the call to the trampoline, after [`leave_to_handler`](Self::leave_to_handler);
    /// - of code that only returns, after [`retire`](Self::retire).
    usual: AtomicU64,
}

// The assembly loads these two as a pair.
const _: () = assert!(offset_of!(ReturnProbe, result) == offset_of!(ReturnProbe, counters) + 8);

impl ReturnProbe {
    // For the assembly: byte offsets.
    #[cfg(target_os = "none")]
    pub(super) const HANDLER: usize = offset_of!(Self, handler);
    #[cfg(target_os = "none")]
    pub(super) const COUNTERS: usize = offset_of!(Self, counters);

    /// Makes a probe on the returns of the function at the virtual address `function`, with the instances of `pool`.
    /// `is_given` says whether the probe comes with the bounds of the function.
    pub(crate) fn new(
        function: usize,
        entry: Option<EntryHandler>,
        handler: Returned,
        pool: Pool,
        is_given: bool,
    ) -> Self {
        let (handler, result): (ReturnHandler, _) = match handler {
            Returned::Nothing => (noop_handler, None),
            Returned::Call(handler) => (handler, None),
            Returned::Result(handler) => (result::call, Some(handler)),
        };
        let handler = AtomicPtr::new(handler as *mut ());
        let usual = AtomicU64::new(trampoline::lean_unusual_address());
        let (counters, spares, data, obstacle) = (Counters::SINK, Counters::SINK, 0, None);
        Self { pool, handler, counters, result, function, data, entry, is_given, obstacle, spares, usual }
    }

    /// Sets the counters of the returns, the places for spares, the word `data` that handlers get, and what listings
    /// show as the obstacle, and makes the instances the probe's.
    ///
    /// # Safety
    ///
    /// `spares` keeps the contract of [`Pool::set_spares`].
    pub(crate) unsafe fn register(
        owned: &mut AliasableBox<Self>,
        counters: Counters,
        spares: Counters,
        data: usize,
        obstacle: Option<Fallback>,
    ) {
        // SAFETY: the box is borrowed mutably, and no instance points to the probe yet.
        let probe = unsafe { owned.place().as_mut() };
        (probe.counters, probe.spares, probe.data, probe.obstacle) = (counters, spares, data, obstacle);
        // SAFETY: the caller guarantees what `spares` are (see # Safety).
        unsafe { probe.pool.set_spares(spares) };
        owned.pool.adopt(owned.place());
        TaskCalls::expect_calls();
    }

    /// Has the code at the virtual address `code` handle returns. `kretprobe_lean` defines how that code begins and
    /// ends.
    pub(crate) fn set_code(&self, code: u64) {
        self.usual.store(code, Relaxed);
        self.pool.set_code(code);
    }

    /// Leaves all returns to the handler from now on; or, if not `is_left`, has the code handle them again.
    pub(crate) fn leave_to_handler(&self, is_left: bool) {
        self.pool.set_code(if is_left { trampoline::lean_unusual_address() } else { self.usual.load(Relaxed) });
    }

    /// Returns whether the bounds of the function came with the probe.
    pub(crate) fn is_given(&self) -> bool {
        self.is_given
    }

    /// Returns why all registers are saved at the return; `None` if they are not, or if the probe needs them.
    pub(crate) fn obstacle(&self) -> Option<Fallback> {
        self.obstacle
    }

    /// Returns whether `kretprobe_lean` leads to the handler, which sees only results.
    pub(crate) fn leads_to_result(&self) -> bool {
        self.result.is_some() && self.usual.load(Relaxed) == trampoline::result_address()
    }

    /// Returns the address of the trampoline for a call, if the only thing to do at the entry was to follow the call.
    pub(crate) fn trampoline(&self) -> u64 {
        if self.usual.load(Relaxed) == trampoline::lean_unusual_address() {
            trampoline::kretprobe_address()
        } else {
            trampoline::kretprobe_lean_address()
        }
    }

    /// Makes calls in progress return without a handler and without code from now on. Calls may still begin, and have
    /// the trampoline that they had before: a caller may need the registers that `kretprobe_lean` uses.
    pub(crate) fn retire(&self) {
        self.handler.store(ptr::null_mut(), Relaxed);
        if self.usual.load(Relaxed) != trampoline::lean_unusual_address() {
            self.pool.set_code(trampoline::lean_leave_address(Registers::NONE));
        }
    }

    /// Returns the handler that is called with a [`CallResult`](super::result::CallResult), if the probe has one.
    #[inline]
    pub(crate) fn result(&self) -> Option<ResultHandler> {
        self.result
    }

    /// Returns the virtual address of the function.
    #[inline]
    pub(super) fn function(&self) -> usize {
        self.function
    }

    /// Returns the word that the probe was registered with.
    #[inline]
    pub(super) fn data(&self) -> usize {
        self.data
    }

    /// Returns whether the entry needs nothing but an instance: there is no entry handler, and no private data.
    pub(crate) fn is_plain(&self) -> bool {
        self.entry.is_none() && self.pool.data_words() == 0
    }

    /// Returns the places for the spares of the pool.
    pub(crate) fn spares(&self) -> Counters {
        self.spares
    }

    /// Returns the number of calls in progress.
    pub(crate) fn active(&self) -> u32 {
        self.pool.taken()
    }

    /// Takes an instance. If there is none, counts a missed call and returns `None`.
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
    /// The handler of a probe that has none: does nothing.
    fn noop_handler(_: &mut Call<'_>) {}
}

/// Marks the newest call as older than the current hit. To be called in a hit with `return_address` in x30 that puts
/// several instances into the list, or none, so that [`undo_entry`] does not mistake a call that was there before for
/// one of this hit.
#[inline]
pub(super) fn note(return_address: u64) {
    if trampoline::is_kretprobe(return_address)
        && let Some(newest) = TaskCalls::current().0.iter().next()
    {
        newest.hit.store(Instance::OLDER, Relaxed);
    }
}

called_by_assembly! {
    /// The pre-handler of a return probe that is the only probe of its point.
    #[inline(never)]
    pub(crate) fn function_entered(hit: &mut Hit<'_>) {
        if !follow(hit, Instance::ALONE) {
            note(hit.frame.x[30]);
        }
    }
}

called_by_assembly! {
    /// The pre-handler of a return probe that shares its point with other probes.
    #[inline(never)]
    pub(crate) fn function_entered_shared(hit: &mut Hit<'_>) {
        follow(hit, Instance::SHARED);
    }
}

/// Bytes of stack that a stub takes if it only follows calls.
pub(crate) const FOLLOW_SIZE: usize = 48;

/// Follows a call, in the cases that `kprobes_follow` does not handle: this CPU has no spare, a hit is being
/// handled, or the point has changed. `found` is what the cell of the point holds, and `return_address` the value of
/// x30. Returns the new value of x30.
///
/// # Safety
///
/// `found` was loaded from a cell of the table in this hit.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".kprobes.text.entered")]
pub(in crate::probe) unsafe extern "C" fn kprobes_entered(
    found: *mut Point,
    return_address: u64,
    stack_pointer: u64,
) -> u64 {
    // The instruction may just have been disarmed.
    // SAFETY: `found` was loaded from a cell (see # Safety).
    let Some(point) = (unsafe { table::point(found) }) else { return return_address };
    // SAFETY: a point is freed only after every CPU has been held outside the hit path since it was replaced, and
    // `found` was loaded in this hit (see # Safety).
    let point = unsafe { point.as_ref() };
    let cpu = Cpu::current();
    // Other probes may have been enabled since this CPU entered the stub. Those that need more at the entry wait for
    // the next hit, and do not miss this one.
    let plain = || {
        point.armed_probes().iter().filter_map(|armed| match &armed.probe.handlers {
            Handlers::Return(probe) if probe.is_plain() => Some(probe),
            _ => None,
        })
    };
    let mut rest = plain();
    let (first, is_alone) = (rest.next(), rest.next().is_none());
    if first.is_none() {
        return return_address;
    }
    if cpu.is_handling() {
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
        begin(instance, if is_alone { Instance::ALONE } else { Instance::SHARED }, stack_pointer);
        link = if is_alone { probe.trampoline() } else { trampoline::kretprobe_address() };
    }
    link
}

/// Follows the call that has begun with `hit` to its return. Returns false if the entry handler declines or no instance
/// is free.
#[inline(always)]
fn follow(hit: &mut Hit<'_>, kind: u64) -> bool {
    let probe = ArmedProbe::of(hit).probe;
    let Handlers::Return(probe) = &probe.handlers else { return false };
    let cpu = Cpu::current();
    let frame = &mut hit.frame;
    let Some(instance) = probe.take(cpu) else { return false };
    instance.return_address.store(frame.x[30], Relaxed);
    if let Some(handler) = probe.entry {
        let called_for = frame.called_for;
        let decision = handler(Call::new(frame, instance));
        // The handler ran with the call; the rest of the hit belongs to the armed probe again.
        frame.called_for = called_for;
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

/// Makes `instance`, whose return address is set, the newest call of the task.
#[inline]
fn begin(instance: &Instance, kind: u64, stack_pointer: u64) {
    instance.stack_pointer.store(stack_pointer, Relaxed);
    instance.hit.store(kind, Relaxed);
    TaskCalls::current().0.push(instance);
}

/// Undoes what [`function_entered`] has done in this hit, if the instruction at the virtual address `address` is the
/// first of a function and has faulted, in its slot or while it was simulated: the function has not been entered yet.
///
/// A call that found no free instance stays counted as missed, and is counted again if the kernel repairs the fault:
/// nothing in the task tells that this hit has counted it.
pub(super) fn undo_entry(address: usize, frame: &mut TrapFrame) {
    if !trampoline::is_kretprobe(frame.x[30]) {
        return;
    }
    // SAFETY: this is called in the hit path, and `point` is used only here.
    let Some(point) = (unsafe { table::lookup(address) }) else { return };
    let calls = &TaskCalls::current().0;
    let cpu = Cpu::current();
    while let Some(call) = calls.iter().next() {
        let hit = call.hit.load(Relaxed);
        let is_of_this_hit = hit != Instance::OLDER
            && call.stack_pointer.load(Relaxed) == frame.sp
            && point.armed_probes().iter().any(|armed| armed.probe.is(call.owner()));
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

/// A return in a task without a call in progress: there is no address to continue at.
struct Lost {
    stack_pointer: u64,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a function returned to kretprobe_trampoline with sp {:#x}, for which no return address is recorded",
            self.stack_pointer
        )
    }
}

called_by_assembly! {
    /// Handles the return of a probed function. `kretprobe_trampoline` calls it with all registers as the function left
    /// them; the caller continues with the registers in `frame`.
    #[unsafe(no_mangle)]
    #[unsafe(link_section = ".kprobes.text.function_returned")]
    pub(crate) fn kprobes_function_returned(frame: &mut TrapFrame) {
        let stack_pointer = frame.sp;
        let calls = &TaskCalls::current().0;
        let cpu = Cpu::current();
        // No call is followed while a handler runs, so none returns meanwhile: the CPU was abandoned.
        let is_abandoned = cpu.is_handling();
        let position = StackPosition::of(stack_pointer).among_abandoned(is_abandoned);
        let Some(last) = position.returned(calls) else { kernel::fatal(frame, &Lost { stack_pointer }) };
        let return_address = last.return_address.load(Relaxed);
        let entered_with = last.stack_pointer.load(Relaxed);
        let has_ended = |call: &Instance| {
            let pointer = call.stack_pointer.load(Relaxed);
            pointer == entered_with || pointer < stack_pointer && position.is_on_its_stack(pointer)
        };
        // After a RET, the pc and x30 both hold the return address.
        frame.set_interrupted(return_address);
        frame.x[30] = return_address;
        if !is_abandoned {
            cpu.enter();
        }
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
        if !is_abandoned {
            cpu.leave();
        }
    }
}

/// Calls the handler of a return probe for a call that has returned.
#[inline]
fn report(cpu: &Cpu, call: &Instance, frame: &mut TrapFrame) {
    let probe = call.owner();
    let handler = probe.handler.load(Relaxed);
    if handler.is_null() {
        return;
    }
    // SAFETY: `handler` is null or a `ReturnHandler`: `new` stores one, and `retire` stores null, which was excluded
    // above.
    let handler = unsafe { mem::transmute::<*mut (), ReturnHandler>(handler) };
    probe.counters.hit(cpu);
    handler(Call::new(frame, call));
}

/// Puts the instance of a call that has returned into the shared list, because this CPU has a spare: the rest of
/// [`Pool::give_back`].
#[unsafe(no_mangle)]
#[unsafe(link_section = ".kprobes.text.recycle")]
extern "C" fn kprobes_recycle(call: &Instance) {
    call.owner().pool.push(call);
}

/// Gives back the instances of a task's calls, which will never return, and counts them as missed.
///
/// Not inlined, because it has to lie in the region without probes.
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

/// Returns the true return address of a call in progress whose frame shows a trampoline. The call is the one on the
/// same stack that began with the lowest stack pointer that is at least `floor`.
///
/// Not inlined, because it has to lie in the region without probes.
///
/// # Safety
///
/// Interrupts are masked. The task that owns `calls` runs on this CPU, or on no CPU until this returns.
#[inline(never)]
pub(crate) unsafe fn true_return_address(calls: &TaskCalls, floor: u64) -> Option<u64> {
    StackPosition::of(floor).true_return_address(&calls.0)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::probe::hit::result::CallResult;
    use crate::probe::kretprobe::make_pool;

    #[test]
    fn calls_that_begin_while_a_probe_goes_have_the_trampoline_that_they_had() {
        fn handle(_: &CallResult) {}
        let probe = || ReturnProbe::new(0x1000, None, Returned::Result(handle), make_pool(1, 0).unwrap(), false);
        // A caller needs registers that the lean one uses.
        let full = probe();
        assert_eq!(full.trampoline(), trampoline::kretprobe_address());
        full.retire();
        assert_eq!(full.trampoline(), trampoline::kretprobe_address());
        let lean = probe();
        lean.set_code(trampoline::result_address());
        lean.retire();
        assert_eq!(lean.trampoline(), trampoline::kretprobe_lean_address());
    }

    #[test]
    fn returns_that_are_left_to_the_handler_keep_their_trampoline() {
        let probe = ReturnProbe::new(0x1000, None, Returned::Nothing, make_pool(1, 0).unwrap(), false);
        probe.leave_to_handler(false);
        assert_eq!(probe.trampoline(), trampoline::kretprobe_address());
        probe.set_code(0x2000);
        let code = || probe.pool.code();
        assert_eq!((code(), probe.trampoline()), (0x2000, trampoline::kretprobe_lean_address()));
        probe.leave_to_handler(true);
        assert_eq!(code(), trampoline::lean_unusual_address());
        // Calls that begin now may return when the code handles returns again.
        assert_eq!(probe.trampoline(), trampoline::kretprobe_lean_address());
        probe.leave_to_handler(false);
        assert_eq!(code(), 0x2000);
        probe.leave_to_handler(true);
        probe.retire();
        assert_eq!(code(), trampoline::lean_leave_address(Registers::NONE));
    }
}
