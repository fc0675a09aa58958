//! Translation table descriptors (Arm ARM, D8.3), VMSAv8-64 with a 4 KiB granule.

/// Indices into MAIR_EL1.
const NORMAL: u64 = 0;
const DEVICE: u64 = 1;
/// MAIR_EL1: normal memory, write-back, allocating; device memory, nGnRE (Arm ARM, D24.2, MAIR_EL1).
pub const MAIR: u64 = 0xff << (8 * NORMAL) | 0x04 << (8 * DEVICE);

const VALID: u64 = 1 << 0;
/// Level 1 and 2: a table follows, not a block. Level 3: a page, the only possibility.
const TABLE_OR_PAGE: u64 = 1 << 1;
const READ_ONLY: u64 = 1 << 7;
const INNER_SHAREABLE: u64 = 0b11 << 8;
const ACCESSED: u64 = 1 << 10;
/// GP: branch targets are checked (Arm ARM, D8.4.1). Without FEAT_BTI the bit is ignored.
const GUARDED: u64 = 1 << 50;
const NOT_EXECUTABLE: u64 = 1 << 53;
const NOT_EXECUTABLE_EL0: u64 = 1 << 54;
const ADDRESS: u64 = 0x0000_ffff_ffff_f000;

const fn page(memory: u64, permissions: u64) -> u64 {
    VALID | TABLE_OR_PAGE | memory << 2 | INNER_SHAREABLE | ACCESSED | NOT_EXECUTABLE_EL0 | permissions
}

/// What may be done with mapped memory, and what memory it is: a page descriptor without its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes(u64);

impl Attributes {
    /// Executable and readable.
    pub const TEXT: Self = Self(page(NORMAL, READ_ONLY));
    /// The same, with branch targets checked.
    pub const GUARDED_TEXT: Self = Self(page(NORMAL, READ_ONLY | GUARDED));
    /// Readable.
    pub const RODATA: Self = Self(page(NORMAL, READ_ONLY | NOT_EXECUTABLE));
    /// Readable and writable.
    pub const DATA: Self = Self(page(NORMAL, NOT_EXECUTABLE));
    /// Registers of a device.
    pub const DEVICE: Self = Self(page(DEVICE, NOT_EXECUTABLE));

    /// The bits of the page descriptor.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }
}

/// An entry of a translation table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor(pub u64);

impl Descriptor {
    /// Nothing is mapped.
    pub const INVALID: Self = Self(0);
    /// The bits of an entry that names a table, without its address. Such an entry restricts nothing.
    pub const TABLE: u64 = VALID | TABLE_OR_PAGE;

    /// Level 1 or 2: the table at the physical address `table`.
    #[must_use]
    pub const fn table(table: u64) -> Self {
        Self(table | Self::TABLE)
    }

    /// Level 3: the page at the physical address `page`.
    #[must_use]
    pub const fn page(page: u64, attributes: Attributes) -> Self {
        Self(page | attributes.0)
    }

    /// Level 2: the 2 MiB at the physical address `block`.
    #[must_use]
    pub const fn block(block: u64, attributes: Attributes) -> Self {
        Self(block | attributes.0 & !TABLE_OR_PAGE)
    }

    /// Whether the entry maps something or names a table.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.0 & VALID != 0
    }

    /// Whether the entry, of level 1 or 2, names a table.
    #[must_use]
    pub const fn is_table(self) -> bool {
        self.0 & Self::TABLE == Self::TABLE
    }

    /// The physical address of the table, page or block.
    #[must_use]
    pub const fn address(self) -> u64 {
        self.0 & ADDRESS
    }
}
