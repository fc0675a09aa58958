//! Model checks: probes are registered and removed while another CPU hits them, in every order.

use std::mem;
use std::sync::{Mutex, PoisonError};

use kprobes_models::loom::{cell::Cell, thread, thread::JoinHandle};
use kprobes_models::{Model, verify};

use super::*;
use crate::exception::frame::TrapFrame;
use crate::insn;
use crate::platform::Platform;
use crate::probe::aliasable::AliasableBox;
use crate::probe::hit::Hit;
use crate::probe::hit::cpu::{Cpu, NUMBER};
use crate::probe::hit::list::{TaskCalls, tasks};
use crate::probe::hit::point::Pre;
use crate::probe::hit::returns::{self, Call, ReturnProbe, Returned};
use crate::probe::hit::{self, Breakpoint, table, trampoline};
use crate::probe::kretprobe::make_pool;
use crate::probe::tests::computer::{OUTSIDE, TestPlatform, mask, write};
use crate::text;

/// The counts that a model leaves to the next one, because they are never returned to the heap.
static COUNTERS: Mutex<FreeCounters> = Mutex::new(FreeCounters::new());

/// The probed instruction: a branch to the next one. If the text holds a branch, the code under test looks up in the
/// table whether a probe wrote it.
const NEXT: u32 = 0x1400_0001;

/// The data of a probe: a word that is not atomic, and that its handlers use as long as the probe exists.
type Word = Cell<()>;

fn touch(data: usize) {
    // SAFETY: `Registrar::register` leaks the word. Loom fails if no order exists between this access and one before or
    // after the probe.
    unsafe { &*(data as *const Word) }.get();
}

fn kprobe(_: &Registrar) -> Handlers {
    called_by_assembly! {
        fn pre(hit: &mut Hit<'_>) {
            touch(hit.data());
        }
    }
    Handlers::Kprobe { pre: Pre::Hit(pre), post: None }
}

fn kretprobe(registrar: &Registrar) -> Handlers {
    let pool = make_pool(2, 0).unwrap();
    called_by_assembly! {
        fn handler(call: &mut Call<'_>) {
            call.exclusive();
            touch(call.data());
        }
    }
    Handlers::Return(AliasableBox::new(Box::new(ReturnProbe::new(
        registrar.address,
        None,
        Returned::Call(handler),
        pool,
        false,
    ))))
}

/// The CPU that registers probes, and the address at which it does.
struct Registrar {
    registry: Registry,
    address: usize,
}

impl Registrar {
    fn new() -> Self {
        Cpu::current().leave();
        let address = TestPlatform::text().start;
        write(address, &[NEXT]);
        let counters = mem::replace(&mut *COUNTERS.lock().unwrap_or_else(PoisonError::into_inner), FreeCounters::new());
        Self { registry: Registry { counters, ..Registry::new() }, address }
    }

    fn register(&mut self, handlers: fn(&Self) -> Handlers) -> (Registration, &'static Word) {
        let word: &Word = Box::leak(Box::new(Cell::new(())));
        word.set(());
        let handlers = handlers(self);
        let data = core::ptr::from_ref(word) as usize;
        let request = Request {
            address: self.address,
            bounds: None,
            handlers,
            data,
            insertion: None,
            enabled: true,
            fastest: Mode::Simulated,
        };
        let mut registration = self.registry.add(request, &mut Checker::new()).unwrap();
        // Dropping it must not unregister the probe: it is in this registry, not in the global one.
        registration.state = State::Unregistered;
        // The counts are in the states of the CPUs. A model that has failed leaves its own there.
        registration.probe.counters.reset();
        assert_eq!(self.registry.change(&mut vec![self.address]), None);
        (registration, word)
    }

    fn unregister(&mut self, (registration, word): (Registration, &Word)) {
        self.registry.remove([registration].iter());
        word.set(());
    }
}

impl Drop for Registrar {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            *COUNTERS.lock().unwrap() = mem::replace(&mut self.registry.counters, FreeCounters::new());
        }
    }
}

/// Starts the other CPU.
fn spawn(run: impl FnOnce() + 'static) -> JoinHandle<()> {
    thread::spawn(|| {
        NUMBER.with(|cpu| cpu.set(1));
        tasks::switch_to(1);
        Cpu::current().leave();
        run();
    })
}

/// The stack pointer of callers of the function.
const SP: u64 = 0x1000;

/// Executes the instruction at `address`, the first of a function, as a CPU does. Returns x30 after it.
fn execute(address: usize, sp: u64) -> u64 {
    let mut frame = TrapFrame { pc: address as u64, sp, ..TrapFrame::default() };
    frame.x[30] = return_address();
    if text::read(address) == insn::BRK_KPROBE {
        assert_eq!((hit::breakpoint(&mut frame), frame.pc), (Breakpoint::Handled, address as u64 + 4));
    }
    frame.x[30]
}

