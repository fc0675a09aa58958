//! Compiles the clauses of a program to instructions of this kernel.
//!
//! A clause is compiled for each view of a hit that its probes need: the registers that a call passes, all registers,
//! or all registers at the return of a call. The result is a handler, which the engine calls with the address of
//! [`CallArguments`], a [`Hit`] or a [`Call`]. From there the code finds the armed clause. Through TPIDR_EL1 it finds
//! the task and the CPU, at the offsets that the trace layer uses.

use alloc::vec::Vec;
use core::mem::{offset_of, transmute};
use core::{fmt, slice};

use aarch64_kprobes::exception::TrapFrame;
use aarch64_kprobes::probe::{ArgumentHandler, Call, CallArguments, Hit, PreHandler, ReturnHandler};
use fallible::OutOfMemory;
use kprobes_trace::context::Offsets;
use kprobes_vm::ir::Register;
use kprobes_vm::jit::{self, Base, Directory, Kernel, Path, Refused, Source};

use spin::Once;

use super::executable_memory::ExecutableMemory;
use super::exits::Exit;
use super::hit::{ArmedClause, callees};
use super::places::Way;
use super::shared::Shared;
use crate::{host, time};

/// The reason why a clause is interpreted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The compiler refuses the clause.
    Refused(Refused),
    /// There is no executable memory for the instructions.
    NoMemory,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => refused.fmt(f),
            Self::NoMemory => f.write_str("there is no executable memory for its instructions"),
        }
    }
}

/// The view of a hit that a handler gets. The variants are in the order of the lists of handlers in [`Clauses`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    /// The registers that a call passes.
    Arguments,
    /// All registers.
    Frame,
    /// All registers, at the return of a function.
    Return,
}

impl Way {
    /// Returns the view of a hit that a compiled clause gets at a place that is probed in this way; `None` if the
    /// clause is always interpreted there.
    pub(super) fn view(self) -> Option<View> {
        match self {
            Self::Entry => Some(View::Arguments),
            Self::Instruction | Self::Exit(Exit::Always) => Some(View::Frame),
            Self::Kretprobe => Some(View::Return),
            Self::Exit(_) => None,
        }
    }
}

const fn in_task(offset: &'static [u16]) -> Path {
    Path { base: Base::Thread, offsets: offset }
}

/// Returns the paths from a hit, through the address of its armed clause, to the function and to the name in the armed
/// clause.
const fn in_site([first, second, third]: [u16; 3]) -> [[u16; 4]; 2] {
    let (function, name) = (offset_of!(ArmedClause, function) as u16, offset_of!(ArmedClause, name) as u16);
    [[first, second, third, function], [first, second, third, name]]
}

fn register_of_call(register: Register) -> Option<u16> {
    match register {
        Register::X(number) => CallArguments::offset_of(number),
        Register::Sp | Register::Pc | Register::Pstate => None,
    }
}

fn register_of_frame(register: Register) -> Option<u16> {
    let offset = match register {
        Register::X(number) => offset_of!(TrapFrame, x) + 8 * usize::from(number),
        Register::Sp => offset_of!(TrapFrame, sp),
        Register::Pc => offset_of!(TrapFrame, pc),
        Register::Pstate => offset_of!(TrapFrame, pstate),
    };
    Some(offset as u16)
}

impl View {
    /// Returns the description of this kernel for the code of `shared` in this view.
    pub(super) fn kernel(self, shared: &Shared) -> Kernel {
        let [function, name]: &'static [[u16; 4]; 2] = match self {
            Self::Arguments => &const { in_site(CallArguments::DATA) },
            Self::Frame => &const { in_site(Hit::DATA) },
            Self::Return => &const { in_site(Call::DATA) },
        };
        let register = match self {
            Self::Arguments => register_of_call,
            Self::Frame | Self::Return => register_of_frame,
        };
        let perform = match self {
            Self::Arguments => callees::entered as *const (),
            Self::Frame => callees::reached as *const (),
            Self::Return => callees::returned as *const (),
        };
        static PLACES: Once<[u16; 3]> = Once::new();
        let [cpu, task, name_of_task] = PLACES.call_once(|| {
            let Offsets { cpu, task, name } = Offsets::of_image();
            [cpu, task, name].map(|offset| offset as u16)
        });
        let of_hit = |offsets| Some(Source::Path(Path { base: Base::Hit, offsets }));
        Kernel {
            register,
            function: of_hit(function),
            // Finding the caller may take a search, which compiled code leaves to the interpreter.
            caller: None,
            probe: of_hit(name),
            cpu: in_task(slice::from_ref(cpu)),
            cpus: host::cpus(),
            task: Some(Source::Path(in_task(slice::from_ref(task)))),
            comm: Some(in_task(slice::from_ref(name_of_task))),
            nanoseconds: Some(time::of_code()),
            perform: perform as u64,
            context: core::ptr::from_ref(shared).addr() as u64,
        }
    }
}

