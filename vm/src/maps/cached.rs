//! Cached aggregations: a count or a sum for a key of one word, in a slot in front of the table, which code in a stub
//! finds by a hash.
//!
//! Each CPU has slots of its own. A key that is new to its table takes the slot of its hash, if that is free, and keeps
//! it forever. The stub collects hits with such a key in the slot, even if its task moves to another CPU meanwhile; all
//! other hits go to the table. So a stub looks at a single slot, and never waits. Clearing does not change the slots,
//! but remembers their contents, which are subtracted from then on. Only one task at a time may read or clear a map.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use fallible::OutOfMemory;

use super::MIX;
use super::fixed::Layout;
use crate::atomic::{AtomicU64, Cells, cells};
use crate::ir::Map;

/// The number of slots of each CPU, as a power of 2. In Miri, a borrow of the slots takes time for each of their words.
const BITS: u32 = if cfg!(miri) { 3 } else { 8 };
/// The distance by which a hash is shifted right to give the number of a slot.
pub(crate) const SHIFT: u8 = (u64::BITS - BITS) as u8;

/// The slots of a map, on all CPUs.
#[derive(Debug)]
pub(crate) struct Cached {
    layout: Layout,
    per_cpu: Box<[CpuSlots]>,
    /// The virtual address of each CPU's slots.
    places: Box<[u64]>,
}

/// The slots of a CPU. A slot is a key, a count, and a sum if there is one; [`stride`](Cached::stride) gives its size.
#[derive(Debug)]
struct CpuSlots {
    slots: Box<Cells>,
    /// The contents of the slots when they were last cleared. In place of the key: whether the slot is an entry even if
    /// nothing was collected since.
    before: Box<Cells>,
}

/// The mark of the free slot `number`, in place of its key: a key whose hash belongs to another slot. Key 0 belongs to
/// slot 0.
const fn free_key(number: usize) -> u64 {
    (number == 0) as u64
}
const _: () = assert!(MIX >> SHIFT != 0);

impl Cached {
    /// Makes free slots of `map` for `cpus` CPUs. `None` if a key of the map is not a single word, or if the
    /// aggregation is not a count or a sum.
    pub fn new(map: &Map, cpus: usize) -> Result<Option<Self>, OutOfMemory> {
        let Some(layout) = Self::layout(map) else { return Ok(None) };
        let length = Self::words(layout) << BITS;
        let of_cpu = |_| Ok::<_, OutOfMemory>(CpuSlots { slots: cells(length)?, before: cells(length)? });
        let per_cpu = fallible::boxed_slice(fallible::collect_results((0..cpus).map(of_cpu))?)?;
        for of_cpu in &per_cpu {
            for (number, slot) in of_cpu.slots.chunks_exact(Self::words(layout)).enumerate() {
                slot.iter().take(1).for_each(|key| key.store(free_key(number), Relaxed));
            }
        }
        let places = per_cpu.iter().map(|of_cpu| of_cpu.slots.as_ptr().expose_provenance() as u64);
        let places = fallible::boxed_slice(places)?;
        Ok(Some(Self { layout, per_cpu, places }))
    }

    /// Returns the layout of the slots of `map`; `None` if the map cannot have slots.
    fn layout(map: &Map) -> Option<Layout> {
        let layout = Layout::of(map.value).filter(|layout| matches!(layout, Layout::Count | Layout::Sum));
        layout.filter(|_| map.key_words() == 1)
    }

    /// Returns the number of words that the slots of `map` take on each CPU; 0 if the map cannot have slots.
    pub fn words_of_cpu(map: &Map) -> usize {
        Self::layout(map).map_or(0, |layout| (2 * Self::words(layout)) << BITS)
    }

    /// Returns the number of words of a slot, a power of 2.
    const fn words(layout: Layout) -> usize {
        if matches!(layout, Layout::Count) { 2 } else { 4 }
    }

    /// Returns the distance between slots in bytes, as a power of 2.
    pub const fn stride(layout: Layout) -> u8 {
        3 + Self::words(layout).trailing_zeros() as u8
    }

    /// Returns the virtual address of the list with the address of each CPU's slots.
    pub fn places(&self) -> u64 {
        self.places.as_ptr().expose_provenance() as u64
    }

    /// Returns the key word of the slot that `key` belongs to on this CPU, and the mark that it has if the slot is
    /// free. Also called in the hit path.
    #[inline(always)]
    pub fn slot(&self, cpu: usize, key: u64) -> Option<(&AtomicU64, u64)> {
        let number = (key.wrapping_mul(MIX) >> SHIFT) as usize;
        let place = self.per_cpu.get(cpu)?.slots.get(number * Self::words(self.layout))?;
        Some((place, free_key(number)))
    }

    /// Returns the slots in use, with their contents when they were last cleared.
    fn taken(&self) -> impl Iterator<Item = (&Cells, &Cells)> {
        let words = Self::words(self.layout);
        self.per_cpu.iter().flat_map(move |of_cpu| {
            let all = of_cpu.slots.chunks_exact(words).zip(of_cpu.before.chunks_exact(words)).enumerate();
            all.filter(|(number, (slot, _))| slot.first().is_some_and(|key| key.load(Relaxed) != free_key(*number)))
                .map(|(_, slot)| slot)
        })
    }

    /// Appends each key, and one word of its value, to `rows`.
    pub fn read(&self, rows: &mut Vec<u64>) -> Result<(), OutOfMemory> {
        for (slot, before) in self.taken() {
            let ([key, slot @ ..], [is_kept, before @ ..]) = (slot, before) else { continue };
            let since = |number: usize| {
                let now = slot.get(number).map_or(0, |word| word.load(Relaxed));
                now.wrapping_sub(before.get(number).map_or(0, |word| word.load(Relaxed)))
            };
            // A stub that is interrupted between its additions may have changed either word alone.
            if (0..slot.len()).any(|number| since(number) != 0) || is_kept.load(Relaxed) != 0 {
                let value = since(usize::from(self.layout == Layout::Sum));
                fallible::extend(rows, [key.load(Relaxed), value])?;
            }
        }
        Ok(())
    }

