//! The free list in every order of what two CPUs do with it.

use alloc::sync::Arc;

use kprobes_models::loom::{cell::Cell, thread};
use kprobes_models::{Model, verify};

use super::*;
use crate::probe::kretprobe::make_pool;

/// A pool, and for each instance a word that is not atomic and belongs to whoever holds it: two that hold the same, or one
/// that does not see what the last holder has done, fail the model.
struct Watched {
    pool: Pool,
    held: Vec<Cell<()>>,
}

// SAFETY: loom keeps the cells, and fails where two threads use one without an order.
unsafe impl Sync for Watched {}

impl Watched {
    fn new(count: u32) -> Arc<Self> {
        let held = (0..count).map(|_| Cell::new(())).collect();
        Arc::new(Self { pool: make_pool(count, 0).unwrap(), held })
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

/// CPU 0 takes what there is, from its own list and that of CPU 1, which meanwhile takes from the one and gives back to the
/// other.
fn exchange() -> Model {
    Model::new(|| {
        let watched = Watched::new(2);
        let other = thread::spawn({
            let watched = watched.clone();
            move || {
                if let Some(instance) = watched.take(1) {
                    watched.give_back(1, instance);
                }
            }
        });
        let taken = [watched.take(0), watched.take(0)];
        taken.into_iter().flatten().for_each(|instance| watched.give_back(0, instance));
        other.join().unwrap();
        assert_eq!(watched.pool.taken(), 0);
        assert!(watched.take(0).is_some() && watched.take(1).is_some() && watched.take(0).is_none());
    })
    .preempted_at_most(4)
}

/// A call is entered on CPU 0 and returns on CPU 1, while somebody waits until none is in progress and frees the pool.
fn free() -> Model {
    Model::new(|| {
        let watched = Watched::new(1);
        let index = watched.take(0).unwrap().index as usize;
        let task = thread::spawn({
            let watched = watched.clone();
            move || watched.give_back(1, &watched.pool.instances[index])
        });
        let taken = watched.pool.taken();
        assert!(taken <= 1, "{taken} are taken");
        if taken == 0 {
            let Pool { instances, shares, .. } = &watched.pool;
            instances.iter().for_each(|instance| _ = instance.next_free.exclusive());
            for share in shares {
                _ = (share.free.exclusive(), share.given_back.exclusive());
            }
        }
        task.join().unwrap();
    })
}

/// Calls begin and end on CPU 1 while somebody counts those that are in progress.
fn count() -> Model {
    Model::new(|| {
        let watched = Watched::new(1);
        let task = thread::spawn({
            let watched = watched.clone();
            move || {
                let instance = watched.take(1).unwrap();
                watched.give_back(1, instance);
            }
        });
        assert!(watched.pool.taken() <= 1);
        task.join().unwrap();
    })
    .preempted_at_most(4)
}

#[test]
fn instances_are_held_by_one_and_freed_when_held_by_none() {
    // The tag is never the same again, so the swap succeeds only on what the load before it has acquired.
    verify(
        &["instance.rs"],
        &[exchange(), free(), count()],
        &["src/probe/hit/instance.rs: compare_exchange_weak, success: Acquire to Relaxed"],
    );
}
