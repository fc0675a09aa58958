//! Reads one function by following its control flow from an entry: its calls and the depth of its stack there, its
//! forbidden instructions, and whether it returns.

use std::collections::{BTreeMap, BTreeSet};

use aarch64_kprobes::insn::{Op, Reason, Verdict, classify, is_floating};

use super::{
    executable::{Executable, Function},
    flow::{Flow, LINK, flow},
    register_values::{JumpTable, RegisterValues, Value},
    waiting::{self, OutlinedWords},
};

/// The most instructions that are executed of an outlined function and those that it calls. Where each of them calls
/// the next one twice, each one doubles the time.
const LONGEST_EXECUTION: usize = 1 << 12;
/// The most entries of a jump table. It bounds the reading of a table whose end cannot be seen.
const LONGEST_TABLE: usize = 1 << 16;

/// A call or a tail call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSite {
    /// The virtual address of the instruction.
    pub at: u64,
    /// The target. `None` if it is in a register.
    pub target: Option<u64>,
    /// How many bytes of the stack the function has in use there.
    pub depth: i64,
}

/// The properties of a function, from one of its entries on.
#[derive(Debug, Default)]
pub struct Body {
    /// The calls and the tail calls, by address.
    pub call_sites: Vec<CallSite>,
    /// The most bytes of stack that it has in use itself.
    pub frame: i64,
    /// Whether control may come back to its caller.
    pub returns: bool,
    /// The first instruction that makes the stack pointer unknown.
    pub unknown_stack: Option<u64>,
    /// The instructions that use floating point.
    pub floating: Vec<u64>,
    /// The instructions after which control cannot go on, with the reasons.
    pub exceptions: Vec<(u64, &'static str)>,
    /// The first instruction by which the function may wait for another CPU, or take a lock, and why.
    pub synchronizes: Option<(u64, &'static str)>,
    /// Calls of functions at which the path ends.
    pub ended: BTreeSet<u64>,
    /// The reached instructions, each with those in the function that control may go to from it.
    pub successors: BTreeMap<u64, Vec<u64>>,
}

/// Properties of other functions that reading a function depends on.
pub trait Callees {
    /// Whether control may come back from the function at the virtual address `entry`.
    fn returns(&self, entry: u64) -> bool;
    /// Whether the path ends with a call of the function at the virtual address `entry`.
    fn ends_path(&self, entry: u64) -> bool;
    /// Returns the declared bytes of stack of the function around `entry`, if it sets its stack pointer freely.
    fn declared_frame(&self, entry: u64) -> Option<i64>;
}

/// Reads the function around the virtual address `entry`, from there. `None` if no symbol says where it ends.
pub fn scan(executable: &Executable, callees: &dyn Callees, entry: u64) -> Option<Body> {
    let range = executable.function(entry)?.range.clone();
    let declared = callees.declared_frame(entry);
    let mut body = Body { frame: declared.unwrap_or(0), ..Body::default() };
    let mut states = BTreeMap::from([(entry, RegisterValues::at_entry())]);
    let mut successors: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut call_sites: BTreeMap<(u64, Option<u64>), CallSite> = BTreeMap::new();
    let mut in_outlined = Vec::new();
    let mut outlined_words = OutlinedWords::new();
    let mut pending = vec![entry];
    while let Some(at) = pending.pop() {
        let Some(word) = executable.word(at) else {
            body.exceptions.push((at, "there is no instruction"));
            continue;
        };
        let mut state = states[&at];
        match state.depth() {
            Some(depth) => body.frame = body.frame.max(depth),
            None => body.unknown_stack = Some(body.unknown_stack.map_or(at, |old| old.min(at))),
        }
        let next = at + 4;
        let offset = |offset: i64| at.wrapping_add_signed(offset);
        let mut leave = |state: &RegisterValues, target: Option<u64>| {
            let depth = state.depth().or(declared).unwrap_or(0);
            call_sites.insert((at, target), CallSite { at, target, depth });
        };
        let mut goes_to = Vec::new();
        match flow(word) {
            Flow::Next => {
                state.execute(at, word);
                goes_to.push(next);
            }
            Flow::Jump(distance) => goes_to.push(offset(distance)),
            Flow::Condition(distance) => goes_to.extend([next, offset(distance)]),
            Flow::Call(distance) => {
                let target = offset(distance);
                leave(&state, Some(target));
                if callees.ends_path(target) {
                    body.ended.insert(target);
                } else {
                    match outlined(executable, target) {
                        true => {
                            state.link();
                            let (calls, words) = execute_outlined(executable, target, declared, &mut state);
                            in_outlined.extend(calls);
                            outlined_words.insert(at, words);
                        }
                        false => state.call(),
                    }
                    if callees.returns(target) {
                        goes_to.push(next);
                    }
                }
            }
            Flow::CallRegister(number) => {
                leave(&state, constant(state.get(number)));
                state.call();
                goes_to.push(next);
            }
            Flow::JumpRegister(number) => match jump_table(executable, &range, at, state.get(number)) {
                Some(targets) => goes_to.extend(targets),
                None => {
                    let target = constant(state.get(number));
                    leave(&state, target);
                    body.returns |= target.is_none_or(|target| callees.returns(target));
                }
            },
            Flow::Return => {
                if let Some(target) = known_return(word, &state) {
                    leave(&state, Some(target));
                }
                body.returns = true;
            }
            Flow::Exception(_) => {}
        }
        for &target in &goes_to {
            if !range.contains(&target) {
                leave(&state, Some(target));
                if callees.ends_path(target) {
                    body.ended.insert(target);
                    continue;
                }
                body.returns |= callees.returns(target);
                if outlined(executable, target) {
                    let mut after = state;
                    let (calls, words) = execute_outlined(executable, target, declared, &mut after);
                    in_outlined.extend(calls);
                    outlined_words.insert(target, words);
                }
                continue;
            }
            match states.get_mut(&target) {
                Some(known) => {
                    if known.join(&state) {
                        pending.push(target);
                    }
                }
                None => {
                    states.insert(target, state);
                    pending.push(target);
                }
            }
        }
        goes_to.retain(|target| range.contains(target));
        successors.insert(at, goes_to);
    }
    for &at in states.keys() {
        let Some(word) = executable.word(at) else { continue };
        if is_floating(word) {
            body.floating.push(at);
        }
        if let Flow::Exception(why) = flow(word) {
            body.exceptions.push((at, why));
        }
    }
    // A call site may be seen several times, with less and less known of the stack pointer. The last one counts.
    body.call_sites = call_sites.into_values().collect();
    // Several calls of an outlined function may lead to one of these.
    for CallSite { at, target, depth } in in_outlined {
        match body.call_sites.iter_mut().find(|call| (call.at, call.target) == (at, target)) {
            Some(call) => call.depth = call.depth.max(depth),
            None => body.call_sites.push(CallSite { at, target, depth }),
        }
    }
    body.synchronizes = waiting::find(executable, &successors, &states, &outlined_words);
    body.successors = successors;
    Some(body)
}

/// Whether the function at `entry` is treated as a part of its caller. This is so for outlined functions, and for a
/// read that may fault: the inline assembly around it names the registers that it changes, so its callers rely on the
/// others.
fn outlined(executable: &Executable, entry: u64) -> bool {
    const READS: &str = "kprobes_nofault_load";
    let is_part = |function: &Function| function.is_outlined() || function.name().starts_with(READS);
    executable.function(entry).is_some_and(|function| function.range.start == entry && is_part(function))
}

/// Executes the outlined function at `entry` with the values in `state`.
///
/// Returns its calls by a register, which count as the caller's, because declarations name the caller. A call is left
/// out if the outlined function itself computes the target: the outlined function is read by itself, too. `declared` is
/// the declared frame of the caller. Also returns the executed instructions.
fn execute_outlined(
    executable: &Executable,
    entry: u64,
    declared: Option<i64>,
    state: &mut RegisterValues,
) -> (Vec<CallSite>, Vec<(u64, RegisterValues)>) {
    let [mut alone, mut execution] = [Execution::default(), Execution::default()];
    alone.run(executable, entry, &mut RegisterValues::at_entry());
    execution.run(executable, entry, state);
    let is_its_own = |at: u64, target: Option<u64>| {
        target.is_some() && alone.by_register.iter().any(|call| (call.at, call.target) == (at, target))
    };
    let calls = execution.by_register.into_iter().filter(|call| !is_its_own(call.at, call.target));
    let calls =
        calls.map(|RegisterCall { at, target, depth }| CallSite { at, target, depth: depth.or(declared).unwrap_or(0) });
    (calls.collect(), execution.words)
}

/// A call or a tail call by a register.
struct RegisterCall {
    at: u64,
    target: Option<u64>,
    /// How many bytes of stack are in use there. `None` if this is unknown.
    depth: Option<i64>,
}

/// The execution of an outlined function, with the outlined functions that it calls.
#[derive(Default)]
struct Execution {
    by_register: Vec<RegisterCall>,
    /// The executed instructions, without the calls of outlined functions and the returns from them, each with the
    /// values before it.
    words: Vec<(u64, RegisterValues)>,
    /// The entries of the outlined functions that are being executed.
    path: Vec<u64>,
    /// The number of instructions so far.
    steps: usize,
}

impl Execution {
    /// Executes the outlined function at `entry` with the values in `state`, up to its end.
    fn run(&mut self, executable: &Executable, entry: u64, state: &mut RegisterValues) {
        self.path.push(entry);
        let mut at = entry;
        while let Some(word) = executable.word(at) {
            if self.steps == LONGEST_EXECUTION {
                // The rest may call any function, and leave any stack pointer.
                self.call_register(at, None, state);
                state.forget();
                break;
            }
            self.steps += 1;
            match flow(word) {
                Flow::Next => {
                    self.words.push((at, *state));
                    state.execute(at, word);
                }
                Flow::Call(distance) => {
                    state.link();
                    self.call(executable, at, at.wrapping_add_signed(distance), state);
                }
                Flow::CallRegister(number) => self.call_register(at, constant(state.get(number)), state),
                // The outlined function ends with a call, after which its caller goes on.
                Flow::JumpRegister(number) => {
                    self.call_register(at, constant(state.get(number)), state);
                    break;
                }
                Flow::Jump(distance) => {
                    self.call(executable, at, at.wrapping_add_signed(distance), state);
                    break;
                }
                Flow::Condition(_) | Flow::Exception(_) => {
                    self.words.push((at, *state));
                    break;
                }
                Flow::Return => {
                    if let Some(target) = known_return(word, state) {
                        self.call_register(at, Some(target), state);
                    }
                    break;
                }
            }
            at += 4;
        }
        self.path.pop();
    }

    fn call(&mut self, executable: &Executable, at: u64, target: u64, state: &mut RegisterValues) {
        if !self.path.contains(&target) && outlined(executable, target) {
            return self.run(executable, target, state);
        }
        self.words.push((at, *state));
        state.call();
    }

    fn call_register(&mut self, at: u64, target: Option<u64>, state: &mut RegisterValues) {
        self.by_register.push(RegisterCall { at, target, depth: state.depth() });
        self.words.push((at, *state));
        state.call();
    }
}

/// Returns the address that the return `word` leads to, if the function has put a known one into the link register.
/// ERET does not return by this register.
fn known_return(word: u32, state: &RegisterValues) -> Option<u64> {
    let is_from_exception = matches!(classify(word), Verdict::Reject(Reason::ExceptionReturn));
    constant(state.get(LINK)).filter(|_| !is_from_exception)
}

fn constant(value: Value) -> Option<u64> {
    match value {
        Value::Constant(address) => Some(address),
        _ => None,
    }
}

/// Returns the targets of the jump table of the branch at `at` to `value`, in the function at `range`. `None` if it is
/// not a jump table.
///
/// The table has no marked end. It ends where another object begins whose address is computed anywhere. It ends at the
/// latest at the first entry that leads out of the function, because its own entries stay within; or at an entry that
/// leads to the branch, to the load or the addition before it, or to the ADR of itself that gives the base, because no
/// entry leads into the block that reads the table. Entries that are read after its true end only add to the
/// instructions that count as reached.
fn jump_table(executable: &Executable, range: &std::ops::Range<u64>, at: u64, value: Value) -> Option<BTreeSet<u64>> {
    let Value::Target { base, shift, table: JumpTable { address, size, signed } } = value else { return None };
    let reads_itself = |word| matches!(classify(word), Verdict::Simulate(Op::Address { offset: 0, .. }));
    let has_own_base = executable.word(base).is_some_and(reads_itself);
    let reads = if has_own_base { base } else { at.saturating_sub(8) }..=at;
    let mut targets = BTreeSet::new();
    for index in 0..LONGEST_TABLE {
        let place = address + (index * size) as u64;
        if index > 0 && executable.begins_object(place) {
            break;
        }
        let Some(bytes) = executable.bytes(place, size) else { break };
        let entry = bytes.iter().rev().fold(0_u64, |entry, &byte| entry << 8 | u64::from(byte));
        let unused = 64 - 8 * size as u32;
        let entry = if signed { ((entry << unused).cast_signed() >> unused).cast_unsigned() } else { entry };
        let target = base.wrapping_add(entry << shift);
        if !range.contains(&target) || target % 4 != 0 || reads.contains(&target) {
            break;
        }
        targets.insert(target);
    }
    (!targets.is_empty()).then_some(targets)
}
