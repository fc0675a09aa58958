//! Converts entries to types: the layout of their values in memory, and the parts that are shown.

use std::collections::HashMap;

use gimli::DwTag;
use kprobes_types::write::{Shape, Type};
use kprobes_types::{Flavor, Form, Tag, TypeKind};

use super::super::debug::{Entries, Index, NESTED_MAX};

/// The types that were described so far, with their entries.
pub struct Layouts<'a> {
    pub entries: &'a Entries<'a>,
    pub types: Vec<Type>,
    known: HashMap<Option<Index>, usize>,
}

const STRUCT: DwTag = gimli::DW_TAG_structure_type;

impl<'a> Layouts<'a> {
    pub fn new(entries: &'a Entries<'a>) -> Self {
        Self { entries, types: Vec::new(), known: HashMap::new() }
    }

    /// Returns the number of the type that an entry describes. `None` is `()`.
    pub fn of(&mut self, entry: Option<Index>) -> usize {
        // References are followed with a list, because they can be nested as deep as there are types.
        let mut pending = Vec::new();
        let number = self.number(entry, &mut pending);
        while let Some((entry, number)) = pending.pop() {
            self.types[number] = self.describe(entry, &mut pending);
        }
        number
    }

    fn number(&mut self, entry: Option<Index>, pending: &mut Vec<(Index, usize)>) -> usize {
        if let Some(&number) = self.known.get(&entry) {
            return number;
        }
        let number = self.types.len();
        let unit = Type { name: "()".into(), module: String::new(), size: 0, shape: TypeKind::Unit };
        self.types.push(unit);
        self.known.insert(entry, number);
        pending.extend(entry.map(|entry| (entry, number)));
        number
    }

    fn describe(&mut self, entry: Index, pending: &mut Vec<(Index, usize)>) -> Type {
        let entries = self.entries;
        let full = entries.name(entry);
        let size = self.size(entry).unwrap_or(0);
        let shape = self.shape(entry, &full, size, pending).unwrap_or(TypeKind::Opaque);
        // Paths in programs name enums. No path names another type.
        let is_enum = matches!(shape, TypeKind::Variants { .. } | TypeKind::Enumeration { .. });
        let module = if is_enum { entries.module(entry) } else { String::new() };
        Type { name: self.short_name(entry), module, size, shape }
    }

    /// Returns the name that a type is shown by. Arrays have none in the debugging information.
    fn short_name(&self, entry: Index) -> String {
        let (of, arrays) = self.element(entry).unwrap_or((entry, Vec::new()));
        let counts: Vec<_> = arrays.iter().flat_map(|&array| self.dimensions(array)).collect();
        array_name(shortened(&self.entries.name(of)), &counts)
    }

    /// Returns the type of the elements of an array that are no arrays themselves, and the arrays around it, from the
    /// outermost on. A type that is no array is the element of none. `None` if there is no such type.
    fn element(&self, of: Index) -> Option<(Index, Vec<Index>)> {
        let entries = self.entries;
        let (mut of, mut arrays) = (of, Vec::new());
        while entries[of].tag == Some(gimli::DW_TAG_array_type) {
            if arrays.len() == NESTED_MAX {
                return None;
            }
            arrays.push(of);
            of = entries.type_of(of)?;
        }
        Some((of, arrays))
    }

    /// Returns the size of a type in bytes.
    pub fn size(&self, entry: Index) -> Option<u64> {
        let (element, arrays) = self.element(entry)?;
        let size = match self.entries[element].tag? {
            gimli::DW_TAG_pointer_type => 8,
            _ => self.entries[element].size?,
        };
        let mut dimensions = arrays.iter().rev().flat_map(|&array| self.dimensions(array));
        dimensions.try_fold(size, |size, count| size.checked_mul(count?))
    }

