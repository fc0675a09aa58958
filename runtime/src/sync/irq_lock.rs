//! The lock for data that tasks share with interrupt handlers, the scheduler or the rendezvous.

use spin::mutex::{SpinMutex, SpinMutexGuard};

use super::{Guard, IrqMask};

/// A spin lock that masks interrupts on its CPU while it is held.
///
/// A handler that interrupted the holder and asked for the same lock would spin forever, and so would a task that
/// preempted the holder. Neither can happen while interrupts are masked. They stay masked until the last of several
/// locks is free, in whatever order the locks are released.
///
/// A CPU that holds such a lock cannot be held in a rendezvous, because it has interrupts masked. So code that runs
/// during a rendezvous may take one. Hold the lock for a few instructions only, and never take it twice. Breakpoints
/// cannot be masked, so probe handlers must not take one.
pub struct IrqLock<T> {
    data: SpinMutex<T>,
}

impl<T> IrqLock<T> {
    /// Creates a free lock around `data`.
    pub const fn new(data: T) -> Self {
        Self { data: SpinMutex::new(data) }
    }

    /// Masks interrupts and waits for the lock.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T, IrqMask> {
        Guard::wait(&self.data, IrqMask::new())
    }

    /// Calls `look` with the data while the lock is held. All of it is inlined, because some callers must not call a
    /// function that can be probed, and dropping a guard may be such a call.
    #[inline(always)]
    pub(crate) fn with_inlined<R>(&self, look: impl FnOnce(&mut T) -> R) -> R {
        let mask = IrqMask::new();
        let result = look(SpinMutexGuard::leak(self.data.lock()));
        // SAFETY: the guard was leaked above, so this is the only release, and the reference that `look` got has ended.
        unsafe { self.data.force_unlock() };
        mask.end();
        result
    }

    /// Takes the lock if it is free. For reports of a failure, which may have struck the holder.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T, IrqMask>> {
        Guard::take(&self.data, IrqMask::new())
    }
}
