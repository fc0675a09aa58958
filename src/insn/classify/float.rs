//! C4.1.90 Data Processing -- Scalar Floating-Point and Advanced SIMD.

use super::UNALLOCATED;
use crate::insn::verdict::Verdict;

pub(super) const fn classify(_word: u32) -> Verdict {
    UNALLOCATED
}
