//! Runs the clause of a hit, and provides the state of the hit to it.

use core::sync::atomic::{AtomicU64, Ordering};

use aarch64_kprobes::exception::{TrapFrame, nofault};
use aarch64_kprobes::probe::{Call, CallArguments, StackWalk};
use kprobes_trace::context::Context;
use kprobes_vm::hit::{Machine, run};
use kprobes_vm::ir::Register;

use crate::program::Shared;
use crate::program::exits::Exit;
use crate::time;

/// A probe of a program, as its hits see it. Compiled code loads the name and the function from here.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ArmedClause {
    /// The program. It outlives the probe.
    pub shared: *const Shared,
    /// The number of the clause.
    pub clause: usize,
    /// The number of the probe's name, from 1.
    pub name: u64,
    /// The virtual address of the function, and the virtual address after it.
    pub function: u64,
    pub function_end: u64,
    /// Whether the return address of the function is in x30, and not in a frame record.
    pub is_caller_in_x30: bool,
    /// The condition under which the instruction leaves the function, or passes into or out of a copy.
    pub exit: Exit,
    /// The value that represents the function that contains the copy, if the probe is on a copy.
    pub caller: Option<u64>,
}

impl ArmedClause {
    /// Returns the armed clause at the virtual address `data`.
    ///
    /// # Safety
    ///
    /// `data` must be the address of an armed clause that lives as long as the reference is used.
    #[inline(always)]
    pub(super) unsafe fn at<'a>(data: usize) -> &'a Self {
        // SAFETY: the caller guarantees that `data` is the address of a live armed clause (see # Safety).
        unsafe { &*(data as *const Self) }
    }
}

/// Runs clause `clause` of `shared` without a hit. `name` is the number of the probe's name. A task must call this,
/// with interrupts masked.
#[inline(never)]
pub(crate) fn run_alone(shared: &Shared, clause: usize, name: u64) {
    let (function, function_end) = (0, 0);
    let armed = ArmedClause {
        shared,
        clause,
        name,
        function,
        function_end,
        is_caller_in_x30: false,
        exit: Exit::Always,
        caller: None,
    };
    ClauseHit { armed: &armed, registers: &TrapFrame::ZERO, return_address: None, result: 0 }.run_in(shared);
}

/// Runs the clause of `armed` for a sample of the code with the registers `frame`, with all interrupts masked.
///
/// # Safety
///
/// The program of the armed clause must live.
#[inline(never)]
pub(crate) unsafe fn run_sample(armed: &ArmedClause, frame: &TrapFrame) {
    ClauseHit { armed, registers: frame, return_address: None, result: 0 }.run();
}

/// The registers of the probed code.
pub(super) trait Registers {
    fn register(&self, register: Register) -> u64;
}

impl Registers for TrapFrame {
    #[inline(always)]
    fn register(&self, register: Register) -> u64 {
        match register {
            Register::X(number) => TrapFrame::register(self, number),
            Register::Sp => self.sp,
            Register::Pc => self.pc,
            Register::Pstate => self.pstate,
        }
    }
}

/// A register that a call does not pass reads as 0. Clauses that need such a register do not run in
/// [`Handlers::entered`](super::handler::Handlers::entered).
impl Registers for CallArguments {
    #[inline(always)]
    fn register(&self, register: Register) -> u64 {
        match register {
            Register::X(number) => CallArguments::register(self, number).unwrap_or(0),
            Register::Sp => self.stack_pointer(),
            Register::Pc => self.address() as u64,
            Register::Pstate => 0,
        }
    }
}

/// The state at a hit.
pub(super) struct ClauseHit<'a, R> {
    pub armed: &'a ArmedClause,
    pub registers: &'a R,
    /// The address to which the function has returned, at a return.
    pub return_address: Option<u64>,
    /// The address at which the function was told to write its result, at a return whose clause asks for it.
    pub result: u64,
}

impl<'a> ClauseHit<'a, TrapFrame> {
    /// Creates the state at the return of `call`.
    ///
    /// # Safety
    ///
    /// The data of `call` must be the address of an armed clause that outlives the probe.
    #[inline(always)]
    pub unsafe fn returned(call: &'a Call<'_>) -> Self {
        // SAFETY: the caller guarantees that the data is the address of a live armed clause (see # Safety).
        let armed = unsafe { ArmedClause::at(call.data()) };
        let return_address = Some(call.return_address() as u64);
        let result = call.instance_data().first().copied().unwrap_or(0);
        Self { armed, registers: call.frame(), return_address, result }
    }
}

