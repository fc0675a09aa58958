//! The errors of reading a device tree.

use core::fmt;

/// Why a device tree cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceTreeError {
    /// The boot loader passed no device tree (x0 = 0).
    Absent,
    /// The physical address of the blob is not a multiple of 8.
    Misaligned {
        /// The physical address of the blob.
        address: u64,
    },
    /// The blob, or its end, is at a physical address that cannot be mapped.
    OutOfReach {
        /// The physical address of the blob.
        address: u64,
    },
    /// The blob does not start with the magic number.
    Magic {
        /// The word at the start of the blob.
        found: u32,
    },
    /// The blob's format is too old or too new.
    Version {
        /// The version of the blob.
        version: u32,
        /// The oldest version that it is compatible with.
        compatible: u32,
    },
    /// The size in the header is smaller than a header or larger than the boot protocol allows.
    Size {
        /// The size in bytes.
        size: u32,
    },
    /// The blob is shorter than its header says.
    Truncated {
        /// The number of bytes present.
        length: usize,
        /// The number of bytes that the header states.
        size: usize,
    },
    /// A block that the header describes is misplaced.
    Block {
        /// The name of the block.
        block: &'static str,
        /// Its offset from the start of the blob.
        offset: u32,
        /// Its length in bytes.
        length: u32,
    },
    /// The structure block is damaged.
    Structure {
        /// The offset of the fault from the start of the blob.
        offset: usize,
        /// A description of the fault.
        reason: &'static str,
    },
    /// The tree describes more things of a kind than the kernel has room for.
    TooMany {
        /// The plural noun of the kind.
        what: &'static str,
    },
    /// The tree does not describe the boot CPU, or describes it after more CPUs than the kernel has room for.
    BootCpu {
        /// The affinity fields of the boot CPU's MPIDR_EL1.
        affinity: u64,
    },
    /// The tree lacks something that the kernel needs.
    Missing {
        /// The noun for the missing thing.
        what: &'static str,
    },
}

impl fmt::Display for DeviceTreeError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match *self {
            Self::Absent => f.write_str("the boot loader passed no device tree (x0 is 0)"),
            Self::Misaligned { address } => {
                write!(f, "the device tree is at {address:#x}, which is not a multiple of 8")
            }
            Self::OutOfReach { address } => {
                write!(f, "the device tree is at {address:#x}, which cannot be mapped")
            }
            Self::Magic { found } => write!(
                f,
                "there is no device tree where the boot loader says: it starts with {found:#010x}, not 0xd00dfeed",
            ),
            Self::Version { version, compatible } => {
                write!(f, "the device tree has version {version}, compatible with {compatible}; version 17 is needed",)
            }
            Self::Size { size } => {
                write!(f, "the device tree's header says {size} bytes, which is not between 40 and 2097152",)
            }
            Self::Truncated { length, size } => {
                write!(f, "the device tree is truncated: {length} of {size} bytes are present",)
            }
            Self::Block { block, offset, length } => {
                write!(f, "the device tree's {block} block, {length} bytes at offset {offset:#x}, is misplaced",)
            }
            Self::Structure { offset, reason } => {
                write!(f, "the device tree is damaged at offset {offset:#x}: {reason}")
            }
            Self::TooMany { what } => write!(f, "the device tree describes too many {what}"),
            Self::BootCpu { affinity } => {
                write!(f, "the device tree does not describe the CPU that boots, with affinity {affinity:#x}")
            }
            Self::Missing { what } => write!(f, "the device tree describes no {what}"),
        }
    }
}
