//! Every function gives an error for each allocation that fails, and leaks no memory.

use super::failing::{Heap, allocated, each_allocation, with_memory};
use super::*;
use core::cell::Cell;
use core::fmt::Write;
use kprobes_random::Random;

#[global_allocator]
static HEAP: Heap = Heap;

/// Runs `operation` without memory for each of its allocations in turn, and then with memory for all. It must allocate.
fn allocates<T>(operation: impl FnMut() -> Result<T, OutOfMemory>) -> T {
    let (result, failures) = each_allocation(operation, |&OutOfMemory| true);
    assert!(failures > 0);
    result
}

#[test]
fn boxes_lists_and_text_are_had_or_not() {
    assert_eq!(*allocates(|| boxed([7_u64; 9])), [7; 9]);
    with_memory(0, || boxed(())).unwrap();
    assert_eq!(allocates(|| collect(0..100)).len(), 100);
    assert_eq!(*allocates(|| boxed_slice([1, 2, 3])), [1, 2, 3]);
    // The iterator does not know its length in advance.
    assert_eq!(*allocates(|| boxed_slice((0..9).filter(|number| number % 2 == 0))), [0, 2, 4, 6, 8]);
    assert_eq!(*allocates(|| zeroed::<u16>(3)), [0; 3]);
    assert!(with_memory(0, || zeroed::<u64>(0)).unwrap().is_empty());
    assert_eq!(zeroed::<u64>(usize::MAX / 4), Err(OutOfMemory));
    assert_eq!(allocates(|| copy("text")), "text");
    assert_eq!(allocates(|| format(format_args!("{} is a number{:9}", 7, "!"))), "7 is a number!        ");
    let texts = Vec::from([Some(String::from("a")), None]);
    assert_eq!(allocates(|| texts.try_clone()), texts);
}

#[test]
fn what_finds_no_memory_is_as_it_was() {
    let mut list = Vec::from([1]);
    assert_eq!(with_memory(0, || push(&mut list, 2)), Err(OutOfMemory));
    assert_eq!(list, [1]);
    let mut text = Text(String::from("a"));
    assert_eq!(with_memory(0, || text.write_str("more than there is room for")), Err(fmt::Error));
    assert_eq!(text.0, "a");
}

#[test]
fn an_error_among_items_is_the_error_of_the_list() {
    let items = |bad: usize| (0..9).map(move |number| if number == bad { Err(fmt::Error) } else { Ok(number) });
    assert_eq!(collect_results(items(3)), Err(fmt::Error));
    assert_eq!(collect_results(items(9)).unwrap().len(), 9);
    assert_eq!(with_memory(0, || collect_results(items(9))), Err(fmt::Error));
}

#[test]
fn a_shared_value_goes_with_its_last_owner() {
    struct Counted<'a>(&'a Cell<u32>);
    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    let (gone, before) = (Cell::new(0), allocated());
    assert!(with_memory(0, || Arc::try_new(Counted(&gone))).is_err());
    assert_eq!(gone.take(), 1);
    let one = Arc::try_new(Counted(&gone)).unwrap();
    let other = one.clone();
    assert!(Arc::ptr_eq(&one, &other) && core::ptr::eq(one.0, &raw const gone));
    drop(one);
    assert_eq!((gone.get(), other.0.get()), (0, 0));
    drop(other);
    assert_eq!((gone.get(), allocated()), (1, before));
}

#[test]
fn owners_on_several_threads_see_the_value() {
    let value = Arc::try_new([1, 2, 3]).unwrap();
    let sums: Vec<_> =
        (0..4).map(|_| value.clone()).map(|own| std::thread::spawn(move || own.iter().sum::<i32>())).collect();
    assert_eq!(sums.into_iter().map(|sum| sum.join().unwrap()).sum::<i32>(), 4 * 6);
}

#[test]
fn a_list_grows_by_a_quarter() {
    const COUNT: usize = if cfg!(miri) { 300 } else { 100_000 };
    let (mut list, mut allocations) = (Vec::new(), 0);
    for number in 0..COUNT {
        let before = list.capacity();
        reserve(&mut list, 1).unwrap();
        allocations += usize::from(list.capacity() != before);
        list.push(number);
        assert!(list.capacity() <= list.len() + list.len() / 4 + 4, "{} for {}", list.capacity(), list.len());
    }
    assert!(allocations < 64, "{allocations}");
    reserve(&mut list, 1 << 20).unwrap();
    assert_eq!(list.capacity(), COUNT + (1 << 20));
}

#[test]
fn lists_are_sorted() {
    // In Miri, an access to a list takes time for each of its elements.
    let (longest, step) = if cfg!(miri) { (40, 13) } else { (200, 1) };
    let mut random = Random::new(1);
    for count in (0..longest).step_by(step) {
        let mut numbers: Vec<(u32, usize)> = (0..count).map(|number| (random.below(32), number)).collect();
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        let mut by_all = numbers.clone();
        crate::sort_by(&mut by_all, Ord::cmp);
        assert_eq!(by_all, sorted);
        crate::sort_by_key(&mut numbers, |(key, _)| core::cmp::Reverse(*key));
        assert!(numbers.is_sorted_by_key(|(key, _)| core::cmp::Reverse(*key)), "{numbers:?}");
    }
}