    /// Returns the alignment of a type in bytes.
    pub fn alignment(&self, entry: Index) -> Option<u64> {
        let entries = self.entries;
        let (entry, _) = self.element(entry)?;
        match entries[entry].tag? {
            gimli::DW_TAG_pointer_type => Some(8),
            gimli::DW_TAG_base_type => Some(entries[entry].size?.max(1)),
            gimli::DW_TAG_enumeration_type => entries[entry].alignment.or(entries[entry].size).map(|size| size.max(1)),
            _ => entries[entry].alignment,
        }
    }

    /// Returns the numbers of elements of an array, one for each dimension, of which an array of C may have several.
    /// The outermost is the first. `None` is an unknown number, which also stands for more than [`NESTED_MAX`]
    /// dimensions. The list is not empty.
    fn dimensions(&self, array: Index) -> Vec<Option<u64>> {
        let ranges = self.entries.children(array, gimli::DW_TAG_subrange_type);
        let counts: Vec<_> = ranges.map(|range| self.entries[range].count).collect();
        if matches!(counts.len(), 1..=NESTED_MAX) { counts } else { vec![None] }
    }

    /// Returns the members of a struct.
    pub fn members(&self, of: Index) -> Vec<Index> {
        self.entries.children(of, gimli::DW_TAG_member).collect()
    }

    /// Returns the member of this name.
    fn member(&self, of: Index, name: &str) -> Option<Index> {
        self.members(of).into_iter().find(|&member| self.entries[member].name == Some(name.as_bytes()))
    }

    /// Follows members by these names, each inside the one before. Returns the offset and the type of the last.
    fn path(&self, of: Index, names: &[&str]) -> Option<(u64, Index)> {
        names.iter().try_fold((0_u64, of), |(offset, of), name| {
            let member = self.member(of, name)?;
            Some((offset.checked_add(self.entries[member].offset)?, self.entries.type_of(member)?))
        })
    }

    fn shape(&mut self, entry: Index, name: &str, size: u64, pending: &mut Vec<(Index, usize)>) -> Option<Shape> {
        let entries = self.entries;
        match entries[entry].tag? {
            gimli::DW_TAG_base_type => Some(match entries[entry].encoding? {
                gimli::DW_ATE_boolean if size == 1 => TypeKind::Bool,
                gimli::DW_ATE_UTF if size == 4 => TypeKind::Char,
                gimli::DW_ATE_float => TypeKind::Float,
                gimli::DW_ATE_signed | gimli::DW_ATE_signed_char if size > 0 => TypeKind::Integer { signed: true },
                gimli::DW_ATE_unsigned | gimli::DW_ATE_unsigned_char if size > 0 => TypeKind::Integer { signed: false },
                _ if name == "()" => TypeKind::Unit,
                _ => TypeKind::Opaque,
            }),
            gimli::DW_TAG_pointer_type => {
                let target = entries.type_of(entry);
                if target.is_some_and(|target| entries[target].tag == Some(gimli::DW_TAG_subroutine_type)) {
                    return Some(TypeKind::Function);
                }
                let is_reference = name.starts_with('&') || name.starts_with("alloc::boxed::Box<");
                let flavor = if is_reference { Flavor::Reference } else { Flavor::Raw };
                Some(TypeKind::Pointer { flavor, target: self.number(target, pending), at: 0 })
            }
            gimli::DW_TAG_array_type => {
                let of = entries.type_of(entry);
                let mut element = self.number(of, pending);
                let counts = self.dimensions(entry);
                let &[Some(count), ref inner @ ..] = counts.as_slice() else { return None };
                // The arrays that are the elements of an array of C have no entries.
                for at in (0..inner.len()).rev() {
                    let name = array_name(self.short_name(of?), &inner[at..]);
                    let size =
                        inner[at..].iter().try_fold(self.size(of?)?, |size, count| size.checked_mul((*count)?))?;
                    let shape = TypeKind::Array { element, count: inner[at]? };
                    element = self.types.len();
                    self.types.push(Type { name, module: String::new(), size, shape });
                }
                Some(TypeKind::Array { element, count })
            }
            gimli::DW_TAG_enumeration_type => {
                let encoding = entries.type_of(entry).and_then(|of| entries[of].encoding);
                let signed = matches!(encoding?, gimli::DW_ATE_signed | gimli::DW_ATE_signed_char);
                let mut enumerators = Vec::new();
                for each in entries.children(entry, gimli::DW_TAG_enumerator) {
                    enumerators.push((entries.name(each), masked(entries[each].value?, size)?));
                }
                (size > 0).then_some(TypeKind::Enumeration { signed, enumerators })
            }
            // C declares structs without a layout.
            STRUCT if entries[entry].size.is_none() => None,
            STRUCT => match entries.children(entry, gimli::DW_TAG_variant_part).next() {
                Some(part) => self.variants(part, pending),
                None => self.structure(entry, name, size, pending),
            },
            _ => None,
        }
    }

