//! Reads the entries of the debugging information about functions, their copies, variables and types (DWARF 4, sections
//! 3.3 and 5), and resolves the references between them.

use std::{iter, ops};

use gimli::{AttributeValue, DebuggingInformationEntry, DwTag, Dwarf, Expression, Operation, Unit};

use kprobes_types::VTABLE_SIZE;

use super::bytes::Bytes;
use super::lines::{Files, UnitFiles};
use super::location::{self, Location, Piece};

/// The number of an entry.
pub type Index = usize;

/// The longest chain of entries that complete one another: a copy, a definition and a declaration.
const ENTRIES_MAX: usize = 3;
/// How deep types are followed into each other: qualified types, the elements of arrays, and the members of structs. In
/// damaged information, a type may contain itself.
pub const NESTED_MAX: usize = 64;
/// The entry that stands for types that cannot be found.
const UNKNOWN: Index = 0;
/// The offset of the entry for types that cannot be found. Units begin with a header, so no entry of a unit has it.
const UNKNOWN_OFFSET: usize = 0;

/// The needed parts of a debugging information entry (DWARF 4, section 2.1).
#[derive(Default)]
pub struct DebugEntry<'a> {
    pub tag: Option<DwTag>,
    pub parent: Option<Index>,
    pub children: Vec<Index>,
    pub name: Option<&'a [u8]>,
    pub linkage_name: Option<&'a [u8]>,
    pub size: Option<u64>,
    pub alignment: Option<u64>,
    pub encoding: Option<gimli::DwAte>,
    /// The offset of a member in bytes. `u64::MAX` if it is unknown, as that of a bit field.
    pub offset: u64,
    /// The value of an enumerator, or of the tag of a variant, as bits.
    pub value: Option<u64>,
    /// The number of elements of a dimension of an array.
    pub count: Option<u64>,
    /// The address at which the code of a function begins.
    pub start: Option<u64>,
    /// Whether the compiler has changed how the function is called.
    pub is_changed: bool,
    /// The locations of a parameter or a local variable, each with the range of addresses where it holds. Empty if it
    /// has none.
    pub locations: Vec<(ops::Range<u64>, Location)>,
    /// The file and the line of the declaration of a function.
    pub declared: Option<(u32, u32)>,
    /// The address of a variable at a fixed place.
    pub address: Option<u64>,
    /// The addresses of the instructions of a block or an inlined copy.
    pub ranges: Vec<ops::Range<u64>>,
    /// The general register with the base of a function's frame.
    pub frame: Option<u8>,
    /// References, by offset in `.debug_info`: the type; the entry that has the missing parts; the member that is the
    /// tag; and the type that a vtable is of.
    of: Option<usize>,
    origin: Option<usize>,
    tag_member: Option<usize>,
    implementor: Option<usize>,
}

/// All needed entries.
pub struct Entries<'a> {
    all: Vec<DebugEntry<'a>>,
    /// The offset of each entry in `.debug_info`, in ascending order.
    offsets: Vec<usize>,
    /// The addresses of the instructions that belong to inlined functions.
    inlined: Vec<ops::Range<u64>>,
}

impl<'a> ops::Index<Index> for Entries<'a> {
    type Output = DebugEntry<'a>;

    fn index(&self, index: Index) -> &DebugEntry<'a> {
        &self.all[index]
    }
}

/// Whether entries of this kind are needed.
fn is_needed(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_namespace
            | gimli::DW_TAG_subprogram
            | gimli::DW_TAG_formal_parameter
            | gimli::DW_TAG_base_type
            | gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_structure_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_enumeration_type
            | gimli::DW_TAG_enumerator
            | gimli::DW_TAG_array_type
            | gimli::DW_TAG_subrange_type
            | gimli::DW_TAG_subroutine_type
            | gimli::DW_TAG_member
            | gimli::DW_TAG_variant_part
            | gimli::DW_TAG_variant
            | gimli::DW_TAG_template_type_parameter
            | gimli::DW_TAG_variable
            | gimli::DW_TAG_lexical_block
            | gimli::DW_TAG_inlined_subroutine
    ) || is_qualifier(tag)
}

