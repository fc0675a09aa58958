//! What a table says, in the terms of both its writer and its reader.

use core::fmt;

/// The number of a type in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeId(pub u32);

/// Where a call has 8 bytes that it passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// Nowhere: the compiler has found that nothing needs them.
    Lost,
    /// In a general register, 0 to 30.
    Register(u8),
    /// So many bytes above the stack pointer at the entry.
    Stack(u32),
}

/// A part of a value that is passed in a word of its own. What is in the word above its bytes has no meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// Where it is in the value, in bytes.
    pub offset: u32,
    /// How many bytes it has, 1 to 8.
    pub bytes: u8,
    /// Where the call has it.
    pub source: Source,
}

/// Where a value is at the entry of a function, or at its return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// It has no bytes.
    Nothing,
    /// In one word or two.
    Words {
        /// The first.
        first: Part,
        /// The second, if there is one.
        second: Option<Part>,
    },
    /// In memory, at an address that the call passes. For what is returned it is the address at the entry.
    At(Source),
    /// It is this, at every call.
    Constant(u64),
    /// That cannot be known.
    Unknown(Unknown),
}

/// Why the place of a value is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unknown {
    /// The compiler has left it out: it is nowhere in the function.
    OptimizedOut,
    /// The debugging information does not have it at the entry, but from this offset in the function up to that one.
    Elsewhere {
        /// From where, in bytes.
        from: u32,
        /// Up to where, in bytes.
        to: u32,
    },
    /// The debugging information and the calling convention contradict each other.
    Contradiction,
    /// The debugging information does not say what the calling convention depends on.
    Layout,
    /// The debugging information has it in the frame only, which is made after the entry.
    Unsaid,
}

/// The reason as a sentence.
impl fmt::Display for Unknown {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::OptimizedOut => "this is optimised out",
            Self::Elsewhere { from, to } => {
                return write!(out, "this is optimised out here; it is there from +{from:#x} to +{to:#x}");
            }
            Self::Contradiction => "the debugging information contradicts the calling convention about this",
            Self::Layout => "the debugging information does not say how this is passed",
            Self::Unsaid => {
                "the debugging information does not say where this is before the function has made its frame"
            }
        })
    }
}

/// What a pointer is to Rust.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavor {
    /// `&T` or `&mut T`, or a `Box`: it stands for what it points to.
    Reference,
    /// An `Rc` or `Arc`: the same, behind the counts.
    Shared,
    /// `*const T`, `*mut T`, `NonNull`: it stands for an address.
    Raw,
}

/// How the values of a struct are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// With the names of its fields, or without fields.
    Named,
    /// Fields are numbered; without a name it is a tuple.
    Tuple,
}

/// Where the number is that tells which variant a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag {
    /// In bytes from the start of the value.
    pub offset: u32,
    /// Its size: 1, 2, 4 or 8.
    pub bytes: u8,
}

/// What a type is: `M`, `V` and `E` are its lists of members, variants and enumerators, `T` refers to a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind<T, M, V, E> {
    /// Its layout is not known.
    Opaque,
    /// `()`.
    Unit,
    /// `bool`.
    Bool,
    /// `char`.
    Char,
    /// An integer.
    Integer {
        /// It has a sign.
        signed: bool,
    },
    /// A floating-point number.
    Float,
    /// A pointer to a function.
    Function,
    /// A pointer of one word.
    Pointer {
        /// What it is to Rust.
        flavor: Flavor,
        /// To what.
        target: T,
        /// Where that is behind what it points to, in bytes.
        at: u32,
    },
    /// A slice, a vector, a string: elements that lie elsewhere.
    Sequence {
        /// Its elements; `u8` for text.
        element: T,
        /// They are UTF-8.
        is_text: bool,
        /// Where the address of the first is.
        data: u32,
        /// Where the number of elements is.
        length: u32,
    },
    /// A pointer with a second word: to a trait object, or a raw one to a slice, which stands for itself.
    Dynamic {
        /// Where its address is.
        data: u32,
        /// Where the address of its vtable is, or its length.
        vtable: u32,
    },
    /// An array.
    Array {
        /// Of what.
        element: T,
        /// How many.
        count: u64,
    },
    /// A struct, a tuple, a closure.
    Struct {
        /// How it is written.
        form: Form,
        /// Its members, in the order of their declaration.
        members: M,
    },
    /// A struct that stands for the value within: `Pin`, atomic integers, `NonZero`.
    Wrapper {
        /// That.
        target: T,
        /// Where it is.
        at: u32,
    },
    /// An enum without fields.
    Enumeration {
        /// Its values have a sign.
        signed: bool,
        /// Its variants.
        enumerators: E,
    },
    /// An enum with fields.
    Variants {
        /// Which of them it is; nothing if there is one only.
        tag: Option<Tag>,
        /// All of them.
        variants: V,
    },
}
