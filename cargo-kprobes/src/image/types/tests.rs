//! Tables that are made of debugging information which is assembled here.

use std::collections::BTreeSet;
use std::ops::Range;

use kprobes_types::write::{Contents, CopyVariable, InlinedCopy, Type};
use kprobes_types::{LineRow, Source, TypeKind, Unknown, ValuePart, ValuePlace, hash};

use super::super::debug::{Entries, Files, load};

const START: u64 = 0xffff_ffc0_0000_1000;

/// Forms of entries (DWARF 4, section 7.5): for each the number, the tag, whether it has children, and the
/// attributes with their forms.
const ABBREVIATIONS: &[u8] = &[
    1, 0x11, 1, 0, 0, // A unit.
    2, 0x24, 0, 0x03, 0x08, 0x0b, 0x0b, 0x3e, 0x0b, 0, 0, // A number: name, size, encoding.
    3, 0x39, 1, 0x03, 0x08, 0, 0, // A module.
    4, 0x2e, 1, 0x03, 0x08, 0, 0, // A function by its name.
    5, 0x05, 0, 0x03, 0x08, 0x49, 0x13, 0, 0, // An argument of it: name, type.
    6, 0x34, 0, 0x03, 0x08, 0x49, 0x13, 0, 0, // A local of it.
    7, 0x2e, 1, 0x03, 0x08, 0x11, 0x01, 0x12, 0x06, 0x40, 0x18, 0, 0, // A function at addresses, with its frame.
    8, 0x1d, 1, 0x31, 0x13, 0x11, 0x01, 0x12, 0x06, 0, 0, // A copy at consecutive addresses.
    9, 0x05, 0, 0x31, 0x13, 0x02, 0x18, 0, 0, // An argument of it, at one place.
    10, 0x34, 0, 0x31, 0x13, 0x02, 0x18, 0, 0, // A local of it.
    11, 0x0b, 1, 0, 0, // A block.
    12, 0x2e, 1, 0x31, 0x13, 0x11, 0x01, 0x12, 0x06, 0, 0, // A function at addresses that was also inlined.
    13, 0x0b, 1, 0x31, 0x13, 0x11, 0x01, 0x12, 0x06, 0, 0, // A block of it.
    14, 0x01, 1, 0x49, 0x13, 0, 0, // An array: the type of its elements.
    15, 0x21, 0, 0x37, 0x0b, 0, 0, // Their number.
    16, 0x13, 1, 0x03, 0x08, 0x0b, 0x0b, 0x88, 0x01, 0x0b, 0, 0, // A struct: name, size, alignment.
    17, 0x0d, 0, 0x03, 0x08, 0x49, 0x13, 0x38, 0x0b, 0, 0, // A member: name, type, offset.
    18, 0x16, 0, 0x49, 0x13, 0, 0, // A typedef of a type.
    19, 0x26, 0, 0x49, 0x13, 0, 0, // A constant type.
    20, 0x35, 0, 0x49, 0x13, 0, 0, // A volatile type.
    21, 0x37, 0, 0x49, 0x13, 0, 0, // A restricted type.
    22, 0x47, 0, 0x49, 0x13, 0, 0, // An atomic type.
    23, 0x26, 0, 0, 0, // A constant without a type: `const void`.
    24, 0x2e, 1, 0x6e, 0x08, 0x49, 0x13, 0x11, 0x01, 0x12, 0x06, 0, 0, // One with a linkage name and a result.
    25, 0x0d, 0, 0x03, 0x08, 0x49, 0x13, 0x0d, 0x0b, 0x6b, 0x0b, 0, 0, // A bit field: size, offset.
    26, 0x0d, 0, 0x03, 0x08, 0x49, 0x13, 0x0d, 0x0b, 0x0c, 0x0b, 0x38, 0x0b, 0, 0, // A bit field of a word.
    27, 0x05, 0, 0x03, 0x08, 0x49, 0x13, 0x02, 0x18, 0, 0, // An argument at a place.
    28, 0x0d, 0, 0x03, 0x08, 0x49, 0x13, 0x38, 0x18, 0, 0, // A member whose offset is computed.
    29, 0x0f, 0, 0x49, 0x13, 0, 0, // A pointer.
    30, 0x02, 1, 0x03, 0x08, 0, 0, // A class of C++.
    31, 0x34, 0, 0x03, 0x08, 0x49, 0x13, 0x02, 0x18, 0, 0, // A local at a place.
    32, 0x13, 0, 0x03, 0x08, 0x3c, 0x19, 0, 0, // A struct that is only declared.
    33, 0x16, 0, 0x49, 0x14, 0, 0, // A typedef of a type, by an offset of 8 bytes.
    34, 0x21, 0, 0x2f, 0x0d, 0, 0, // The last index of an array.
    35, 0x21, 0, 0, 0, // A dimension of unknown length.
    0,
];