    /// Returns the shape of an enum with fields.
    fn variants(&mut self, part: Index, pending: &mut Vec<(Index, usize)>) -> Option<Shape> {
        let entries = self.entries;
        let tag = match entries.tag_member(part) {
            Some(member) => {
                let bytes = self.size(entries.type_of(member)?)?;
                if !matches!(bytes, 1 | 2 | 4 | 8) {
                    return None;
                }
                Some(Tag { offset: entries[member].offset.try_into().ok()?, bytes: bytes as u8 })
            }
            None => None,
        };
        let mut variants = Vec::new();
        for variant in entries.children(part, gimli::DW_TAG_variant) {
            let member = entries.children(variant, gimli::DW_TAG_member).next()?;
            let value = match (entries[variant].value, tag) {
                (Some(value), Some(tag)) => Some(masked(value, tag.bytes.into())?),
                _ => None,
            };
            // A struct of the whole size: its fields have their offsets in the enum.
            let of = entries.type_of(member).filter(|_| entries[member].offset == 0)?;
            variants.push((entries.name(member), value, self.number(Some(of), pending)));
        }
        let defaults = variants.iter().filter(|(_, value, _)| value.is_none()).count();
        let is_told = if tag.is_some() { defaults <= 1 } else { variants.len() == 1 };
        is_told.then_some(TypeKind::Variants { tag, variants })
    }

    fn structure(&mut self, entry: Index, name: &str, size: u64, pending: &mut Vec<(Index, usize)>) -> Option<Shape> {
        let entries = self.entries;
        let offset = |member: Index| u32::try_from(entries[member].offset).ok();
        // The compiler names the parts of pointers to values without a fixed size. Any other struct may have fields of
        // these names.
        let pointed = ["&mut ", "&", "*const ", "*mut ", "alloc::boxed::Box<"];
        let pointed = pointed.iter().find_map(|prefix| name.strip_prefix(prefix));
        if let (Some(bare), Some(data), Some(length)) =
            (pointed, self.member(entry, "data_ptr"), self.member(entry, "length"))
        {
            // As for any raw pointer, there may be nothing at the address.
            if name.starts_with('*') {
                return Some(TypeKind::Dynamic { data: offset(data)?, vtable: offset(length)? });
            }
            let is_text = bare == "str" || bare.starts_with("str,");
            let element = entries.type_of(entries.type_of(data)?);
            if !is_text && !bare.starts_with('[') {
                return None;
            }
            let element = self.number(element, pending);
            return Some(TypeKind::Sequence { element, is_text, data: offset(data)?, length: offset(length)? });
        }
        if let (Some(target), Some(data), Some(vtable)) =
            (pointed, self.member(entry, "pointer"), self.member(entry, "vtable"))
        {
            let (data, vtable) = (offset(data)?, offset(vtable)?);
            // Of `&Mutex<dyn Trait>`, the vtable is that of a part of the value.
            let is_object = !name.starts_with('*') && target.trim_start_matches('(').starts_with("dyn ");
            return Some(if is_object {
                TypeKind::Object { data, vtable }
            } else {
                TypeKind::Dynamic { data, vtable }
            });
        }
        if let Some(shape) = self.of_library(entry, name, pending) {
            return Some(shape);
        }
        let mut members = Vec::new();
        for member in self.members(entry) {
            let of = entries.type_of(member)?;
            if entries[member].offset.checked_add(self.size(of)?)? > size {
                return None;
            }
            let of = self.number(Some(of), pending);
            members.push((entries.name(member), offset(member)?, of));
        }
        let number = |name: &str| name.strip_prefix("__").and_then(|digits| digits.parse::<u32>().ok());
        let is_tuple = !members.is_empty() && members.iter().all(|(name, ..)| number(name).is_some());
        if is_tuple {
            members.sort_by_key(|(name, ..)| number(name));
            members.iter_mut().for_each(|(name, ..)| *name = name.trim_start_matches('_').into());
        }
        let form = if is_tuple { Form::Tuple } else { Form::Named };
        Some(TypeKind::Struct { form, members })
    }

