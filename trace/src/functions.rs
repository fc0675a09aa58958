//! The functions of the image in the form that the hit path looks up, for arguments of type `symstr`, which are
//! recorded as text.
//!
//! A hit cannot call the kernel's symbol table. Therefore the first definition of such an event makes this index, whose
//! entries refer to the names.

use alloc::vec::Vec;

use fallible::{Arc, OutOfMemory};

use crate::symbols::{Function, Symbols};

/// Functions in ascending order of their addresses.
#[derive(Debug)]
pub struct Functions {
    pub(crate) all: Vec<Function<'static>>,
}

impl Functions {
    /// Makes the index of the functions that `symbols` lists.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for the index.
    pub fn new(symbols: &dyn Symbols) -> Result<Arc<Self>, OutOfMemory> {
        // Of several names for one function, keep the name that a lookup of its address returns.
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
        fallible::sort_by_key(&mut all, |function| function.address);
        Arc::try_new(Self { all })
    }
}
