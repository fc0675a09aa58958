//! Finds out where a copy of a function that the compiler has inlined into another is entered and left.
//!
//! The debugging information tells which instructions belong to a copy. The compiler mixes these with others, so
//! reaching one of them does not mean that a call begins. Therefore the copy here is its instructions and everything
//! between them: every instruction that control can pass on the way from one of them to another without passing the
//! first of them again. The first is the one by which all others are reached, that is, which dominates them. A copy is
//! entered where control comes from outside of it, and left where control goes out. So it is left as often as it is
//! entered, unless it never ends.
//!
//! If other instructions lie in between, or if there are several first instructions, on paths that part before the copy
//! begins, the number of entries may differ from the number of calls in the source. Such a copy is in pieces.
//!
//! A passage is probed at the instruction that it leads to, if nothing else leads there. Otherwise it is probed at the
//! instruction that it comes from, where a condition tells whether it is taken. If neither can be probed, because a
//! call or an exclusive sequence lies there, it is not known where the copy is entered, or left. Pure.

use std::collections::{BTreeMap, BTreeSet};

use aarch64_kprobes::insn::{Sequences, Verdict, classify, may_be_load};
use kprobes_symbols::When;

use crate::audit::{Flow, flow};

/// A function, whose instructions are numbered from 0.
pub struct Function {
    flows: Vec<Flow>,
    successors: Vec<Vec<usize>>,
    predecessors: Vec<Vec<usize>>,
    /// For each reached instruction, its place in the tree of dominators, in which the instructions that it dominates
    /// follow it, and the place of the last of these.
    dominated: Vec<Option<(usize, usize)>>,
    /// Whether each instruction can be probed.
    is_probed: Vec<bool>,
}

/// The first instruction of a copy, and the passages of control into it and out of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Region {
    pub first: usize,
    pub is_in_pieces: bool,
    pub entries: Option<Vec<(usize, When)>>,
    pub exits: Option<Vec<(usize, When)>>,
}

impl Function {
    /// Creates a function from its words, its virtual address `start`, and its control flow: the addresses of the
    /// reached instructions, and of the instructions that control may go to from each. `read` returns the word at an
    /// address in any function, because an exclusive sequence may end in a called one.
    pub fn new(
        start: u64,
        words: Vec<u32>,
        read: impl Fn(u64) -> Option<u32>,
        control: &BTreeMap<u64, Vec<u64>>,
    ) -> Self {
        let number = |address: u64| ((address - start) / 4) as usize;
        let mut successors = vec![Vec::new(); words.len()];
        let mut predecessors = vec![Vec::new(); words.len()];
        for (&from, targets) in control {
            let targets: BTreeSet<usize> = targets.iter().map(|&target| number(target)).collect();
            targets.iter().for_each(|&target| predecessors[target].push(number(from)));
            successors[number(from)] = targets.into_iter().collect();
        }
        let end = start + 4 * words.len() as u64;
        const MEMORY: &str = "a host has memory for a function";
        let sequences = words
            .iter()
            .any(|&word| may_be_load(word))
            .then(|| Sequences::with_callees(start..end, |address| words[number(address)], read).expect(MEMORY));
        let can_be_probed = |(at, &word): (usize, &u32)| {
            let is_inside =
                sequences.as_ref().is_some_and(|all| all.containing(start + 4 * at as u64).expect(MEMORY).is_some());
            !is_inside && !matches!(classify(word), Verdict::Reject(_))
        };
        let is_probed = words.iter().enumerate().map(can_be_probed).collect();
        let dominated = dominated(&successors, &predecessors);
        let flows = words.iter().map(|&word| flow(word)).collect();
        Self { flows, successors, predecessors, dominated, is_probed }
    }