/// Whether entries of this kind are types whose values are those of another type.
fn is_qualifier(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_typedef
            | gimli::DW_TAG_const_type
            | gimli::DW_TAG_volatile_type
            | gimli::DW_TAG_restrict_type
            | gimli::DW_TAG_atomic_type
    )
}

impl<'a> Entries<'a> {
    /// Reads the entries, and adds the files of declarations to `files`.
    pub fn read(dwarf: &Dwarf<Bytes<'a>>, files: &mut Files) -> gimli::Result<Self> {
        let unknown = DebugEntry { name: Some(b"unknown type"), ..DebugEntry::default() };
        let mut entries = Self { all: vec![unknown], offsets: vec![UNKNOWN_OFFSET], inlined: Vec::new() };
        let mut headers = dwarf.units();
        while let Some(header) = headers.next()? {
            let unit = dwarf.unit(header)?;
            entries.read_unit(dwarf, &unit, files)?;
        }
        entries.inlined = merged(entries.inlined);
        Ok(entries)
    }

    fn read_unit(&mut self, dwarf: &Dwarf<Bytes<'a>>, unit: &Unit<Bytes<'a>>, files: &mut Files) -> gimli::Result<()> {
        let mut numbers = UnitFiles::default();
        let mut cursor = unit.entries();
        // The entries around this one, with their depths. `None` for those that are not needed: what is in them has no
        // parent.
        let mut around: Vec<(isize, Option<Index>)> = Vec::new();
        while let Some(entry) = cursor.next_dfs()? {
            while around.last().is_some_and(|&(depth, _)| depth >= entry.depth()) {
                around.pop();
            }
            let parent = around.last().copied();
            if !is_needed(entry.tag()) {
                around.push((entry.depth(), None));
                continue;
            }
            let parent = parent.and_then(|(_, parent)| parent);
            let index = self.all.len();
            let mut read = read_entry(dwarf, unit, entry, parent)?;
            if read.tag == Some(gimli::DW_TAG_inlined_subroutine) {
                self.inlined.extend(read.ranges.iter().cloned());
            }
            let number = |name| entry.attr_value(name).and_then(|value| value.udata_value());
            if let Some(program) = unit.line_program.as_ref().filter(|_| entry.tag() == gimli::DW_TAG_subprogram)
                && let Some(AttributeValue::FileIndex(file)) = entry.attr_value(gimli::DW_AT_decl_file)
                && let Some(line) = number(gimli::DW_AT_decl_line).and_then(|line| u32::try_from(line).ok())
            {
                let file = files.number(&mut numbers, dwarf, unit, program.header(), file)?;
                read.declared = Some((file, line)).filter(|_| line > 0);
            }
            if let Some(parent) = parent {
                self.all[parent].children.push(index);
            }
            self.all.push(read);
            self.offsets.push(unit.header.offset().0 + entry.offset().0);
            around.push((entry.depth(), Some(index)));
        }
        Ok(())
    }

    /// Returns the entry at this offset in `.debug_info`, if it is a needed one.
    fn at(&self, offset: usize) -> Option<Index> {
        self.offsets.binary_search(&offset).ok()
    }

    /// Returns the functions that have code.
    pub fn functions(&self) -> impl Iterator<Item = Index> {
        let is_function = |entry: &DebugEntry<'_>| entry.tag == Some(gimli::DW_TAG_subprogram) && entry.start.is_some();
        (0..self.all.len()).filter(move |&index| is_function(&self.all[index]))
    }

    /// Returns the inlined copies of functions.
    pub fn copies(&self) -> impl Iterator<Item = Index> {
        (0..self.all.len()).filter(|&index| self.all[index].tag == Some(gimli::DW_TAG_inlined_subroutine))
    }

