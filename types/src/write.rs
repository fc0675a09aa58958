//! The writer of tables of types, for the host tool and the tests.

use std::ops::Range;
use std::string::String;
use std::{array, fmt, vec, vec::Vec};

use kprobes_symbols::frame::{put, seal};

use crate::lines::{BLOCK, LineRow, write_block};
use crate::model::{Declaration, Flavor, Form, Source, Tag, TypeKind, Unknown, ValuePart, ValuePlace};
use crate::pool::{Pool, shared_text};
use crate::{HEADER_WORDS, INLINED, LINES, MAGIC, NAME_OFFSET_BITS, PARTS, VARIABLES, VERSION, VTABLES};

/// A member: its name, offset and type.
pub type MemberText = (String, u32, usize);
/// A variant with fields: its name, tag and type.
pub type VariantText = (String, Option<u64>, usize);
/// A variant without fields: its name and value.
pub type EnumeratorText = (String, u64);
/// The kind of a type. It refers to other types by their index in [`Contents::types`].
pub type Shape = TypeKind<usize, Vec<MemberText>, Vec<VariantText>, Vec<EnumeratorText>>;

/// A type, to be written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Type {
    /// The name, without the paths of modules.
    pub name: String,
    /// The path of the module of an enum; empty for another type.
    pub module: String,
    /// The size in bytes.
    pub size: u64,
    /// The kind.
    pub shape: Shape,
}

impl Type {
    /// Returns the same type with `change` applied to each type that it refers to.
    #[must_use]
    pub fn referring(&self, mut change: impl FnMut(usize) -> usize) -> Self {
        let shape = match self.shape.clone() {
            TypeKind::Pointer { flavor, target, at } => TypeKind::Pointer { flavor, target: change(target), at },
            TypeKind::Sequence { element, is_text, data, length } => {
                TypeKind::Sequence { element: change(element), is_text, data, length }
            }
            TypeKind::Array { element, count } => TypeKind::Array { element: change(element), count },
            TypeKind::Wrapper { target, at } => TypeKind::Wrapper { target: change(target), at },
            TypeKind::Struct { form, mut members } => {
                members.iter_mut().for_each(|(.., of)| *of = change(*of));
                TypeKind::Struct { form, members }
            }
            TypeKind::Variants { tag, mut variants } => {
                variants.iter_mut().for_each(|(.., of)| *of = change(*of));
                TypeKind::Variants { tag, variants }
            }
            other => other,
        };
        Self { shape, ..self.clone() }
    }
}

/// An argument or a result, to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// The name; for a result it is not written.
    pub name: String,
    /// The index of its type in [`Contents::types`].
    pub of: usize,
    /// The location.
    pub place: ValuePlace,
}

/// A variable of a function, to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// The name.
    pub name: String,
    /// The index of its type in [`Contents::types`].
    pub of: usize,
    /// Whether it is an argument.
    pub is_argument: bool,
    /// The instructions of its scope, as ascending ranges of offsets in the function, in bytes; empty for the whole
    /// function.
    pub scope: Vec<Range<u32>>,
    /// The locations, with the instructions at which they hold, in the same way.
    pub places: Vec<(Range<u32>, ValuePlace)>,
}

/// A function that is inlined somewhere, to be written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Inlined {
    /// Tells the function from others that are inlined at the same instruction.
    pub hash: u16,
    /// The named variables: name, index of the type in [`Contents::types`], and whether it is an argument. The
    /// variables of a block come after those of the blocks around it. A variable that no copy has is without a type.
    pub variables: Vec<(String, Option<usize>, bool)>,
}

/// An inlined copy, to be written. Ranges are offsets in the function that contains the copy, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlinedCopy {
    /// The index of the copied function in [`Contents::inlined`].
    pub of: usize,
    /// The instructions, as ascending ranges.
    pub instructions: Vec<Range<u32>>,
    /// The variables that the copy has, in ascending order. They have a type.
    pub variables: Vec<CopyVariable>,
}

/// A variable of an inlined copy, to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyVariable {
    /// The index in [`Inlined::variables`].
    pub number: usize,
    /// The instructions of its scope, as ascending ranges; empty for the whole copy.
    pub scope: Vec<Range<u32>>,
    /// The locations, with the instructions at which they hold, as ascending ranges, which may have other instructions
    /// than those of the copy.
    pub places: Vec<(Range<u32>, ValuePlace)>,
}

