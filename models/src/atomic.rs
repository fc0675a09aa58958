//! The atomics of core, as far as the product uses them, for models.
//!
//! If a thread loads an atomic and then stores to it, loom forgets that another thread has loaded it before
//! (tokio-rs/loom issues 166 and 392), and leaves out interleavings. So each load first touches an object of loom's
//! that orders nothing, but makes loom try both orders of two loads.

use core::panic::Location;
use core::ptr;
use core::sync::atomic::Ordering;

use loom::sync::Condvar;

use crate::weaken::weaken;

macro_rules! atomic {
    ($name:ident$(<$parameter:ident>)?, $value:ty, $initial:expr) => {
        #[doc = concat!("Stands for core's `", stringify!($name), "`.")]
        #[derive(Debug)]
        pub struct $name$(<$parameter>)?(loom::sync::atomic::$name$(<$parameter>)?, Condvar);

        impl$(<$parameter>)? $name$(<$parameter>)? {
            /// Makes an atomic with this value, as core's `new` does.
            #[track_caller]
            pub fn new(value: $value) -> Self {
                Self(loom::sync::atomic::$name::new(value), Condvar::new())
            }

            /// Loads the value, as core's `load` does.
            #[track_caller]
            pub fn load(&self, order: Ordering) -> $value {
                self.1.notify_one();
                self.0.load(weaken(Location::caller(), "load", order))
            }

            /// Stores a value, as core's `store` does.
            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                self.0.store(value, weaken(Location::caller(), "store", order));
            }

            /// Stores a value and returns the previous one, as core's `swap` does.
            #[track_caller]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                self.0.swap(value, weaken(Location::caller(), "swap", order))
            }

            /// Stores `new` if the value is `current`, as core's `compare_exchange` does.
            ///
            /// # Errors
            ///
            /// The value, if it is not `current`.
            #[track_caller]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                let success = weaken(Location::caller(), "compare_exchange, success", success);
                let failure = weaken(Location::caller(), "compare_exchange, failure", failure);
                self.0.compare_exchange(current, new, success, failure)
            }

            /// Stores `new` if the value is `current`, as core's `compare_exchange_weak` does, but never fails
            /// spuriously.
            ///
            /// # Errors
            ///
            /// The value, if it is not `current`.
            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                let success = weaken(Location::caller(), "compare_exchange_weak, success", success);
                let failure = weaken(Location::caller(), "compare_exchange_weak, failure", failure);
                self.0.compare_exchange_weak(current, new, success, failure)
            }

            /// Reads the value as its only owner. The model fails if another thread may access it.
            #[track_caller]
            pub fn exclusive(&self) -> $value {
                // SAFETY: loom owns the value, and checks that every store happens before this read.
                unsafe { self.0.unsync_load() }
            }
        }

        impl$(<$parameter>)? Default for $name$(<$parameter>)? {
            #[track_caller]
            fn default() -> Self {
                Self::new($initial)
            }
        }
    };
}

macro_rules! counting {
    ($($name:ident, $value:ty);*) => {$(
        atomic!($name, $value, 0);

        impl $name {
            /// Adds to the value and returns the previous one, as core's `fetch_add` does.
            #[track_caller]
            pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                self.0.fetch_add(value, weaken(Location::caller(), "fetch_add", order))
            }

            /// Clears bits of the value and returns the previous one, as core's `fetch_and` does.
            #[track_caller]
            pub fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                self.0.fetch_and(value, weaken(Location::caller(), "fetch_and", order))
            }

            /// Sets bits of the value and returns the previous one, as core's `fetch_or` does.
            #[track_caller]
            pub fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                self.0.fetch_or(value, weaken(Location::caller(), "fetch_or", order))
            }
        }
    )*};
}

atomic!(AtomicBool, bool, false);
atomic!(AtomicPtr<T>, *mut T, ptr::null_mut());
counting!(AtomicU32, u32; AtomicU64, u64; AtomicUsize, usize);

/// Orders accesses, as core's `fence` does.
#[track_caller]
pub fn fence(order: Ordering) {
    match weaken(Location::caller(), "fence", order) {
        Ordering::Relaxed => {}
        order => loom::sync::atomic::fence(order),
    }
}

/// Makes a boxed slice of `count` atomics that are 0. `fallible::zeroed` cannot: an atomic of a model is not a number.
///
/// # Errors
///
/// [`OutOfMemory`](fallible::OutOfMemory) if there is no memory for the slice.
pub fn zeroed<T: Default>(count: usize) -> Result<Box<[T]>, fallible::OutOfMemory> {
    fallible::boxed_slice((0..count).map(|_| T::default()))
}
