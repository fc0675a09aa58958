//! The data model of a table, shared by its writer and its reader.

use core::fmt;

/// The number of a type in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeId(pub u32);

/// The place of a function in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Declaration {
    /// The number of the file.
    pub file: u32,
    /// The number of the line on which the function is declared, from 1.
    pub line: u32,
    /// The number of lines from there to the last that instructions of the function itself come from.
    pub more: u32,
}

impl Declaration {
    /// Returns the number of a line of the file, counted from the declaration; `None` if the line is not one of the
    /// function.
    #[must_use]
    pub fn count(&self, line: u32) -> Option<u32> {
        line.checked_sub(self.line).filter(|&count| count <= self.more)
    }
}

/// Where a word of 8 bytes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// Nowhere: the compiler has found that nothing uses it.
    Lost,
    /// In a general register, 0 to 30.
    Register(u8),
    /// In memory.
    Memory {
        /// The general register with an address, 0 to 30, or [`STACK_POINTER`](Self::STACK_POINTER).
        register: u8,
        /// The offset of the word from that address, in bytes.
        offset: i32,
    },
    /// Nowhere: the word is the sum of a number and a register, which is numbered as for [`Memory`](Self::Memory).
    Sum {
        /// The register.
        register: u8,
        /// The number.
        offset: i32,
    },
    /// In the lowest bits of a general register; the other bits of the word are 0.
    Bits {
        /// The register, 0 to 30.
        register: u8,
        /// The number of bits, 1 to 63.
        bits: u8,
    },
}

impl Source {
    /// The number of the stack pointer among registers with an address.
    pub const STACK_POINTER: u8 = 31;

    /// The word this many bytes above the stack pointer, which is where a call passes what has no register.
    #[must_use]
    pub const fn stack(offset: i32) -> Self {
        Self::Memory { register: Self::STACK_POINTER, offset }
    }
}

/// A part of a value that is in a word of its own. Bits of the word above the part are undefined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ValuePart {
    /// The offset in the value, in bytes.
    pub offset: u32,
    /// The size in bytes, 1 to 8.
    pub bytes: u8,
    /// Where the word is.
    pub source: Source,
}

/// The location of a value: of an argument at the entry of a function, of a result at its return, of a variable at an
/// instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValuePlace {
    /// The value has no bytes.
    Nothing,
    /// One or two words.
    Words {
        /// The first word.
        first: ValuePart,
        /// The second word, if there is one.
        second: Option<ValuePart>,
    },
    /// Memory, at an address that is in a word. For a result, this is the address passed at the entry.
    At(Source),
    /// Memory, at this offset from the address in a register, which is numbered as for [`Source::Memory`].
    Memory {
        /// The register.
        register: u8,
        /// The offset, in bytes.
        offset: i32,
    },
    /// No location: the value is this constant, always.
    Constant(u64),
    /// An unknown location.
    Unknown(Unknown),
}

impl ValuePlace {
    /// Returns the part in words that has all of the `bytes` bytes at `offset` of the value; `None` if no part has.
    #[must_use]
    pub fn part(&self, offset: u64, bytes: u64) -> Option<ValuePart> {
        let &Self::Words { first, second } = self else { return None };
        let end = offset.saturating_add(bytes);
        let has = |part: &ValuePart| {
            let start = u64::from(part.offset);
            start <= offset && end <= start + u64::from(part.bytes)
        };
        [Some(first), second].into_iter().flatten().find(has)
    }
}

/// Why the location of a value is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unknown {
    /// The compiler has optimized the value out of the whole function.
    OptimizedOut,
    /// The debugging information locates the value elsewhere: in this range of offsets in the function.
    Elsewhere {
        /// The start of the range, in bytes.
        from: u32,
        /// The end of the range, in bytes.
        to: u32,
    },
    /// The debugging information and the calling convention contradict each other.
    Contradiction,
    /// The debugging information lacks what the calling convention depends on.
    Layout,
    /// The debugging information locates the value only relative to the stack frame, which is not set up at this
    /// instruction.
    Unsaid,
    /// The debugging information locates the value in a form that the table cannot describe.
    Form,
}