    /// Returns the copy that this one is in; `None` for one that is directly in a function.
    pub fn copy_around(&self, copy: Index) -> Option<Index> {
        let mut around = iter::successors(self[copy].parent, |&parent| self[parent].parent);
        let is_code = |tag| matches!(tag, gimli::DW_TAG_subprogram | gimli::DW_TAG_inlined_subroutine);
        let around = around.find(|&parent| self[parent].tag.is_some_and(is_code))?;
        (self[around].tag == Some(gimli::DW_TAG_inlined_subroutine)).then_some(around)
    }

    /// Returns whether the instruction at `address` belongs to an inlined function.
    pub fn is_inlined(&self, address: u64) -> bool {
        let after = self.inlined.partition_point(|range| range.start <= address);
        after > 0 && self.inlined[after - 1].contains(&address)
    }

    /// Returns the address of each vtable, and the type whose methods are in it.
    ///
    /// The compiler describes a vtable as a variable `<Type as Trait>::{vtable}`, in whose type the implementing type
    /// is said to be contained. Vtables whose objects do not have their size at [`VTABLE_SIZE`] are left out.
    pub fn vtables(&self) -> impl Iterator<Item = (u64, Index)> {
        let is_vtable = |entry: &&DebugEntry<'_>| entry.name.is_some_and(|name| name.ends_with(b"::{vtable}"));
        self.all.iter().filter(is_vtable).filter_map(|entry| {
            let of = self.at(entry.of?)?;
            let mut members = self.children(of, gimli::DW_TAG_member).map(|member| &self[member]);
            members.find(|member| member.name == Some(b"size") && member.offset == VTABLE_SIZE)?;
            Some((entry.address?, self.at(self[of].implementor?)?))
        })
    }

    /// Returns the children of an entry that have this tag.
    pub fn children(&self, of: Index, tag: DwTag) -> impl Iterator<Item = Index> {
        self[of].children.iter().copied().filter(move |&child| self[child].tag == Some(tag))
    }

    /// Returns the entry that has the missing parts of this one: the declaration, or the function that this is a copy
    /// of.
    pub fn origin(&self, of: Index) -> Option<Index> {
        self.at(self[of].origin?)
    }

    /// Returns an entry and the entries that complete it, in the order in which they refer to each other.
    fn completing(&self, of: Index) -> impl Iterator<Item = Index> {
        iter::successors(Some(of), |&entry| self.origin(entry)).take(ENTRIES_MAX)
    }

    /// Returns the last of the entries that complete this one: the declaration of a function. It is the entry itself if
    /// it is complete.
    pub fn declaration(&self, of: Index) -> Index {
        self.completing(of).last().unwrap_or(of)
    }

