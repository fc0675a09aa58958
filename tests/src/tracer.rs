//! The tracers: the graph of a known call tree, the limits of the graph, and the graph of all functions on all CPUs
//! under load.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::hint::black_box;

use aarch64_kprobes::probe::{self, Registration};
use kprobes_console::{symbol, tracing};
use kprobes_trace::engine::Probe;
use kprobes_trace::recorder::{GRAPH_ENTRY_EVENT, GRAPH_RETURN_EVENT};
use kprobes_trace::ring::{Record, Snapshot};
use kprobes_trace::tracer::{Graph, PARENT, Recording, STACK, Traced, Tracer};
use runtime::per_cpu::MAX_CPUS;
use runtime::task::JoinHandle;
use runtime::workload::{self, Workload};
use runtime::{println, task};

use crate::events::trace_of;
use crate::smp::start_on_each_cpu;
use crate::test;

#[inline(never)]
extern "C" fn leaf(number: u64) -> u64 {
    black_box(number).wrapping_mul(3)
}

/// Ends with a tail call of [`leaf`].
#[inline(never)]
extern "C" fn tail(number: u64) -> u64 {
    leaf(black_box(number + 1))
}

#[inline(never)]
extern "C" fn branch(number: u64) -> u64 {
    black_box(leaf(number)) + black_box(tail(number))
}

#[inline(never)]
extern "C" fn root(number: u64) -> u64 {
    black_box(branch(number)) ^ black_box(leaf(number))
}

/// Calls itself `depth` times.
#[inline(never)]
extern "C" fn recurse(depth: u64) -> u64 {
    if depth == 0 { leaf(depth) + 1 } else { black_box(recurse(depth - 1)) + 1 }
}

fn addresses<const N: usize>(functions: [extern "C" fn(u64) -> u64; N]) -> Vec<u64> {
    let mut addresses = functions.map(|function| function as usize as u64).to_vec();
    addresses.sort_unstable();
    addresses
}

/// Traces `functions` while `act` runs, and returns the records.
fn records_of(functions: &[u64], graph: Graph<'_>, act: impl FnOnce()) -> Snapshot {
    let rings = tracing::rings();
    let traced = Traced::graph(functions, rings, graph, &Recording::ALL).expect("there is memory");
    assert_eq!(traced.functions_traced().count(), functions.len());
    rings.clear();
    traced.set_enabled(true).expect("there is memory");
    act();
    traced.set_enabled(false).expect("probes can be disarmed");
    assert_eq!(traced.missed(), 0);
    rings.take(None).expect("there is memory")
}

/// Returns the calls and returns of the functions with these short names, as `name(` and `)`.
fn shape(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    for record in snapshot.records().expect("there is memory") {
        match record.event() {
            GRAPH_ENTRY_EVENT => {
                let name = symbol::lookup(record.word(8) as usize).expect("a function has a symbol").name;
                text += name.rsplit("::").next().unwrap_or(name);
                text += "(";
            }
            GRAPH_RETURN_EVENT => text += ")",
            other => panic!("a record of event {other}"),
        }
    }
    text
}

test!(
    depends(core),
    fn the_graph_of_a_known_call_tree_is_printed_as_it_nests() {
        let functions = addresses([leaf, tail, branch, root]);
        let rings = tracing::rings();
        let traced = Traced::graph(&functions, rings, Graph::default(), &Recording::ALL).expect("there is memory");
        let mut events = tracing::events::<Probe>(rings).expect("there is memory");
        events.set_tracer(Tracer::FunctionGraph);
        traced.set_enabled(true).expect("there is memory");
        assert_eq!(root(5), (leaf(5) + leaf(6)) ^ leaf(5));
        traced.set_enabled(false).expect("probes can be disarmed");
        let text = trace_of(&events, usize::MAX);
        let calls: Vec<&str> = text.lines().filter_map(|line| line.split_once("|  ")).map(|(_, call)| call).collect();
        let expected = [
            "tests::tracer::root() {",
            "  tests::tracer::branch() {",
            "    tests::tracer::leaf();",
            "    tests::tracer::tail() {",
            "      tests::tracer::leaf();",
            "    }",
            "  }",
            "  tests::tracer::leaf();",
            "}",
            "tests::tracer::leaf();",
            "tests::tracer::leaf();",
            "tests::tracer::leaf();",
        ];
        // Without the header, and without paths: a symbol may have another name for the crate of the tests.
        let found: Vec<String> =
            calls.iter().skip_while(|line| !line.contains("root")).map(|line| short(line)).collect();
        assert_eq!(found, expected.map(short), "{text}");
    }
);

