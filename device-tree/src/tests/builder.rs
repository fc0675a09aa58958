//! A builder of blobs, well-formed or not.

/// A tree, or a node of it, under construction.
pub struct Tree {
    reservations: Vec<u8>,
    /// Whole tokens.
    tokens: Vec<Vec<u8>>,
    strings: Vec<u8>,
}

/// Returns a value of cells.
pub fn cells<const N: usize>(cells: [u32; N]) -> Vec<u8> {
    cells.iter().flat_map(|cell| cell.to_be_bytes()).collect()
}

/// Returns a value that is a string.
pub fn text(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

/// Returns the bytes, padded to a whole word.
fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

impl Tree {
    /// Creates a tree with an empty root.
    pub fn new() -> Self {
        Self::named("")
    }

    /// Creates a tree whose root has a name.
    pub fn named(name: &str) -> Self {
        let root = [cells([1]), padded(text(name))].concat();
        Self { reservations: Vec::new(), tokens: vec![root], strings: Vec::new() }
    }

    /// Creates a machine with a CPU and 1 MiB of RAM. The root has the default numbers of cells, 2 and 1.
    pub fn smallest() -> Self {
        let mut tree = Self::new();
        tree.node("cpus", |node| {
            node.property("#address-cells", cells([1])).property("#size-cells", cells([0]));
            node.node("cpu", |node| {
                node.property("device_type", text("cpu")).property("reg", cells([0]));
            });
        });
        tree.node("memory", |node| {
            node.property("device_type", text("memory")).property("reg", cells([0, 0, 0x10_0000]));
        });
        tree
    }

    pub fn property(&mut self, name: &str, value: impl Into<Vec<u8>>) -> &mut Self {
        let value = value.into();
        let header = cells([3, value.len() as u32, self.strings.len() as u32]);
        self.tokens.push([header, padded(value)].concat());
        self.strings.extend(text(name));
        self
    }

    pub fn node(&mut self, name: &str, contents: impl FnOnce(&mut Self)) -> &mut Self {
        self.tokens.push([cells([1]), padded(text(name))].concat());
        contents(self);
        self.token(2)
    }

    pub fn token(&mut self, token: u32) -> &mut Self {
        self.tokens.push(cells([token]));
        self
    }

    pub fn reserve(&mut self, address: u64, size: u64) {
        self.reservations.extend([address, size].map(u64::to_be_bytes).concat());
    }

    /// Inserts a NOP before every token.
    pub fn pad_with_nops(&mut self) {
        self.tokens = self.tokens.drain(..).flat_map(|token| [cells([4]), token]).collect();
    }

    /// Returns the blob, and completes it with the end of the root.
    pub fn blob(&self) -> Vec<u8> {
        let end = cells([4, 2, 4, 9]);
        self.blob_with([self.tokens.concat(), end].concat())
    }

    /// Returns the blob with the tokens as they are.
    pub fn unfinished_blob(&self) -> Vec<u8> {
        self.blob_with(self.tokens.concat())
    }

    fn blob_with(&self, structure: Vec<u8>) -> Vec<u8> {
        let reservations = [&self.reservations[..], &[0; 16]].concat();
        let reservations_at = 40;
        let structure_at = reservations_at + reservations.len();
        let strings_at = structure_at + structure.len();
        let size = strings_at + self.strings.len();
        let offsets = [size, structure_at, strings_at, reservations_at].map(|number| number as u32);
        let header = [
            cells([0xd00d_feed]),
            cells(offsets),
            cells([17, 16, 0, self.strings.len() as u32, structure.len() as u32]),
        ];
        [header.concat(), reservations, structure, self.strings.clone()].concat()
    }
}
