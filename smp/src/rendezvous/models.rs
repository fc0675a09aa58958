//! Model checks of a rendezvous, with every order of the CPUs' steps.

use std::sync::Arc;

use kprobes_models::loom::cell::Cell;
use kprobes_models::loom::sync::{Condvar, Mutex};
use kprobes_models::loom::thread;
use kprobes_models::{Model, verify};

use super::*;

impl<const CPUS: usize> Round<CPUS> {
    fn new() -> Self {
        let answer = |()| Answer {
            round: AtomicU64::new(0),
            pc: AtomicUsize::new(0),
            is_asleep: AtomicBool::new(false),
            taken: AtomicU64::new(0),
            taken_before: AtomicU64::new(0),
        };
        Self { current: AtomicU64::new(0), others: AtomicUsize::new(0), answers: [(); CPUS].map(answer) }
    }
}

/// The number of the CPU that is held; the other one is 0.
const CPU: usize = 1;
const PC: usize = 0x1000;

/// A machine with two CPUs.
struct SimulatedMachine {
    round: Round<2>,
    line: Mutex<InterruptLine>,
    changed: Condvar,
    /// Memory that is not atomic. CPU 1 accesses it while it is not held, and the action on CPU 0 while it is.
    text: Cell<()>,
}

// SAFETY: loom tracks the cell, and fails if two threads use it without an order.
unsafe impl Sync for SimulatedMachine {}

/// The interrupt line of CPU 1.
#[derive(Default)]
struct InterruptLine {
    is_pending: bool,
    /// Whether no further interrupt will come.
    is_last: bool,
}

impl SimulatedMachine {
    fn interrupt(&self) {
        self.line.lock().unwrap().is_pending = true;
        self.changed.notify_one();
    }

    /// Models WFI, which ends at once if the interrupt of the next round is pending.
    fn wait(&self) {
        let mut line = self.line.lock().unwrap();
        while !line.is_pending {
            line = self.changed.wait(line).unwrap();
        }
        drop(line);
        thread::yield_now();
    }

    /// Takes an interrupt. Returns `None` if none will come any more.
    fn take(&self) -> Option<()> {
        let mut line = self.line.lock().unwrap();
        while !line.is_pending && !line.is_last {
            line = self.changed.wait(line).unwrap();
        }
        core::mem::take(&mut line.is_pending).then_some(())
    }

    /// The program of CPU 1.
    fn run(&self) {
        self.text.set(());
        while self.take().is_some() {
            self.round.answer(CPU, PC, || true, || self.wait());
            self.text.set(());
        }
    }

    /// Holds a round, as `rendezvous` does.
    fn attempt(&self, round: u64, is_late: bool) -> Set {
        self.round.begin(round, 1 << CPU);
        self.interrupt();
        let missing = self.round.gather(round, || is_late, &mut || {
            self.text.set(());
            let mut pcs = Vec::new();
            self.round.interrupted(&mut |pc| pcs.push(pc));
            assert_eq!(pcs, [PC]);
        });
        if self.round.is_asleep(CPU) {
            self.interrupt();
        }
        missing
    }
}

/// CPU 0 has no patience in the first round, and waits as long as needed in the second.
#[test]
fn a_cpu_is_held_and_let_go() {
    let model = Model::new(|| {
        let machine = Arc::new(SimulatedMachine {
            round: Round::new(),
            line: Mutex::default(),
            changed: Condvar::new(),
            text: Cell::new(()),
        });
        let other = thread::spawn({
            let machine = machine.clone();
            move || machine.run()
        });
        if machine.attempt(1, true) != 0 {
            assert_eq!(machine.attempt(2, false), 0);
        }
        machine.line.lock().unwrap().is_last = true;
        machine.changed.notify_one();
        // A CPU that was never woken would not end here.
        other.join().unwrap();
        assert!(machine.round.has_taken(CPU));
    })
    .preempted_at_most(3);
    verify(&["smp/src/rendezvous.rs"], &[model], &[]);
}