    /// Returns the shape of a type of the standard library that stands for a value inside it, or leads to one. `None`
    /// if it is another type, or does not have the expected members.
    fn of_library(&mut self, entry: Index, name: &str, pending: &mut Vec<(Index, usize)>) -> Option<Shape> {
        const FIRST: [&str; 4] = ["buf", "inner", "ptr", "pointer"];
        let entries = self.entries;
        let generic = name.split('<').next()?;
        let small = |offset: u64| u32::try_from(offset).ok();
        match (&*entries.module(entry), generic) {
            ("alloc::string", "String") => {
                let (offset, vector) = self.path(entry, &["vec"])?;
                let (element, data, length) = self.vector(vector, &FIRST)?;
                let element = self.number(Some(element), pending);
                Some(TypeKind::Sequence {
                    element,
                    is_text: true,
                    data: small(offset.checked_add(data)?)?,
                    length: small(offset.checked_add(length)?)?,
                })
            }
            ("alloc::vec", "Vec") => {
                let (element, data, length) = self.vector(entry, &FIRST)?;
                let element = self.number(Some(element), pending);
                Some(TypeKind::Sequence { element, is_text: false, data: small(data)?, length: small(length)? })
            }
            ("alloc::sync", "Arc") => self.shared(entry, "data", pending),
            ("alloc::rc", "Rc") => self.shared(entry, "value", pending),
            ("core::ptr::non_null", "NonNull") => self.wrapper(entry, &["pointer"], pending),
            ("core::pin", "Pin") => {
                let only = self.only(entry)?;
                let target = self.number(entries.type_of(only), pending);
                Some(TypeKind::Wrapper { target, at: small(entries[only].offset)? })
            }
            ("core::cell", "UnsafeCell") => self.wrapper(entry, &["value"], pending),
            ("core::sync::atomic" | "core::num::nonzero" | "core::num::wrapping" | "core::num::saturating", of)
                if of.starts_with("Atomic") || matches!(of, "NonZero" | "Wrapping" | "Saturating") =>
            {
                let (mut at, mut of) = (0_u64, entry);
                for _ in 0..NESTED_MAX {
                    if entries[of].tag != Some(STRUCT) {
                        return Some(TypeKind::Wrapper { target: self.number(Some(of), pending), at: small(at)? });
                    }
                    let only = self.only(of)?;
                    (at, of) = (at.checked_add(entries[only].offset)?, entries.type_of(only)?);
                }
                None
            }
            _ => None,
        }
    }

    fn wrapper(&mut self, of: Index, names: &[&str], pending: &mut Vec<(Index, usize)>) -> Option<Shape> {
        let (at, target) = self.path(of, names)?;
        Some(TypeKind::Wrapper { target: self.number(Some(target), pending), at: at.try_into().ok()? })
    }

    /// Returns the only member of a struct that has bytes.
    pub fn only(&self, of: Index) -> Option<Index> {
        let has_bytes =
            |&member: &Index| self.entries.type_of(member).and_then(|of| self.size(of)).is_none_or(|size| size > 0);
        let mut members = self.members(of).into_iter().filter(has_bytes);
        members.next().filter(|_| members.next().is_none())
    }

