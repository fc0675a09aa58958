//! Computes the deepest stack of a path, from the frames of the functions on it.

use std::collections::BTreeMap;

use super::{
    declarations::{Declarations, applying},
    executable::Executable,
    walk::{Graph, Violation},
};

/// The deepest use of the stack from a function on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// The number of bytes, from the entry of the function.
    pub bytes: i64,
    /// The call that leads there. `None` if it is the function's own frame.
    pub by: Option<u64>,
}

/// The deepest uses of all functions of a graph.
#[derive(Debug, Default)]
pub struct Depths {
    /// The uses that hold wherever the function is called.
    known: BTreeMap<u64, Use>,
    /// The last computed use of every function. In a loop of calls this may be the use of the part that remained to be
    /// followed.
    last: BTreeMap<u64, Use>,
    /// The functions that are being followed now.
    path: Vec<u64>,
    /// The loops of calls without a declared bound.
    pub violations: Vec<Violation>,
}

impl Depths {
    /// Computes the deepest uses from all roots of `graph`.
    pub fn of(executable: &Executable, declarations: &Declarations, graph: &Graph) -> Self {
        let mut depths = Self::default();
        for &root in &graph.roots {
            depths.follow(executable, declarations, graph, root);
        }
        depths
    }

    /// Returns the deepest use from `entry` on, and the lowest place in the path that an omitted call leads back to.
    fn follow(
        &mut self,
        executable: &Executable,
        declarations: &Declarations,
        graph: &Graph,
        entry: u64,
    ) -> (Use, usize) {
        if let Some(&known) = self.known.get(&entry) {
            return (known, usize::MAX);
        }
        let Some(node) = graph.nodes.get(&entry) else { return (Use::default(), usize::MAX) };
        let place = self.path.len();
        self.path.push(entry);
        let mut deepest = Use { bytes: node.body.frame, by: None };
        let mut back = usize::MAX;
        for &(callee, depth) in &node.leads_to {
            if let Some(begin) = self.path.iter().position(|&at| at == callee) {
                back = back.min(begin);
                let again = executable.function(callee);
                if again.is_none_or(|function| applying(&declarations.recursion, function).is_none()) {
                    let path: Vec<_> = self.path.iter().map(|&at| executable.describe(at)).collect();
                    let again = executable.describe(callee);
                    let what = format!("calls {again} recursively, and [recursion] gives no bound");
                    self.violations.push(Violation { what, path });
                }
                continue;
            }
            let (below, leads_back) = self.follow(executable, declarations, graph, callee);
            back = back.min(leads_back);
            let bytes = depth.saturating_add(below.bytes);
            if bytes > deepest.bytes {
                deepest = Use { bytes, by: Some(callee) };
            }
        }
        self.path.pop();
        // Each time that it is on a path, it uses no more than everything that it leads to, except itself.
        let bound = executable
            .function(entry)
            .and_then(|function| declarations.recursion.iter().find(|bound| bound.matches(function)));
        deepest.bytes = deepest.bytes.saturating_mul(bound.map_or(1, |bound| bound.value));
        self.last.insert(entry, deepest);
        // A call back to a function above was omitted. It is counted at that function, and only there.
        if back >= place {
            self.known.insert(entry, deepest);
            back = usize::MAX;
        }
        (deepest, back)
    }

    /// Returns the deepest use from the function at `entry` on.
    pub fn get(&self, entry: u64) -> Use {
        self.last.get(&entry).copied().unwrap_or_default()
    }

    /// Returns the functions on the deepest path, from its root on, each once: functions that call each other lead to
    /// each other. There are none if there is no root.
    pub fn deepest_path(&self, graph: &Graph) -> Vec<u64> {
        let root = graph.roots.iter().copied().max_by_key(|&root| self.get(root).bytes);
        let (mut path, mut next) = (Vec::new(), root);
        while let Some(at) = next.filter(|at| !path.contains(at)) {
            path.push(at);
            next = self.get(at).by;
        }
        path
    }
}
