//! Damaged trees: reading one returns a meaningful error or another tree. It never panics, and always ends.

use super::builder::{Tree, cells, text};
use super::*;
use kprobes_random::{Random, tried::is_thorough};

/// Returns the error for `blob`, as the text that a user sees.
fn error(blob: &[u8]) -> String {
    read_blob(blob).expect_err("the tree is damaged").to_string()
}

/// Returns `blob` with word `index` of its header replaced.
fn with_field(blob: &[u8], index: usize, value: u32) -> std::vec::Vec<u8> {
    let mut blob = blob.to_vec();
    blob[index * 4..][..4].copy_from_slice(&value.to_be_bytes());
    blob
}

#[test]
fn addresses_are_checked_before_anything_is_read() {
    let error = |address| check_address(address, 1 << 38).expect_err("no tree can be there").to_string();
    assert_eq!(error(0), "the boot loader passed no device tree (x0 is 0)");
    assert_eq!(error(0x4000_0004), "the device tree is at 0x40000004, which is not a multiple of 8");
    assert_eq!(error(1 << 38), "the device tree is at 0x4000000000, which cannot be mapped");
    assert_eq!(error(u64::MAX - 7), "the device tree is at 0xfffffffffffffff8, which cannot be mapped");
    assert_eq!(check_address(0x4400_0000, 1 << 38), Ok(()));
    assert_eq!(check_address((1 << 38) - 40, 1 << 38), Ok(()));
}

#[test]
fn headers_are_refused_with_a_reason() {
    let blob = Tree::smallest().blob();
    let size = blob.len();
    assert_eq!(
        error(&with_field(&blob, 0, 0x1234)),
        "there is no device tree where the boot loader says: it starts with 0x00001234, not 0xd00dfeed"
    );
    assert_eq!(
        error(&with_field(&blob, 1, 39)),
        "the device tree's header says 39 bytes, which is not between 40 and 2097152"
    );
    assert_eq!(
        error(&with_field(&blob, 1, 0x20_0001)),
        "the device tree's header says 2097153 bytes, which is not between 40 and 2097152"
    );
    assert_eq!(
        error(&with_field(&blob, 1, size as u32 + 1)),
        format!("the device tree is truncated: {size} of {} bytes are present", size + 1)
    );
    assert_eq!(
        error(&with_field(&blob, 5, 16)),
        "the device tree has version 16, compatible with 16; version 17 is needed"
    );
    assert_eq!(
        error(&with_field(&blob, 6, 18)),
        "the device tree has version 17, compatible with 18; version 17 is needed"
    );
    for (field, value, block) in [
        (2, 0x1000, "structure"),
        (2, 42, "structure"),
        (9, u32::MAX, "structure"),
        (3, u32::MAX, "strings"),
        (8, size as u32, "strings"),
        (4, size as u32 & !7, "reservation"),
        (4, 36, "reservation"),
    ] {
        let error = error(&with_field(&blob, field, value));
        assert!(error.starts_with(&format!("the device tree's {block} block, ")), "{field}: {error}");
    }
}

#[test]
fn reservations_without_end_are_refused() {
    let mut blob = Tree::smallest().blob();
    // The only entry is the empty one. After the change, all that follows become reservations, too.
    blob[55] = 1;
    let blob: std::vec::Vec<u8> = blob.iter().map(|byte| if *byte == 0 { 0x40 } else { *byte }).collect();
    let header = Tree::smallest().blob()[..40].to_vec();
    assert_eq!(
        error(&[&header, &blob[40..]].concat()),
        "the device tree is damaged at offset 0x28: the list of reservations has no end"
    );
}

#[test]
fn structures_are_refused_with_a_reason() {
    let check = |change: &dyn Fn(&mut Tree), reason: &str| {
        let mut tree = Tree::smallest();
        change(&mut tree);
        let error = error(&tree.unfinished_blob());
        assert!(error.ends_with(reason), "{error:?}, not {reason:?}");
    };
    check(&|_| {}, ": it ends within a node");
    check(&|tree| _ = tree.token(9), ": it ends within a node");
    check(&|tree| _ = tree.token(2).token(2).token(9), ": a node ends without a beginning");
    check(&|tree| _ = tree.token(2).node("", |_| {}).token(9), ": there is a second root");
    check(&|tree| _ = tree.property("late", []).token(2).token(9), ": a property is outside the properties of a node");
    check(&|tree| _ = tree.token(5), ": an unknown token");
    check(&|tree| *tree = Tree::named("root"), ": the root has a name");
    check(&|tree| _ = tree.node("\u{7f}", |node| _ = node.token(3)), ": a property is cut off");
    check(
        &|tree| {
            for _ in 0..24 {
                tree.token(1).token(0);
            }
        },
        ": nodes are nested too deeply",
    );
}

