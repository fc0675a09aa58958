//! Memory that several CPUs use at once.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fallible::OutOfMemory;
use runtime::memory;
use runtime::memory::layout::{LINEAR_BASE, PAGE_SIZE};
use runtime::sync::IrqLock;
use runtime::{smp, task};

use crate::fixture;
use crate::smp::start_on_each_cpu;
use crate::test;

/// An allocation whose bytes are all equal.
struct Piece {
    bytes: Box<[u8]>,
    value: u8,
}

impl Piece {
    fn new(length: usize, value: u8) -> Self {
        Self { bytes: vec![value; length].into_boxed_slice(), value }
    }

    fn is_whole(&self) -> bool {
        self.bytes.iter().all(|byte| *byte == self.value)
    }
}

test!(
    depends(cpus),
    fn the_heap_serves_all_cpus_at_once() {
        /// Pieces that one task allocated, and that the task that takes them frees.
        static SHARED: IrqLock<[Option<Piece>; 32]> = IrqLock::new([const { None }; 32]);
        static CHECKED: AtomicU64 = AtomicU64::new(0);
        const ROUNDS: usize = 10_000;
        let storm = |number: usize| {
            move || {
                let mut grown = Vec::new();
                for round in 0..ROUNDS {
                    let length = 1 + round * (number + 7) % 700;
                    let piece = Piece::new(length, (round + number) as u8);
                    // Nothing is freed while the lock is held.
                    let found = SHARED.lock()[(round * 13 + number) % 32].replace(piece);
                    if let Some(found) = found {
                        assert!(found.is_whole());
                        CHECKED.fetch_add(1, Relaxed);
                    }
                    grown.push(round);
                    if round % 1000 == 999 {
                        assert!(grown.iter().is_sorted());
                        grown = Vec::new();
                    }
                }
            }
        };
        let run = || {
            let tasks: Vec<_> = (0..2 * smp::running().count())
                .map(|number| task::spawn_on(number % smp::running().count(), "heap", storm(number)))
                .collect();
            let count = tasks.len() * ROUNDS;
            tasks.into_iter().for_each(task::JoinHandle::join);
            let left = (0..32).filter_map(|index| SHARED.lock()[index].take()).map(|piece| assert!(piece.is_whole()));
            assert_eq!(CHECKED.swap(0, Relaxed) as usize + left.count(), count);
        };
        run();
        let before = memory::usage();
        run();
        assert_eq!(memory::usage(), before);
    }
);

test!(
    depends(board),
    fn executable_memory_grows_and_is_nowhere_else() {
        const LENGTH: usize = 6 << 20;
        let before = memory::usage();
        let start = memory::allocate_executable(LENGTH, false).expect("there is memory");
        let after = memory::usage();
        assert_eq!(
            (after.heap, after.frames, after.executable),
            (before.heap, before.frames, before.executable + LENGTH)
        );
        for page in (start..start + LENGTH).step_by(PAGE_SIZE) {
            let physical = memory::translate(page).expect("the page is mapped");
            assert_eq!(memory::translate(LINEAR_BASE + physical as usize), None);
            // SAFETY: the page is mapped, and filled with zeros.
            assert_eq!(unsafe { (page as *const u64).read_volatile() }, 0);
        }
        // The arena ends at the reach of branches.
        assert_eq!(memory::allocate_executable(64 << 20, false), Err(OutOfMemory));
        assert_eq!(memory::usage(), after);
        assert!(start + LENGTH - fixture::IDENTITY.address() < 128 << 20);
    }
);

test!(
    depends(cpus),
    fn stacks_come_and_go_on_all_cpus_at_once() {
        static SUM: AtomicU64 = AtomicU64::new(0);
        const ROUNDS: u64 = 100;
        /// Touches every page of the stack except the last.
        #[inline(never)]
        fn touch() {
            let mut room = [0_u8; 24 << 10];
            for byte in room.iter_mut().step_by(PAGE_SIZE) {
                // SAFETY: the pointer is to a byte of the array.
                unsafe { core::ptr::from_mut(byte).write_volatile(1) };
            }
            SUM.fetch_add(1, Relaxed);
        }
        let run = || {
            let tasks = start_on_each_cpu("stacks", || {
                for _ in 0..ROUNDS {
                    let children = [(); 3].map(|()| task::spawn("stack", touch));
                    children.into_iter().for_each(task::JoinHandle::join);
                }
            });
            tasks.into_iter().for_each(task::JoinHandle::join);
        };
        run();
        let before = memory::usage();
        run();
        assert_eq!(memory::usage(), before);
        assert_eq!(SUM.load(Relaxed), 2 * 3 * ROUNDS * smp::running().count() as u64);
    }
);
