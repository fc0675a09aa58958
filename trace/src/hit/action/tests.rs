//! Actions of a hit, on a record that is made here.

use super::*;
use crate::filter::{Filter, FindFunction};
use crate::format::{Base, Field, Format, Shape, Type};
use crate::trigger::settings::Resources;
use aarch64_kprobes::exception::TrapFrame;
use alloc::vec::Vec;
use core::cell::Cell;

/// A switch that is on: everything is recorded.
pub(crate) static ON: Switch = Switch::new(true);

/// Four CPUs, and unlimited memory.
pub(crate) const RESOURCES: Resources<'static> = Resources { cpus: 4, free: usize::MAX, rings: None, named: None };

/// A hit of `u:u8 s:s32 x:x64 t:string`, by task 7, `main`, on CPU 2.
pub(crate) struct Hit {
    pub(crate) format: Format,
    pub(crate) record: Vec<u8>,
    pub(crate) context: Context,
    pub(crate) frame: TrapFrame,
}

impl Hit {
    pub(crate) fn new() -> Self {
        Self::with(200, -3, 1 << 63, "hello.rs")
    }

    pub(crate) fn with(u: u8, s: i32, x: u64, t: &str) -> Self {
        let of = |name: &str| Type::one(Base::of(name).unwrap());
        let types = [("u", of("u8")), ("s", of("s32")), ("x", of("x64")), ("t", of("string"))];
        let format = Format::new(Shape::Probe, types).unwrap();
        let mut record = Vec::from([1, 0, 0, 0, 7, 0, 0, 0]);
        record.extend(0x1000_u64.to_le_bytes());
        record.push(u);
        record.extend(s.to_le_bytes());
        record.extend(x.to_le_bytes());
        record.extend(((t.len() as u32 + 1) << 16 | format.size() as u32).to_le_bytes());
        record.extend(t.bytes());
        record.push(0);
        let name = [u64::from_le_bytes(*b"main\0\0\0\0"), 0];
        let context = Context { cpu: 2, task: 7, name, ..Context::default() };
        Self { format, record, context, frame: TrapFrame::default() }
    }

    pub(crate) fn fields(&self) -> &[Field] {
        &self.format.fields
    }

    pub(crate) fn state(&self) -> HitState<'_> {
        let (registers, context) = (Registers::Frame(&self.frame), &self.context);
        HitState { registers, context, address: 0x1000, faults: 0, is_caller_in_x30: false }
    }

    pub(crate) fn accepted_by(&self, filter: &Filter) -> bool {
        accept::accepts(filter.tests(), &self.record, &self.state())
    }
}

/// In a record that is shorter than its format, missing numbers are 0 and missing texts cannot be read. Nothing else
/// happens.
#[test]
fn a_record_that_is_cut_off_is_read_as_far_as_it_goes() {
    let mut hit = Hit::new();
    let filter = Filter::parse("x == 0 && !(t == '' || t != '') && s == 0", hit.fields(), FindFunction::NONE).unwrap();
    assert!(!hit.accepted_by(&filter));
    hit.record.truncate(19);
    assert!(hit.accepted_by(&filter));
}

/// The stack starts with the probed address, then x30 if that holds the caller, then the frame records.
#[test]
fn a_stack_is_followed_along_its_records() {
    #[repr(align(16))]
    struct Stack([u64; 8]);
    let mut stack = Stack([0; 8]);
    let at = |stack: &Stack, word: usize| (stack.0.as_ptr().expose_provenance() + 8 * word) as u64;
    stack.0[0] = at(&stack, 2);
    stack.0[1] = 0x2004;
    stack.0[2] = at(&stack, 6);
    stack.0[3] = 0x3004;
    stack.0[7] = 0x4004;
    let mut hit = Hit::new();
    hit.frame.x[29] = at(&stack, 0);
    hit.frame.x[30] = 0x1804;
    let walk = |is_caller_in_x30: bool| {
        let mut walk = Walk::new(&hit.state(), is_caller_in_x30);
        let mut addresses = Vec::from([walk.first()]);
        addresses.extend(core::iter::from_fn(|| walk.step()).take(9));
        addresses
    };
    assert_eq!(walk(true), [0x1000, 0x1804, 0x2004, 0x3004]);
    assert_eq!(walk(false), [0x1000, 0x2004, 0x3004]);
}

/// A record that points to a lower address ends the stack.
#[test]
fn a_stack_that_runs_in_a_circle_ends() {
    #[repr(align(16))]
    struct Stack([Cell<u64>; 4]);
    let stack = Stack([0, 0x2004, 0, 0x3004].map(Cell::new));
    let first = (&raw const stack).expose_provenance() as u64;
    stack.0[0].set(first + 16);
    stack.0[2].set(first);
    let mut hit = Hit::new();
    hit.frame.x[29] = first;
    let mut walk = Walk::new(&hit.state(), false);
    assert_eq!((walk.step(), walk.step(), walk.step()), (Some(0x2004), Some(0x3004), None));
    hit.frame.x[29] += 8;
    assert_eq!(Walk::new(&hit.state(), false).step(), None);
}
