//! The functions of the image as the hit path looks them up, for arguments of the type `symstr`, which are recorded as text.
//!
//! A hit can ask nobody for a name. So this index is made, of references to the names, when the first such event is defined.

use alloc::collections::TryReserveError;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::host::{Function, Symbols};

/// Functions in ascending order of address.
#[derive(Debug)]
pub struct Functions {
    pub(crate) all: Vec<Function<'static>>,
}

impl Functions {
    /// The functions that `symbols` knows.
    ///
    /// # Errors
    ///
    /// There is no memory for the index.
    pub fn new(symbols: &dyn Symbols) -> Result<Arc<Self>, TryReserveError> {
        let mut count = 0;
        symbols.each(&mut |_| count += 1);
        let mut all = Vec::new();
        all.try_reserve_exact(count)?;
        symbols.each(&mut |function| {
            if all.len() < count {
                all.push(function);
            }
        });
        // Stable: of several names for one function, the first stays the first.
        all.sort_by_key(|function| function.address);
        Ok(Arc::new(Self { all }))
    }
}