/// Assembles entries of one unit.
struct Unit(Vec<u8>);

impl Unit {
    /// Adds an entry, and returns its offset.
    fn add(&mut self, abbreviation: u8, parts: &[&[u8]]) -> [u8; 4] {
        let at = self.0.len() as u32;
        self.0.push(abbreviation);
        self.0.extend(parts.concat());
        at.to_le_bytes()
    }

    fn end(&mut self) {
        self.0.push(0);
    }

    /// Returns the offset of the next entry.
    fn position(&self) -> [u8; 4] {
        (self.0.len() as u32).to_le_bytes()
    }

    /// Returns the bytes of the unit, with their header.
    fn finish(self) -> Vec<u8> {
        let mut bytes = self.0;
        let header = [&(bytes.len() as u32 - 4).to_le_bytes()[..], &[4, 0, 0, 0, 0, 0, 8]].concat();
        bytes[..11].copy_from_slice(&header);
        bytes
    }

    /// Returns what the table has of a function at `START`.
    fn contents(self) -> Contents {
        contents_of(self.finish())
    }
}

/// Returns what the table has of a function at `START`, which is in these units.
fn contents_of(units: Vec<u8>) -> Contents {
    let (info, nothing): (&'static [u8], &'static [u8]) = (units.leak(), &[]);
    let section = |name: &str| match name {
        ".debug_info" => info,
        ".debug_abbrev" => ABBREVIATIONS,
        _ => nothing,
    };
    let entries = Entries::read(&load(section), &mut Files::default()).unwrap();
    super::functions(&entries, &|start| (start == START).then_some(START..START + 0x80), &BTreeSet::new())
}

/// A function with a copy of `kernel::step`, in that one of `core::read`, and in that one of `kernel::last`.
fn with_copies() -> Contents {
    let mut unit = Unit(vec![0; 11]);
    let at = |offset: u64| (START + offset).to_le_bytes();
    let length = |bytes: u32| bytes.to_le_bytes();
    unit.add(1, &[]);
    let number = unit.add(2, &[b"u64\0", &[8, 7]]);
    unit.add(3, &[b"kernel\0"]);
    let step = unit.add(4, &[b"step\0"]);
    let level = unit.add(5, &[b"level\0", &number]);
    let spilled = unit.add(5, &[b"spilled\0", &number]);
    unit.add(5, &[b"gone\0", &number]);
    let sum = unit.add(6, &[b"sum\0", &number]);
    unit.end();
    let last = unit.add(4, &[b"last\0"]);
    let item = unit.add(5, &[b"item\0", &number]);
    unit.end();
    unit.end();
    unit.add(3, &[b"core\0"]);
    let read = unit.add(4, &[b"read\0"]);
    let source = unit.add(5, &[b"source\0", &number]);
    unit.end();
    unit.end();
    // The base of the frame is x29.
    unit.add(7, &[b"main\0", &at(0), &length(0x80), &[1, 0x6d]]);
    unit.add(8, &[&step, &at(8), &length(0x20)]);
    unit.add(9, &[&level, &[1, 0x53]]);
    unit.add(9, &[&spilled, &[2, 0x91, 0x70]]);
    unit.add(10, &[&sum, &[2, 0x91, 0x08]]);
    unit.add(8, &[&read, &at(12), &length(0x10)]);
    unit.add(9, &[&source, &[1, 0x54]]);
    // Its end is beyond that of the copy that it is in.
    unit.add(8, &[&last, &at(16), &length(0x40)]);
    unit.add(9, &[&item, &[1, 0x55]]);
    for _ in 0..5 {
        unit.end();
    }
    unit.contents()
}