/// Returns the address from which this task calls the function.
fn return_address() -> u64 {
    OUTSIDE + 4 * tasks::current() as u64
}

/// Returns to `x30`, as a CPU does.
fn leave(x30: u64, sp: u64) {
    let mut frame = TrapFrame { pc: x30, sp, ..TrapFrame::default() };
    if trampoline::is_kretprobe(x30) {
        // SAFETY: the task runs in this thread, and a hit masks interrupts.
        assert_eq!(unsafe { returns::true_return_address(TaskCalls::current(), 0) }, Some(return_address()));
        returns::kprobes_function_returned(&mut frame);
    }
    assert_eq!(frame.pc, return_address());
}

/// Registers and removes the first probe of a page and a second one, while another CPU executes the instruction and
/// reads the original instruction.
fn come_and_go() -> Model {
    Model::new(|| {
        let mut registrar = Registrar::new();
        let address = registrar.address;
        let other = spawn(move || {
            let _masked = mask();
            execute(address, SP);
            assert_eq!(crate::probe::instruction(address), Some(NEXT));
        });
        let first = registrar.register(kprobe);
        let second = registrar.register(kprobe);
        registrar.unregister(first);
        registrar.unregister(second);
        // SAFETY: only this thread frees points.
        let original = unsafe { table::original(address) };
        assert_eq!((text::read(address), original), (NEXT, None));
        other.join().unwrap();
    })
    .preempted_at_most(2)
}

/// Tasks on two CPUs call a return-probed function. The second task returns, or exits.
fn call(exits: bool) -> Model {
    Model::new(move || {
        let mut registrar = Registrar::new();
        let address = registrar.address;
        let probe = registrar.register(kretprobe);
        let other = spawn(move || {
            let x30 = execute(address, SP);
            match exits {
                // SAFETY: the task does nothing after this.
                true => unsafe { returns::task_exited(TaskCalls::current()) },
                false => leave(x30, SP),
            }
        });
        leave(execute(address, SP), SP);
        other.join().unwrap();
        let missed = u64::from(exits);
        assert_eq!((probe.0.hits(), probe.0.missed(), probe.0.active()), (2 - missed, missed, 0));
        registrar.unregister(probe);
        registrar.registry.sweep();
    })
    .preempted_at_most(2)
}

/// A task has two calls in progress, and migrates to another CPU before they return. The instances are given back
/// there, while a call of another task takes one.
fn migrate() -> Model {
    Model::new(|| {
        let mut registrar = Registrar::new();
        let address = registrar.address;
        let probe = registrar.register(kretprobe);
        let calls = [SP, SP - 16].map(|sp| (execute(address, sp), sp));
        // The scheduler orders the two CPUs in the same way, with a lock.
        let other = spawn(move || {
            tasks::switch_to(0);
            calls.into_iter().rev().for_each(|(x30, sp)| leave(x30, sp));
        });
        tasks::switch_to(1);
        leave(execute(address, SP), SP);
        other.join().unwrap();
        assert_eq!((probe.0.hits() + probe.0.missed(), probe.0.active()), (3, 0));
        registrar.unregister(probe);
        registrar.registry.sweep();
    })
    .preempted_at_most(2)
}

/// A return probe is unregistered while a call is in progress on the other CPU, and freed when that call is over.
fn unregister_in_flight() -> Model {
    Model::new(|| {
        let mut registrar = Registrar::new();
        let address = registrar.address;
        let probe = registrar.register(kretprobe);
        let other = spawn(move || {
            let in_task = |f: &mut dyn FnMut()| {
                let _masked = mask();
                f();
            };
            let mut x30 = 0;
            in_task(&mut || x30 = execute(address, SP));
            in_task(&mut || leave(x30, SP));
        });
        registrar.unregister(probe);
        registrar.registry.sweep();
        other.join().unwrap();
        registrar.registry.sweep();
        assert!(registrar.registry.lingering.is_empty());
    })
    .preempted_at_most(2)
}

/// There is only one text, so the tests take turns.
static TURN: Mutex<()> = Mutex::new(());

#[test]
fn probes_come_and_go_while_they_are_hit() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // The store of `pages`: only the assembly loads it without an order with `length`.
    let elsewhere = ["src/probe/hit/table.rs: store: Release to Relaxed"];
    verify(&["table.rs", "publish.rs"], &[come_and_go()], &elsewhere);
}

#[test]
fn calls_find_their_returns() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // The models of the free list and of the count of calls in progress show that these orderings are needed.
    let elsewhere = [
        "load: Acquire",
        "load: Acquire",
        "load: Acquire",
        "compare_exchange_weak, success: Acquire",
        "compare_exchange_weak, failure: Acquire",
    ]
    .map(|operation| format!("src/probe/hit/instance.rs: {operation} to Relaxed"));
    verify(
        &["instance.rs"],
        &[call(false), call(true), migrate(), unregister_in_flight()],
        &elsewhere.each_ref().map(String::as_str),
    );
}
