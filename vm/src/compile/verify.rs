//! The check of the rules of handlers. The compiler should only make instructions that keep them; this verifies every
//! clause, from its words alone, before it may run.
//!
//! The words have few forms, none of which uses floating point, waits, or takes an exception. Branches lead to
//! instructions, and nothing is executed twice, except the search of a bucket, which drops a slot in each turn.
//! Registers that a function must preserve are touched only around calls, by fixed words. Calls go to the address that
//! the kernel has named. `reach` checks where stores go.

use alloc::vec::Vec;

use aarch64_kprobes::insn::encode::compute as a64;
use fallible::OutOfMemory;

use super::assembler::moves;
use super::call::{ENTER, LEAVE};
use super::reach::Reach;
use super::{Compiled, Refused, TAKEN, THIRD};

/// What a word writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writes {
    /// At most the flags.
    Nothing,
    /// The register in bits 4 to 0.
    D,
    /// The register in bits 4 to 0, and the one in bits 14 to 10.
    T,
    /// Memory.
    M,
    /// Memory, and the register in bits 20 to 16.
    S,
}

/// The allowed forms of words: a mask, the value under the mask, and what such a word writes. The encodings are those
/// of `encode`.
const FORMS: [(u32, u32, Writes); 35] = [
    (0xffc0_0000, 0x9100_0000, Writes::D), // add, sub (immediate)
    (0xffc0_0000, 0xd100_0000, Writes::D),
    (0xffc0_001f, 0xf100_001f, Writes::Nothing), // cmp
    (0xffe0_0000, 0x8b00_0000, Writes::D),       // add, sub, subs, and, orr, eor with lsl; eor with lsr
    (0xffe0_0000, 0xcb00_0000, Writes::D),
    (0xffe0_0000, 0xeb00_0000, Writes::D),
    (0xffe0_0000, 0x8a00_0000, Writes::D),
    (0xffe0_0000, 0xaa00_0000, Writes::D),
    (0xffe0_0000, 0xca00_0000, Writes::D),
    (0xffe0_0000, 0xca40_0000, Writes::D),
    (0xffe0_0000, 0x9b00_0000, Writes::D), // madd, msub
    (0xffe0_fc00, 0x9bc0_7c00, Writes::D), // umulh
    (0xffe0_fc00, 0x9ac0_0800, Writes::D), // udiv, sdiv, lsl, lsr, asr
    (0xffe0_fc00, 0x9ac0_0c00, Writes::D),
    (0xffe0_fc00, 0x9ac0_2000, Writes::D),
    (0xffe0_fc00, 0x9ac0_2400, Writes::D),
    (0xffe0_fc00, 0x9ac0_2800, Writes::D),
    (0xffff_fc00, 0xdac0_1000, Writes::D), // clz
    (0xffc0_0000, 0xd340_0000, Writes::D), // ubfm, sbfm
    (0xffc0_0000, 0x9340_0000, Writes::D),
    (0xffe0_0800, 0x9a80_0000, Writes::D),       // csel, csinc
    (0xffe0_0c1f, 0xfa40_0000, Writes::Nothing), // ccmp
    (0xff80_0000, 0xd280_0000, Writes::D),       // movz, movn, movk
    (0xff80_0000, 0x9280_0000, Writes::D),
    (0xff80_0000, 0xf280_0000, Writes::D),
    (0xffc0_0000, 0xf940_0000, Writes::D), // ldr, ldrb, ldp
    (0xffff_fc00, 0x3940_0000, Writes::D),
    (0xffc0_0000, 0xa940_0000, Writes::T),
    (0xffc0_0000, 0xf900_0000, Writes::M), // str, stp
    (0xffc0_0000, 0xa900_0000, Writes::M),
    (0xffff_fc00, 0xc85f_fc00, Writes::D), // ldaxr, stxr, stlr
    (0xffe0_fc00, 0xc800_7c00, Writes::S),
    (0xffff_fc00, 0xc89f_fc00, Writes::M),
    (0xffff_ffe0, 0xd538_d080, Writes::D), // mrs tpidr_el1, cntvct_el0
    (0xffff_ffe0, 0xd53b_e040, Writes::D),
];

/// Where control may go after a word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Successors {
    /// To the next word.
    Falls,
    /// To this word or to the next.
    Either(usize),
    /// To this word.
    Jumps(usize),
    /// Nowhere.
    Ends,
}

