//! The exceptions of watchpoints, and what this CPU does between them.

use core::ptr;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicUsize};

use super::exits::may_come_to_store;
use super::range::accesses;
use super::slot::{self, SLOTS, Slot};
use super::{IN_SEQUENCE, NOTHING, STEPPING, WatchHit, WatchpointState, registers};
use crate::exception::frame::TrapFrame;
use crate::exception::syndrome::{EC_BREAKPOINT, EC_STEP, EC_WATCHPOINT};
use crate::insn::{Exclusive, MemoryAccess, exclusive};
use crate::probe::hit::cpu::Cpu;
use crate::probe::hit::{origin, table, trampoline, unwind};

/// ESR_EL1.WnR of a watchpoint: a store.
const STORE: u64 = 1 << 6;
/// SPSR_EL1.SS: step one instruction.
const STEP: u64 = 1 << 21;
/// The A, I and F masks of SPSR_EL1. Debug exceptions stay unmasked.
const INTERRUPTS: u64 = 0b0111 << 6;

/// A sequence that has failed so often in a row, because of the watchpoints, is executed without them.
const MOST_FAILURES: u32 = 100;

/// Whether a CPU does not keep what is written to its registers.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// Returns whether a CPU has not kept what was written to its registers since the last call.
pub(in crate::probe) fn has_failed() -> bool {
    HAS_FAILED.swap(false, Relaxed)
}

/// The number of the slot whose registers the CPUs try.
static TRIED: AtomicUsize = AtomicUsize::new(0);
/// Whether a CPU has found registers that are used, but not by the engine.
static IS_BUSY: AtomicBool = AtomicBool::new(false);

/// Selects the slot that the CPUs [try](try_registers). It has an owner, and is not armed.
pub(in crate::probe) fn select(number: usize) {
    TRIED.store(number, Relaxed);
}

/// Finds out whether this CPU keeps the values of the [selected](select) slot, and whether the engine has all
/// watchpoints to itself. No access is watched.
pub(in crate::probe) fn try_registers() {
    crate::interrupts::with_masked(|| {
        let has_other_owner =
            |number: usize| registers::is_watchpoint_set(number) && !SLOTS.get(number).is_some_and(Slot::is_armed);
        // The registers are unknown after a reset, until they are enabled.
        if registers::are_enabled() && (0..registers::watchpoints()).any(has_other_owner) {
            IS_BUSY.store(true, Relaxed);
            return;
        }
        let number = TRIED.load(Relaxed);
        let Some(slot) = SLOTS.get(number) else { return };
        let control = slot.control.load(Relaxed) | accesses(true, true);
        let is_kept =
            number < registers::watchpoints() && registers::try_watchpoint(number, slot.value.load(Relaxed), control);
        if !is_kept {
            HAS_FAILED.store(true, Relaxed);
        }
    });
}

/// Returns whether a CPU has found another owner of its watchpoints since the last call.
pub(in crate::probe) fn is_busy() -> bool {
    IS_BUSY.swap(false, Relaxed)
}

/// Handles an exception of class `class`, if it belongs to a watchpoint. Any other exception ends the step or the
/// sequence that this CPU executes for a watchpoint, because it does not go on as planned.
#[inline(never)]
pub(crate) fn exception(frame: &mut TrapFrame, class: u64, esr: u64, far: u64) -> bool {
    // Before the first watchpoint, this CPU may have no state yet.
    if !slot::are_used() {
        return false;
    }
    let cpu = Cpu::current();
    match cpu.watchpoints.doing.load(Relaxed) {
        STEPPING => {
            cpu.watchpoints.resume(frame);
            registers::end_step();
            frame.pstate &= !STEP;
            class == EC_STEP
        }
        IN_SEQUENCE => {
            cpu.watchpoints.clear_breakpoints();
            cpu.watchpoints.resume(frame);
            let is_left = class == EC_BREAKPOINT;
            if is_left {
                left(cpu, frame);
            }
            load(cpu);
            is_left
        }
        _ if class == EC_WATCHPOINT => {
            hit(cpu, frame, esr, far);
            true
        }
        _ => false,
    }
}

