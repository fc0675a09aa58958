//! The audit's result for people: a tree, a picture, and the violations.

use std::{
    collections::BTreeSet,
    fmt::{self, Write},
};

use super::{
    executable::Executable,
    stack::Depths,
    walk::{Graph, Node},
};
use crate::counted::counted;

/// The tree of all functions that the roots reach. The callees of a function are shown where it comes first.
pub struct Tree<'a> {
    pub executable: &'a Executable,
    pub graph: &'a Graph,
    pub depths: &'a Depths,
}

impl fmt::Display for Tree<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = BTreeSet::new();
        let mut roots = self.graph.roots.iter().copied().peekable();
        while let Some(root) = roots.next() {
            self.branch(f, root, 0, &mut shown)?;
            // Most entries of a table of vectors are alike.
            let mut alike = 0;
            while roots.next_if(|&next| self.are_alike(root, next)).is_some() {
                alike += 1;
            }
            if alike > 0 {
                writeln!(f, "  and the next {} of the table likewise", counted(alike, "root"))?;
            }
        }
        Ok(())
    }
}

impl Tree<'_> {
    /// Whether both are entries of one function, and lead to the same functions.
    fn are_alike(&self, one: u64, other: u64) -> bool {
        let start = |entry| self.executable.function(entry).map(|function| function.range.start);
        let leads_to = |entry| self.graph.nodes.get(entry).map(|node| &node.leads_to);
        start(one) == start(other) && leads_to(&one) == leads_to(&other)
    }

    fn branch(&self, f: &mut fmt::Formatter<'_>, entry: u64, level: usize, shown: &mut BTreeSet<u64>) -> fmt::Result {
        let Some(node) = self.graph.nodes.get(&entry) else { return Ok(()) };
        write!(f, "{:indent$}{}", "", self.executable.describe(entry), indent = 2 * level)?;
        let callees: BTreeSet<u64> = node.leads_to.iter().map(|(callee, _)| *callee).collect();
        if !shown.insert(entry) {
            return writeln!(f, "{}", if callees.is_empty() { "" } else { " …" });
        }
        writeln!(f, "  {}", remarks(node, self.depths.get(entry).bytes).join(", "))?;
        // In the order of the calls.
        let mut seen = BTreeSet::new();
        for (callee, _) in &node.leads_to {
            if seen.insert(*callee) {
                self.branch(f, *callee, level + 1, shown)?;
            }
        }
        Ok(())
    }
}

/// Returns the remarks about a function.
fn remarks(node: &Node, deepest: i64) -> Vec<String> {
    let mut remarks = vec![format!("frame {}", node.body.frame)];
    if deepest > node.body.frame {
        remarks.push(format!("stack {deepest}"));
    }
    if node.indirect > 0 {
        remarks.push(counted(node.indirect, "indirect call"));
    }
    if node.waits.is_some() {
        remarks.push("may wait".to_owned());
    }
    if !node.body.returns {
        remarks.push("does not return".to_owned());
    }
    remarks
}

/// Returns the graph in the language of Graphviz.
pub fn dot(executable: &Executable, graph: &Graph, depths: &Depths) -> String {
    let mut text = String::from("digraph hit_path {\n    rankdir=LR;\n    node [shape=box];\n");
    let deepest = depths.deepest_path(graph);
    for (&entry, node) in &graph.nodes {
        let name = executable.describe(entry).replace('\\', "\\\\").replace('"', "\\\"");
        let remarks = remarks(node, depths.get(entry).bytes).join(", ");
        let style = if graph.roots.contains(&entry) { ", style=bold" } else { "" };
        let color = if deepest.contains(&entry) { ", color=red" } else { "" };
        let _ = writeln!(text, "    \"{entry:#x}\" [label=\"{name}\\n{remarks}\"{style}{color}];");
        let callees: BTreeSet<u64> = node.leads_to.iter().map(|(callee, _)| *callee).collect();
        for callee in callees {
            let _ = writeln!(text, "    \"{entry:#x}\" -> \"{callee:#x}\";");
        }
    }
    text.push_str("}\n");
    text
}
