//! Locked files. The lock of `flock` belongs to the open file, of which a child has a copy from its fork until it runs
//! its program. So a file that is only closed can stay locked for as long as another thread starts a process.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::{
    fs::{FlockOperation, flock},
    io,
};

/// An open file that is locked for this process alone, until this value is dropped.
pub struct Locked<F: AsFd>(F);

impl<F: AsFd> Locked<F> {
    /// Locks `file`. Fails with [`io::Errno::WOULDBLOCK`] if it is locked already.
    pub fn new(file: F) -> io::Result<Self> {
        flock(&file, FlockOperation::NonBlockingLockExclusive).map(|()| Self(file))
    }
}

impl<F: AsFd> AsFd for Locked<F> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl<F: AsFd> Drop for Locked<F> {
    fn drop(&mut self) {
        // Only closing is left if this fails.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use std::{env, fs::File};

    use rustix::io::Errno;

    use super::Locked;

    #[test]
    fn a_lock_ends_with_its_owner_though_a_child_has_a_copy() {
        let executable = env::current_exe().unwrap();
        let open = || File::open(&executable).unwrap();
        let file = open();
        let copy = file.try_clone().unwrap();
        let locked = Locked::new(file).unwrap();
        assert_eq!(Locked::new(open()).err(), Some(Errno::WOULDBLOCK));
        drop(locked);
        assert!(Locked::new(open()).is_ok());
        drop(copy);
    }
}