/// The compiled clauses of a program.
#[derive(Debug, Default)]
pub(super) struct Clauses {
    /// The code of each clause, by the view and the clause's number.
    handlers: [Vec<Option<ExecutableMemory>>; 3],
    /// The directory whose address the instructions contain.
    directory: Option<Directory>,
    /// The numbers of the clauses that could not be compiled, with the reason.
    pub interpreted: Vec<(usize, Reason)>,
}

impl Clauses {
    /// Compiles each clause of `shared` for the views for which `is_wanted` is true.
    ///
    /// # Errors
    ///
    /// There is no memory for the lists. If there is no memory to compile a clause, it is interpreted.
    ///
    /// # Safety
    ///
    /// `shared` must not move or be dropped as long as a handler of these clauses may run.
    pub unsafe fn of(shared: &Shared, is_wanted: impl Fn(usize, View) -> bool) -> Result<Self, OutOfMemory> {
        let directory = Directory::new(&shared.store)?;
        let mut interpreted = Vec::new();
        let mut all = |view: View| -> Result<Vec<Option<ExecutableMemory>>, OutOfMemory> {
            let kernel = view.kernel(shared);
            let clause = |number| {
                let words = jit::compile(&shared.program.code, number, &shared.store, &directory, &kernel);
                let words = words.map_err(Reason::Refused)?.words;
                ExecutableMemory::new(&words).map_err(|_| Reason::NoMemory)
            };
            let clauses = (0..shared.program.code.routines.len()).map(|number| {
                if !is_wanted(number, view) {
                    return Ok(None);
                }
                match clause(number) {
                    Ok(memory) => Ok(Some(memory)),
                    Err(reason) => fallible::push(&mut interpreted, (number, reason)).map(|()| None),
                }
            });
            fallible::collect_results(clauses)
        };
        let handlers = [all(View::Arguments)?, all(View::Frame)?, all(View::Return)?];
        fallible::sort_by_key(&mut interpreted, |(number, _)| *number);
        interpreted.dedup_by_key(|(number, _)| *number);
        Ok(Self { handlers, directory: Some(directory), interpreted })
    }

    /// Returns the virtual address of the handler of clause `number` for `view`, if it was compiled.
    fn start(&self, number: usize, view: View) -> Option<usize> {
        // `of` lists the handlers of the views in the order of the variants.
        let memory = self.handlers[view as usize].get(number)?.as_ref()?;
        Some(memory.start())
    }

    /// Returns the handler of clause `number` for the registers that a call passes, if it was compiled.
    pub fn entered(&self, number: usize) -> Option<ArgumentHandler> {
        let start = self.start(number, View::Arguments)?;
        // SAFETY: the words at `start` are a function that follows the AAPCS64, takes the address of `CallArguments`,
        // and returns nothing: `Clauses::of` compiled them for this view.
        Some(unsafe { transmute::<*const (), ArgumentHandler>(core::ptr::with_exposed_provenance(start)) })
    }

    /// Returns the handler of clause `number` for all registers, if it was compiled.
    pub fn reached(&self, number: usize) -> Option<PreHandler> {
        let start = self.start(number, View::Frame)?;
        // SAFETY: the words at `start` are a function that follows the AAPCS64, takes the address of a `Hit`, which it
        // does not change, and returns nothing: `Clauses::of` compiled them for this view.
        Some(unsafe { transmute::<*const (), PreHandler>(core::ptr::with_exposed_provenance(start)) })
    }

    /// Returns the handler of clause `number` for a call that has returned, if it was compiled.
    pub fn returned(&self, number: usize) -> Option<ReturnHandler> {
        let start = self.start(number, View::Return)?;
        // SAFETY: the words at `start` are a function that follows the AAPCS64, takes the address of a `Call`, which it
        // does not change, and returns nothing: `Clauses::of` compiled them for this view.
        Some(unsafe { transmute::<*const (), ReturnHandler>(core::ptr::with_exposed_provenance(start)) })
    }

    /// Returns whether clause `number` was compiled for any view.
    pub fn is_compiled(&self, number: usize) -> bool {
        self.handlers.iter().any(|handlers| handlers.get(number).is_some_and(Option::is_some))
    }

    /// Returns the virtual address of the handler of clause `number` for `view`, if it was compiled, and its words. The
    /// clause is compiled again for this; `None` if there is no memory for that.
    pub fn code(&self, shared: &Shared, number: usize, view: View) -> Option<(usize, jit::MachineCode)> {
        let start = self.start(number, view)?;
        let directory = self.directory.as_ref()?;
        let code = jit::compile(&shared.program.code, number, &shared.store, directory, &view.kernel(shared));
        Some((start, code.ok()?))
    }

    /// Returns the number of compiled handlers: each clause counts once for each view.
    pub fn count(&self) -> usize {
        self.handlers.iter().flatten().flatten().count()
    }
}
