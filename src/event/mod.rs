//! Static events: places in a kernel's code that report what happens there, at the cost of one NOP until a probe
//! listens.
//!
//! A probe finds values where the compiler has left them. A static event has the values that its author chose, under
//! names that stay when the code changes. A kernel needs only the engine for it: [`event!`](macro@crate::event) defines
//! an event, and [`emit!`](crate::emit) stands where it happens.
//!
//! ```
//! aarch64_kprobes::event! {
//!     /// A job was taken out of its queue.
//!     pub struct JobStart<'a> = jobs:job_start {
//!         queue: u32,
//!         name: aarch64_kprobes::event::Text<'a>,
//!     }
//! }
//!
//! fn start(queue: u32, name: &str) {
//!     aarch64_kprobes::emit!(JobStart { queue, name: name.into() });
//! }
//! ```
//!
//! # How it works
//!
//! - `event!` defines a struct of the fields, a description, and a function that takes a reference to the struct and
//!   returns at once. An entry in the section `.kprobes.events` has the distance to the description.
//! - `emit!` places a NOP. An entry in the section `.kprobes.sites` has its address, and that of a block outside the
//!   usual path. The block evaluates the fields and calls the function.
//! - While a probe is enabled at the function, a branch to the block stands in place of the NOP. The architecture
//!   allows both words to be replaced while they execute (Arm ARM, B2.4.4). Every CPU has executed a context
//!   synchronization event when the change returns.
//!
//! A [`Kprobe`](crate::Kprobe) at [`Event::address`] listens to the event, with all that holds for a probe. Hits in a
//! handler are counted as missed, and interrupts are masked while a handler runs. The first argument (x0) is the
//! address of the struct.
//!
//! The linker collects both sections, so nothing is registered at run time. The NOP itself cannot be probed, and
//! analyses of the code take it for a branch that may go either way.

pub(crate) mod site;

// For the crate that surveys programs on the host.
#[doc(hidden)]
pub use site::{IN_PROGRAM as SITE_IN_PROGRAM, in_program as site_in_program};

use core::fmt;
use core::marker::PhantomData;

/// A kind of static event, as [`event!`](macro@crate::event) describes it.
#[derive(Debug)]
pub struct Event {
    group: &'static str,
    name: &'static str,
    fields: &'static [Field],
    print: Option<&'static str>,
    function: Function,
}

/// The function that is called when an event happens.
#[derive(Clone, Copy, Debug)]
struct Function(*const ());

// SAFETY: the address of code, which every CPU may call.
unsafe impl Sync for Function {}

/// A field of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name.
    pub name: &'static str,
    /// The type as the file `format` of Linux's tracefs has it, without the dimension of an array.
    pub c_type: &'static str,
    /// What the bytes mean.
    pub kind: FieldKind,
    /// The offset in the struct, in bytes.
    pub offset: usize,
    /// The size in bytes.
    pub size: usize,
}

/// What the bytes of a field mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// A number without a sign.
    Unsigned,
    /// A number with a sign.
    Signed,
    /// An address.
    Address,
    /// A text, padded with zeros.
    Characters,
    /// The address of a text, and then its length in bytes: a [`Text`].
    Text,
}

/// A type that a field of an event can have.
///
/// # Safety
///
/// Every value consists of as many bytes as the type has, which mean what [`KIND`](Self::KIND) says. A number or an
/// address has 1, 2, 4 or 8 bytes, and is aligned to its size. Characters are aligned to 1, and a text has the layout
/// of a [`Text`].
pub unsafe trait Value {
    /// What the bytes mean.
    const KIND: FieldKind;
    /// The type in C.
    const C_TYPE: &'static str;
}

macro_rules! values {
    ($($type:ty: $kind:ident, $c_type:literal;)*) => {
        $(
            // SAFETY: an integer or a Boolean has no padding, has 1, 2, 4 or 8 bytes, and is aligned to its size.
            unsafe impl Value for $type {
                const KIND: FieldKind = FieldKind::$kind;
                const C_TYPE: &'static str = $c_type;
            }
        )*
    };
}

values! {
    u8: Unsigned, "unsigned char";
    u16: Unsigned, "unsigned short";
    u32: Unsigned, "unsigned int";
    u64: Unsigned, "u64";
    usize: Unsigned, "size_t";
    i8: Signed, "signed char";
    i16: Signed, "short";
    i32: Signed, "int";
    i64: Signed, "long";
    isize: Signed, "ssize_t";
    bool: Unsigned, "bool";
}

// SAFETY: a thin pointer has 8 bytes, which are an address, and is aligned to 8.
unsafe impl<T> Value for *const T {
    const KIND: FieldKind = FieldKind::Address;
    const C_TYPE: &'static str = "const void *";
}

// SAFETY: an array of `u8` has no padding, and is aligned to 1.
unsafe impl<const N: usize> Value for [u8; N] {
    const KIND: FieldKind = FieldKind::Characters;
    const C_TYPE: &'static str = "char";
}