    /// Returns the type of a vector's elements, and the offsets of their address and of their number.
    fn vector(&self, of: Index, first: &[&str]) -> Option<(Index, u64, u64)> {
        let (data, pointer) = self.path(of, first)?;
        // The address is in a `NonNull`, in a `Unique` of bytes, whatever the elements are.
        let data = match self.entries[pointer].tag? {
            gimli::DW_TAG_pointer_type => data,
            _ => data.checked_add(self.path(pointer, &["pointer"])?.0)?,
        };
        let element = self.entries.children(of, gimli::DW_TAG_template_type_parameter).next()?;
        Some((self.entries.type_of(element)?, data, self.path(of, &["len"])?.0))
    }

    /// Returns the shape of an `Rc` or `Arc`. `value` is the member beside the counts. How far a trait object or a
    /// slice is from the counts depends on its alignment, which the entries do not tell, so a pointer to one stands for
    /// an address.
    fn shared(&mut self, of: Index, value: &str, pending: &mut Vec<(Index, usize)>) -> Option<Shape> {
        let (0, pointer) = self.path(of, &["ptr", "pointer"])? else { return None };
        if self.entries[pointer].tag? != gimli::DW_TAG_pointer_type {
            let second = |names: [&str; 2]| Some((self.member(pointer, names[0])?, self.member(pointer, names[1])?));
            let (data, second) = second(["pointer", "vtable"]).or_else(|| second(["data_ptr", "length"]))?;
            let offset = |member: Index| u32::try_from(self.entries[member].offset).ok();
            return Some(TypeKind::Dynamic { data: offset(data)?, vtable: offset(second)? });
        }
        let (at, target) = self.path(self.entries.type_of(pointer)?, &[value])?;
        let target = self.number(Some(target), pending);
        Some(TypeKind::Pointer { flavor: Flavor::Shared, target, at: at.try_into().ok()? })
    }
}

/// Returns the lower bytes of a value.
fn masked(value: u64, bytes: u64) -> Option<u64> {
    match bytes {
        8 => Some(value),
        1 | 2 | 4 => Some(value & ((1 << (8 * bytes)) - 1)),
        _ => None,
    }
}

/// Returns the name of an array whose elements have the type `name`, with these numbers of elements, the outermost
/// first.
fn array_name(name: String, counts: &[Option<u64>]) -> String {
    counts.iter().rev().fold(name, |name, count| match count {
        Some(count) => format!("[{name}; {count}]"),
        None => format!("[{name}]"),
    })
}

/// Returns the name of a type without the paths of modules, and without the default allocator.
fn shortened(name: &str) -> String {
    let name = name.replace(", alloc::alloc::Global>", ">");
    let mut short = String::new();
    let mut word = 0;
    let mut rest = name.as_str();
    while let Some(next) = rest.chars().next() {
        if let Some(behind) = rest.strip_prefix("::").filter(|_| !short.ends_with('>')) {
            short.truncate(word);
            rest = behind;
            continue;
        }
        short.push(next);
        rest = &rest[next.len_utf8()..];
        if !(next.is_alphanumeric() || "_{}#".contains(next)) {
            word = short.len();
        }
    }
    // The space is from C++, which could once not tell `> >` from a shift.
    short.replace("> >", ">>")
}

#[cfg(test)]
mod tests {
    use super::shortened;

    #[test]
    fn names_are_without_paths() {
        for (name, short) in [
            ("u8", "u8"),
            ("&mut core::fmt::Formatter", "&mut Formatter"),
            ("Option<alloc::vec::Vec<a::b::C, alloc::alloc::Global> >", "Option<Vec<C>>"),
            ("(a::b::C, [d::E; 4])", "(C, [E; 4])"),
            ("{closure_env#0}<a::f::{closure_env#1}>", "{closure_env#0}<{closure_env#1}>"),
            ("&dyn core::fmt::Write", "&dyn Write"),
            ("fn(&a::B) -> c::D", "fn(&B) -> D"),
        ] {
            assert_eq!(shortened(name), short);
        }
    }
}
