//! The functions of the image as the hit path looks them up, for arguments of the type `symstr`, which are recorded as text.
//!
//! A hit cannot look up a name. So this index is made, of references to the names, when the first such event is defined.

use alloc::vec::Vec;

use fallible::{Arc, OutOfMemory};

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
    pub fn new(symbols: &dyn Symbols) -> Result<Arc<Self>, OutOfMemory> {
        // Of several names for one function, the one that is found by its address.
        let is_found =
            |function: &Function<'_>| symbols.lookup(function.address).is_some_and(|found| found.name == function.name);
        let mut count = 0;
        symbols.each(&mut |_| count += 1);
        let mut all = Vec::new();
        all.try_reserve_exact(count)?;
        symbols.each(&mut |function| {
            if all.len() < count && is_found(&function) {
                all.push(function);
            }
        });
        all.sort_unstable_by_key(|function| function.address);
        Arc::try_new(Self { all })
    }
}