    /// Returns the first result of `get` for an entry and the entries that complete it.
    pub fn inherited<T>(&self, of: Index, get: impl Fn(&DebugEntry<'a>) -> Option<T>) -> Option<T> {
        self.completing(of).find_map(|entry| get(&self[entry]))
    }

    /// Returns the type of an entry, without typedefs and qualifiers. `None` if it has none, like a function that
    /// returns nothing. A type that cannot be found is an entry without a tag.
    pub fn type_of(&self, mut of: Index) -> Option<Index> {
        for _ in 0..=NESTED_MAX {
            of = self.at(self.inherited(of, |entry| entry.of)?).unwrap_or(UNKNOWN);
            if !self[of].tag.is_some_and(is_qualifier) {
                return Some(of);
            }
        }
        Some(UNKNOWN)
    }

    /// Returns the member that is the tag of a part with variants.
    pub fn tag_member(&self, of: Index) -> Option<Index> {
        self.at(self[of].tag_member?)
    }

    /// Returns the parameters of a function in the order of its declaration, as the entries of its code, which have
    /// their locations. A parameter that is only in the declaration of a function that was also inlined has no location
    /// in this one.
    pub fn parameters(&self, of: Index) -> Vec<Index> {
        let own: Vec<Index> = self.children(of, gimli::DW_TAG_formal_parameter).collect();
        let Some(origin) = self.origin(of) else { return own };
        let of_own = |abstract_one: Index| own.iter().copied().find(|&one| self.origin(one) == Some(abstract_one));
        let all: Vec<Index> = self.children(origin, gimli::DW_TAG_formal_parameter).collect();
        // The parameters of a declaration have no names, and nothing refers to them.
        match own.iter().any(|&one| self[one].origin.is_some()) {
            true => all.into_iter().map(|one| of_own(one).unwrap_or(one)).collect(),
            false => own,
        }
    }

    /// Returns how many parameters the declaration of a function has. `None` if it has no declaration apart from its
    /// code.
    pub fn declared_parameters(&self, of: Index) -> Option<usize> {
        let declaration = Some(self.declaration(of)).filter(|&declaration| declaration != of)?;
        let all: Vec<Index> = self.children(declaration, gimli::DW_TAG_formal_parameter).collect();
        (all.iter().all(|&one| self[one].name.is_none())).then_some(all.len())
    }

    /// Returns the names of the modules around an entry, joined.
    pub fn module(&self, of: Index) -> String {
        let names = iter::successors(self[of].parent, |&parent| self[parent].parent);
        let is_copy = |&parent: &Index| self[parent].tag == Some(gimli::DW_TAG_inlined_subroutine);
        let mut names: Vec<_> = names
            .filter(|parent| !is_copy(parent))
            .filter_map(|parent| self.inherited(parent, |entry| entry.name))
            .map(String::from_utf8_lossy)
            .collect();
        names.reverse();
        names.join("::")
    }

    /// Returns the name of an entry.
    pub fn name(&self, of: Index) -> String {
        String::from_utf8_lossy(self.inherited(of, |entry| entry.name).unwrap_or_default()).into_owned()
    }

    /// Returns the name of a function as its symbol has it; empty if it has none.
    pub fn symbol_name(&self, of: Index) -> String {
        let linkage_name = self.inherited(of, |entry| entry.linkage_name).map(String::from_utf8_lossy);
        linkage_name.map_or_else(|| self.name(of), |name| format!("{:#}", rustc_demangle::demangle(&name)))
    }
}

/// Sorts ranges, and joins those that overlap.
fn merged(mut ranges: Vec<ops::Range<u64>>) -> Vec<ops::Range<u64>> {
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    let mut merged: Vec<ops::Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// Returns the address of a variable at a fixed place. A variable that the linker has left out has the address 0. If
/// anything but offsets follows the address, the variable is not there: the address may be its value.
fn address<'a>(dwarf: &Dwarf<Bytes<'a>>, unit: &Unit<Bytes<'a>>, place: Expression<Bytes<'a>>) -> Option<u64> {
    let mut operations = place.operations(unit.encoding());
    let mut address = match operations.next().ok()?? {
        Operation::Address { address } => address,
        Operation::AddressIndex { index } => dwarf.address(unit, index).ok()?,
        _ => return None,
    };
    if address == 0 {
        return None;
    }
    while let Some(operation) = operations.next().ok()? {
        let Operation::PlusConstant { value } = operation else { return None };
        address = address.wrapping_add(value);
    }
    Some(address)
}

/// Returns the addresses of the instructions of an entry.
fn ranges<'a>(
    dwarf: &Dwarf<Bytes<'a>>,
    unit: &Unit<Bytes<'a>>,
    entry: &DebuggingInformationEntry<Bytes<'a>>,
) -> gimli::Result<Vec<ops::Range<u64>>> {
    let (mut all, mut ranges) = (Vec::new(), dwarf.die_ranges(unit, entry)?);
    while let Some(range) = ranges.next()? {
        all.push(range.begin..range.end);
    }
    Ok(all)
}