impl<R: Registers> ClauseHit<'_, R> {
    /// Runs the clause at a hit, unless the program has asked to end. Its code may be that of `END`, too, which runs
    /// after that.
    #[inline(always)]
    pub fn run(&self) {
        // SAFETY: the program of the armed clause lives. `attach` requires that it outlives the probes, `run_sample`
        // requires it, and `watched` has it from an armed watchpoint, which it outlives.
        let shared = unsafe { &*self.armed.shared };
        if !shared.store.is_over() {
            self.run_in(shared);
        }
    }

    #[inline(always)]
    fn run_in(&self, shared: &Shared) {
        let Shared { program, store, .. } = shared;
        run(&program.code, self.armed.clause, store, self);
    }

    /// Starts a walk along the stack.
    #[inline]
    fn walk(&self) -> StackWalk {
        let get = |register| self.registers.register(register);
        let (first, link) = match self.return_address {
            Some(address) => (address, None),
            None if self.armed.is_caller_in_x30 => (get(Register::Pc), Some((get(Register::X(30)), get(Register::Sp)))),
            None => (get(Register::Pc), None),
        };
        // SAFETY: the registers are those of the code that was hit, which does not go on before the clause ends. If it
        // uses x29 for another purpose, other memory is read, which is a documented limit (README.md, Limits).
        unsafe { StackWalk::new(first, get(Register::X(29)), link) }
    }
}

impl<R: Registers> Machine for ClauseHit<'_, R> {
    #[inline(always)]
    fn register(&self, register: Register) -> u64 {
        self.registers.register(register)
    }

    #[inline(always)]
    fn result(&self) -> u64 {
        self.result
    }

    #[inline(always)]
    fn function(&self) -> u64 {
        self.armed.function
    }

    /// Returns an address of the call, not of the instruction after it: after a call that does not return, the return
    /// address may belong to the next function.
    #[inline]
    fn caller(&self) -> u64 {
        if let Some(caller) = self.armed.caller {
            return caller;
        }
        let return_address = match self.return_address {
            Some(address) => address,
            None => self.walk().step().unwrap_or(0),
        };
        return_address.saturating_sub(4)
    }

    #[inline(always)]
    fn probe(&self) -> u64 {
        self.armed.name
    }

    #[inline(always)]
    fn cpu(&self) -> usize {
        // SAFETY: clauses run at hits, watched accesses and samples, and in tasks, all of which find correct offsets
        // (# Safety of `ContextLayout`).
        unsafe { Context::cpu_here() }
    }

    #[inline(always)]
    fn task(&self) -> u64 {
        // SAFETY: a clause runs where the offsets are correct, as `cpu` says.
        unsafe { Context::here() }.task
    }

    #[inline(always)]
    fn comm(&self) -> [u8; 16] {
        // SAFETY: a clause runs where the offsets are correct, as `cpu` says.
        *unsafe { Context::here() }.name_bytes()
    }

    #[inline(always)]
    fn nanoseconds(&self) -> u64 {
        time::nanoseconds()
    }

    #[inline]
    fn read(&self, address: u64, bytes: u8) -> Option<u64> {
        let address = address as usize;
        // SAFETY: a fault is caught by `nofault`. The author of a program is responsible for not reading device
        // registers (README.md, Limits).
        unsafe {
            match bytes {
                1 => nofault::read::<u8>(address).ok().map(u64::from),
                2 => nofault::read::<u16>(address).ok().map(u64::from),
                4 => nofault::read::<u32>(address).ok().map(u64::from),
                _ => nofault::read::<u64>(address).ok(),
            }
        }
    }

    fn stack(&self, frames: &[AtomicU64]) -> usize {
        let mut walk = self.walk();
        let mut address = Some(walk.first());
        let mut count = 0;
        for place in frames {
            let Some(found) = address else { break };
            place.store(found, Ordering::Relaxed);
            count += 1;
            address = walk.step();
        }
        count
    }
}