#[test]
fn names_and_values_are_checked() {
    // The test changes the value of the last property and the names in the finished blob.
    let mut tree = Tree::smallest();
    tree.node("last", |node| {
        node.property("name", text("value"));
    });
    let blob = tree.blob();
    let at = |pattern: &[u8]| blob.windows(pattern.len()).rposition(|found| found == pattern).unwrap();
    let changed = |offset: usize, bytes: &[u8]| {
        let mut blob = blob.clone();
        blob[offset..][..bytes.len()].copy_from_slice(bytes);
        blob
    };
    let property = at(b"value") - 12;
    for (offset, bytes, reason) in [
        (property + 4, cells([0x1000]), "a property reaches beyond the block"),
        (property + 4, cells([u32::MAX]), "a property reaches beyond the block"),
        (property + 8, cells([u32::MAX]), "a property's name is not text"),
        (at(b"name"), vec![0xff], "a property's name is not text"),
        (at(b"name\0") + 4, vec![1], "a property's name is not text"),
        (at(b"last"), vec![0xff], "a node's name is not text"),
    ] {
        let error = error(&changed(offset, &bytes));
        assert!(error.ends_with(reason), "{error:?}, not {reason:?}");
    }
}

/// `reg` and `ranges` with entries of zero cells could have any number of entries.
#[test]
fn entries_without_cells_come_to_an_end() {
    let mut tree = Tree::smallest();
    for (node, ranges) in [("a", cells([0])), ("b", Default::default())] {
        tree.node(node, |bus| {
            bus.property("#address-cells", cells([0])).property("#size-cells", cells([0])).property("ranges", ranges);
            bus.node("inner", |bus| {
                bus.property("#address-cells", cells([0])).property("#size-cells", cells([0]));
                bus.property("ranges", cells([0]));
                bus.node("uart", |node| {
                    node.property("compatible", text("arm,pl011")).property("reg", cells([0]));
                });
            });
        });
    }
    assert_eq!(read_blob(&tree.blob()).unwrap().uart, None);
}

/// A blob that is cut off is refused. With the shorter length in its header, it may be read, but must not panic.
#[test]
fn truncated_trees_are_refused() {
    for blob in [VIRT_GICV2, VIRT_GICV3, &board().blob()] {
        for length in 0..blob.len() {
            assert!(read_blob(&blob[..length]).is_err(), "{length} bytes");
            if length >= HEADER_SIZE {
                // The strings come last. A cut through them goes unnoticed only if no property refers to the missing
                // part.
                let _ = read_blob(&with_field(&blob[..length], 1, length as u32));
            }
        }
    }
}

/// Each word of a tree becomes each of the values in a thorough run, and two of them in a usual run. Neighbouring words
/// become different values.
#[test]
fn no_change_of_a_word_makes_it_panic() {
    const VALUES: [u32; 8] = [0, 1, 2, 3, 4, 9, 0x7fff_ffff, u32::MAX];
    let step = if is_thorough() { 1 } else { 4 };
    for blob in [VIRT_GICV2, &board().blob()] {
        let mut errors = 0;
        for word in 0..blob.len() / 4 {
            for value in (0..VALUES.len()).step_by(step).map(|number| VALUES[(word + number) % VALUES.len()]) {
                let mut damaged = blob.to_vec();
                damaged[4 * word..][..4].copy_from_slice(&u32::to_be_bytes(value));
                errors += usize::from(read_blob(&damaged).is_err());
            }
        }
        assert!(errors > 100);
    }
}

/// Damages `blob`: cuts it off, changes bytes, or copies parts of it to other places.
fn damaged(blob: &[u8], random: &mut Random) -> std::vec::Vec<u8> {
    let mut damaged = blob.to_vec();
    let mut below = |end: usize| random.below(end);
    if below(4) == 0 {
        damaged.truncate(below(damaged.len()));
        // Half of the time, the header states the new length.
        if damaged.len() >= HEADER_SIZE && below(2) == 0 {
            let length = damaged.len() as u32;
            damaged[4..8].copy_from_slice(&length.to_be_bytes());
        }
    }
    for _ in 0..below(8) {
        let (from, to) = (below(damaged.len().max(1)), below(damaged.len().max(1)));
        match below(3) {
            0 => {
                let length = below(64).min(damaged.len() - from.max(to));
                damaged.copy_within(from..from + length, to);
            }
            // Small numbers may be tokens, lengths and counts of cells.
            1 => {
                damaged[to & !3..].iter_mut().take(4).zip([0, 0, 0, below(10) as u8]).for_each(|(old, new)| *old = new)
            }
            _ => damaged[to..].iter_mut().take(1).for_each(|byte| *byte = below(256) as u8),
        }
    }
    damaged
}

/// A usual run damages each tree a quarter as often as a thorough one.
#[test]
fn no_random_damage_makes_it_panic() {
    damage_randomly(if is_thorough() { 2_000 } else { 500 });
}

#[test]
#[ignore = "takes minutes: the same, more often"]
fn no_random_damage_ever_makes_it_panic() {
    damage_randomly(100_000);
}

/// Checks that every error has a message, and that every machine has memory and CPUs.
fn damage_randomly(times: usize) {
    let mut trees = vec![VIRT_GICV2.to_vec(), VIRT_GICV3.to_vec()];
    trees.extend(raspberry_pi::NAMES.map(|name| raspberry_pi::with_memory(&raspberry_pi::tree(name))));
    for (number, blob) in trees.iter().enumerate() {
        let mut random = Random::new(number as u64);
        let mut readings = 0;
        for _ in 0..times {
            match read_blob(&damaged(blob, &mut random)) {
                Ok(hardware) => {
                    assert!(!hardware.memory.is_empty() && !hardware.cpus.is_empty());
                    readings += 1;
                }
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
        // Both outcomes occur.
        assert!((times / 100..times - times / 100).contains(&readings), "{readings} readings of tree {number}");
    }
}