/// Handles an access to watched memory, which has not been executed.
#[inline(always)]
fn hit(cpu: &Cpu, frame: &mut TrapFrame, esr: u64, far: u64) {
    // Another CPU has given up a watchpoint.
    if cpu.watchpoints.has_stale() {
        load(cpu);
        return;
    }
    let word = instruction(frame.pc);
    let decoded = access(frame, word);
    match exclusive(word) {
        Some(Exclusive::Store { status }) => {
            if cpu.watchpoints.is_wide.load(Relaxed) != 0 {
                cpu.watchpoints.fail();
            }
            if cpu.watchpoints.fails_always() {
                let followed = cpu.watchpoints.attempted_at.load(Relaxed);
                let begin = if followed == 0 { frame.pc } else { followed };
                give_up(cpu, begin, &decoded.unwrap_or_else(|| nearest(cpu, esr, far)));
                return;
            }
            frame.set_register(status, 1);
            frame.set_interrupted(frame.pc.wrapping_add(4));
            frame.pstate &= !TrapFrame::BRANCH_TYPE;
            cpu.watchpoints.is_wide.store(1, Relaxed);
            load(cpu);
        }
        Some(Exclusive::Load) => {
            let found = decoded.unwrap_or_else(|| nearest(cpu, esr, far));
            report(cpu, frame, found);
            follow(cpu, frame, &found);
        }
        None => {
            report(cpu, frame, decoded.unwrap_or_else(|| nearest(cpu, esr, far)));
            cpu.watchpoints.mask(frame, STEPPING);
            frame.pstate |= STEP;
            registers::begin_step();
        }
    }
}

/// Lets the sequence of the load-exclusive at the pc run up to its exits. If it has too many, or has failed too often,
/// the watchpoints that the load touches are given up.
#[inline(always)]
fn follow(cpu: &Cpu, frame: &mut TrapFrame, access: &MemoryAccess) {
    if cpu.watchpoints.attempted_at.load(Relaxed) != frame.pc {
        cpu.watchpoints.attempted_at.store(frame.pc, Relaxed);
        cpu.watchpoints.failures.store(0, Relaxed);
    }
    if cpu.watchpoints.fails_always() {
        give_up(cpu, frame.pc, access);
        return;
    }
    let (mut free, mut number) = (0_u32, 0);
    while number < registers::breakpoints() {
        free |= u32::from(!registers::is_breakpoint_set(number)) << number;
        number += 1;
    }
    let exits = &cpu.watchpoints.exits;
    let count = exits.find(frame.pc, instruction).filter(|&count| count <= free.count_ones() as usize);
    let Some(count) = count else {
        give_up(cpu, frame.pc, access);
        return;
    };
    let (mut next, mut set) = (0, 0);
    while next < count {
        let number = free.trailing_zeros();
        free &= free.wrapping_sub(1);
        registers::set_breakpoint(number as usize, exits.get(next));
        set |= 1 << number;
        next += 1;
    }
    cpu.watchpoints.breakpoints.store(set, Relaxed);
    cpu.watchpoints.mask(frame, IN_SEQUENCE);
    number = 0;
    while number < registers::watchpoints() {
        if cpu.watchpoints.has_loaded(number) {
            registers::set_watchpoint(number, 0, 0);
        }
        number += 1;
    }
}

/// Gives up the watchpoints that the access touches. It belongs to the sequence that the load-exclusive at the virtual
/// address `begin` begins.
#[inline(never)]
fn give_up(cpu: &Cpu, begin: u64, access: &MemoryAccess) {
    for slot in &SLOTS {
        if slot.is_watching() && slot.overlaps(access) {
            slot.given_up_at.store(begin, Relaxed);
        }
    }
    cpu.watchpoints.failures.store(0, Relaxed);
    load(cpu);
}

/// Reports the store-exclusive before the pc, if it has just stored.
#[inline(always)]
fn left(cpu: &Cpu, frame: &mut TrapFrame) {
    let next = frame.pc;
    if !cpu.watchpoints.exits.is_after_store(next) {
        if !is_probed(next as usize) && may_come_to_store(instruction(next)) {
            cpu.watchpoints.fail();
        }
        return;
    }
    let Some(Exclusive::Store { status }) = exclusive(instruction(next.wrapping_sub(4))) else { return };
    if frame.register(status) as u32 != 0 {
        return;
    }
    cpu.watchpoints.is_wide.store(0, Relaxed);
    cpu.watchpoints.failures.store(0, Relaxed);
    frame.set_interrupted(next.wrapping_sub(4));
    if let Some(found) = access(frame, instruction(frame.pc)) {
        report(cpu, frame, found);
    }
    frame.set_interrupted(next);
}

