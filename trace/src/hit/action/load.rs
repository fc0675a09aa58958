//! Loads numbers and texts from a record.

use super::HitState;
use crate::filter::{HitString, Number, Time};

/// Returns a number of a hit, extended to 64 bits; `None` if it could not be read. Returns 0 if the record is too short
/// for the field.
#[inline]
pub(super) fn number(number: Number, record: &[u8], state: &HitState<'_>) -> Option<u64> {
    let (offset, size, signed) = match number {
        Number::Field { fault: Some(bit), .. } if state.faults >> (bit & 31) & 1 != 0 => return None,
        Number::Field { offset, size, signed, .. } => (offset, size, signed),
        Number::Register(part) => return Some(state.registers.part(part)),
        Number::Task => return Some(state.context.task as i32 as u64),
        Number::Cpu => return Some(state.context.cpu as u64),
        Number::Time(time) => return Some(self::time(time, state.context.time)),
    };
    let offset = usize::from(offset);
    let value = match size {
        8 => word(record, offset),
        4 => bytes(record, offset).map(|bytes| u32::from_le_bytes(bytes).into()),
        2 => bytes(record, offset).map(|bytes| u16::from_le_bytes(bytes).into()),
        _ => record.get(offset).map(|&byte| byte.into()),
    }
    .unwrap_or(0);
    let unused = 64_u32.wrapping_sub(8 * u32::from(size)) & 63;
    Some(if signed { ((value << unused) as i64 >> unused) as u64 } else { value })
}

/// Converts `ticks` as [`Clock`](crate::clock::Clock) does, but without 128-bit division, which would be a call out of
/// the region.
#[inline]
fn time(Time { clock, microseconds }: Time, ticks: u64) -> u64 {
    const SECOND: u64 = 1_000_000_000;
    let ticks = ticks.saturating_sub(clock.origin);
    let (seconds, rest) =
        (ticks.checked_div(clock.frequency).unwrap_or(0), ticks.checked_rem(clock.frequency).unwrap_or(0));
    let fraction = rest.wrapping_mul(SECOND).checked_div(clock.frequency).unwrap_or(0);
    let nanoseconds = seconds.wrapping_mul(SECOND).wrapping_add(fraction);
    if microseconds { nanoseconds.wrapping_add(500) / 1000 } else { nanoseconds }
}

/// Returns a number of a hit for counting: 0 if it could not be read.
#[inline]
pub(super) fn counted(number: Number, record: &[u8], state: &HitState<'_>) -> u64 {
    self::number(number, record, state).unwrap_or(0)
}

/// Loads eight bytes. If they are aligned, as they mostly are, this is one load even on a target that requires
/// alignment.
#[inline(always)]
fn word(record: &[u8], offset: usize) -> Option<u64> {
    let bytes: [u8; 8] = bytes(record, offset)?;
    let place = record.as_ptr().wrapping_add(offset).cast::<u64>();
    if place.is_aligned() {
        // SAFETY: `place` is aligned, and `bytes` has just found eight bytes of the record there.
        return Some(unsafe { place.read() }.to_le());
    }
    Some(u64::from_le_bytes(bytes))
}

#[inline(always)]
fn bytes<const N: usize>(record: &[u8], offset: usize) -> Option<[u8; N]> {
    record.get(offset..)?.first_chunk().copied()
}

/// Returns the bytes before the first zero.
#[inline(always)]
fn until_zero(bytes: &[u8]) -> &[u8] {
    let length = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    bytes.get(..length).unwrap_or(bytes)
}

/// Returns the bytes of a text, without the zero at its end; `None` if it could not be read.
#[inline]
pub(super) fn text<'a>(text: HitString, record: &'a [u8], state: &HitState<'a>) -> Option<&'a [u8]> {
    let offset = match text {
        HitString::Located { offset } => offset,
        HitString::Fixed { offset, size } => {
            let start = usize::from(offset);
            return Some(until_zero(record.get(start..start + usize::from(size))?));
        }
        HitString::Task => return Some(until_zero(state.context.name_bytes())),
    };
    let place = u32::from_le_bytes(bytes(record, offset.into())?) as usize;
    let (start, length) = (place & 0xffff, place >> 16);
    record.get(start..start + length.checked_sub(1)?)
}
