//! Walks from the roots to all functions that they reach, and collects violations.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet, VecDeque, btree_map::Entry},
    ptr,
};

use kprobes_symbols::glob_match;

use super::{
    declarations::{Declarations, applying},
    executable::{Executable, Function},
    scan::{Body, CallSite, Callees, scan},
};
use crate::counted::counted;

/// The group of the handlers of probes, by their place in the image.
const HANDLERS: &str = "handlers";

/// Functions of the standard library that a panic goes through. The last two are at its end.
const PANICS: [&str; 3] = ["core::panicking::", "__rustc::rust_begin_unwind", "rust_begin_unwind"];
/// The prefixes of the names of functions that allocate or free.
const ALLOCATORS: [&str; 4] = ["alloc::", "<alloc::", "__rustc::__r", "__rust_"];

/// A reached function, from the entry by which it is reached.
#[derive(Debug)]
pub struct Node {
    /// The properties of its code.
    pub body: Body,
    /// The first caller that it was reached from. `None` if it is a root.
    from: Option<u64>,
    /// The functions that it leads to, with the bytes of its stack that are then in use, in the order of the call
    /// sites.
    pub leads_to: Vec<(u64, i64)>,
    /// The number of its indirect calls.
    pub indirect: usize,
    /// The reason why it may take a lock or wait, if it does.
    pub waits: Option<String>,
}

/// A violation of the rules, and the path to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The violation, as a sentence.
    pub what: String,
    /// The functions from a root to the violation.
    pub path: Vec<String>,
}

/// Everything that the roots reach.
#[derive(Debug, Default)]
pub struct Graph {
    /// The entries where paths begin.
    pub roots: Vec<u64>,
    /// The functions, by the entry by which they are reached.
    pub nodes: BTreeMap<u64, Node>,
    /// The first addresses of the functions at which paths end, as declared.
    ends: BTreeSet<u64>,
    /// The violations.
    pub violations: Vec<Violation>,
}

/// Computes, on demand, which functions may come back to their callers.
///
/// A function counts as not returning until a way back is found, because a function that only calls itself does not
/// return.
pub(super) struct Returning<'a> {
    executable: &'a Executable,
    declarations: &'a Declarations,
    known: RefCell<BTreeMap<u64, bool>>,
    /// Whether an unknown function was asked for since the last pass.
    is_incomplete: Cell<bool>,
}

impl Callees for Returning<'_> {
    fn returns(&self, entry: u64) -> bool {
        if self.executable.function(entry).is_none() {
            return true;
        }
        let mut known = self.known.borrow_mut();
        *known.entry(entry).or_insert_with(|| {
            self.is_incomplete.set(true);
            false
        })
    }

    fn ends_path(&self, entry: u64) -> bool {
        let function = self.executable.function(entry);
        function.is_some_and(|function| self.declarations.abandons.iter().any(|end| end.matches(function)))
    }

    fn declared_frame(&self, entry: u64) -> Option<i64> {
        let function = self.executable.function(entry)?;
        self.declarations.frames.iter().find(|frame| frame.matches(function)).map(|frame| frame.value)
    }
}

impl<'a> Returning<'a> {
    /// Creates an empty set of results.
    pub fn new(executable: &'a Executable, declarations: &'a Declarations) -> Self {
        Self { executable, declarations, known: RefCell::new(BTreeMap::new()), is_incomplete: Cell::new(false) }
    }

    /// Determines at once which of all functions return. A caller that reads all of them saves work by this.
    pub fn determine_all(&self) {
        let entries = self.executable.functions().map(|function| (function.range.start, false));
        self.known.borrow_mut().extend(entries);
        self.settle();
    }

