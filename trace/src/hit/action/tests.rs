//! Actions of a hit, on a record that is made here.

use super::*;
use crate::filter::{Filter, FindFunction};
use crate::format::{Base, Field, Format, Shape, Type};
use crate::trigger::settings::Resources;
use aarch64_kprobes::exception::TrapFrame;
use alloc::vec::Vec;

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