/// Returns the target of a branch: the field of `bits` bits at bit `low` is the signed distance from word `at`, in
/// words.
pub(super) fn target(word: u32, at: usize, low: u32, bits: u32) -> Option<usize> {
    let away = 32 - bits;
    at.checked_add_signed(((word >> low << away).cast_signed() >> away) as isize)
}

pub(super) fn register(word: u32, low: u32) -> u8 {
    (word >> low & 31) as u8
}

/// Returns where control may go after a word. Fails if the word has no allowed form, or writes a register that it must
/// not.
fn successors(word: u32, at: usize, words: usize, all: usize) -> Result<Successors, &'static str> {
    const BRANCHES_OUT: &str = "branches out of the instructions";
    if word == a64::RETURN {
        return Ok(Successors::Ends);
    }
    if word == a64::call_register(THIRD) || ENTER.contains(&word) || LEAVE.contains(&word) {
        return Ok(Successors::Falls);
    }
    let next = match (word >> 24, word >> 26) {
        (_, 0x05) => Successors::Jumps(target(word, at, 0, 26).ok_or(BRANCHES_OUT)?),
        (0x54 | 0x34 | 0x35 | 0xb4 | 0xb5, _) if word >> 24 != 0x54 || word & 16 == 0 => {
            Successors::Either(target(word, at, 5, 19).ok_or(BRANCHES_OUT)?)
        }
        (0x36 | 0x37, _) => Successors::Either(target(word, at, 5, 14).ok_or(BRANCHES_OUT)?),
        (0x58, _) if register(word, 0) < 18 => {
            let literal = target(word, at, 5, 19).filter(|literal| (words..all).contains(literal) && literal % 2 == 0);
            return literal.map(|_| Successors::Falls).ok_or("loads from outside the literals");
        }
        _ => {
            let form = FORMS.iter().find(|(mask, value, _)| word & mask == *value);
            let &(_, value, writes) = form.ok_or("is not an instruction of a handler")?;
            // Where an immediate is added, register 31 is the stack pointer.
            let may = |number: u8| number < 18 || number == 31 && !matches!(value, 0x9100_0000 | 0xd100_0000);
            let is_right = match writes {
                Writes::Nothing | Writes::M => true,
                Writes::D => may(register(word, 0)),
                Writes::T => may(register(word, 0)) && may(register(word, 10)),
                Writes::S => may(register(word, 16)),
            };
            return if is_right { Ok(Successors::Falls) } else { Err("writes what it must not") };
        }
    };
    match next {
        Successors::Jumps(to) | Successors::Either(to) if to >= words => Err(BRANCHES_OUT),
        next => Ok(next),
    }
}

impl Compiled {
    /// Checks the rules. `may` says whether a virtual address may be called, and `reach` describes what the clause may
    /// use.
    ///
    /// # Errors
    ///
    /// [`Refused::Flaw`] with the first broken rule; [`Refused::OutOfMemory`] if there is no memory for the check.
    pub(super) fn verify(&self, may: impl Fn(u64) -> bool, reach: Reach<'_>) -> Result<(), Refused> {
        let flaw = |word, what| Refused::Flaw { word, what };
        let instructions = self.words.get(..self.instructions).ok_or(flaw(0, "has fewer words than instructions"))?;
        let mut all = Vec::new();
        all.try_reserve_exact(instructions.len()).map_err(OutOfMemory::from)?;
        for (at, &word) in instructions.iter().enumerate() {
            all.push(successors(word, at, instructions.len(), self.words.len()).map_err(|what| flaw(at, what))?);
        }
        if !matches!(all.last(), Some(Successors::Ends | Successors::Jumps(_))) {
            return Err(flaw(instructions.len(), "runs past its end"));
        }
        self.calls(instructions, &all, may)?;
        // The number of words that lead to each word. The branch back of a search is left out.
        let forgets = |at: usize| {
            let before = at.checked_sub(1).and_then(|before| instructions.get(before));
            before == Some(&a64::shift_right(TAKEN, TAKEN, 1))
                && instructions.get(at).map(|word| word & 0xff00_001f) == Some(SEARCHES)
        };
        let leads_to = |at: usize| {
            let next = all.get(at).copied().unwrap_or(Successors::Ends);
            let target = match next {
                Successors::Either(to) if to <= at && forgets(at) => None,
                Successors::Either(to) | Successors::Jumps(to) => Some(to),
                _ => None,
            };
            target.into_iter().chain(matches!(next, Successors::Falls | Successors::Either(_)).then_some(at + 1))
        };
        let mut leading = fallible::collect(all.iter().map(|_| 0_usize))?;
        for to in (0..all.len()).flat_map(leads_to) {
            if let Some(count) = leading.get_mut(to) {
                *count += 1;
            }
        }
        // Each word is in both lists at most once.
        let (mut ready, mut order) = (Vec::new(), Vec::new());
        for list in [&mut ready, &mut order] {
            list.try_reserve_exact(all.len()).map_err(OutOfMemory::from)?;
        }
        ready.extend((0..all.len()).filter(|&at| leading.get(at) == Some(&0)));
        while let Some(at) = ready.pop() {
            order.push(at);
            for to in leads_to(at) {
                let Some(count) = leading.get_mut(to) else { continue };
                *count -= 1;
                if *count == 0 {
                    ready.push(to);
                }
            }
        }
        if let Some(at) = leading.iter().position(|count| *count > 0) {
            return Err(flaw(at, "may loop forever"));
        }
        reach.check(self, &order, leads_to)
    }