    /// Computes which of the known functions return.
    fn settle(&self) {
        loop {
            self.is_incomplete.set(false);
            let open: Vec<u64> = self.known.borrow().iter().filter(|(_, known)| !**known).map(|(at, _)| *at).collect();
            let mut found = false;
            for entry in open {
                if scan(self.executable, self, entry).is_none_or(|body| body.returns) {
                    self.known.borrow_mut().insert(entry, true);
                    found = true;
                }
            }
            if !found && !self.is_incomplete.get() {
                return;
            }
        }
    }

    /// Reads the function at `entry`, with everything known that it depends on.
    pub fn read(&self, entry: u64) -> Option<Body> {
        loop {
            self.is_incomplete.set(false);
            let body = scan(self.executable, self, entry);
            if !self.is_incomplete.get() {
                return body;
            }
            self.settle();
        }
    }
}

/// Follows everything from the declared roots.
pub fn walk(executable: &Executable, declarations: &Declarations) -> Graph {
    let returning = Returning::new(executable, declarations);
    let mut walk = Walk { executable, declarations, returning, graph: Graph::default(), pending: VecDeque::new() };
    walk.begin();
    while let Some(entry) = walk.pending.pop_front() {
        walk.visit(entry);
    }
    walk.check_indirect_counts();
    walk.check_region();
    walk.graph
}

struct Walk<'a> {
    executable: &'a Executable,
    declarations: &'a Declarations,
    returning: Returning<'a>,
    graph: Graph,
    pending: VecDeque<u64>,
}