#[test]
fn a_copy_has_the_places_of_the_variables_of_its_function() {
    let contents = with_copies();
    let [main] = contents.functions.as_slice() else { panic!("{:?}", contents.functions) };
    assert!(main.variables.is_empty(), "{:?}", main.variables);
    let names = |of: &InlinedCopy| {
        let variables = &contents.inlined[of.of].variables;
        variables.iter().map(|(name, of, is_argument)| (name.as_str(), of.is_some(), *is_argument)).collect::<Vec<_>>()
    };
    let [step, last] = main.copies.as_slice() else { panic!("that of core is left out: {:?}", main.copies) };
    let all = [("level", true, true), ("spilled", true, true), ("gone", false, true), ("sum", true, false)];
    assert_eq!((names(step), names(last)), (all.to_vec(), vec![("item", true, true)]));
    let alone = |range: Range<u32>| std::iter::once(range).collect::<Vec<_>>();
    assert_eq!(contents.inlined[step.of].hash, hash("step"));
    assert_eq!((&step.instructions, &last.instructions), (&alone(0x8..0x28), &alone(0x10..0x1c)));
    let register = |number| {
        let first = ValuePart { offset: 0, bytes: 8, source: Source::Register(number) };
        ValuePlace::Words { first, second: None }
    };
    let place = |number, place| CopyVariable { number, scope: vec![], places: vec![(0x8..0x28, place)] };
    let sum = place(3, ValuePlace::Memory { register: 29, offset: 8 });
    // It is not known when the argument was stored in the frame.
    let spilled = place(1, ValuePlace::Unknown(Unknown::Unsaid));
    assert_eq!(step.variables, [place(0, register(3)), spilled, sum]);
    assert_eq!(last.variables, [CopyVariable { number: 0, scope: vec![], places: vec![(0x10..0x1c, register(5))] }]);
}

/// Returns the scope of each local of a function, and whether it has a place anywhere.
fn locals(contents: &Contents) -> Vec<(&str, Vec<Range<u32>>, bool)> {
    let [function] = contents.functions.as_slice() else { panic!("{:?}", contents.functions) };
    let locals = function.variables.iter().filter(|one| !one.is_argument);
    locals.map(|one| (one.name.as_str(), one.scope.clone(), !one.places.is_empty())).collect()
}

#[test]
fn a_local_of_a_block_without_instructions_hides_none() {
    let mut unit = Unit(vec![0; 11]);
    let at = |offset: u64| (START + offset).to_le_bytes();
    let length = |bytes: u32| bytes.to_le_bytes();
    unit.add(1, &[]);
    let number = unit.add(2, &[b"u64\0", &[8, 7]]);
    // { value; { other; { value } { value } } }
    let step = unit.add(4, &[b"step\0"]);
    let value = unit.add(6, &[b"value\0", &number]);
    let block = unit.add(11, &[]);
    let other = unit.add(6, &[b"other\0", &number]);
    unit.add(11, &[]);
    unit.add(6, &[b"value\0", &number]);
    unit.end();
    let inner = unit.add(11, &[]);
    let inner_value = unit.add(6, &[b"value\0", &number]);
    for _ in 0..3 {
        unit.end();
    }
    // The block of the second `value` has no instruction.
    unit.add(12, &[&step, &at(0), &length(0x80)]);
    unit.add(10, &[&value, &[1, 0x53]]);
    unit.add(13, &[&block, &at(0x10), &length(0x40)]);
    unit.add(10, &[&other, &[1, 0x55]]);
    unit.add(13, &[&inner, &at(0x20), &length(0x10)]);
    unit.add(10, &[&inner_value, &[1, 0x56]]);
    for _ in 0..4 {
        unit.end();
    }
    let contents = unit.contents();
    let inner_scope = std::iter::once(0x20..0x30).collect();
    assert_eq!(locals(&contents), [("value", vec![], true), ("other", vec![], true), ("value", inner_scope, true)]);
}