/// A function, to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The virtual (link) address of the first instruction.
    pub address: u64,
    /// The place in the source, with the index of its file in [`Contents::files`]; `None` if it is unknown.
    pub declaration: Option<Declaration>,
    /// The arguments, in the order of their declaration.
    pub arguments: Vec<Argument>,
    /// The result.
    pub returned: Argument,
    /// The variables. The variables of a block come after those of the blocks around it.
    pub variables: Vec<Variable>,
    /// The inlined copies in it: a copy comes after those that contain it.
    pub copies: Vec<InlinedCopy>,
}

/// The contents of a table. Functions and vtables may be in any order; each vtable is there once.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// The functions.
    pub functions: Vec<Function>,
    /// All types that the functions and vtables refer to, directly or indirectly.
    pub types: Vec<Type>,
    /// The source lines, in ascending order of address. They refer to files by their index in `files`.
    pub rows: Vec<LineRow>,
    /// The paths of the files.
    pub files: Vec<String>,
    /// The virtual (link) address of each vtable, and the index in `types` of the type whose methods are in it.
    pub vtables: Vec<(u64, usize)>,
    /// The functions that are inlined.
    pub inlined: Vec<Inlined>,
}

/// Why a table cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// A function, a row or a vtable is below the base, or 4 GiB or more above it.
    OutOfRange {
        /// The virtual address.
        address: u64,
    },
    /// The table would take 4 GiB or more.
    TooLong,
    /// The text of the names would take more than 4 MiB.
    NamesTooLong,
}

impl fmt::Display for WriteError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { address } => {
                write!(out, "the address {address:#x} is not within 4 GiB above the start of the image")
            }
            Self::TooLong => write!(out, "there are more types than fit into a table"),
            Self::NamesTooLong => {
                write!(out, "the names of types, variables and files take more than 4 MiB, the most that a table holds")
            }
        }
    }
}

impl std::error::Error for WriteError {}

/// The longest name, in bytes. The rest of a longer name is cut, and marked.
const NAME_MAX: usize = (1 << (u32::BITS - NAME_OFFSET_BITS)) - 1;
/// The mark at the end of a name that is cut.
const CUT: &str = "…";

/// The items that records refer to by number.
#[derive(Default)]
struct Pools {
    names: Pool<String>,
    places: Pool<ValuePlace>,
    /// The inlined functions, by their index.
    inlined: Pool<usize>,
}

impl Pools {
    fn name(&mut self, name: &str) -> u64 {
        if name.len() <= NAME_MAX {
            return self.names.number(&name.into());
        }
        let end = name.floor_char_boundary(NAME_MAX - CUT.len());
        self.names.number(&[&name[..end], CUT].concat())
    }

    fn put_name(&mut self, out: &mut Vec<u8>, name: &str) {
        put(out, self.name(name));
    }

    fn put_place(&mut self, out: &mut Vec<u8>, place: &ValuePlace) {
        put(out, self.places.number(place));
    }

    /// Returns the parts with the items: places, names, and their text, and inlined functions; and the pools with the
    /// numbers that the items have there. `all` are the inlined functions.
    fn parts(mut self, all: &[Inlined]) -> Result<([Vec<u8>; 4], Self), WriteError> {
        let [mut places, mut entries, mut inlined] = [const { Vec::new() }; 3];
        // The names of their variables are names like others.
        let of_inlined: Vec<usize> = self.inlined.ranked();
        of_inlined.iter().filter_map(|&one| all.get(one)).flat_map(|one| &one.variables).for_each(|(name, ..)| {
            self.name(name);
        });
        let of_place = self.places.ranked().into_iter().map(|place| {
            let at = places.len() as u64;
            put_place(&mut places, &place);
            (place, at)
        });
        let of_place = Pool::of(of_place);
        let names = self.names.ranked();
        let (text, offsets) = shared_text(&names);
        for (name, offset) in names.iter().zip(offsets) {
            if offset >= 1 << NAME_OFFSET_BITS {
                return Err(WriteError::NamesTooLong);
            }
            entries.extend(word(name.len() << NAME_OFFSET_BITS | offset)?);
        }
        let of_name = Pool::of(names.into_iter().zip(0..));
        let mut pools = Self { names: of_name, places: of_place, inlined: Pool::default() };
        let mut offsets = Vec::new();
        for number in of_inlined {
            offsets.push((number, inlined.len() as u64));
            let Some(one) = all.get(number) else { continue };
            inlined.extend(one.hash.to_le_bytes());
            put(&mut inlined, one.variables.len() as u64);
            for (name, of, is_argument) in &one.variables {
                pools.put_name(&mut inlined, name);
                put(&mut inlined, of.map_or(0, |of| of as u64 + 1) << 1 | u64::from(*is_argument));
            }
        }
        pools.inlined = Pool::of(offsets);
        Ok(([places, entries, text.into_bytes(), inlined], pools))
    }
}