    /// Checks that all calls are listed, that the fixed words around a call save what it does not preserve, and that
    /// these words are nowhere else.
    fn calls(&self, instructions: &[u32], all: &[Successors], may: impl Fn(u64) -> bool) -> Result<(), Refused> {
        let flaw = |word, what| Refused::Flaw { word, what };
        let mut calls = self.calls.iter();
        let mut inside = fallible::collect(instructions.iter().map(|_| false))?;
        let mut at = 0;
        while at < instructions.len() {
            let rest = instructions.get(at..).unwrap_or(&[]);
            if !rest.starts_with(&ENTER) {
                if rest.first().is_some_and(|word| touches_stack(*word) || *word == CALLS) {
                    return Err(flaw(at, "uses the stack outside of a call"));
                }
                at += 1;
                continue;
            }
            let length =
                rest.windows(LEAVE.len()).position(|words| words == LEAVE).ok_or(flaw(at, "does not return"))?;
            let call = calls.next().filter(|call| call.word > at && call.word < at + length && may(call.to));
            let call = call.ok_or(flaw(at, "calls a function that it must not"))?;
            let within = rest.get(ENTER.len()..length).unwrap_or(&[]);
            if within.iter().filter(|word| **word == CALLS).count() != 1
                || instructions.get(call.word) != Some(&CALLS)
                || within.iter().any(|word| touches_stack(*word))
                || self.loaded(call.word) != Some(call.to)
            {
                return Err(flaw(call.word, "is not the call that is declared for it"));
            }
            let end = at + length + LEAVE.len();
            inside.iter_mut().take(end).skip(at + 1).for_each(|inside| *inside = true);
            at = end;
        }
        if calls.next().is_some() {
            return Err(flaw(instructions.len(), "has fewer calls than are declared"));
        }
        for (at, next) in all.iter().enumerate() {
            let to = match *next {
                Successors::Either(to) | Successors::Jumps(to) => inside.get(to) == Some(&true),
                _ => false,
            };
            if to || inside.get(at) == Some(&true) && *next != Successors::Falls {
                return Err(flaw(at, "branches within a call"));
            }
        }
        Ok(())
    }

    /// Returns the number that the words before word `at` load into the register for calls.
    fn loaded(&self, at: usize) -> Option<u64> {
        let before = self.words.get(..at)?;
        let last = *before.last()?;
        if last & 0xff00_001f == 0x5800_0000 | u32::from(THIRD) {
            let literal = target(last, at - 1, 5, 19)?;
            let &[low, high] = self.words.get(literal..literal.checked_add(2)?)? else { return None };
            return Some(u64::from(low) | u64::from(high) << 32);
        }
        let call = self.calls.iter().find(|call| call.word == at)?;
        before.ends_with(moves(THIRD, call.to, &mut [0; 4])).then_some(call.to)
    }
}

/// Returns whether the word is one of those around a call that use the stack.
fn touches_stack(word: u32) -> bool {
    ENTER.contains(&word) || LEAVE.iter().take(2).any(|leave| *leave == word)
}

/// The only allowed form of BLR.
pub(super) const CALLS: u32 = a64::call_register(THIRD);
/// The `cbnz` at the end of a search, on the slots that are left, without its distance.
pub(super) const SEARCHES: u32 = 0xb500_0000 | TAKEN as u32;
