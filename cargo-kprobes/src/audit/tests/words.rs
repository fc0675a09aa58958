//! Where control goes from single instructions.

use aarch64_kprobes::insn::is_floating;

use crate::audit::flow::{Flow, flow};

#[test]
fn control_goes_where_the_instruction_says() {
    for (word, expected) in [
        (0x1400_0002, Flow::Jump(8)),
        (0x17ff_ffff, Flow::Jump(-4)),
        (0x9400_0001, Flow::Call(4)),
        (0x5400_0041, Flow::Condition(8)),
        (0xb4ff_ffe0, Flow::Condition(-4)),
        (0x35ff_ffa8, Flow::Condition(-12)),
        (0x3608_0040, Flow::Condition(8)),
        // CBGT x0, x1 of FEAT_CMPBR.
        (0xf401_0040, Flow::Condition(8)),
        (0xd61f_0200, Flow::JumpRegister(16)),
        (0xd63f_0100, Flow::CallRegister(8)),
        // BLRAA x8, x9.
        (0xd73f_0909, Flow::CallRegister(8)),
        (0xd65f_03c0, Flow::Return),
        // RET x9.
        (0xd65f_0120, Flow::JumpRegister(9)),
        // RETAA, ERET, RETAASPPC.
        (0xd65f_0bff, Flow::Return),
        (0xd69f_03e0, Flow::Return),
        (0x5500_003f, Flow::Return),
        (0xd503_201f, Flow::Next),
        (0x885f_fd28, Flow::Next),
        (0x9e67_0000, Flow::Next),
    ] {
        assert_eq!(flow(word), expected, "{word:#010x}");
    }
    for (word, text) in [(0xd420_0020, "brk #1"), (0xd400_0002, "hvc #0"), (0, "udf #0"), (0xffff_ffff, "unallocated")]
    {
        assert!(matches!(flow(word), Flow::Exception(_)) || is_floating(word), "{text}");
    }
    assert!(matches!(flow(0xd420_0020), Flow::Exception(_)));
}
