//! Model checks of the free list: every order of the operations of two CPUs.

use alloc::sync::Arc;

use kprobes_models::loom::{cell::Cell, thread};
use kprobes_models::{Model, verify};

use super::*;
/// A pool, and for each instance a non-atomic word that belongs to the thread that holds the instance. The model fails
/// if two threads hold the same instance, or if a holder does not see what the previous holder has written.
struct Watched {
    pool: Pool,
    held: Vec<Cell<()>>,
}

// SAFETY: loom owns the cells, and fails if two threads use one without an order.
unsafe impl Sync for Watched {}

impl Watched {
    fn new(count: u32) -> Arc<Self> {
        let held = (0..count).map(|_| Cell::new(())).collect();
        Arc::new(Self { pool: test_pool(count, 0), held })
    }

    fn take(&self, cpu: usize) -> Option<&Instance> {
        let instance = self.pool.take(Cpu::of(cpu))?;
        self.held[instance.index as usize].set(());
        Some(instance)
    }

    fn give_back(&self, cpu: usize, instance: &Instance) {
        self.held[instance.index as usize].set(());
        self.pool.give_back(Cpu::of(cpu), instance);
    }
}

/// CPU 0 takes all instances, its own spare, those of the shared list and the spare of CPU 1, while CPU 1 takes and
/// gives back twice.
fn exchange() -> Model {
    Model::new(|| {
        let watched = Watched::new(2);
        let other = thread::spawn({
            let watched = watched.clone();
            move || {
                for _ in 0..2 {
                    if let Some(instance) = watched.take(1) {
                        watched.give_back(1, instance);
                    }
                }
            }
        });
        let taken = [watched.take(0), watched.take(0)];
        taken.into_iter().flatten().for_each(|instance| watched.give_back(0, instance));
        other.join().unwrap();
        assert!(watched.take(0).is_some() && watched.take(1).is_some() && watched.take(0).is_none());
    })
    .preempted_at_most(4)
}

/// Instances go through the shared list, because both CPUs have a spare.
fn share() -> Model {
    Model::new(|| {
        let watched = Watched::new(3);
        let give_back_all = |cpu: usize, taken: [Option<&Instance>; 2]| {
            taken.into_iter().flatten().for_each(|instance| watched.give_back(cpu, instance));
        };
        give_back_all(0, [watched.take(0), watched.take(0)]);
        let other = thread::spawn({
            let watched = watched.clone();
            move || {
                let taken = [watched.take(1), watched.take(1)];
                taken.into_iter().flatten().for_each(|instance| watched.give_back(1, instance));
            }
        });
        give_back_all(0, [watched.take(0), watched.take(0)]);
        other.join().unwrap();
        assert!((0..3).all(|_| watched.take(0).is_some()) && watched.take(1).is_none());
    })
    .preempted_at_most(3)
}

/// A thread that sees no call in progress also sees what the last call has written. Its instance, one of `count`, goes
/// to CPU 1 as its spare, or to the shared list if that has one.
fn end(count: u32) -> Model {
    Model::new(move || {
        let watched = Watched::new(count);
        watched.take(0).unwrap();
        let other = thread::spawn({
            let watched = watched.clone();
            move || watched.give_back(1, &watched.pool.instances[0])
        });
        if watched.pool.taken() == 0 {
            watched.held[0].set(());
        }
        other.join().unwrap();
    })
}

#[test]
fn instances_are_held_by_one() {
    // A tag value never repeats, so the swap succeeds only on the value that the load before it has acquired.
    verify(
        &["instance.rs"],
        &[exchange(), share(), end(1), end(2)],
        &["src/probe/hit/instance.rs: compare_exchange_weak, success: Acquire to Relaxed"],
    );
}