/// Makes the table of `contents`. `base` must not be above the lowest of their addresses.
///
/// # Errors
///
/// Fails if something does not fit into the fields of the format.
pub fn write(base: u64, contents: &Contents) -> Result<Vec<u8>, WriteError> {
    // The first records only tell how often each name and place is used, on which their numbers depend.
    let mut pools = Pools::default();
    put_records(base, contents, &mut pools)?;
    let ([places, names, text, inlined], mut pools) = pools.parts(&contents.inlined)?;
    let Records { functions, function_records, types, type_records, files, variables, variable_records } =
        put_records(base, contents, &mut pools)?;
    let [mut blocks, mut rows] = [const { Vec::new() }; 2];
    put_rows(base, &contents.rows, &mut blocks, &mut rows)?;
    let mut vtables = Vec::new();
    let mut all = contents.vtables.clone();
    all.sort_unstable();
    for (address, of) in all {
        vtables.extend([offset(base, address)?, word(of)?].concat());
    }
    let parts: [Vec<u8>; PART_COUNT] = [
        functions,
        function_records,
        types,
        type_records,
        places,
        names,
        text,
        blocks,
        rows,
        files,
        vtables,
        variables,
        variable_records,
        inlined,
    ];
    let mut table = vec![0; 4 * HEADER_WORDS + 12 * parts.len()];
    let kinds = PARTS.iter().chain(&LINES).chain(&[VTABLES]).chain(&VARIABLES).chain(&[INLINED]);
    for (number, (kind, part)) in kinds.zip(&parts).enumerate() {
        table.resize(table.len().next_multiple_of(4), 0);
        let entry = [kind.to_le_bytes(), word(table.len())?, word(part.len())?].concat();
        table[4 * HEADER_WORDS + 12 * number..][..12].copy_from_slice(&entry);
        table.extend(part);
    }
    let header = [MAGIC.as_slice(), &[0; 4], &VERSION.to_le_bytes(), &word(table.len())?, &word(parts.len())?];
    let header = [header.concat(), base.to_le_bytes().to_vec()].concat();
    table[..header.len()].copy_from_slice(&header);
    seal(&mut table);
    Ok(table)
}

/// The number of parts that the writer makes.
const PART_COUNT: usize = PARTS.len() + LINES.len() + 1 + VARIABLES.len() + 1;

/// The parts that refer to items of pools.
#[derive(Default)]
struct Records {
    functions: Vec<u8>,
    function_records: Vec<u8>,
    types: Vec<u8>,
    type_records: Vec<u8>,
    files: Vec<u8>,
    variables: Vec<u8>,
    variable_records: Vec<u8>,
}

/// Writes the types, functions and files.
fn put_records(base: u64, contents: &Contents, pools: &mut Pools) -> Result<Records, WriteError> {
    let mut out = Records::default();
    for of in &contents.types {
        out.types.extend(word(out.type_records.len())?);
        put_type(&mut out.type_records, of, pools);
    }
    let mut all: Vec<&Function> = contents.functions.iter().collect();
    all.sort_by_key(|function| function.address);
    all.dedup_by_key(|function| function.address);
    for function in all {
        out.functions.extend(offset(base, function.address)?);
        let record = &mut out.function_records;
        out.functions.extend(word(record.len())?);
        match function.declaration {
            None => put(record, 0),
            Some(Declaration { file, line, more }) => put_all(record, &[1 + u64::from(file), line.into(), more.into()]),
        }
        put(record, function.arguments.len() as u64);
        for argument in &function.arguments {
            pools.put_name(record, &argument.name);
            put(record, argument.of as u64);
            pools.put_place(record, &argument.place);
        }
        put(record, function.returned.of as u64);
        pools.put_place(record, &function.returned.place);
        out.variables.extend(word(out.variable_records.len())?);
        put_variables(&mut out.variable_records, &function.variables, pools);
        put_copies(&mut out.variable_records, &function.copies, &contents.inlined, pools);
    }
    for file in &contents.files {
        out.files.extend(word(pools.name(file) as usize)?);
    }
    Ok(out)
}