/// Leaves the path of the function out of a line.
fn short(line: &str) -> String {
    let indent = line.len() - line.trim_start().len();
    let name = line.rsplit("::").next().unwrap_or(line).trim_start();
    alloc::format!("{:indent$}{name}", "")
}

test!(
    depends(core),
    fn the_graph_has_what_its_limits_let_through() {
        let functions = addresses([leaf, tail, branch, root, recurse]);
        let only = addresses([branch]);
        let without = addresses([tail]);
        let act = || {
            root(1);
            recurse(3);
        };
        let shown = |graph| shape(&records_of(&functions, graph, act));
        assert_eq!(
            shown(Graph::default()),
            "root(branch(leaf()tail(leaf()))leaf())recurse(recurse(recurse(recurse(leaf()))))"
        );
        assert_eq!(shown(Graph { max_depth: 2, ..Graph::default() }), "root(branch()leaf())recurse(recurse())");
        assert_eq!(shown(Graph { max_depth: 1, ..Graph::default() }), "root()recurse()");
        assert_eq!(shown(Graph { only: &only, ..Graph::default() }), "branch(leaf()tail(leaf()))");
        assert_eq!(shown(Graph { max_depth: 2, only: &only, ..Graph::default() }), "branch(leaf()tail())");
        let silent = Graph { without: &without, ..Graph::default() };
        assert_eq!(shown(silent), "root(branch(leaf())leaf())recurse(recurse(recurse(recurse(leaf()))))");
        assert_eq!(shown(Graph { only: &without, without: &without, ..Graph::default() }), "");
    }
);

/// A call of a task that has not returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Open {
    function: u64,
    stack: u64,
    /// The return address; `None` for a tail call, whose records have different ones at the entry and at the return.
    address: Option<u64>,
}

impl Open {
    fn of(record: &Record<'_>, is_tail: bool) -> Self {
        let address = (!is_tail).then_some(record.word(PARENT));
        Self { function: record.word(8), stack: record.word(STACK), address }
    }
}

/// The result of a check of the nesting.
#[derive(Debug, Default)]
struct Nesting {
    entries: u64,
    returns: u64,
    /// Calls whose returns are missing: later records of their task are outside of them.
    abandoned: u64,
    /// Returns without a call.
    alone: u64,
    /// Returns that directly follow the return of the tail call in which the function ended.
    rows: u64,
    /// Returns of tail calls that the return of the calling function does not follow directly, on the same CPU and to
    /// the same address.
    torn: u64,
    deepest: usize,
}