impl Walk<'_> {
    fn begin(&mut self) {
        for root in &self.declarations.roots {
            for function in self.executable.functions().filter(|function| root.matches(function)) {
                root.is_needed();
                let step = if root.value == 0 { u64::MAX } else { root.value };
                let mut entry = function.range.start;
                while function.range.contains(&entry) {
                    self.graph.roots.push(entry);
                    self.reach(entry, None);
                    entry = entry.saturating_add(step);
                }
            }
        }
        let placed =
            self.executable.functions().filter(|function| self.executable.handlers.contains(&function.range.start));
        for handler in placed {
            self.graph.roots.push(handler.range.start);
            self.reach(handler.range.start, None);
        }
    }

    /// Schedules the function at `entry` for a visit, unless it must not be reached.
    fn reach(&mut self, entry: u64, from: Option<u64>) -> bool {
        let Some(function) = self.executable.function(entry) else {
            let what = format!(
                "branches to {entry:#x}, which is not a function of the symbol table: assembly makes it one by `.type` \
                 and `.size`"
            );
            self.violation(what, from);
            return false;
        };
        if let Some(what) = self.forbidden(function) {
            self.violation(format!("{what}: {}", self.executable.describe(entry)), from);
            return false;
        }
        if let Entry::Vacant(place) = self.graph.nodes.entry(entry) {
            place.insert(Node { body: Body::default(), from, leads_to: Vec::new(), indirect: 0, waits: None });
            self.pending.push_back(entry);
        }
        true
    }

    /// Returns why `function` must not be reached. `None` if it may.
    fn forbidden(&self, function: &Function) -> Option<&'static str> {
        let begins = |beginnings: &[&str]| {
            function.names.iter().any(|name| beginnings.iter().any(|beginning| name.starts_with(beginning)))
        };
        // A function in the region may have the name of the generic function that it is an instance of. Only calls out
        // of the region allocate.
        let is_outside = !self.executable.region.contains(&function.range.start);
        if is_outside && begins(&ALLOCATORS) {
            return Some("uses the allocator");
        }
        if self.panics(function, &mut BTreeSet::new()) {
            return Some("can panic");
        }
        is_outside.then_some("calls a function that can be probed")
    }

    /// Whether `function` is a part of a panic: one by name, or one that does not return and calls another.
    fn panics(&self, function: &Function, seen: &mut BTreeSet<u64>) -> bool {
        if function.names.iter().any(|name| PANICS.iter().any(|panic| name.starts_with(panic))) {
            return true;
        }
        let entry = function.range.start;
        if self.executable.region.contains(&entry) || !seen.insert(entry) {
            return false;
        }
        let Some(body) = self.returning.read(entry) else { return false };
        !body.returns
            && body
                .call_sites
                .iter()
                .filter_map(|call| self.executable.function(call.target?))
                .any(|callee| self.panics(callee, seen))
    }

    /// Reads the function at `entry`, and reaches the functions that it calls.
    fn visit(&mut self, entry: u64) {
        let Some(body) = self.returning.read(entry) else { return };
        let Some(function) = self.executable.function(entry) else { return };
        let place = |at: u64| format!("{:#x} ({})", at, self.executable.describe(at));
        let mut wrong: Vec<String> = Vec::new();
        wrong.extend(body.floating.iter().map(|&at| format!("uses floating point or SIMD at {}", place(at))));
        wrong.extend(body.exceptions.iter().map(|&(at, why)| format!("cannot be followed at {}: {why}", place(at))));
        if let Some(at) = body.unknown_stack
            && !function.is_outlined()
            && applying(&self.declarations.frames, function).is_none()
        {
            wrong.push(format!("makes the stack pointer unknown before {}: declare it in [frames]", place(at)));
        }
        for ended in &body.ended {
            let ended = self.executable.function(*ended);
            ended.and_then(|function| applying(&self.declarations.abandons, function));
        }
        let mut waits = None;
        if let Some((at, why)) = body.synchronizes {
            waits = applying(&self.declarations.locks, function).map(|lock| lock.reason.clone());
            if waits.is_none() && applying(&self.declarations.lock_free, function).is_none() {
                let place = place(at);
                wrong.push(format!(
                    "may take a lock or wait: the instruction at {place} {why}; declare it in [locks] or [lock-free]"
                ));
            }
        }
        wrong.into_iter().for_each(|what| self.violation(what, Some(entry)));

        let mut leads_to = Vec::new();
        let mut indirect = 0;
        // Calls by a register in an outlined function count as its callers' calls.
        let own = |call: &&CallSite| call.target.is_some() || !function.is_outlined();
        for &CallSite { at, target, depth } in body.call_sites.iter().filter(own) {
            let targets = match target {
                Some(target) => vec![(target, 0)],
                None => {
                    indirect += 1;
                    self.indirect(entry, function, at)
                }
            };
            for (target, more) in targets {
                let is_end = |callee: &&Function| applying(&self.declarations.ends, callee).is_some();
                if let Some(callee) = self.executable.function(target).filter(is_end) {
                    self.graph.ends.insert(callee.range.start);
                } else if self.reach(target, Some(entry)) {
                    leads_to.push((target, depth.saturating_add(more)));
                }
            }
        }
        if let Some(node) = self.graph.nodes.get_mut(&entry) {
            *node = Node { body, leads_to, indirect, waits, from: node.from };
        }
    }

    /// Returns the declared targets of the indirect call at `at`, in the function that was reached by `entry`. Each
    /// comes with the bytes of stack of generated code in between.
    fn indirect(&mut self, entry: u64, function: &Function, at: u64) -> Vec<(u64, i64)> {
        let Some(declared) = applying(&self.declarations.indirect, function) else {
            let what = format!(
                "has an indirect call at {at:#x} ({}) that is not declared in [[indirect]]",
                self.executable.describe(at)
            );
            self.violation(what, Some(entry));
            return Vec::new();
        };
        let mut targets = Vec::new();
        for pattern in &declared.value.reaches {
            let before = targets.len();
            match pattern.strip_prefix('@') {
                Some(group) => targets.extend(self.members(group)),
                None => {
                    let named = |callee: &&Function| callee.names.iter().any(|name| glob_match(pattern, name));
                    targets.extend(self.executable.functions().filter(named).map(|callee| (callee.range.start, 0)));
                }
            }
            if targets.len() == before && !pattern.starts_with('@') && self.declarations.is_checked(declared) {
                let what = format!("is declared to call {pattern:?} indirectly, but no function has this name");
                self.violation(what, Some(entry));
            }
        }
        targets
    }

    /// Returns the functions of a group, and those that generated code of the group calls.
    fn members(&self, group: &str) -> Vec<(u64, i64)> {
        let declared = self.declarations.groups.iter().filter(|member| member.value == group);
        let declared = declared.flat_map(|member| {
            let named = self.executable.functions().filter(|function| member.matches(function));
            named.inspect(|_| member.is_needed()).map(|function| function.range.start)
        });
        let placed = self.executable.functions().map(|function| function.range.start);
        let placed = placed.filter(|start| group == HANDLERS && self.executable.handlers.contains(start));
        let generated = self.declarations.generated.iter().filter(|called| called.value.group == group);
        let generated = generated.flat_map(|called| {
            let named = self.executable.functions().filter(|function| called.matches(function));
            named.inspect(|_| called.is_needed()).map(|function| (function.range.start, called.value.bytes))
        });
        declared.chain(placed).map(|start| (start, 0)).chain(generated).collect()
    }

    /// Checks that every declaration of indirect calls has the right number of them, so that a new one is noticed.
    fn check_indirect_counts(&mut self) {
        for declared in &self.declarations.indirect {
            let mut sites = BTreeSet::new();
            let mut entry = None;
            for (&at, node) in &self.graph.nodes {
                let Some(function) = self.executable.function(at) else { continue };
                let first = self.declarations.indirect.iter().find(|other| other.matches(function));
                if first.is_some_and(|first| ptr::eq(first, declared)) {
                    sites.extend(node.body.call_sites.iter().filter(|call| call.target.is_none()).map(|call| call.at));
                    entry = Some(at);
                }
            }
            let (found, expected) = (sites.len(), declared.value.sites);
            if entry.is_some() && (found > expected || found < expected && self.declarations.is_checked(declared)) {
                let what = format!(
                    "has {}, but [[indirect]] in {:?} declares {}",
                    counted(found, "indirect call"),
                    declared.pattern,
                    expected
                );
                self.violation(what, entry);
            }
        }
    }

    /// Checks that every function in the region is on a path, or declared not to be, so that no root is forgotten.
    fn check_region(&mut self) {
        let reached: BTreeSet<u64> =
            self.graph.nodes.keys().filter_map(|&entry| Some(self.executable.function(entry)?.range.start)).collect();
        for function in self.executable.functions() {
            let start = function.range.start;
            let is_inside = self.executable.region.contains(&start);
            // The name of an outlined function does not tell its callers, so all outlined functions are in the region.
            let is_missing = is_inside && !reached.contains(&start) && !function.is_outlined();
            let is_elsewhere = is_missing && applying(&self.declarations.elsewhere, function).is_some();
            if is_missing && !is_elsewhere && !self.graph.ends.contains(&start) {
                let what = format!(
                    "{} is in the region, but no root reaches it: declare it in [roots] or [elsewhere]",
                    function.name()
                );
                self.graph.violations.push(Violation { what, path: Vec::new() });
            }
        }
    }

    /// Reports a violation in the function at `entry`, or in the roots themselves.
    fn violation(&mut self, what: String, entry: Option<u64>) {
        let path = self.graph.path(self.executable, entry);
        let violation = Violation { what, path };
        if !self.graph.violations.contains(&violation) {
            self.graph.violations.push(violation);
        }
    }
}

impl Graph {
    /// Returns the shortest path from a root to the function at `entry`.
    fn path(&self, executable: &Executable, entry: Option<u64>) -> Vec<String> {
        let mut path = Vec::new();
        let mut at = entry;
        while let Some(entry) = at {
            path.push(executable.describe(entry));
            at = self.nodes.get(&entry).and_then(|node| node.from);
        }
        path.reverse();
        path
    }
}