fn read_entry<'a>(
    dwarf: &Dwarf<Bytes<'a>>,
    unit: &Unit<Bytes<'a>>,
    entry: &DebuggingInformationEntry<Bytes<'a>>,
    parent: Option<Index>,
) -> gimli::Result<DebugEntry<'a>> {
    let mut read = DebugEntry { tag: Some(entry.tag()), parent, ..DebugEntry::default() };
    let refers = |value: AttributeValue<Bytes<'a>>| match value {
        AttributeValue::UnitRef(offset) => unit.header.offset().0.checked_add(offset.0),
        AttributeValue::DebugInfoRef(offset) => Some(offset.0),
        _ => None,
    };
    for attribute in entry.attrs() {
        let value = attribute.value();
        let number = || value.udata_value().or_else(|| value.sdata_value().map(i64::cast_unsigned));
        match attribute.name() {
            gimli::DW_AT_name => read.name = Some(dwarf.attr_string(unit, value)?.slice()),
            gimli::DW_AT_linkage_name => read.linkage_name = Some(dwarf.attr_string(unit, value)?.slice()),
            gimli::DW_AT_byte_size => read.size = number(),
            gimli::DW_AT_alignment => read.alignment = number(),
            gimli::DW_AT_encoding => {
                if let AttributeValue::Encoding(encoding) = value {
                    read.encoding = Some(encoding);
                }
            }
            gimli::DW_AT_data_member_location => read.offset = number().unwrap_or(u64::MAX),
            gimli::DW_AT_const_value | gimli::DW_AT_discr_value => {
                read.value = match value {
                    AttributeValue::Sdata(value) => Some(value.cast_unsigned()),
                    _ => number(),
                };
            }
            gimli::DW_AT_count => read.count = number(),
            // The last index, which GCC gives instead: -1 if there are no elements. In C and Rust, the first is 0.
            gimli::DW_AT_upper_bound => read.count = read.count.or(number().map(|last| last.wrapping_add(1))),
            gimli::DW_AT_low_pc => read.start = dwarf.attr_address(unit, value)?.filter(|&start| start != 0),
            gimli::DW_AT_calling_convention => {
                read.is_changed = value == AttributeValue::CallingConvention(gimli::DW_CC_nocall);
            }
            gimli::DW_AT_type => read.of = Some(refers(value).unwrap_or(UNKNOWN_OFFSET)),
            gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => read.origin = refers(value),
            gimli::DW_AT_discr => read.tag_member = refers(value),
            gimli::DW_AT_containing_type => read.implementor = refers(value),
            gimli::DW_AT_frame_base => {
                let place = value.exprloc_value().map(|place| location::decode(place, unit.encoding()));
                if let Some(Location::Parts(parts)) = place
                    && let &[(Piece::Register(register), 0)] = parts.as_slice()
                {
                    read.frame = Some(register);
                }
            }
            gimli::DW_AT_location => {
                if let Some(expression) = value.exprloc_value() {
                    read.address = address(dwarf, unit, expression);
                    read.locations.push((0..u64::MAX, location::decode(expression, unit.encoding())));
                } else if let Some(mut list) = dwarf.attr_locations(unit, value)? {
                    while let Some(item) = list.next()? {
                        let range = item.range.begin..item.range.end;
                        read.locations.push((range, location::decode(item.data, unit.encoding())));
                    }
                }
            }
            _ => {}
        }
    }
    if [gimli::DW_AT_bit_size, gimli::DW_AT_data_bit_offset].iter().any(|&name| entry.attr(name).is_some()) {
        read.offset = u64::MAX;
    }
    if matches!(entry.tag(), gimli::DW_TAG_lexical_block | gimli::DW_TAG_inlined_subroutine) {
        read.ranges = ranges(dwarf, unit, entry)?;
    }
    Ok(read)
}