    /// Returns the copy that has these instructions. `None` if none of them is reached.
    pub fn region(&self, copy: &[usize]) -> Option<Region> {
        let place = |&at: &usize| self.dominated.get(at).copied().flatten();
        let mut members: Vec<usize> = copy.iter().copied().filter(|at| place(at).is_some()).collect();
        members.sort_by_key(place);
        members.dedup();
        let mut inside = vec![false; self.flows.len()];
        let mut heads: Vec<usize> = Vec::new();
        let mut pending = Vec::new();
        for &member in &members {
            let is_dominated =
                heads.last().is_some_and(|head| place(&member).map(|at| at.0) <= place(head).map(|of| of.1));
            if is_dominated {
                pending.push(member)
            } else {
                heads.push(member)
            }
            inside[member] = true;
        }
        // Everything between the copy's instructions: all instructions that lead to one of them, up to the first.
        let its_own = members.len();
        while let Some(at) = pending.pop() {
            for &before in &self.predecessors[at] {
                if !inside[before] {
                    inside[before] = true;
                    members.push(before);
                    pending.push(before);
                }
            }
        }
        Some(Region {
            first: heads.iter().copied().min()?,
            is_in_pieces: heads.len() > 1 || members.len() > its_own,
            entries: self.entries(&members, &inside),
            exits: self.exits(&members, &inside),
        })
    }

    /// Returns where control passes into `members`, which `inside` marks. `None` if this cannot be probed.
    fn entries(&self, members: &[usize], inside: &[bool]) -> Option<Vec<(usize, When)>> {
        let mut passages = Vec::new();
        let mut by_sources = BTreeSet::new();
        let mut sources = BTreeSet::new();
        for &target in members {
            let outer: Vec<usize> = self.predecessors[target].iter().copied().filter(|&from| !inside[from]).collect();
            if target > 0 && outer.is_empty() {
                continue;
            }
            if self.is_probed[target] && outer.len() == self.predecessors[target].len() {
                passages.push((target, When::Always));
            } else if target == 0 {
                return None;
            } else {
                by_sources.insert(Some(target));
                sources.extend(outer);
            }
        }
        for source in sources {
            passages.push((source, self.when(source, &by_sources)?));
        }
        Some(passages)
    }

    /// Returns where control passes out of `members`, which `inside` marks. `None` if this cannot be probed.
    fn exits(&self, members: &[usize], inside: &[bool]) -> Option<Vec<(usize, When)>> {
        let mut by_targets = BTreeSet::new();
        let mut by_sources = BTreeSet::new();
        let mut sources = BTreeSet::new();
        for &source in members {
            for target in self.targets(source) {
                match target {
                    Some(target) if inside[target] => continue,
                    Some(target) if self.is_left_to(target, inside) => {
                        by_targets.insert(target);
                        continue;
                    }
                    _ => {}
                }
                by_sources.insert(target);
                sources.insert(source);
            }
        }
        let mut passages: Vec<_> = by_targets.into_iter().map(|target| (target, When::Always)).collect();
        for source in sources {
            passages.push((source, self.when(source, &by_sources)?));
        }
        Some(passages)
    }

    /// Whether control comes to the instruction only from inside, so that a probe there shows the exit.
    fn is_left_to(&self, target: usize, inside: &[bool]) -> bool {
        target > 0 && self.is_probed[target] && self.predecessors[target].iter().all(|&from| inside[from])
    }

    /// Returns where control goes from a reached instruction. `None` stands for outside the function.
    fn targets(&self, from: usize) -> Vec<Option<usize>> {
        let within = || self.successors[from].iter().copied().map(Some);
        match self.flows[from] {
            Flow::Return => vec![None],
            Flow::JumpRegister(_) if self.successors[from].is_empty() => vec![None],
            Flow::Jump(offset) => vec![self.at(from, offset)],
            Flow::Condition(offset) => vec![self.at(from, 4), self.at(from, offset)],
            Flow::Next => vec![self.at(from, 4)],
            Flow::Call(_) | Flow::CallRegister(_) | Flow::JumpRegister(_) | Flow::Exception(_) => within().collect(),
        }
    }