/// Writes instructions after those that end at `end`.
fn put_stretch(out: &mut Vec<u8>, end: &mut u32, of: &Range<u32>) {
    let distance = of.start.saturating_sub(*end) / 4;
    put(out, u64::from(of.end.saturating_sub(of.start) / 4) << 1 | u64::from(distance > 0));
    if distance > 0 {
        put(out, distance.into());
    }
    *end = of.end;
}

fn put_copies(out: &mut Vec<u8>, all: &[InlinedCopy], inlined: &[Inlined], pools: &mut Pools) {
    put(out, all.len() as u64);
    let mut last = 0;
    for copy in all {
        let start = copy.instructions.first().map_or(last, |range| range.start);
        let count = copy.instructions.len();
        put(out, u64::from(start.saturating_sub(last) / 4) << 1 | u64::from(count != 1));
        last = start;
        if count != 1 {
            put(out, count as u64);
        }
        let mut end = start;
        copy.instructions.iter().for_each(|stretch| put_stretch(out, &mut end, stretch));
        put(out, pools.inlined.number(&copy.of));
        let variables = inlined.get(copy.of).into_iter().flat_map(|of| &of.variables).enumerate();
        for (number, _) in variables.filter(|(_, (_, of, _))| of.is_some()) {
            let Some(variable) = copy.variables.iter().find(|one| one.number == number) else {
                put(out, 0);
                continue;
            };
            put_copy_variable(out, variable, copy, start, pools);
        }
    }
}

fn put_copy_variable(out: &mut Vec<u8>, variable: &CopyVariable, copy: &InlinedCopy, start: u32, pools: &mut Pools) {
    let CopyVariable { scope, places, .. } = variable;
    // An argument is often in one place for as long as the copy runs.
    let whole = match places.as_slice() {
        [(range, place)] => {
            let has = |stretch: &Range<u32>| range.start <= stretch.start && stretch.end <= range.end;
            Some(place).filter(|_| copy.instructions.iter().all(has))
        }
        _ => None,
    };
    let count = if whole.is_some() { 0 } else { 1 + places.len() as u64 };
    put(out, 1 + (count << 1 | u64::from(!scope.is_empty())));
    let mut end = start;
    if !scope.is_empty() {
        put(out, scope.len() as u64);
        scope.iter().for_each(|stretch| put_stretch(out, &mut end, stretch));
    }
    if let Some(place) = whole {
        return pools.put_place(out, place);
    }
    end = start;
    for (stretch, place) in places {
        put_stretch(out, &mut end, stretch);
        pools.put_place(out, place);
    }
}

fn put_variables(out: &mut Vec<u8>, all: &[Variable], pools: &mut Pools) {
    put(out, all.len() as u64);
    for variable in all {
        pools.put_name(out, &variable.name);
        put(out, variable.of as u64);
        put(out, (variable.scope.len() as u64) << 1 | u64::from(variable.is_argument));
        let mut end = 0;
        variable.scope.iter().for_each(|stretch| put_stretch(out, &mut end, stretch));
        put(out, variable.places.len() as u64);
        end = 0;
        for (stretch, place) in &variable.places {
            put_stretch(out, &mut end, stretch);
            pools.put_place(out, place);
        }
    }
}

/// Writes the rows `all` in blocks.
fn put_rows(base: u64, all: &[LineRow], blocks: &mut Vec<u8>, rows: &mut Vec<u8>) -> Result<(), WriteError> {
    for block in all.chunks(BLOCK) {
        blocks.extend(offset(base, block.first().map_or(0, |row| row.address))?);
        blocks.extend(word(rows.len())?);
        write_block(block, rows);
    }
    Ok(())
}

/// Returns the length in bytes of each part of a table that [`write`] made: functions, their records, types, their
/// records, places, names, their text, blocks of rows, rows, files, vtables, offsets of variables, variables, inlined
/// functions.
#[must_use]
pub fn lengths(table: &[u8]) -> [usize; PART_COUNT] {
    let length = |number: usize| {
        let at = 4 * HEADER_WORDS + 12 * number + 8;
        table.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize)
    };
    array::from_fn(length)
}

/// Encodes the virtual address `address` as an offset from `base`.
fn offset(base: u64, address: u64) -> Result<[u8; 4], WriteError> {
    let offset = address.checked_sub(base).and_then(|offset| u32::try_from(offset).ok());
    Ok(offset.ok_or(WriteError::OutOfRange { address })?.to_le_bytes())
}

/// Encodes a number as a word of the table.
fn word(number: usize) -> Result<[u8; 4], WriteError> {
    u32::try_from(number).map(u32::to_le_bytes).map_err(|_| WriteError::TooLong)
}

