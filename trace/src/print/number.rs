//! Numbers of C, as expressions in a `print fmt` have them: integers of 8 to 64 bits, and the conversions between them
//! (C11, 6.3.1).

use crate::fetch::BitRange;
use crate::format::{Base, Width};

/// An integer type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Integer {
    width: Width,
    is_signed: bool,
}

/// A number of an integer type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    integer: Integer,
    /// The value, extended to 64 bits by its sign or by zeros, according to the type.
    value: u64,
}

impl Integer {
    pub(super) const INT: Self = Self::new(Width::W32, true);
    const UNSIGNED: Self = Self::new(Width::W32, false);
    const LONG: Self = Self::new(Width::W64, true);
    pub(super) const UNSIGNED_LONG: Self = Self::new(Width::W64, false);

    const fn new(width: Width, is_signed: bool) -> Self {
        Self { width, is_signed }
    }

    /// Returns the type of a field of a record.
    pub(super) fn of(base: Base) -> Self {
        match base {
            Base::Signed(width) => Self::new(width, true),
            Base::Unsigned(width) | Base::Hexadecimal(width) => Self::new(width, false),
            _ => Self::UNSIGNED_LONG,
        }
    }

    /// Returns the type with this name. `char` has no sign in Linux (`-funsigned-char`).
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "char" => Self::new(Width::W8, false),
            "short" => Self::new(Width::W16, true),
            "int" | "pid_t" => Self::INT,
            "long" | "ssize_t" => Self::LONG,
            "dev_t" => Self::UNSIGNED,
            "size_t" | "sector_t" => Self::UNSIGNED_LONG,
            _ => {
                let (sign, bits) = name.strip_prefix("__").unwrap_or(name).split_at_checked(1)?;
                let width = Width::of(bits)?;
                match sign {
                    "s" => Self::new(width, true),
                    "u" => Self::new(width, false),
                    _ => return None,
                }
            }
        })
    }

    /// Returns the type of the literal `value` with this `suffix`: in the order of C, the first possible type that the
    /// value fits (C11, 6.4.4.1).
    pub(super) fn of_literal(value: u64, is_decimal: bool, suffix: &str) -> Self {
        let (is_unsigned, is_long) = (suffix.contains(['u', 'U']), suffix.contains(['l', 'L']));
        let may_be = |integer: &Self| {
            let fits_sign = if integer.is_signed { !is_unsigned } else { is_unsigned || !is_decimal };
            let fits_value = if integer.is_signed { integer.value(value) as i64 >= 0 } else { true };
            fits_sign && fits_value && integer.value(value) == value && (!is_long || integer.width == Width::W64)
        };
        [Self::INT, Self::UNSIGNED, Self::LONG].into_iter().find(may_be).unwrap_or(Self::UNSIGNED_LONG)
    }

    /// Returns the type of this width with or without a sign.
    pub(super) fn signed(self, is_signed: bool) -> Self {
        Self { is_signed, ..self }
    }

    /// Returns the type of arithmetic with one operand of this type: `int` for smaller types.
    fn promoted(self) -> Self {
        if self.width.bits() < Self::INT.width.bits() { Self::INT } else { self }
    }

    /// Returns the type of arithmetic with operands of both types.
    pub(super) fn common(self, other: Self) -> Self {
        let (left, right) = (self.promoted(), other.promoted());
        match left.width.bits().cmp(&right.width.bits()) {
            core::cmp::Ordering::Less => right,
            core::cmp::Ordering::Greater => left,
            core::cmp::Ordering::Equal => left.signed(left.is_signed && right.is_signed),
        }
    }

    /// Converts `value` to this type.
    pub(super) fn number(self, value: u64) -> Number {
        Number { integer: self, value: self.value(value) }
    }

    fn value(self, value: u64) -> u64 {
        BitRange::low_bits(self.width, self.is_signed).apply(value)
    }
}

impl Number {
    /// Returns the result of a comparison.
    pub(super) fn truth(holds: bool) -> Self {
        Integer::INT.number(u64::from(holds))
    }

    pub(super) fn integer(self) -> Integer {
        self.integer
    }

    pub(super) fn value(self) -> u64 {
        self.value
    }

    /// Promotes the number to the type of arithmetic, and applies `change` to its value.
    pub(super) fn promoted(self, change: impl Fn(u64) -> u64) -> Self {
        let integer = self.integer.promoted();
        integer.number(change(self.value))
    }

    /// Shifts to the left. C does not define shifts by the width of the type or more; here the result is 0.
    fn shifted_left(self, by: Self) -> Self {
        let width = u64::from(self.integer.promoted().width.bits());
        self.promoted(|value| if by.value < width { value << by.value } else { 0 })
    }

    /// Shifts to the right, with copies of the sign if the type has one. A shift by the width of the type or more gives
    /// 0.
    fn shifted_right(self, by: Self) -> Self {
        let Integer { width, is_signed } = self.integer.promoted();
        self.promoted(|value| match (by.value < width.bits().into(), is_signed) {
            (false, _) => 0,
            (true, false) => value >> by.value,
            (true, true) => (value.cast_signed() >> by.value).cast_unsigned(),
        })
    }
}

/// Applies a binary operator.
pub(super) fn apply(operator: &str, left: Number, right: Number) -> Number {
    match operator {
        "||" => return Number::truth(left.value != 0 || right.value != 0),
        "&&" => return Number::truth(left.value != 0 && right.value != 0),
        "<<" => return left.shifted_left(right),
        ">>" => return left.shifted_right(right),
        _ => {}
    }
    let common = left.integer.common(right.integer);
    let (left, right) = (common.value(left.value), common.value(right.value));
    let order = if common.is_signed { left.cast_signed().cmp(&right.cast_signed()) } else { left.cmp(&right) };
    match operator {
        "==" => Number::truth(order.is_eq()),
        "!=" => Number::truth(order.is_ne()),
        "<" => Number::truth(order.is_lt()),
        ">" => Number::truth(order.is_gt()),
        "<=" => Number::truth(order.is_le()),
        ">=" => Number::truth(order.is_ge()),
        "|" => common.number(left | right),
        "^" => common.number(left ^ right),
        "&" => common.number(left & right),
        "+" => common.number(left.wrapping_add(right)),
        "-" => common.number(left.wrapping_sub(right)),
        _ => common.number(left.wrapping_mul(right)),
    }
}
