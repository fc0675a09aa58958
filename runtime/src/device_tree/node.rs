//! Nodes, and what of a property's meaning depends on the nodes above it: cells, buses, interrupt parents.

use fdt::Fdt;
use fdt::node::FdtNode;

use super::blob::word;

/// A node, with the way to it: parents are on the stack of the walk.
pub(super) struct Node<'t, 'a> {
    node: FdtNode<'t, 'a>,
    parent: Option<&'t Node<'t, 'a>>,
}

impl<'t, 'a> Node<'t, 'a> {
    /// The root of a tree, if it has one, as all have that [`parse`](super::blob::parse) has checked.
    pub(super) fn root(tree: &'t Fdt<'a>) -> Option<Self> {
        Some(Self { node: tree.find_node("/")?, parent: None })
    }

    /// Calls `visit` with the nodes directly within this one, until it gives something.
    pub(super) fn each_child<T>(&self, mut visit: impl FnMut(&Node<'_, 'a>) -> Option<T>) -> Option<T> {
        self.node.children().find_map(|node| visit(&Node { node, parent: Some(self) }))
    }

    /// Calls `visit` with all nodes below this one that are in use, parents first, until it gives something.
    pub(super) fn each_enabled<T>(&self, visit: &mut dyn FnMut(&Node<'_, 'a>) -> Option<T>) -> Option<T> {
        self.each_child(
            |child| if child.is_enabled() { visit(child).or_else(|| child.each_enabled(visit)) } else { None },
        )
    }

    /// Calls `visit` with the node at `path`, which starts below this one.
    pub(super) fn at<T>(&self, path: &str, visit: &mut dyn FnMut(&Node<'_, 'a>) -> Option<T>) -> Option<T> {
        let Some((first, rest)) = path.split_once('/') else {
            return self.each_child(|child| if child.is_named(path) { visit(child) } else { None });
        };
        self.each_child(|child| if child.is_named(first) { child.at(rest, visit) } else { None })
    }

    /// A name in a path may be without the unit address.
    fn is_named(&self, name: &str) -> bool {
        self.node.name == name || self.node.name.split_once('@').is_some_and(|(base, _)| base == name)
    }

    /// The value of a property.
    pub(super) fn property(&self, name: &str) -> Option<&'a [u8]> {
        self.node.property(name).map(|property| property.value)
    }

    /// The value of a property that is one cell.
    pub(super) fn cell(&self, name: &str) -> Option<u32> {
        word(self.property(name)?, 0)
    }

    /// The first string of a property.
    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        strings(self.property(name)?).next()
    }

    /// Whether `compatible` names one of `wanted`.
    pub(super) fn is_compatible(&self, wanted: &[&str]) -> bool {
        self.property("compatible").is_some_and(|value| strings(value).any(|name| wanted.contains(&name)))
    }

    /// Whether `compatible` names something of this vendor.
    pub(super) fn is_of(&self, vendor: &str) -> bool {
        let is_of = |name: &str| name.split_once(',').is_some_and(|(of, _)| of == vendor);
        self.property("compatible").is_some_and(|value| strings(value).any(is_of))
    }

    /// Whether the device is there and may be used (Devicetree Specification, 2.3.4).
    pub(super) fn is_enabled(&self) -> bool {
        self.text("status").is_none_or(|status| status == "okay" || status == "ok")
    }

    /// How many cells addresses and sizes within this node have (2.3.5).
    fn cells(&self) -> (usize, usize) {
        let cells = |name, default| self.cell(name).map_or(default, |cells| cells as usize);
        (cells("#address-cells", 2), cells("#size-cells", 1))
    }

    /// `reg` as physical address and size in bytes, as CPUs see it: what cannot be translated to that is left out.
    pub(super) fn registers(&self) -> impl Iterator<Item = (u64, u64)> {
        self.raw_registers().filter_map(|(address, size)| {
            let address = self.parent?.translate(address)?;
            address.checked_add(size).map(|_| (address, size))
        })
    }

    /// `reg` as it is: address and size on the bus of the parent.
    pub(super) fn raw_registers(&self) -> impl Iterator<Item = (u64, u64)> {
        let (address, size) = self.parent.map_or((2, 1), Node::cells);
        let mut cells = Cells(self.property("reg").unwrap_or_default());
        core::iter::from_fn(move || {
            // Entries without cells are there without end.
            (address + size > 0).then_some(())?;
            Some((cells.number(address)?, cells.number(size)?))
        })
    }

    /// What the address of something within this node is to a CPU (2.3.8).
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

    /// The phandle of the node that this one's interrupts go to (2.4.1).
    pub(super) fn interrupt_parent(&self) -> Option<u32> {
        self.cell("interrupt-parent").or_else(|| self.parent?.interrupt_parent())
    }

    /// The cells of interrupt `index`, where each has `N`.
    pub(super) fn interrupt<const N: usize>(&self, index: usize) -> Option<[u32; N]> {
        let cells = self.property("interrupts")?;
        let mut specifier = [0; N];
        for (number, cell) in specifier.iter_mut().enumerate() {
            *cell = word(cells, (index * N + number) * 4)?;
        }
        Some(specifier)
    }
}

/// The strings that a value consists of.
fn strings(value: &[u8]) -> impl Iterator<Item = &str> {
    value.split(|byte| *byte == 0).filter_map(|text| core::str::from_utf8(text).ok()).filter(|text| !text.is_empty())
}

/// The cells of a value, one after the other.
struct Cells<'a>(&'a [u8]);

impl Cells<'_> {
    /// The number in the next `count` cells. None at the end, and where it does not fit.
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
