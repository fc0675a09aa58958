//! Allocation that fails with an error.
//!
//! If a command makes a kernel run out of memory, the kernel has to refuse the command and continue. Stable Rust offers
//! this only for `Vec` and `String`, and only by `try_reserve`; `Box::new`, `Arc::new`, `format!`, `collect` and `push`
//! abort the program. This crate has their counterparts:
//!
//! | instead of | use |
//! |---|---|
//! | `Box::new(value)` | [`boxed(value)?`](boxed) |
//! | `Arc::new(value)` | [`Arc::try_new(value)?`](Arc::try_new) |
//! | `list.push(value)` | [`push(&mut list, value)?`](push) |
//! | `list.extend(items)` | [`extend(&mut list, items)?`](extend) |
//! | `text.push(character)` | [`push_char(&mut text, character)?`](push_char) |
//! | `items.collect::<Vec<_>>()` | [`collect(items)?`](collect), [`collect_results(items)?`](collect_results) |
//! | `items.collect::<Box<[_]>>()` | [`boxed_slice(items)?`](boxed_slice) |
//! | `vec![0; count].into_boxed_slice()` | [`zeroed(count)?`](zeroed) |
//! | `text.to_owned()`, `format!(…)` | [`copy(text)?`](copy), [`format(format_args!(…))?`](format()) |
//! | `String` as a `fmt::Write` | [`Text`] |
//! | `sort`, `sort_by` | `sort_unstable`, `sort_unstable_by`, as the stable ones allocate; or [`sort_by`], [`sort_by_key`] |
//!
//! Crates that promise to return such errors run their tests on the failing heap of the feature `failing`.

#![cfg_attr(not(any(test, feature = "failing")), no_std)]

extern crate alloc;

mod arc;
#[cfg(any(test, feature = "failing"))]
pub mod failing;
mod sort;
mod zeroed;

/// Runs the examples of the README as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

use alloc::alloc::Layout;
use alloc::boxed::Box;
use alloc::collections::TryReserveError;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

pub use arc::Arc;
pub use sort::{sort_by, sort_by_key};
pub use zeroed::{Zeroed, zeroed};

/// There is no memory for an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is not enough memory")
    }
}

impl core::error::Error for OutOfMemory {}

impl From<TryReserveError> for OutOfMemory {
    fn from(_: TryReserveError) -> Self {
        Self
    }
}

/// Formatting into a [`Text`] fails with `fmt::Error` if there is no memory.
impl From<OutOfMemory> for fmt::Error {
    fn from(_: OutOfMemory) -> Self {
        Self
    }
}

/// Copying a value, where `Clone` would allocate.
pub trait TryClone: Sized {
    /// Returns a copy of the value.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] if there is no memory for the copy.
    fn try_clone(&self) -> Result<Self, OutOfMemory>;
}

impl TryClone for String {
    fn try_clone(&self) -> Result<Self, OutOfMemory> {
        copy(self)
    }
}

impl<T: TryClone> TryClone for Option<T> {
    fn try_clone(&self) -> Result<Self, OutOfMemory> {
        self.as_ref().map(T::try_clone).transpose()
    }
}

impl<T: TryClone> TryClone for Vec<T> {
    fn try_clone(&self) -> Result<Self, OutOfMemory> {
        collect_results(self.iter().map(T::try_clone))
    }
}

/// Puts `value` into a box.
///
/// # Errors
///
/// [`OutOfMemory`] if there is no memory for the box; the value is dropped.
pub fn boxed<T>(value: T) -> Result<Box<T>, OutOfMemory> {
    let layout = Layout::new::<T>();
    if layout.size() == 0 {
        return Ok(Box::new(value));
    }
    // SAFETY: the size of the layout is not zero, as checked above.
    let place = unsafe { alloc::alloc::alloc(layout) }.cast::<T>();
    if place.is_null() {
        return Err(OutOfMemory);
    }
    // SAFETY: the memory was allocated by the global allocator with the layout of `T`, as `Box` demands, and holds a
    // `T` after the write.
    unsafe {
        place.write(value);
        Ok(Box::from_raw(place))
    }
}

/// Makes room in `list` for `additional` elements, and for at least a quarter of its capacity. So a list that grows by
/// one element after the other takes constant time for each, as with [`Vec::try_reserve`], and never twice its memory.
///
/// # Errors
///
/// [`OutOfMemory`] if there is no memory for that many; the list is unchanged.
#[inline]
pub fn reserve<T>(list: &mut Vec<T>, additional: usize) -> Result<(), OutOfMemory> {
    if additional <= list.capacity() - list.len() { Ok(()) } else { grow(list, additional) }
}

