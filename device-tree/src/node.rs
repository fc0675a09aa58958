//! Nodes, and the properties whose meaning depends on the nodes above: cells, buses, interrupt parents.

use fdt::Fdt;
use fdt::node::FdtNode;

use super::blob::word;

/// A node and its ancestors. The ancestors are on the stack of the walk.
pub(super) struct Node<'t, 'a> {
    node: FdtNode<'t, 'a>,
    parent: Option<&'t Node<'t, 'a>>,
}

impl<'t, 'a> Node<'t, 'a> {
    /// Returns the root. Every tree that [`parse`](super::blob::parse) has checked has one.
    pub(super) fn root(tree: &'t Fdt<'a>) -> Option<Self> {
        Some(Self { node: tree.find_node("/")?, parent: None })
    }

    /// Calls `visit` with the children of this node, until it returns `Some`.
    pub(super) fn each_child<T>(&self, mut visit: impl FnMut(&Node<'_, 'a>) -> Option<T>) -> Option<T> {
        self.node.children().find_map(|node| visit(&Node { node, parent: Some(self) }))
    }

    /// Calls `visit` with all enabled nodes below this one, parents first, until it returns `Some`. Skips the children
    /// of disabled nodes.
    pub(super) fn each_enabled<T>(&self, visit: &mut dyn FnMut(&Node<'_, 'a>) -> Option<T>) -> Option<T> {
        self.each_child(
            |child| if child.is_enabled() { visit(child).or_else(|| child.each_enabled(visit)) } else { None },
        )
    }

    /// Calls `visit` with the node at `path`, which is relative to this node.
    pub(super) fn at<T>(&self, path: &str, visit: &mut dyn FnMut(&Node<'_, 'a>) -> Option<T>) -> Option<T> {
        let Some((first, rest)) = path.split_once('/') else {
            return self.each_child(|child| if child.is_named(path) { visit(child) } else { None });
        };
        self.each_child(|child| if child.is_named(first) { child.at(rest, visit) } else { None })
    }

    /// Returns whether a path component names this node. The component may lack the unit address.
    fn is_named(&self, name: &str) -> bool {
        self.node.name == name || self.node.name.split_once('@').is_some_and(|(base, _)| base == name)
    }

    /// Returns the value of a property.
    pub(super) fn property(&self, name: &str) -> Option<&'a [u8]> {
        self.node.property(name).map(|property| property.value)
    }

    /// Returns the first cell of a property.
    pub(super) fn cell(&self, name: &str) -> Option<u32> {
        word(self.property(name)?, 0)
    }

    /// Returns the first string of a property.
    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        strings(self.property(name)?).next()
    }

    /// Returns whether `compatible` names one of `wanted`.
    pub(super) fn is_compatible(&self, wanted: &[&str]) -> bool {
        self.property("compatible").is_some_and(|value| strings(value).any(|name| wanted.contains(&name)))
    }

    /// Returns whether a name in `compatible` is of this vendor.
    pub(super) fn is_of(&self, vendor: &str) -> bool {
        let is_of = |name: &str| name.split_once(',').is_some_and(|(of, _)| of == vendor);
        self.property("compatible").is_some_and(|value| strings(value).any(is_of))
    }

    /// Returns whether the device is present and usable (Devicetree Specification, 2.3.4).
    pub(super) fn is_enabled(&self) -> bool {
        self.text("status").is_none_or(|status| status == "okay" || status == "ok")
    }

    /// Returns the numbers of cells in the addresses and sizes of this node's children (2.3.5).
    fn cells(&self) -> (usize, usize) {
        let cells = |name, default| self.cell(name).map_or(default, |cells| cells as usize);
        (cells("#address-cells", 2), cells("#size-cells", 1))
    }

    /// Returns `reg` as physical addresses and sizes in bytes, as CPUs see them; `None` for each entry that cannot be
    /// translated.
    pub(super) fn registers(&self) -> impl Iterator<Item = Option<(u64, u64)>> {
        self.raw_registers().map(|(address, size)| {
            let address = self.parent?.translate(address)?;
            address.checked_add(size).map(|_| (address, size))
        })
    }

    /// Returns `reg` untranslated: addresses and sizes on the bus of the parent.
    pub(super) fn raw_registers(&self) -> impl Iterator<Item = (u64, u64)> {
        let (address, size) = self.parent.map_or((2, 1), Node::cells);
        let mut cells = Cells(self.property("reg").unwrap_or_default());
        core::iter::from_fn(move || {
            // Entries of zero cells would never end.
            (address + size > 0).then_some(())?;
            Some((cells.number(address)?, cells.number(size)?))
        })
    }

    /// Translates an address on the bus within this node to a physical address (2.3.8).
    fn translate(&self, address: u64) -> Option<u64> {
        let Some(parent) = self.parent else { return Some(address) };
        let ranges = self.property("ranges")?;
        if ranges.is_empty() {
            return parent.translate(address);
        }
        let ((own, size), (outer, _)) = (self.cells(), parent.cells());
        let mut ranges = Cells(ranges);
        if own + outer + size == 0 {
            return None;
        }
        loop {
            let from = ranges.number(own);
            let (to, length) = (ranges.number(outer), ranges.number(size));
            let (Some(from), Some(to), Some(length)) = (from, to, length) else { return None };
            if address.checked_sub(from).is_some_and(|offset| offset < length) {
                return parent.translate(to.checked_add(address - from)?);
            }
        }
    }

    /// Returns the phandle of the node that this node's interrupts go to (2.4.1).
    pub(super) fn interrupt_parent(&self) -> Option<u32> {
        self.cell("interrupt-parent").or_else(|| self.parent?.interrupt_parent())
    }

    /// Returns the first `N` cells of interrupt `index` in a list of specifiers with `length` cells each, or `None` if
    /// there are fewer.
    pub(super) fn interrupt<const N: usize>(&self, index: usize, length: usize) -> Option<[u32; N]> {
        let cells = self.property("interrupts").filter(|_| length >= N)?;
        let mut specifier = [0; N];
        for (number, cell) in specifier.iter_mut().enumerate() {
            *cell = word(cells, (index * length + number) * 4)?;
        }
        Some(specifier)
    }
}

/// Returns the strings that a value consists of.
fn strings(value: &[u8]) -> impl Iterator<Item = &str> {
    value.split(|byte| *byte == 0).filter_map(|text| core::str::from_utf8(text).ok()).filter(|text| !text.is_empty())
}

/// The cells of a value that have not been read yet.
struct Cells<'a>(&'a [u8]);

impl Cells<'_> {
    /// Reads a number of `count` cells. Returns `None` at the end, and if the number does not fit.
    fn number(&mut self, count: usize) -> Option<u64> {
        let (cells, rest) = self.0.split_at_checked(count.checked_mul(4)?)?;
        self.0 = rest;
        let mut number = 0u64;
        for index in 0..count {
            if number >> 32 != 0 {
                return None;
            }
            number = number << 32 | u64::from(word(cells, index * 4)?);
        }
        Some(number)
    }
}