#[test]
fn a_local_whose_value_is_an_address_is_no_static() {
    let mut unit = Unit(vec![0; 11]);
    let address = 0x1234_u64.to_le_bytes();
    unit.add(1, &[]);
    let number = unit.add(2, &[b"u64\0", &[8, 7]]);
    unit.add(7, &[b"main\0", &START.to_le_bytes(), &0x80_u32.to_le_bytes(), &[1, 0x6d]]);
    unit.add(31, &[b"STATIC\0", &number, &[9, 0x03], &address]);
    unit.add(31, &[b"MERGED\0", &number, &[11, 0x03], &address, &[0x23, 8]]);
    unit.add(31, &[b"value\0", &number, &[10, 0x03], &address, &[0x9f]]);
    unit.end();
    unit.end();
    assert_eq!(locals(&unit.contents()), [("value", vec![], true)]);
}

/// Returns the contents of a table for a function with an argument and a local of the type that `add` adds.
fn with_type(add: impl FnOnce(&mut Unit) -> [u8; 4]) -> Contents {
    unit_with_type(add).contents()
}

/// Returns a unit with a function with an argument and a local of the type that `add` adds.
fn unit_with_type(add: impl FnOnce(&mut Unit) -> [u8; 4]) -> Unit {
    let mut unit = Unit(vec![0; 11]);
    unit.add(1, &[]);
    let of = add(&mut unit);
    unit.add(7, &[b"main\0", &START.to_le_bytes(), &0x80_u32.to_le_bytes(), &[1, 0x6d]]);
    unit.add(5, &[b"argument\0", &of]);
    unit.add(6, &[b"local\0", &of]);
    unit.end();
    unit.end();
    unit
}

/// Returns the type of the argument of the only function.
fn argument_type(contents: &Contents) -> &Type {
    let [function] = contents.functions.as_slice() else { panic!("{:?}", contents.functions) };
    let [argument] = function.arguments.as_slice() else { panic!("{:?}", function.arguments) };
    &contents.types[argument.of]
}

/// Returns the contents of a table for a function that returns the type that `add` adds.
fn returning(linkage_name: &[u8], add: impl FnOnce(&mut Unit) -> [u8; 4]) -> Contents {
    let mut unit = Unit(vec![0; 11]);
    unit.add(1, &[]);
    let of = add(&mut unit);
    unit.add(24, &[linkage_name, &of, &START.to_le_bytes(), &0x80_u32.to_le_bytes()]);
    unit.end();
    unit.end();
    unit.contents()
}

/// Returns the type and the place of the result of the only function.
fn result(contents: &Contents) -> (&Type, ValuePlace) {
    let [function] = contents.functions.as_slice() else { panic!("{:?}", contents.functions) };
    (&contents.types[function.returned.of], function.returned.place)
}

/// Adds `u64` with this many qualifiers in front of it.
fn qualified(unit: &mut Unit, count: usize) -> [u8; 4] {
    let number = unit.add(2, &[b"u64\0", &[8, 7]]);
    (18..=22).cycle().take(count).fold(number, |of, qualifier| unit.add(qualifier, &[&of]))
}

