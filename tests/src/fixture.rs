//! The functions of `fixtures.S`, and how functions of the image are found.

use core::ops::Range;

use kprobes_console::symbol;

core::arch::global_asm!(
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../trampoline/preserved.S")),
    include_str!("../fixtures.S"),
);

macro_rules! fixtures {
    ($($name:ident = $symbol:ident;)*) => {
        $(
            unsafe extern "C" {
                safe fn $symbol(argument: u64) -> u64;
            }
            /// A function of `fixtures.S`, which describes it.
            pub const $name: Fixture = Fixture($symbol);
        )*
    };
}

/// A function that takes and returns one word.
#[derive(Clone, Copy)]
pub struct Fixture(extern "C" fn(u64) -> u64);

fixtures! {
    ADDRESSES = fixture_addresses;
    FAR = fixture_far;
    END_OF_PAGE = fixture_end_of_page;
    DATA_WITHIN = fixture_data_within;
    LITERALS = fixture_literals;
    BRANCHES = fixture_branches;
    CALLS = fixture_calls;
    CALLEE = fixture_callee;
    HINTS = fixture_hints;
    ORDINARY = fixture_ordinary;
    INTERRUPT_MASKS = fixture_interrupt_masks;
    READ_MASKS = fixture_read_masks;
    STACK_POINTER = fixture_stack_pointer;
    IDENTITY = fixture_identity;
    TAIL_CALL = fixture_tail_call;
    CONDITIONAL_TAIL_CALL = fixture_conditional_tail_call;
    COUNT_DOWN = fixture_count_down;
    LAST_CALL = fixture_last_call;
    REGISTERS = fixture_registers;
    CHECK_REGISTERS = fixture_check_registers;
    SIGNED_RETURN = fixture_signed_return;
    SIGNED_RETURN_BY_KEY_B = fixture_signed_return_by_key_b;
    SIGNED_CALLS = fixture_signed_calls;
    BAD_LOAD = fixture_bad_load;
    BAD_STORE = fixture_bad_store;
    BAD_LITERAL = fixture_bad_literal;
    FORGED_RETURN = fixture_forged_return;
    FORGED_CALL = fixture_forged_call;
    CALL_PAD = fixture_call_pad;
    JUMP_PAD = fixture_jump_pad;
    SIGNING_PAD = fixture_signing_pad;
    NO_PAD = fixture_no_pad;
    NO_PAD_SIMULATED = fixture_no_pad_simulated;
    PAD_CALLER = fixture_pad_caller;
}

unsafe extern "C" {
    safe fn fixture_call_from_pattern(argument: u64, function: usize) -> u64;
    fn fixture_exclusive(word: *mut u64, addend: u64) -> u64;
    fn fixture_exclusive_call(word: *mut u64, addend: u64) -> u64;
    safe fn fixture_in_sequence(one: u64, other: u64) -> u64;
}

/// Adds `addend` to `word` by an exclusive pair, and returns the sum.
pub fn add_exclusively(word: &mut u64, addend: u64) -> u64 {
    // SAFETY: the function changes only the word that it is given.
    unsafe { fixture_exclusive(word, addend) }
}

/// Does what [`add_exclusively`] does, with a call in the sequence.
pub fn add_by_call(word: &mut u64, addend: u64) -> u64 {
    // SAFETY: the function changes only the word that it is given.
    unsafe { fixture_exclusive_call(word, addend) }
}

/// Returns the virtual addresses of the function that [`add_by_call`] calls, and of the one that this calls in its
/// sequence.
pub fn exclusive_call_addresses() -> [usize; 2] {
    [fixture_exclusive_call as *const () as usize, fixture_in_sequence as *const () as usize]
}

/// Returns the virtual address of the call in [`PAD_CALLER`].
pub fn call_of_pad() -> usize {
    unsafe extern "C" {
        static fixture_call_of_pad: u32;
    }
    &raw const fixture_call_of_pad as usize
}

/// Returns the virtual address of the function that [`add_exclusively`] calls.
pub fn exclusive_address() -> usize {
    fixture_exclusive as *const () as usize
}

impl Fixture {
    pub fn call(self, argument: u64) -> u64 {
        (self.0)(argument)
    }

    /// Calls the function with the same value in every register except x30, each time.
    pub fn call_from_pattern(self, argument: u64) -> u64 {
        fixture_call_from_pattern(argument, self.address())
    }

    /// Returns the virtual address of the first instruction.
    pub fn address(self) -> usize {
        self.0 as usize
    }

    /// Returns the virtual addresses of the instructions.
    pub fn instructions(self) -> impl Iterator<Item = usize> {
        let Range { start, end } = range_of(self.address());
        (start..end).step_by(4)
    }
}

/// Returns the virtual address range of the function at `address`, from the symbol table.
pub fn range_of(address: usize) -> Range<usize> {
    symbol::function(address).expect("the function has a symbol")
}

/// Returns the virtual address of the function with this name; if there are several, of the first.
pub fn address_of(name: &str) -> usize {
    symbol::find(name).next().unwrap_or_else(|| panic!("there is no {name}")).address as usize
}