#[cold]
fn grow<T>(list: &mut Vec<T>, additional: usize) -> Result<(), OutOfMemory> {
    /// The smallest step: fewer elements are not worth an allocation.
    const FEW: usize = 4;
    // A quarter of the capacity, not of the length: a short list in which room is kept would otherwise grow in small
    // steps.
    let step = list.capacity() - list.len() + list.capacity() / 4;
    Ok(list.try_reserve_exact(additional.max(step).max(FEW))?)
}

/// Appends `value` to `list`.
///
/// # Errors
///
/// [`OutOfMemory`] if there is no memory for a longer list; the list is unchanged, and the value is dropped.
pub fn push<T>(list: &mut Vec<T>, value: T) -> Result<(), OutOfMemory> {
    list.try_reserve(1)?;
    list.push(value);
    Ok(())
}

/// Appends `character` to `text`.
///
/// # Errors
///
/// [`OutOfMemory`] if there is no memory for a longer text; the text is unchanged.
pub fn push_char(text: &mut String, character: char) -> Result<(), OutOfMemory> {
    text.try_reserve(character.len_utf8())?;
    text.push(character);
    Ok(())
}

/// Appends all `items` to `list`.
///
/// # Errors
///
/// [`OutOfMemory`] if there is no memory for a longer list, to which some of the items may have been appended.
pub fn extend<T>(list: &mut Vec<T>, items: impl IntoIterator<Item = T>) -> Result<(), OutOfMemory> {
    let items = items.into_iter();
    list.try_reserve(items.size_hint().0)?;
    for item in items {
        push(list, item)?;
    }
    Ok(())
}

/// Collects the `items` into a list.
///
/// # Errors
///
/// [`OutOfMemory`] if there is no memory for the list.
pub fn collect<T>(items: impl IntoIterator<Item = T>) -> Result<Vec<T>, OutOfMemory> {
    let (mut list, items) = (Vec::new(), items.into_iter());
    list.try_reserve_exact(items.size_hint().0)?;
    extend(&mut list, items)?;
    Ok(list)
}

/// Collects the `items` into a list, if none of them is an error.
///
/// # Errors
///
/// The first error among the items; or [`OutOfMemory`] if there is no memory for the list.
pub fn collect_results<T, E: From<OutOfMemory>>(items: impl IntoIterator<Item = Result<T, E>>) -> Result<Vec<T>, E> {
    let mut list = Vec::new();
    for item in items {
        push(&mut list, item?)?;
    }
    Ok(list)
}

/// Collects the `items` into a boxed slice.
///
/// # Errors
///
/// [`OutOfMemory`] if there is no memory for the slice.
pub fn boxed_slice<T>(items: impl IntoIterator<Item = T>) -> Result<Box<[T]>, OutOfMemory> {
    let list = collect(items)?;
    if list.len() == list.capacity() {
        return Ok(list.into_boxed_slice());
    }
    // Shrinking the list in place would be an allocation that must not fail.
    let mut exact = Vec::new();
    exact.try_reserve_exact(list.len())?;
    exact.extend(list);
    Ok(exact.into_boxed_slice())
}

/// Copies `text`.
///
/// # Errors
///
/// [`OutOfMemory`] if there is no memory for the copy.
pub fn copy(text: &str) -> Result<String, OutOfMemory> {
    let mut copy = String::new();
    copy.try_reserve_exact(text.len())?;
    copy.push_str(text);
    Ok(copy)
}

/// Formats `arguments` as text.
///
/// # Errors
///
/// [`OutOfMemory`] if there is no memory for the text, or if an implementation of `Display` in it fails, for example
/// because it allocates and finds no memory.
pub fn format(arguments: fmt::Arguments<'_>) -> Result<String, OutOfMemory> {
    let mut text = Text::default();
    match fmt::Write::write_fmt(&mut text, arguments) {
        Ok(()) => Ok(text.0),
        Err(fmt::Error) => Err(OutOfMemory),
    }
}

/// Text that grows as it is written to. Writing fails if there is no memory for more.
#[derive(Debug, Default)]
pub struct Text(pub String);

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.try_reserve(text.len()).map_err(|_| fmt::Error)?;
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