#[test]
fn typedefs_and_qualifiers_are_followed() {
    let unsigned = TypeKind::Integer { signed: false };
    for count in [0, 1, 5, 64] {
        let contents = with_type(|unit| qualified(unit, count));
        let of = argument_type(&contents);
        assert_eq!((of.name.as_str(), of.size, &of.shape), ("u64", 8, &unsigned), "{count} qualifiers");
    }
    let contents = returning(b"jiffies\0", |unit| qualified(unit, 2));
    let first = ValuePart { offset: 0, bytes: 8, source: Source::Register(0) };
    assert_eq!((result(&contents).0.size, result(&contents).1), (8, ValuePlace::Words { first, second: None }));
    let contents = returning(b"discard\0", |unit| unit.add(23, &[]));
    assert_eq!((&result(&contents).0.shape, result(&contents).1), (&TypeKind::Unit, ValuePlace::Nothing));
}

#[test]
fn a_type_that_is_not_found_is_unknown() {
    let of_itself = |unit: &mut Unit| {
        let own = unit.position();
        unit.add(18, &[&own])
    };
    let beyond = |_: &mut Unit| 0x1000_u32.to_le_bytes();
    let unknown = ("unknown type", &TypeKind::Opaque);
    let arguments = [with_type(of_itself), with_type(beyond), with_type(|unit| qualified(unit, 65))];
    for contents in &arguments {
        let of = argument_type(contents);
        assert_eq!((of.name.as_str(), &of.shape), unknown);
    }
    for contents in [returning(b"probe\0", of_itself), returning(b"probe\0", beyond)] {
        let (of, place) = result(&contents);
        assert_eq!((of.name.as_str(), &of.shape), unknown);
        assert_eq!(place, ValuePlace::Unknown(Unknown::Layout));
    }
}

#[test]
fn an_offset_that_wraps_refers_to_nothing() {
    let mut first = Unit(vec![0; 11]);
    first.add(1, &[]);
    let number = first.add(2, &[b"u64\0", &[8, 7]]);
    first.end();
    let mut units = first.finish();
    // Counted from the second unit, it wraps to the type in the first.
    let offset = u64::from(u32::from_le_bytes(number)).wrapping_sub(units.len() as u64);
    units.extend(unit_with_type(|unit| unit.add(33, &[&offset.to_le_bytes()])).finish());
    assert_eq!(argument_type(&contents_of(units)).name, "unknown type");
}

#[test]
fn a_struct_with_bit_fields_is_opaque() {
    for (bit_field, places) in [(25, &[3, 5][..]), (26, &[3, 5, 0])] {
        let contents = with_type(|unit| {
            let number = unit.add(2, &[b"u32\0", &[4, 7]]);
            let own = unit.add(16, &[b"Flags\0", &[4, 4]]);
            unit.add(bit_field, &[b"mode\0", &number, places]);
            unit.end();
            own
        });
        let of = argument_type(&contents);
        assert_eq!((of.name.as_str(), of.size, &of.shape), ("Flags", 4, &TypeKind::Opaque));
    }
}

#[test]
fn a_struct_that_is_only_declared_is_opaque() {
    let contents = with_type(|unit| {
        let declared = unit.add(32, &[b"file\0"]);
        unit.add(29, &[&declared])
    });
    let TypeKind::Pointer { target, .. } = argument_type(&contents).shape else { panic!("{:?}", contents.types) };
    assert_eq!((contents.types[target].name.as_str(), &contents.types[target].shape), ("file", &TypeKind::Opaque));
}

#[test]
fn an_array_of_several_dimensions_is_one_of_arrays() {
    let contents = with_type(|unit| {
        let number = unit.add(2, &[b"int\0", &[4, 5]]);
        let rows = unit.add(14, &[&number]);
        unit.add(15, &[&[2]]);
        unit.add(15, &[&[3]]);
        unit.add(15, &[&[4]]);
        unit.end();
        rows
    });
    let mut of = argument_type(&contents);
    for (name, size, number) in [("[[[int; 4]; 3]; 2]", 96, 2), ("[[int; 4]; 3]", 48, 3), ("[int; 4]", 16, 4)] {
        assert_eq!((of.name.as_str(), of.size), (name, size));
        let TypeKind::Array { element, count } = of.shape else { panic!("{:?}", contents.types) };
        assert_eq!(count, number);
        of = &contents.types[element];
    }
    assert_eq!((of.name.as_str(), of.size), ("int", 4));
}