    /// Forgets what was collected so far. If `keep`, the present keys stay as entries.
    pub fn clear(&self, keep: bool) {
        for (slot, before) in self.taken() {
            let ([_, slot @ ..], [is_kept, before @ ..]) = (slot, before) else { continue };
            let mut is_entry = is_kept.load(Relaxed) != 0;
            for (word, before) in slot.iter().zip(before) {
                let now = word.load(Relaxed);
                is_entry |= now != before.swap(now, Relaxed);
            }
            is_kept.store(u64::from(keep && is_entry), Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::ir::{Aggregate, Code, MapValue, Type};
    use crate::maps::Limits;

    fn map(aggregate: Aggregate) -> Map {
        let key = Type::Integer { signed: false };
        Map { name: "m".into(), keys: vec![key], value: MapValue::Aggregate(aggregate), room: None }
    }

    fn read(cached: &Cached) -> Vec<[u64; 2]> {
        let mut rows = Vec::new();
        cached.read(&mut rows).unwrap();
        rows.as_chunks().0.to_vec()
    }

    /// Takes the slot of a key if it is free, and adds to the slot if it is the key's, as a stub does. Returns whether
    /// the slot was the key's.
    fn add(cached: &Cached, cpu: usize, key: u64, value: u64) -> bool {
        let (place, free_key) = cached.slot(cpu, key).unwrap();
        if place.load(Relaxed) == free_key {
            place.store(key, Relaxed);
        }
        let of_cpu = &cached.per_cpu[cpu].slots;
        let slot = (key.wrapping_mul(MIX) >> SHIFT) as usize * (1 << (Cached::stride(cached.layout) - 3));
        let has_it = of_cpu[slot].load(Relaxed) == key;
        if has_it {
            of_cpu[slot + 1].fetch_add(1, Relaxed);
            if cached.layout == Layout::Sum {
                of_cpu[slot + 2].fetch_add(value, Relaxed);
            }
        }
        has_it
    }

    #[test]
    fn every_key_is_found_where_it_is_and_nowhere_else() {
        let keys = (0..8_u64 << BITS).chain([u64::MAX, 1 << 63, MIX, MIX.wrapping_mul(3)]);
        let cached = Cached::new(&map(Aggregate::Count), 2).unwrap().unwrap();
        let mut taken = Vec::new();
        for key in keys {
            if add(&cached, 1, key, 0) {
                taken.push([key, 1]);
            }
        }
        assert!(taken.contains(&[0, 1]) && taken.len() == 1 << BITS);
        let mut rows = read(&cached);
        rows.sort_unstable();
        taken.sort_unstable();
        assert_eq!(rows, taken);
    }

    #[test]
    fn what_is_cleared_is_left_away_and_sums_go_on() {
        let cached = Cached::new(&map(Aggregate::Sum { signed: false }), 2).unwrap().unwrap();
        assert_eq!(read(&cached), [[0; 2]; 0]);
        assert!(add(&cached, 0, 0, 5) && add(&cached, 0, 0, 6) && add(&cached, 1, 0, 7) && add(&cached, 1, 9, 0));
        assert_eq!(read(&cached), [[0, 11], [0, 7], [9, 0]]);
        cached.clear(true);
        assert_eq!(read(&cached), [[0, 0], [0, 0], [9, 0]]);
        cached.clear(false);
        assert_eq!(read(&cached), [[0; 2]; 0]);
        assert!(add(&cached, 1, 9, 3));
        assert_eq!(read(&cached), [[9, 3]]);
    }

    #[test]
    fn an_addition_that_comes_after_a_clear_is_shown() {
        let cached = Cached::new(&map(Aggregate::Sum { signed: false }), 1).unwrap().unwrap();
        assert!(add(&cached, 0, 9, 5));
        let slot = (9_u64.wrapping_mul(MIX) >> SHIFT) as usize * Cached::words(cached.layout);
        let words = &cached.per_cpu[0].slots[slot..];
        words[1].fetch_add(1, Relaxed);
        cached.clear(false);
        words[2].fetch_add(7, Relaxed);
        assert_eq!(read(&cached), [[9, 7]]);
    }

    #[test]
    fn keys_and_values_that_have_no_slots_are_left_to_the_table() {
        let mut two = map(Aggregate::Count);
        two.keys.push(Type::Symbol);
        for map in [two, map(Aggregate::Histogram { bits: 0 }), map(Aggregate::Average { signed: false })] {
            assert!(Cached::new(&map, 1).unwrap().is_none(), "{map:?}");
        }
    }

    /// The memory for a program is computed before stubs need slots. A count and a sum take the same room in tables.
    #[test]
    fn the_size_of_a_program_includes_slots() {
        let [count, sum] = [Aggregate::Count, Aggregate::Sum { signed: false }].map(|aggregate| {
            let cached = Cached::new(&map(aggregate), 3).unwrap().unwrap();
            let words: usize = cached.per_cpu.iter().map(|of_cpu| of_cpu.slots.len() + of_cpu.before.len()).sum();
            let code = Code { routines: Vec::new(), maps: vec![map(aggregate)], actions: 0, stack_frames: 0 };
            (8 * words, Limits::usual(3).bytes(&code))
        });
        assert!(sum.0 > count.0);
        assert_eq!(sum.1 - count.1, sum.0 - count.0);
    }
}
