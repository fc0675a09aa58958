//! Allocation that fails with an error.
//!
//! A kernel that runs out of memory under a command has to refuse the command and go on. Stable Rust offers that for `Vec` and
//! `String` alone, and only by `try_reserve`; `Box::new`, `Arc::new`, `format!`, `collect` and `push` end the program. These are
//! their counterparts:
//!
//! | instead of | |
//! |---|---|
//! | `Box::new(value)` | [`boxed(value)?`](boxed) |
//! | `Arc::new(value)` | [`Arc::try_new(value)?`](Arc::try_new) |
//! | `list.push(value)`, `list.extend(items)` | [`push(&mut list, value)?`](push), [`extend(&mut list, items)?`](extend) |
//! | `text.push(character)` | [`push_char(&mut text, character)?`](push_char) |
//! | `items.collect::<Vec<_>>()` | [`collect(items)?`](collect), [`collect_results(items)?`](collect_results) |
//! | `items.collect::<Box<[_]>>()` | [`boxed_slice(items)?`](boxed_slice) |
//! | `text.to_owned()`, `format!(…)` | [`copy(text)?`](copy), [`format(format_args!(…))?`](format()) |
//! | `String` as a `fmt::Write` | [`Text`] |
//! | `sort`, `sort_by` | `sort_unstable`, `sort_unstable_by`: the stable ones allocate |
//!
//! The tests of a crate that promises this run on a [`failing`] heap.

#![cfg_attr(not(any(test, feature = "failing")), no_std)]

extern crate alloc;

mod arc;
#[cfg(any(test, feature = "failing"))]
pub mod failing;

/// The examples of the page are tests.
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

/// There is no memory for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no memory left for it")
    }
}

impl core::error::Error for OutOfMemory {}

impl From<TryReserveError> for OutOfMemory {
    fn from(_: TryReserveError) -> Self {
        Self
    }
}

/// What a writer says that needs memory.
impl From<OutOfMemory> for fmt::Error {
    fn from(_: OutOfMemory) -> Self {
        Self
    }
}

/// A copy, where `Clone` would allocate.
pub trait TryClone: Sized {
    /// A copy of it.
    ///
    /// # Errors
    ///
    /// There is no memory for the copy.
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

/// `value` in a box.
///
/// # Errors
///
/// There is no memory for the box; the value is dropped.
pub fn boxed<T>(value: T) -> Result<Box<T>, OutOfMemory> {
    let layout = Layout::new::<T>();
    if layout.size() == 0 {
        return Ok(Box::new(value));
    }
    // SAFETY: the layout has a size.
    let place = unsafe { alloc::alloc::alloc(layout) }.cast::<T>();
    if place.is_null() {
        return Err(OutOfMemory);
    }
    // SAFETY: the global allocator has given this memory for a `T`, as a box has it.
    unsafe {
        place.write(value);
        Ok(Box::from_raw(place))
    }
}

/// Appends `value` to `list`.
///
/// # Errors
///
/// There is no memory for a longer list, which is as it was.
pub fn push<T>(list: &mut Vec<T>, value: T) -> Result<(), OutOfMemory> {
    list.try_reserve(1)?;
    list.push(value);
    Ok(())
}

/// Appends `character` to `text`.
///
/// # Errors
///
/// There is no memory for a longer text, which is as it was.
pub fn push_char(text: &mut String, character: char) -> Result<(), OutOfMemory> {
    text.try_reserve(character.len_utf8())?;
    text.push(character);
    Ok(())
}

/// Appends all `items` to `list`.
///
/// # Errors
///
/// There is no memory for a longer list, to which some of the items may have been appended.
pub fn extend<T>(list: &mut Vec<T>, items: impl IntoIterator<Item = T>) -> Result<(), OutOfMemory> {
    let items = items.into_iter();
    list.try_reserve(items.size_hint().0)?;
    for item in items {
        push(list, item)?;
    }
    Ok(())
}

/// The `items` in a list.
///
/// # Errors
///
/// There is no memory for the list.
pub fn collect<T>(items: impl IntoIterator<Item = T>) -> Result<Vec<T>, OutOfMemory> {
    let (mut list, items) = (Vec::new(), items.into_iter());
    list.try_reserve_exact(items.size_hint().0)?;
    extend(&mut list, items)?;
    Ok(list)
}

/// The `items` in a list, if none of them is an error.
///
/// # Errors
///
/// The first error among the items; or there is no memory for the list.
pub fn collect_results<T, E: From<OutOfMemory>>(items: impl IntoIterator<Item = Result<T, E>>) -> Result<Vec<T>, E> {
    let mut list = Vec::new();
    for item in items {
        push(&mut list, item?)?;
    }
    Ok(list)
}

/// The `items` in a boxed slice.
///
/// # Errors
///
/// There is no memory for the slice.
pub fn boxed_slice<T>(items: impl IntoIterator<Item = T>) -> Result<Box<[T]>, OutOfMemory> {
    let list = collect(items)?;
    if list.len() == list.capacity() {
        return Ok(list.into_boxed_slice());
    }
    // To shrink the list in place would be an allocation that must not fail.
    let mut exact = Vec::new();
    exact.try_reserve_exact(list.len())?;
    exact.extend(list);
    Ok(exact.into_boxed_slice())
}

/// A copy of `text`.
///
/// # Errors
///
/// There is no memory for the copy.
pub fn copy(text: &str) -> Result<String, OutOfMemory> {
    let mut copy = String::new();
    copy.try_reserve_exact(text.len())?;
    copy.push_str(text);
    Ok(copy)
}

/// The text of `arguments`.
///
/// # Errors
///
/// There is no memory for the text; or an implementation of `Display` in it has failed, as those do which allocate.
pub fn format(arguments: fmt::Arguments<'_>) -> Result<String, OutOfMemory> {
    let mut text = Text::default();
    match fmt::Write::write_fmt(&mut text, arguments) {
        Ok(()) => Ok(text.0),
        Err(fmt::Error) => Err(OutOfMemory),
    }
}

/// Text that grows as it is written, and gives an error where there is no memory for more.
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