#[test]
fn the_last_index_of_an_array_tells_its_length() {
    let array = |dimension: u8, last: &[u8]| {
        with_type(|unit| {
            let number = unit.add(2, &[b"char\0", &[1, 8]]);
            let text = unit.add(14, &[&number]);
            unit.add(dimension, &[last]);
            unit.end();
            text
        })
    };
    for (last, name, count) in [(15, "[char; 16]", 16), (0, "[char; 1]", 1), (0x7f, "[char; 0]", 0)] {
        let contents = array(34, &[last]);
        let of = argument_type(&contents);
        let TypeKind::Array { count: found, .. } = of.shape else { panic!("{:?}", contents.types) };
        assert_eq!((of.name.as_str(), of.size, found), (name, count, count));
    }
    let contents = array(35, &[]);
    let of = argument_type(&contents);
    assert_eq!((of.name.as_str(), of.size, &of.shape), ("[char]", 0, &TypeKind::Opaque));
}

#[test]
fn a_number_of_no_usual_size_has_no_known_place() {
    for bytes in [9, 15, 17, 255] {
        let contents = returning(b"_RNvC6kernel4wide\0", |unit| unit.add(2, &[b"wide\0", &[bytes, 7]]));
        assert_eq!(result(&contents).1, ValuePlace::Unknown(Unknown::Layout), "{bytes} bytes");
    }
}

#[test]
fn a_part_of_a_place_has_at_most_8_bytes() {
    let mut unit = Unit(vec![0; 11]);
    unit.add(1, &[]);
    let [number, wide] = [(&b"u64\0"[..], 8), (b"u128\0", 16)].map(|(name, bytes)| unit.add(2, &[name, &[bytes, 7]]));
    let pair = unit.add(16, &[b"Pair\0", &[32, 16]]);
    unit.add(17, &[b"one\0", &number, &[0]]);
    unit.add(17, &[b"other\0", &wide, &[16]]);
    unit.end();
    unit.add(7, &[b"main\0", &START.to_le_bytes(), &0x80_u32.to_le_bytes(), &[1, 0x6d]]);
    // Its first 8 bytes are in x0.
    unit.add(27, &[b"argument\0", &pair, &[3, 0x50, 0x93, 8]]);
    unit.end();
    unit.end();
    super::table(&unit.contents(), START).unwrap();
}

#[test]
fn a_table_that_the_image_could_not_read_is_an_error() {
    let row = |offset| LineRow { address: START + offset, file: 0, line: 1, is_statement: true };
    let of = |rows| Contents { rows, files: vec!["src/lib.rs".into()], ..Contents::default() };
    assert!(super::table(&of(vec![row(0), row(4)]), START).is_ok());
    let error = super::table(&of(vec![row(0), row(2)]), START).unwrap_err().to_string();
    assert_eq!(error, "the table of types is inconsistent: its lines");
}

#[test]
fn a_member_at_an_unknown_offset_leads_nowhere() {
    let contents = with_type(|unit| {
        let number = unit.add(2, &[b"u64\0", &[8, 7]]);
        let counted = unit.add(16, &[b"ArcInner\0", &[24, 8]]);
        unit.add(17, &[b"data\0", &number, &[16]]);
        unit.end();
        let address = unit.add(29, &[&counted]);
        let pointer = unit.add(16, &[b"NonNull\0", &[9, 1]]);
        unit.add(17, &[b"pointer\0", &address, &[1]]);
        unit.end();
        unit.add(3, &[b"alloc\0"]);
        unit.add(3, &[b"sync\0"]);
        let own = unit.add(16, &[b"Arc<u64>\0", &[8, 8]]);
        // `DW_OP_deref`.
        unit.add(28, &[b"ptr\0", &pointer, &[1, 0x06]]);
        (0..3).for_each(|_| unit.end());
        own
    });
    assert_eq!(argument_type(&contents).shape, TypeKind::Opaque);
}