// SAFETY: the struct has the C representation of an address and a length.
unsafe impl Value for Text<'_> {
    const KIND: FieldKind = FieldKind::Text;
    const C_TYPE: &'static str = "char[]";
}

/// A text of any length, which is read while the event happens.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Text<'a> {
    start: *const u8,
    length: usize,
    _text: PhantomData<&'a str>,
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self { start: text.as_ptr(), length: text.len(), _text: PhantomData }
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: `from` took both from a `&str` with the lifetime of this type.
        let bytes = unsafe { core::slice::from_raw_parts(self.start, self.length) };
        // SAFETY: they are the bytes of that `&str`, so they are UTF-8.
        fmt::Debug::fmt(unsafe { core::str::from_utf8_unchecked(bytes) }, f)
    }
}

impl Field {
    /// A field of type `T` at byte `offset`; `c_type` replaces the name that the type has in C.
    #[doc(hidden)]
    #[must_use]
    pub const fn new<T: Value>(name: &'static str, c_type: Option<&'static str>, offset: usize) -> Self {
        let c_type = match c_type {
            Some(c_type) => c_type,
            None => T::C_TYPE,
        };
        Self { name: plain(name), c_type, kind: T::KIND, offset, size: size_of::<T>() }
    }
}

/// The name that a raw identifier stands for: `type` for `r#type`.
const fn plain(identifier: &'static str) -> &'static str {
    match identifier.as_bytes() {
        [b'r', b'#', ..] => identifier.split_at(2).1,
        _ => identifier,
    }
}

impl Event {
    /// The largest struct of fields, in bytes.
    pub const SIZE_MAX: usize = 256;
    /// The largest number of fields.
    pub const FIELDS_MAX: usize = 31;

    /// Makes the description of an event, for [`event!`](macro@crate::event).
    #[doc(hidden)]
    #[must_use]
    pub const fn new(
        group: &'static str,
        name: &'static str,
        fields: &'static [Field],
        print: Option<&'static str>,
        function: *const (),
    ) -> Self {
        Self { group: plain(group), name: plain(name), fields, print, function: Function(function) }
    }

    /// The group that it belongs to.
    #[must_use]
    pub fn group(&self) -> &'static str {
        self.group
    }

    /// The name, unique in the group.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The fields, in the order of their offsets.
    #[must_use]
    pub fn fields(&self) -> &'static [Field] {
        self.fields
    }

    /// How the event is printed, as `print fmt` of Linux's file `format` says it: a conversion in quotes and its
    /// arguments in C. `None` means each field by its name.
    #[must_use]
    pub fn print(&self) -> Option<&'static str> {
        self.print
    }

    /// The virtual address of the function that is called when the event happens, with the address of the struct in x0.
    /// A probe there listens to the event.
    #[must_use]
    pub fn address(&self) -> usize {
        self.function.0.addr()
    }

    /// Returns the number of places in the image that emit the event.
    #[must_use]
    pub fn sites(&self) -> usize {
        site::of(self.address()).count()
    }
}

/// The events of the image, in the order in which the linker has put them there.
#[cfg(target_os = "none")]
pub fn all() -> impl Iterator<Item = &'static Event> + Clone {
    unsafe extern "C" {
        safe static __kprobes_events_start: isize;
        safe static __kprobes_events_end: isize;
    }
    let (start, end) = (&raw const __kprobes_events_start, &raw const __kprobes_events_end);
    let count = (end.addr() - start.addr()) / size_of::<isize>();
    // SAFETY: `kprobes.x` has the section `.kprobes.events` between the two, and `event!` alone puts words there.
    let distances = unsafe { core::slice::from_raw_parts(start, count) };
    distances.iter().map(|distance| {
        let event = site::target(distance) as *const Event;
        // SAFETY: `event!` puts the distance to a static there.
        unsafe { &*event }
    })
}

/// No events: the host's programs have no such section.
#[cfg(not(target_os = "none"))]
pub fn all() -> impl Iterator<Item = &'static Event> + Clone {
    core::iter::empty()
}

/// Returns the event whose function is at the virtual address `function`, where a probe listens to it; `None` if it is
/// not the function of an event.
#[must_use]
pub fn of_function(function: usize) -> Option<&'static Event> {
    all().find(|event| event.address() == function)
}

