//! Translation table descriptors (Arm ARM, D8.3), VMSAv8-64 with a 4 KiB granule.

/// The indices into MAIR_EL1 of the two memory types.
const NORMAL: u64 = 0;
const DEVICE: u64 = 1;
/// MAIR_EL1: normal write-back memory with allocation, and device nGnRE memory (Arm ARM, D24.2, MAIR_EL1).
pub const MAIR: u64 = 0xff << (8 * NORMAL) | 0x04 << (8 * DEVICE);

const VALID: u64 = 1 << 0;
/// At levels 1 and 2, the entry names a table, not a block. At level 3 it is always set, and the entry is a page.
const TABLE_OR_PAGE: u64 = 1 << 1;
const READ_ONLY: u64 = 1 << 7;
const INNER_SHAREABLE: u64 = 0b11 << 8;
const ACCESSED: u64 = 1 << 10;
/// GP: the CPU checks branch targets in the page (Arm ARM, D8.4). Without FEAT_BTI the bit is ignored.
const GUARDED: u64 = 1 << 50;
const NOT_EXECUTABLE: u64 = 1 << 53;
const NOT_EXECUTABLE_EL0: u64 = 1 << 54;
const ADDRESS: u64 = 0x0000_ffff_ffff_f000;

const fn page(memory: u64, permissions: u64) -> u64 {
    VALID | TABLE_OR_PAGE | memory << 2 | INNER_SHAREABLE | ACCESSED | NOT_EXECUTABLE_EL0 | permissions
}

/// A page descriptor without its address: the memory type and the permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes(u64);

impl Attributes {
    /// Executable and readable.
    pub const TEXT: Self = Self(page(NORMAL, READ_ONLY));
    /// Executable and readable, with branch targets checked.
    pub const GUARDED_TEXT: Self = Self(page(NORMAL, READ_ONLY | GUARDED));
    /// Readable only.
    pub const RODATA: Self = Self(page(NORMAL, READ_ONLY | NOT_EXECUTABLE));
    /// Readable and writable.
    pub const DATA: Self = Self(page(NORMAL, NOT_EXECUTABLE));
    /// The registers of a device, readable and writable.
    pub const DEVICE: Self = Self(page(DEVICE, NOT_EXECUTABLE));

    /// Returns the bits of the page descriptor.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }
}

/// An entry of a translation table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor(pub u64);

impl Descriptor {
    /// The entry that maps nothing.
    pub const INVALID: Self = Self(0);
    /// The bits of an entry that names a table, without the address. Such an entry adds no restrictions.
    pub const TABLE: u64 = VALID | TABLE_OR_PAGE;

    /// Creates an entry of level 1 or 2 for the table at the physical address `table`.
    #[must_use]
    pub const fn table(table: u64) -> Self {
        Self(table | Self::TABLE)
    }

    /// Creates an entry of level 3 for the page at the physical address `page`.
    #[must_use]
    pub const fn page(page: u64, attributes: Attributes) -> Self {
        Self(page | attributes.0)
    }

    /// Creates an entry of level 2 for the 2 MiB block at the physical address `block`.
    #[must_use]
    pub const fn block(block: u64, attributes: Attributes) -> Self {
        Self(block | attributes.0 & !TABLE_OR_PAGE)
    }

    /// Returns whether the entry maps memory or names a table.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.0 & VALID != 0
    }

    /// Returns whether the entry, which is of level 1 or 2, names a table.
    #[must_use]
    pub const fn is_table(self) -> bool {
        self.0 & Self::TABLE == Self::TABLE
    }

    /// Returns the physical address of the table, page or block.
    #[must_use]
    pub const fn address(self) -> u64 {
        self.0 & ADDRESS
    }
}