#[test]
fn members_of_a_class_in_a_struct_are_not_those_of_the_struct() {
    let contents = with_type(|unit| {
        let number = unit.add(2, &[b"u32\0", &[4, 7]]);
        let own = unit.add(16, &[b"Outer\0", &[8, 4]]);
        unit.add(30, &[b"Inner\0"]);
        unit.add(17, &[b"x\0", &number, &[0]]);
        unit.end();
        unit.add(17, &[b"y\0", &number, &[4]]);
        unit.end();
        own
    });
    let TypeKind::Struct { members, .. } = &argument_type(&contents).shape else { panic!("{:?}", contents.types) };
    let members: Vec<_> = members.iter().map(|(name, offset, _)| (name.as_str(), *offset)).collect();
    assert_eq!(members, [("y", 4)]);
}

#[test]
fn a_type_that_contains_itself_is_read() {
    let array = |unit: &mut Unit| {
        let own = unit.position();
        unit.add(14, &[&own]);
        unit.add(15, &[&[3]]);
        unit.end();
        own
    };
    let in_itself = |name: &'static [u8], offsets: &'static [u8]| {
        move |unit: &mut Unit| {
            let own = unit.position();
            unit.add(16, &[name, &[8, 8]]);
            for &offset in offsets {
                unit.add(17, &[b"inner\0", &own, &[offset]]);
            }
            unit.end();
            own
        }
    };
    let atomic = |unit: &mut Unit| {
        for module in [&b"core\0"[..], b"sync\0", b"atomic\0"] {
            unit.add(3, &[module]);
        }
        let own = in_itself(b"AtomicLoop\0", &[0])(unit);
        (0..3).for_each(|_| unit.end());
        own
    };
    let all = [
        with_type(array),
        with_type(in_itself(b"Loop\0", &[0])),
        with_type(in_itself(b"Pair\0", &[0, 8])),
        with_type(atomic),
    ];
    for contents in all {
        let [main] = contents.functions.as_slice() else { panic!("{:?}", contents.functions) };
        let [argument] = main.arguments.as_slice() else { panic!("{:?}", main.arguments) };
        assert_eq!(argument.place, ValuePlace::Unknown(Unknown::Layout), "{:?}", contents.types[argument.of]);
    }
}

#[test]
fn pairs_of_pairs_take_no_longer_at_each_level() {
    let contents = with_type(|unit| {
        let mut of = unit.add(2, &[b"u8\0", &[1, 7]]);
        for _ in 0..50 {
            let members = of;
            of = unit.add(16, &[b"Pair\0", &[2, 1]]);
            unit.add(17, &[b"one\0", &members, &[0]]);
            unit.add(17, &[b"other\0", &members, &[1]]);
            unit.end();
        }
        of
    });
    assert_eq!(contents.functions.len(), 1);
}

#[test]
fn a_function_that_completes_itself_is_read() {
    let mut unit = Unit(vec![0; 11]);
    unit.add(1, &[]);
    let own = unit.position();
    unit.add(12, &[&own, &START.to_le_bytes(), &0x80_u32.to_le_bytes()]);
    unit.end();
    unit.end();
    let contents = unit.contents();
    assert_eq!(contents.functions.iter().map(|function| function.address).collect::<Vec<_>>(), [START]);
}

#[test]
fn locals_of_blocks_that_are_nested_deeply_are_read() {
    const DEPTH: usize = 50_000;
    let mut unit = Unit(vec![0; 11]);
    let (at, length) = (START.to_le_bytes(), 0x80_u32.to_le_bytes());
    unit.add(1, &[]);
    let number = unit.add(2, &[b"u64\0", &[8, 7]]);
    let step = unit.add(4, &[b"step\0"]);
    unit.end();
    unit.add(12, &[&step, &at, &length]);
    for _ in 0..DEPTH {
        unit.add(13, &[&step, &at, &length]);
    }
    unit.add(6, &[b"inner\0", &number]);
    (0..DEPTH + 2).for_each(|_| unit.end());
    assert_eq!(locals(&unit.contents()), [("inner", vec![], false)]);
}
