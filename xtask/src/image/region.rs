//! Where a copy of a function is entered and left that the compiler has put into another.
//!
//! What is known of a copy is which instructions are of it. The compiler moves these among others, so to come to one of them does
//! not mean that a call begins. What counts as the copy here is therefore its instructions and all that lies between them: every
//! instruction that control can pass on the way from one of them to another without passing the first of them again. The first is
//! the one by which all others are reached, that is, which dominates them. A copy is entered where control comes from outside of
//! that, and left where it goes out, so it is left as often as it is entered, unless it never ends.
//!
//! Where there are instructions of others in between, or not one first instruction but several, on ways that part before the copy
//! begins, that may be more or less than the calls of the source: such a copy is in pieces.
//!
//! A passage is probed at the instruction that it leads to, if nothing else leads there; otherwise at the one that it comes from,
//! where a condition tells whether it is taken. If neither can be, because a call lies there, or an exclusive sequence, then it is
//! not known where the copy is entered, or left. Pure.

use std::collections::{BTreeMap, BTreeSet};

use aarch64_kprobes::insn::{Sequences, Verdict, classify, may_be_load};
use kprobes_symbols::When;

use crate::audit::{Flow, flow};

/// A function, whose instructions have numbers from 0 on.
pub struct Function {
    flows: Vec<Flow>,
    successors: Vec<Vec<usize>>,
    predecessors: Vec<Vec<usize>>,
    /// Of each instruction that is reached, where it comes in the tree of dominators, in which what it dominates follows it, and
    /// where the last of that is.
    dominated: Vec<Option<(usize, usize)>>,
    /// Whether a probe can be there.
    is_probed: Vec<bool>,
}

/// Where a copy begins, and how control passes into it and out of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Region {
    pub first: usize,
    pub is_in_pieces: bool,
    pub entries: Option<Vec<(usize, When)>>,
    pub exits: Option<Vec<(usize, When)>>,
}

impl Function {
    /// The function of these words at the virtual address `start`, with the instructions that are reached, and those that control
    /// may go to from each, by their addresses.
    pub fn new(start: u64, words: Vec<u32>, control: &BTreeMap<u64, Vec<u64>>) -> Self {
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
            .then(|| Sequences::of(start..end, |address| words[number(address)]).expect(MEMORY));
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

    /// The copy that has these instructions, if any of them is reached.
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
        // Everything between them: whatever leads to one of them, up to the first.
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

    /// Where control passes into `members`, which are what is inside.
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

    /// Where control passes out of `members`, which are what is inside.
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

    /// Whether control comes to the instruction only out of what is inside, and a probe there tells.
    fn is_left_to(&self, target: usize, inside: &[bool]) -> bool {
        target > 0 && self.is_probed[target] && self.predecessors[target].iter().all(|&from| inside[from])
    }

    /// Where control goes from an instruction that is reached: nowhere in the function, if there is none.
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

    /// The instruction so many bytes from another, if it is in the function.
    fn at(&self, from: usize, offset: i64) -> Option<usize> {
        from.checked_add_signed((offset / 4) as isize).filter(|&at| at < self.flows.len())
    }

    /// When control goes from `source` to one of `targets`, if a probe there tells.
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
            // The passage is behind the call, which may never come to it.
            Flow::Call(_) | Flow::CallRegister(_) | Flow::Exception(_) => None,
        }
    }
}

/// Of each instruction that is reached from the first, its place in the tree of dominators, and that of the last that it dominates.
fn dominated(successors: &[Vec<usize>], predecessors: &[Vec<usize>]) -> Vec<Option<(usize, usize)>> {
    // Each before those that follow it, but for loops.
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
    // By rank, the nearest dominator of each (Cooper, Harvey and Kennedy, A Simple, Fast Dominance Algorithm).
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