/// Checks that each return ends the innermost call of its task, in the order of times.
fn nesting<'a>(records: impl Iterator<Item = Record<'a>>) -> Nesting {
    let mut tasks: BTreeMap<u32, Vec<Open>> = BTreeMap::new();
    // For each CPU after a return of a tail call: the call that must return next, its task, and its return address.
    let mut rows: [Option<(Open, u32, u64)>; MAX_CPUS] = [None; MAX_CPUS];
    let mut found = Nesting::default();
    for record in records {
        let open = tasks.entry(record.task()).or_default();
        let row = rows[record.cpu].take();
        match record.event() {
            GRAPH_ENTRY_EVENT => {
                let is_tail = probe::is_trampoline(record.word(PARENT) as usize);
                let call = Open::of(&record, is_tail);
                while open.last().is_some_and(|last| last.stack < call.stack || last.stack == call.stack && !is_tail) {
                    open.pop();
                    found.abandoned += 1;
                }
                open.push(call);
                found.entries += 1;
                found.torn += u64::from(row.is_some());
                found.deepest = found.deepest.max(open.len());
            }
            GRAPH_RETURN_EVENT => {
                let is_own = |call: &Open| *call == Open::of(&record, call.address.is_none());
                let address = record.word(PARENT);
                if let Some((call, task, expected)) = row {
                    let is_next = is_own(&call) && (task, expected) == (record.task(), address);
                    found.rows += u64::from(is_next);
                    found.torn += u64::from(!is_next);
                }
                match open.iter().rposition(is_own) {
                    Some(at) => {
                        found.abandoned += (open.len() - at - 1) as u64;
                        let tail = open[at];
                        open.truncate(at);
                        let around = open.last().filter(|around| around.stack == tail.stack);
                        rows[record.cpu] = around.map(|around| (*around, record.task(), address));
                    }
                    None => found.alone += 1,
                }
                found.returns += 1;
            }
            other => panic!("a record of event {other}"),
        }
    }
    found
}

/// The size of each ring in bytes. Records that do not fit are counted.
const RING: usize = 4 << 20;

test!(
    depends(cpus),
    fn the_graph_of_all_functions_nests_under_load_and_nothing_is_lost_uncounted() {
        let rings = tracing::rings();
        tracing::resize_rings(RING).expect("there is memory");
        let closed = probe::blacklist();
        let functions: Vec<u64> = symbol::functions("*")
            .map(|function| function.address)
            .filter(|&at| !closed.contains(&(at as usize)))
            .collect();
        let traced = Traced::graph(&functions, rings, Graph::default(), &Recording::ALL).expect("there is memory");
        let count = traced.functions_traced().count();
        assert!(count > functions.len() / 2, "{count} of {} functions", functions.len());
        rings.set_overwrites(false);
        rings.clear();
        traced.set_enabled(true).expect("there is memory");
        // Tasks that start and end meanwhile.
        let others = start_on_each_cpu("other", || {
            for depth in 0..20 {
                assert_eq!(recurse(depth), depth + 1);
                task::yield_now();
            }
        });
        for workload in ["sha256", "deflate"] {
            let workload: &'static Workload = workload::find(workload).expect("there is such a workload");
            let report = workload::run(workload, 4, 8, || false).unwrap();
            assert_eq!((report.right, report.wrong), (4, 0), "{report}");
        }
        others.into_iter().for_each(JoinHandle::join);
        traced.set_enabled(false).expect("probes can be disarmed");
        // Calls that are in progress still report their returns, so the counts are compared when they are at rest.
        let hits = || traced.probes().map(Registration::hits).sum::<u64>();
        let (mut before, mut snapshot) = (hits(), rings.snapshot().expect("there is memory"));
        while before != hits() || before != snapshot.counted() {
            assert!(before <= hits() && snapshot.counted() <= hits(), "a record of no hit");
            task::yield_now();
            (before, snapshot) = (hits(), rings.snapshot().expect("there is memory"));
        }
        // Only the records up to the first loss on any CPU are checked.
        let mut last = [None; MAX_CPUS];
        snapshot.records().expect("there is memory").for_each(|record| last[record.cpu] = Some(record.time));
        let full = snapshot.counts().enumerate().filter(|(_, counts)| counts.lost > 0);
        let end = full.filter_map(|(cpu, _)| last[cpu]).min().unwrap_or(u64::MAX);
        let found = nesting(snapshot.records().expect("there is memory").take_while(|record| record.time < end));
        println!("{count} functions, {} hits, {} of them recorded: {found:?}", before, snapshot.present());
        assert!(found.entries > 1000 && found.returns > 1000 && found.deepest > 5);
        assert_eq!(found.alone, 0, "returns without a call");
        assert_eq!(found.torn, 0, "returns that do not follow on those of tail calls");
        assert!(found.rows > 0, "no tail call");
        assert!(found.abandoned <= traced.missed(), "{} of the returns are missing, uncounted", found.abandoned);
    }
);