/// Defines a static event: a struct of its fields, of which [`emit!`](crate::emit) makes a value.
///
/// ```
/// aarch64_kprobes::event! {
///     /// A tank was filled.
///     pub struct TankFilled = plant:tank_filled {
///         name: [u8; 16],
///         number: i32 = "pid_t",
///         litres: u64,
///     }
///     print r#""%s (%d) has %lu l", REC->name, REC->number, REC->litres"#
/// }
/// ```
///
/// After the `=` stand the group and the name of the event. A field has a type that is a
/// [`Value`](crate::event::Value); the text after it replaces the name of the type in `format`. `print` is optional.
/// With a [`Text`](crate::event::Text) among the fields the struct has a lifetime.
///
/// An event that is larger than [`Event::SIZE_MAX`] or has more fields than [`Event::FIELDS_MAX`] is an error of the
/// compiler.
#[macro_export]
macro_rules! event {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident $(<$lifetime:lifetime>)? = $group:ident : $event:ident {
            $($field:ident : $type:ty $(= $c_type:literal)?),* $(,)?
        }
        $(print $print:expr)?
    ) => {
        $(#[$attribute])*
        #[allow(missing_docs, reason = "the names of the fields are those of the event")]
        #[repr(C, align(8))]
        $visibility struct $name $(<$lifetime>)? {
            $(pub $field: $type,)*
        }

        impl $(<$lifetime>)? $name $(<$lifetime>)? {
            const FIELDS: &'static [$crate::event::Field] = &[$(
                $crate::event::Field::new::<$type>(
                    ::core::stringify!($field),
                    $crate::__optional!($($c_type)?),
                    ::core::mem::offset_of!(Self, $field),
                ),
            )*];
        }

        const _: () = {
            assert!($name::FIELDS.len() <= $crate::event::Event::FIELDS_MAX, "an event has at most 31 fields");
            let size = ::core::mem::size_of::<$name>();
            assert!(size <= $crate::event::Event::SIZE_MAX, "an event has at most 256 bytes");

            // It keeps the function, and the function's section keeps it.
            #[used]
            static DESCRIBED: $crate::event::Event = $crate::event::Event::new(
                ::core::stringify!($group),
                ::core::stringify!($event),
                $name::FIELDS,
                $crate::__optional!($($print)?),
                $name::event as *const (),
            );

            impl $(<$lifetime>)? $name $(<$lifetime>)? {
                /// The description of the event.
                pub const EVENT: &'static $crate::event::Event = &DESCRIBED;

                /// Does nothing. A probe at this function listens to the event.
                //
                // The word in the section is a distance, which needs no relocation when the image is loaded.
                #[cfg(all(target_os = "none", target_arch = "aarch64"))]
                #[doc(hidden)]
                #[unsafe(naked)]
                pub extern "C" fn event(_: &Self) {
                    ::core::arch::naked_asm!(
                        "ret",
                        ".pushsection .kprobes.events, \"a\", @progbits",
                        ".balign 8",
                        ".8byte {described} - .",
                        ".popsection",
                        described = sym DESCRIBED,
                    )
                }

                /// The host's programs have no probes.
                #[cfg(not(all(target_os = "none", target_arch = "aarch64")))]
                #[doc(hidden)]
                pub extern "C" fn event(_: &Self) {}
            }
        };
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __optional {
    () => {
        ::core::option::Option::None
    };
    ($value:expr) => {
        ::core::option::Option::Some($value)
    };
}

/// Reports that an event happens: `emit!(TankFilled { name, number: 3, litres: tank.litres() })`.
///
/// The fields are evaluated only while something listens to the event; otherwise a NOP is executed. `emit!` may stand
/// where probes may be hit: with interrupts masked, under locks, in interrupt handlers. It must not stand in code that
/// runs while a probe is handled, nor in code outside [`Platform::text`](crate::platform::Platform::text):
/// [`embedding`](crate::embedding) refuses an image in which it does.
#[macro_export]
macro_rules! emit {
    ($($event:ident)::+ { $($fields:tt)* }) => {
        if $crate::__is_listened_to!($($event)::+) {
            $($event)::+::event(&$($event)::+ { $($fields)* });
        }
    };
}

/// Whether something listens to the event: the NOP of [`emit!`].
//
// A `break` out of the block of the label, so that what the caller evaluates is not in the `unsafe` block.
#[cfg(all(target_os = "none", target_arch = "aarch64"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __is_listened_to {
    ($event:path) => {
        'listened: {
            // SAFETY: the instruction is a NOP, or the branch to the label that the engine puts in its place. The entry
            // in the section has the layout of `event::site::EventSite`.
            unsafe {
                ::core::arch::asm!(
                    "771: nop",
                    ".pushsection .kprobes.sites, \"a\", @progbits",
                    ".balign 8",
                    ".8byte 771b - .",
                    ".8byte {listened} - .",
                    ".8byte {function} - .",
                    ".popsection",
                    listened = label { break 'listened true },
                    function = sym <$event>::event,
                    options(nomem, nostack, preserves_flags)
                );
            }
            false
        }
    };
}

/// Nothing listens in the host's programs.
#[cfg(not(all(target_os = "none", target_arch = "aarch64")))]
#[doc(hidden)]
#[macro_export]
macro_rules! __is_listened_to {
    ($event:path) => {
        false
    };
}

#[cfg(test)]
mod tests {
    crate::event! {
        struct Raw = r#box:r#move {
            r#type: u32,
            number: u8,
        }
    }

    /// A keyword of Rust is a name like any other in C, and in a filter.
    #[test]
    fn a_raw_identifier_is_the_name_after_it() {
        let event = Raw::EVENT;
        assert_eq!((event.group(), event.name()), ("box", "move"));
        assert!(event.fields().iter().map(|field| field.name).eq(["type", "number"]));
    }
}