/// Returns whether the virtual address `pc` is that of a probe's breakpoint, or where the branch leads that replaces a
/// probed instruction. No store-exclusive follows there: between the two exclusives no instruction is probed
/// (`ProbeError::Exclusive`).
#[inline(always)]
fn is_probed(pc: usize) -> bool {
    // SAFETY: this is called in an exception, with interrupts masked.
    origin::find(pc).is_some() || unsafe { table::original(pc) }.is_some()
}

/// Returns the access of the instruction `word` at the pc.
#[inline(always)]
fn access(frame: &TrapFrame, word: u32) -> Option<MemoryAccess> {
    let register = |number| if number == 31 { frame.sp } else { frame.register(number) };
    MemoryAccess::of(word, frame.pc, registers::zeroed_bytes(), register)
}

/// Returns one byte of the access of an instruction that is not decoded.
#[inline(always)]
fn nearest(cpu: &Cpu, esr: u64, far: u64) -> MemoryAccess {
    let is_wide = cpu.watchpoints.is_wide.load(Relaxed) != 0;
    slot::nearest(&SLOTS, esr & STORE != 0, far, is_wide, |number| cpu.watchpoints.has_loaded(number))
}

/// Calls the handlers of the watchpoints that the access touches. If the instruction is in a slot or a stub, they see
/// the probed code. What a stub, a snippet or the trampoline of returns loads and stores for itself is not an access of
/// that code, and is left out.
#[inline(never)]
fn report(cpu: &Cpu, frame: &mut TrapFrame, access: MemoryAccess) {
    let pc = frame.pc as usize;
    let is_of_stub = origin::find(pc).is_some_and(|origin| !origin.is_in_copy(pc));
    if is_of_stub || trampoline::kretprobe().contains(&pc) {
        return;
    }
    // A copy runs with the registers of the probed code.
    let saved = (frame.pc, frame.record[1]);
    unwind::restart(frame, unwind::read_own_stack);
    let mut number = 0;
    while let Some(slot) = SLOTS.get(number) {
        if slot.is_watching() && slot.matches(&access) {
            let is_busy = cpu.is_handling();
            cpu.watchpoints.count(number, is_busy);
            if !is_busy {
                cpu.enter();
                (slot.handler())(&WatchHit { frame, access, data: slot.data.load(Relaxed) });
                cpu.leave();
            }
        }
        number += 1;
    }
    (frame.pc, frame.record[1]) = saved;
}

/// Reads the instruction at the virtual address `pc`.
#[inline(always)]
fn instruction(pc: u64) -> u32 {
    let place: *const u32 = ptr::with_exposed_provenance(pc as usize & !3);
    // SAFETY: the CPU executes the word, or has executed it just before; or it lies at most `exits::REACH` from a
    // load-exclusive that the CPU executes: `on_each_cpu` of `Platform` says that this memory can be read.
    unsafe { place.read_volatile() }
}