fn put_all(out: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|&number| put(out, number));
}

fn put_source(out: &mut Vec<u8>, source: Source) {
    match source {
        Source::Lost => put(out, 0),
        Source::Register(number) => put(out, 1 + u64::from(number)),
        Source::Memory { register, offset } => put_all(out, &[32, register.into(), folded(offset)]),
        Source::Sum { register, offset } => put_all(out, &[33, register.into(), folded(offset)]),
        Source::Bits { register, bits } => put_all(out, &[34, register.into(), bits.into()]),
    }
}

/// Returns a number with its sign in the lowest bit: 0, -1, 1, -2, …
fn folded(number: i32) -> u64 {
    u64::from((number << 1 ^ number >> 31).cast_unsigned())
}

fn put_place(out: &mut Vec<u8>, place: &ValuePlace) {
    match *place {
        ValuePlace::Nothing => put(out, 0),
        ValuePlace::Words { first, second } => {
            put_all(out, &[1, 1 + u64::from(second.is_some())]);
            for ValuePart { offset, bytes, source: from } in [Some(first), second].into_iter().flatten() {
                put_all(out, &[offset.into(), bytes.into()]);
                put_source(out, from);
            }
        }
        ValuePlace::At(from) => {
            put(out, 2);
            put_source(out, from);
        }
        ValuePlace::Memory { register, offset } => put_all(out, &[5, register.into(), folded(offset)]),
        ValuePlace::Constant(value) => put_all(out, &[3, value]),
        ValuePlace::Unknown(why) => match why {
            Unknown::OptimizedOut => put_all(out, &[4, 0]),
            Unknown::Elsewhere { from, to } => put_all(out, &[4, 1, from.into(), to.into()]),
            Unknown::Contradiction => put_all(out, &[4, 2]),
            Unknown::Layout => put_all(out, &[4, 3]),
            Unknown::Unsaid => put_all(out, &[4, 4]),
            Unknown::Form => put_all(out, &[4, 5]),
        },
    }
}

fn put_type(out: &mut Vec<u8>, of: &Type, pools: &mut Pools) {
    pools.put_name(out, &of.name);
    pools.put_name(out, &of.module);
    put(out, of.size);
    match &of.shape {
        TypeKind::Opaque => put(out, 0),
        TypeKind::Unit => put(out, 1),
        TypeKind::Bool => put(out, 2),
        TypeKind::Char => put(out, 3),
        TypeKind::Integer { signed } => put_all(out, &[4, (*signed).into()]),
        TypeKind::Float => put(out, 5),
        TypeKind::Function => put(out, 6),
        TypeKind::Pointer { flavor, target, at } => {
            let flavor = match flavor {
                Flavor::Reference => 0,
                Flavor::Shared => 1,
                Flavor::Raw => 2,
            };
            put_all(out, &[7, flavor, *target as u64, (*at).into()]);
        }
        TypeKind::Sequence { element, is_text, data, length } => {
            put_all(out, &[8, *element as u64, (*is_text).into(), (*data).into(), (*length).into()]);
        }
        TypeKind::Dynamic { data, vtable } => put_all(out, &[9, (*data).into(), (*vtable).into()]),
        TypeKind::Object { data, vtable } => put_all(out, &[15, (*data).into(), (*vtable).into()]),
        TypeKind::Array { element, count } => put_all(out, &[10, *element as u64, *count]),
        TypeKind::Struct { form, members } => {
            put_all(out, &[11, (*form == Form::Tuple).into(), members.len() as u64]);
            for (name, offset, of) in members {
                pools.put_name(out, name);
                put_all(out, &[(*offset).into(), *of as u64]);
            }
        }
        TypeKind::Wrapper { target, at } => put_all(out, &[12, *target as u64, (*at).into()]),
        TypeKind::Enumeration { signed, enumerators } => {
            put_all(out, &[13, (*signed).into(), enumerators.len() as u64]);
            for (name, value) in enumerators {
                pools.put_name(out, name);
                put(out, *value);
            }
        }
        TypeKind::Variants { tag, variants } => {
            put(out, 14);
            match tag {
                None => put(out, 0),
                Some(Tag { offset, bytes }) => put_all(out, &[1, (*offset).into(), (*bytes).into()]),
            }
            put(out, variants.len() as u64);
            for (name, value, of) in variants {
                pools.put_name(out, name);
                match value {
                    None => put(out, 0),
                    Some(value) => put_all(out, &[1, *value]),
                }
                put(out, *of as u64);
            }
        }
    }
}
