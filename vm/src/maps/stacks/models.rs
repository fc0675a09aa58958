//! Models of stacks that several CPUs add, in every order.

use alloc::sync::Arc;

use kprobes_models::{Model, loom::thread, verify};

use super::*;
use crate::hit::hash;

/// Returns the number of the stack with this one frame.
fn number(stacks: &Stacks, frame: u64) -> u64 {
    stacks.number(&[AtomicU64::new(frame)])
}

/// Two stacks with the same preferred place get different places. A stack that two CPUs add gets one number.
#[test]
fn a_stack_has_a_place_of_its_own() {
    let limits = Limits { stack_bytes: 0, ..Limits::usual(1) };
    let place = |frame| hash([frame].into_iter()) % 16;
    let rivals = (2..).find(|&frame| place(frame) == place(1)).map(|rival| (1, rival)).unwrap();
    let models = [rivals, (1, 1)].map(|(one, other)| {
        Model::new(move || {
            let stacks = Arc::new(Stacks::new(1, &limits).unwrap());
            let adder = thread::spawn({
                let stacks = stacks.clone();
                move || number(&stacks, one)
            });
            let mine = number(&stacks, other);
            let others = adder.join().unwrap();
            assert_eq!(mine == others, one == other);
            assert_eq!(
                (stacks.frames(mine).collect(), stacks.frames(others).collect()),
                (Vec::from([other]), Vec::from([one]))
            );
        })
        .preempted_at_most(2)
    });
    verify(&["intern.rs"], &models, &[]);
}