/// Loads the registers of this CPU from the slots that watch, and clears those that it had loaded from others, with
/// debug exceptions masked. If breakpoints and watchpoints were disabled, nothing else uses the registers, and they are
/// cleared first.
#[inline(always)]
fn load(cpu: &Cpu) {
    // The sequence for which this CPU watches loads may be one at a watchpoint that has gone. Another one asks again.
    if cpu.watchpoints.has_stale() {
        cpu.watchpoints.is_wide.store(0, Relaxed);
    }
    let is_wide = cpu.watchpoints.is_wide.load(Relaxed) != 0;
    let mut is_used = false;
    let mut number = 0;
    while let Some(slot) = SLOTS.get(number) {
        let has_register = number < registers::watchpoints();
        if slot.is_watching() {
            if !is_used && !registers::are_enabled() {
                registers::clear();
            }
            is_used = true;
            let (loads, stores) = (slot.loads.load(Relaxed), slot.stores.load(Relaxed));
            let control = slot.control.load(Relaxed) | accesses(loads || is_wide, stores);
            let value = slot.value.load(Relaxed);
            if has_register {
                registers::set_watchpoint(number, value, control);
                cpu.watchpoints.set_loaded(number, true);
            }
            if !has_register || registers::watchpoint(number) != (value, control) {
                HAS_FAILED.store(true, Relaxed);
            }
        } else if has_register && cpu.watchpoints.has_loaded(number) {
            registers::set_watchpoint(number, 0, 0);
            cpu.watchpoints.set_loaded(number, false);
        }
        number += 1;
    }
    if is_used {
        if registers::enable() {
            cpu.watchpoints.has_enabled.store(1, Relaxed);
        }
        return;
    }
    cpu.watchpoints.is_wide.store(0, Relaxed);
    if cpu.watchpoints.has_enabled.load(Relaxed) != 0 {
        cpu.watchpoints.has_enabled.store(0, Relaxed);
        registers::disable();
    }
}

/// Loads the registers of this CPU from the slots.
pub(in crate::probe) fn load_registers() {
    crate::interrupts::with_masked(|| load(Cpu::current()));
    registers::synchronize();
}

impl Slot {
    /// Returns whether the access touches the watched bytes.
    #[inline(always)]
    fn overlaps(&self, access: &MemoryAccess) -> bool {
        self.matches(&MemoryAccess { loads: true, stores: true, ..*access })
    }
}

impl WatchpointState {
    /// Records what the interrupted code is about to do, and masks interrupts for it.
    #[inline(always)]
    fn mask(&self, frame: &mut TrapFrame, doing: u64) {
        self.doing.store(doing, Relaxed);
        self.masks.store(frame.pstate & TrapFrame::DAIF, Relaxed);
        frame.pstate |= INTERRUPTS;
    }

    /// Restores the masks of the interrupted code, after its step or its sequence.
    #[inline(always)]
    fn resume(&self, frame: &mut TrapFrame) {
        self.doing.store(NOTHING, Relaxed);
        frame.pstate = frame.pstate & !TrapFrame::DAIF | self.masks.load(Relaxed);
    }

    #[inline(always)]
    fn clear_breakpoints(&self) {
        let set = self.breakpoints.load(Relaxed);
        let mut number = 0;
        while number < super::MOST {
            if set >> number & 1 != 0 {
                registers::set_breakpoint(number, None);
            }
            number += 1;
        }
        self.breakpoints.store(0, Relaxed);
    }

    /// Returns whether the watchpoint with this number is loaded.
    #[inline(always)]
    fn has_loaded(&self, number: usize) -> bool {
        self.loaded.load(Relaxed) >> number & 1 != 0
    }

    /// Returns whether a watchpoint is loaded that does not watch any more.
    #[inline(always)]
    fn has_stale(&self) -> bool {
        let mut number = 0;
        while let Some(slot) = SLOTS.get(number) {
            if self.has_loaded(number) && !slot.is_watching() {
                return true;
            }
            number += 1;
        }
        false
    }

    #[inline(always)]
    fn set_loaded(&self, number: usize, is_loaded: bool) {
        let others = self.loaded.load(Relaxed) & !(1 << number);
        self.loaded.store(others | u64::from(is_loaded) << number, Relaxed);
    }

    /// Counts an attempt of a sequence that the watchpoints have kept from storing.
    #[inline(always)]
    fn fail(&self) {
        self.failures.store(self.failures.load(Relaxed).saturating_add(1), Relaxed);
    }

    /// Returns whether the sequence has failed so often that it might never store.
    #[inline(always)]
    fn fails_always(&self) -> bool {
        self.failures.load(Relaxed) >= MOST_FAILURES
    }

    /// Counts a hit, or a missed one, of the watchpoint with this number.
    #[inline(always)]
    fn count(&self, number: usize, is_missed: bool) {
        if let Some([hits, missed]) = self.counts.get(number) {
            let count = if is_missed { missed } else { hits };
            count.store(count.load(Relaxed) + 1, Relaxed);
        }
    }
}