    /// Returns the instruction at this distance in bytes from another. `None` if it is not in the function.
    fn at(&self, from: usize, offset: i64) -> Option<usize> {
        from.checked_add_signed((offset / 4) as isize).filter(|&at| at < self.flows.len())
    }

    /// Returns the condition under which control goes from `source` to one of `targets`. `None` if a probe there cannot
    /// tell.
    fn when(&self, source: usize, targets: &BTreeSet<Option<usize>>) -> Option<When> {
        if !self.is_probed[source] {
            return None;
        }
        match self.flows[source] {
            Flow::Next | Flow::Jump(_) | Flow::Return => Some(When::Always),
            Flow::Condition(offset) => {
                let leads = |offset| targets.contains(&self.at(source, offset));
                match (leads(offset), leads(4)) {
                    (true, true) => Some(When::Always),
                    (true, false) => Some(When::Taken),
                    (false, _) => Some(When::NotTaken),
                }
            }
            Flow::JumpRegister(_) => {
                self.targets(source).iter().all(|target| targets.contains(target)).then_some(When::Always)
            }
            // The passage comes after the call, which may never return.
            Flow::Call(_) | Flow::CallRegister(_) | Flow::Exception(_) => None,
        }
    }
}

/// Returns, for each instruction that is reached from the first, its place in the tree of dominators, and the place of
/// the last that it dominates.
fn dominated(successors: &[Vec<usize>], predecessors: &[Vec<usize>]) -> Vec<Option<(usize, usize)>> {
    // Each instruction before its successors, except for loops.
    let mut order = Vec::new();
    let mut is_seen = vec![false; successors.len()];
    let mut pending = vec![(0, 0)];
    is_seen.first_mut().into_iter().for_each(|seen| *seen = true);
    while let Some((at, next)) = pending.pop() {
        match successors.get(at).and_then(|all| all.get(next)) {
            Some(&successor) => {
                pending.push((at, next + 1));
                if !is_seen[successor] {
                    is_seen[successor] = true;
                    pending.push((successor, 0));
                }
            }
            None => order.push(at),
        }
    }
    order.reverse();
    let mut rank = vec![usize::MAX; successors.len()];
    order.iter().enumerate().for_each(|(number, &at)| rank[at] = number);
    // By rank, the nearest dominator of each instruction (Cooper, Harvey and Kennedy, A Simple, Fast Dominance
    // Algorithm).
    let mut nearest: Vec<Option<usize>> = vec![None; order.len()];
    nearest.first_mut().into_iter().for_each(|first| *first = Some(0));
    let mut is_changed = true;
    while core::mem::take(&mut is_changed) {
        for (number, &at) in order.iter().enumerate().skip(1) {
            let known = predecessors[at].iter().map(|&from| rank[from]).filter(|&from| from != usize::MAX);
            let common = known.filter(|&from| nearest[from].is_some()).reduce(|mut one, mut other| {
                while one != other {
                    let later = if one > other { &mut one } else { &mut other };
                    *later = nearest[*later].unwrap_or(0);
                }
                one
            });
            is_changed |= nearest[number] != common;
            nearest[number] = common;
        }
    }
    let mut children = vec![Vec::new(); order.len()];
    for (number, parent) in nearest.iter().enumerate().skip(1) {
        parent.iter().for_each(|&parent| children[parent].push(number));
    }
    let mut places = vec![None; successors.len()];
    let mut count = 0;
    let mut pending = vec![(0, false)];
    while let Some((number, is_done)) = pending.pop() {
        let Some(place) = order.get(number).and_then(|&at| places.get_mut(at)) else { continue };
        if is_done {
            *place = place.map(|(first, _): (usize, usize)| (first, count - 1));
            continue;
        }
        *place = Some((count, count));
        count += 1;
        pending.push((number, true));
        pending.extend(children[number].iter().map(|&child| (child, false)));
    }
    places
}

#[cfg(test)]
mod tests;