/// The reason as a clause about `this`.
impl fmt::Display for Unknown {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::OptimizedOut => "this is optimised out",
            Self::Elsewhere { from, to } => {
                return write!(out, "this is optimised out here; it is there from +{from:#x} to +{to:#x}");
            }
            Self::Contradiction => "the debugging information contradicts the calling convention about this",
            Self::Layout => "the debugging information does not say how this is passed",
            Self::Unsaid => "the debugging information locates this in the frame of the function, which is not there",
            Self::Form => "the debugging information locates this in a form that is not supported",
        })
    }
}

/// The meaning of a pointer in Rust.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavor {
    /// `&T`, `&mut T` or `Box`: it stands for its target.
    Reference,
    /// `Rc` or `Arc`: it stands for its target, which follows the counts.
    Shared,
    /// `*const T`, `*mut T` or `NonNull`: it stands for an address.
    Raw,
}

/// How the values of a struct are displayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// With the names of the fields, or without fields.
    Named,
    /// With numbered fields; without a name, the struct is a tuple.
    Tuple,
}

/// The location of the number that tells the variant of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag {
    /// The offset in the value, in bytes.
    pub offset: u32,
    /// The size in bytes: 1, 2, 4 or 8.
    pub bytes: u8,
}

/// The kind of a type. `M`, `V` and `E` are its lists of members, variants and enumerators; `T` refers to a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TypeKind<T, M, V, E> {
    /// A type of unknown layout.
    Opaque,
    /// `()`.
    Unit,
    /// `bool`.
    Bool,
    /// `char`.
    Char,
    /// An integer.
    Integer {
        /// Whether it is signed.
        signed: bool,
    },
    /// A floating-point number.
    Float,
    /// A pointer to a function.
    Function,
    /// A pointer of one word.
    Pointer {
        /// The meaning in Rust.
        flavor: Flavor,
        /// The type of the target.
        target: T,
        /// The offset of the target after the address that the pointer holds, in bytes.
        at: u32,
    },
    /// A slice, a vector or a string: its elements are elsewhere.
    Sequence {
        /// The type of the elements; `u8` for text.
        element: T,
        /// Whether the elements are UTF-8.
        is_text: bool,
        /// The offset of the address of the first element, in bytes.
        data: u32,
        /// The offset of the number of elements, in bytes.
        length: u32,
    },
    /// Another pointer with a second word: a raw one, a reference to a value that ends in a trait object, or an `Rc` or
    /// `Arc` of a trait object or a slice. It stands for an address.
    Dynamic {
        /// The offset of the address, in bytes.
        data: u32,
        /// The offset of the second word, in bytes: the address of the vtable, or the length.
        vtable: u32,
    },
    /// `&dyn Trait`, `&mut dyn Trait` or `Box<dyn Trait>`: it stands for the object, whose type the vtable tells.
    Object {
        /// The offset of the address of the object, in bytes.
        data: u32,
        /// The offset of the address of the vtable, in bytes.
        vtable: u32,
    },
    /// An array.
    Array {
        /// The type of the elements.
        element: T,
        /// The number of elements.
        count: u64,
    },
    /// A struct, a tuple or a closure.
    Struct {
        /// How it is displayed.
        form: Form,
        /// The members, in the order of their declaration.
        members: M,
    },
    /// A struct that stands for the value inside it: `Pin`, atomic integers, `NonZero`.
    Wrapper {
        /// The type of the value inside.
        target: T,
        /// The offset of that value, in bytes.
        at: u32,
    },
    /// An enum without fields.
    Enumeration {
        /// Whether the values are signed.
        signed: bool,
        /// The variants.
        enumerators: E,
    },
    /// An enum with fields.
    Variants {
        /// The location of the tag; `None` if there is only one variant.
        tag: Option<Tag>,
        /// The variants.
        variants: V,
    },
}
