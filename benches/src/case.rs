//! The cases of the benchmark: a name, the work to measure, and the probed instruction. A new case takes a few lines in
//! [`CASES`].

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;

use aarch64_kprobes::probe::{CallArguments, CallResult, KprobeBuilder, KretprobeBuilder, Mode, Registration};
use aarch64_kprobes::{Call, Decision, Hit, Kprobe, Kretprobe, ProbeError};
use kprobes_console::program::{ProgramRefusal, RunningProgram};
use kprobes_console::{symbol, tracing};
use kprobes_trace::definition::{self, Command};
use kprobes_trace::engine::Probe;
use kprobes_trace::errno::Errno;
use kprobes_trace::events::{self, Events};
use kprobes_trace::tracer::{Graph, Recording, Traced};

use crate::stopwatch::Stopwatch;
use crate::target::{self, Target};

/// A case of the benchmark.
pub struct Case {
    /// The name in every listing.
    pub name: &'static str,
    /// The work to measure.
    pub work: Work,
}

/// The kinds of work.
#[derive(Clone, Copy)]
pub enum Work {
    /// A hit.
    Hit {
        /// The function to call.
        target: fn() -> Target,
        /// The mode in which the instruction must be executed for the case to measure what its name says.
        mode: Mode,
        /// Registers the probes on the instruction at this address, to be executed in this mode or a slower one.
        arm: fn(usize, Mode) -> Armed,
    },
    /// A change to a number of probes, which the stopwatch measures.
    Change {
        /// Returns the number of probes; the figure is for one of them.
        count: fn() -> usize,
        /// The number of measurements; the median counts.
        times: usize,
        /// Makes the change.
        change: fn(&mut Stopwatch),
    },
}

type Registered = Box<dyn Deref<Target = Registration>>;

/// Registered probes, which are unregistered when this is dropped.
pub struct Armed {
    /// The probes on the measured instruction.
    pub probes: Vec<Registered>,
    /// The number of hits that each of these probes counts for a call.
    pub counted: u64,
    /// The probes elsewhere.
    _others: Vec<Kprobe>,
}

const fn hit(name: &'static str, target: fn() -> Target, mode: Mode, arm: fn(usize, Mode) -> Armed) -> Case {
    Case { name, work: Work::Hit { target, mode, arm } }
}

const fn change(name: &'static str, count: fn() -> usize, change: fn(&mut Stopwatch)) -> Case {
    Case { name, work: Work::Change { count, times: 11, change } }
}

/// Creates a case of a change that takes long, and is measured once.
const fn large(name: &'static str, count: fn() -> usize, change: fn(&mut Stopwatch)) -> Case {
    Case { name, work: Work::Change { count, times: 1, change } }
}

/// All cases. The case with many probes is the last, because it takes the longest.
pub static CASES: &[Case] = &[
    hit("kprobe.entry", target::add, Mode::Lean, |at, mode| {
        armed([Kprobe::at(at).arguments(entered).at_most(mode).register()])
    }),
    hit("kprobe.optimized", target::add, Mode::Optimized, one),
    hit("kprobe.boosted", target::add, Mode::Boosted, one),
    hit("kprobe.stepped", target::add, Mode::Stepped, |at, mode| armed([probe(at, mode).post(after).register()])),
    hit("kprobe.two-on-one", target::add, Mode::Boosted, |at, mode| {
        armed([probe(at, mode).register(), probe(at, mode).register()])
    }),
    hit("kprobe.simulated", target::adrp, Mode::Simulated, one),
    hit("kprobe.simulated.adr", target::adr, Mode::Simulated, one),
    hit("kprobe.simulated.b", target::b, Mode::Simulated, one),
    hit("kprobe.simulated.b-cond", target::b_cond, Mode::Simulated, one),
    hit("kprobe.simulated.cbz", target::cbz, Mode::Simulated, one),
    hit("kprobe.simulated.tbz", target::tbz, Mode::Simulated, one),
    hit("kprobe.simulated.ldr-literal", target::ldr_literal, Mode::Simulated, one),
    hit("kprobe.simulated.bl", target::bl, Mode::Simulated, one),
    hit("kprobe.simulated.blr", target::blr, Mode::Simulated, one),
    hit("kprobe.simulated.ret", target::ret, Mode::Simulated, one),
    hit("kretprobe.result", target::add, Mode::Lean, |at, mode| {
        armed([Kretprobe::at(at).result(see_result).at_most(mode).register()])
    }),
    hit("kretprobe.optimized", target::add, Mode::Optimized, |at, mode| armed([return_probe(at, mode).register()])),
    hit("kretprobe.breakpoint", target::add, Mode::Boosted, |at, mode| armed([return_probe(at, mode).register()])),
    hit("kretprobe.simulated", target::adrp, Mode::Simulated, |at, mode| armed([return_probe(at, mode).register()])),
    hit("kretprobe.entry-handler", target::add, Mode::Boosted, |at, mode| {
        armed([return_probe(at, mode).entry(follow).register()])
    }),
    hit("kretprobe.declined", target::add, Mode::Boosted, |at, mode| Armed {
        counted: 0,
        ..armed([return_probe(at, mode).entry(decline).register()])
    }),
    hit("kretprobe.program", target::add, Mode::Compiled, |at, _| {
        running(&format!("kretprobe:{} {COUNT}", function_at(at)), RunningProgram::start)
    }),
    hit("event.p", target::add, Mode::Compiled, |at, mode| event(&format!("p:e {at:#x}"), mode)),
    hit("event.p.3arg", target::add, Mode::Compiled, |at, mode| event(&format!("p:e {at:#x} %x0 %x1 +0(%sp)"), mode)),
    hit("event.p.narrow", target::add, Mode::Compiled, |at, mode| {
        event(&format!("p:e {at:#x} %x0:u32 %x1:u8 +0(%sp):u16"), mode)
    }),
    hit("event.r.retval", target::add, Mode::Compiled, |at, mode| event(&format!("r:e {at:#x} $retval"), mode)),
    hit("event.p.filtered-out", target::add, Mode::Compiled, |at, _| {
        controlled(&format!("p:e {at:#x} x=%x0"), |events| {
            events.set_filter(EVENT, "x==7")?;
            events.set_enabled(None, None, true)
        })
    }),
    hit("tracer.function", target::add, Mode::Compiled, |at, _| {
        traced(Traced::functions(&[at as u64], tracing::rings(), &Recording::ALL))
    }),
    hit("tracer.graph", target::add, Mode::Compiled, |at, _| {
        traced(Traced::graph(&[at as u64], tracing::rings(), Graph::default(), &Recording::ALL))
    }),
    hit("tracer.graph.limited", target::add, Mode::Optimized, |at, _| {
        traced(Traced::graph(
            &[at as u64],
            tracing::rings(),
            Graph { max_depth: 1, ..Graph::default() },
            &Recording::ALL,
        ))
    }),
    hit("tracepoint.record", target::static_event, Mode::Compiled, |_, _| static_event("switch")),
    hit("tracepoint.record-text", target::static_event_with_text, Mode::Lean, |_, _| static_event("named")),
    hit("tracepoint.count", target::static_event, Mode::Compiled, |_, _| {
        running("tracepoint:bench:switch { @ = count(); }", RunningProgram::start)
    }),
    hit("tracepoint.keyed-by-field", target::static_event, Mode::Lean, |_, _| {
        running("tracepoint:bench:switch { @[args.next_pid] = count(); }", RunningProgram::start)
    }),
    hit("hist.log2", target::add, Mode::Compiled, |at, _| {
        controlled(&format!("p:e {at:#x} x=%x0"), |events| events.set_trigger(EVENT, "hist:keys=x.log2"))
    }),
    hit("hist.sum", target::add, Mode::Compiled, |at, _| {
        controlled(&format!("p:e {at:#x} x=%x0 y=%x1"), |events| events.set_trigger(EVENT, "hist:keys=x:vals=y"))
    }),
    hit("hist.two-keys", target::add, Mode::Compiled, |at, _| {
        controlled(&format!("p:e {at:#x} x=%x0"), |events| events.set_trigger(EVENT, "hist:keys=common_pid,x"))
    }),
    hit("prog.count", target::add, Mode::Compiled, |at, _| compiled(at, COUNT)),
    hit("prog.hist", target::add, Mode::Compiled, |at, _| compiled(at, "{ @ = hist(arg0); }")),
    hit("prog.predicate-false", target::add, Mode::Compiled, |at, _| compiled(at, "/arg0 == 7/ { @ = count(); }")),
    hit("prog.keyed-count", target::add, Mode::Compiled, |at, _| compiled(at, "{ @[func] = count(); }")),
    hit("prog.count-anywhere", target::middle, Mode::Compiled, |at, _| {
        let function = symbol::lookup(at).expect("a function has a symbol");
        running(&format!("insn:{}:{} {COUNT}", function.name, at - function.address as usize), RunningProgram::start)
    }),
    hit("prog.keyed-by-argument", target::add, Mode::Compiled, |at, _| compiled(at, "{ @[arg0] = count(); }")),
    hit("prog.latency", target::add, Mode::Compiled, |at, _| {
        let function = function_at(at);
        let begin = format!("kprobe:{function} {{ @start[tid] = nsecs; }}");
        let end = format!("kretprobe:{function} {{ @ = hist(nsecs - @start[tid]); delete(@start[tid]); }}");
        running(&format!("{begin} {end}"), RunningProgram::start)
    }),
    hit("prog.count.interpreted", target::add, Mode::Lean, |at, _| program(at, COUNT, RunningProgram::interpret)),
    change("register.one", one_change, |stopwatch| {
        let at = target::add().probed();
        drop(stopwatch.time(|| Kprobe::at(at).pre(before).register()));
    }),
    change("unregister.one", one_change, |stopwatch| {
        let probe = Kprobe::at(target::add().probed()).pre(before).register();
        stopwatch.time(|| drop(probe));
    }),
    change(
        "register.batch-1000",
        || target::small_functions().len(),
        |stopwatch| {
            let probes = target::small_functions().map(|at| Kprobe::at(at).pre(before));
            expect_all(stopwatch.time(|| Kprobe::register_all(probes).expect("there is memory for the lists")));
        },
    ),
    change(
        "unregister.batch-1000",
        || target::small_functions().len(),
        |stopwatch| {
            let probes = target::small_functions().map(|at| Kprobe::at(at).pre(before));
            let probes = expect_all(Kprobe::register_all(probes).expect("there is memory for the lists"));
            stopwatch.time(|| Kprobe::unregister_all(probes));
        },
    ),
    large(
        "change.everything-on",
        || target::everything().len(),
        |stopwatch| {
            Kprobe::unregister_all(everything(|work| stopwatch.time(work)));
        },
    ),
    large(
        "change.everything-off",
        || target::everything().len(),
        |stopwatch| {
            let probes = everything(|work| work());
            stopwatch.time(|| Kprobe::unregister_all(probes));
        },
    ),
    large(
        "change.functions-on",
        || symbol::functions("*").count(),
        |stopwatch| {
            drop(stopwatch.time(|| started(ALL_FUNCTIONS)));
        },
    ),
    large(
        "change.functions-off",
        || symbol::functions("*").count(),
        |stopwatch| {
            let program = started(ALL_FUNCTIONS);
            drop(stopwatch.time(|| program.detach()));
        },
    ),
    large(
        "change.copies-on",
        || list(ALL_COPIES).len(),
        |stopwatch| {
            drop(stopwatch.time(|| started(&format!("{ALL_COPIES} {COUNT}"))));
        },
    ),
    large(
        "change.copies-off",
        || list(ALL_COPIES).len(),
        |stopwatch| {
            let program = started(&format!("{ALL_COPIES} {COUNT}"));
            drop(stopwatch.time(|| program.detach()));
        },
    ),
    large("change.no-function", one_change, |stopwatch| {
        assert!(stopwatch.time(|| RunningProgram::start("kprobe:sha2::sha256::nothing { @ = count(); }")).is_err());
    }),
    large("change.no-copy", one_change, |stopwatch| {
        // The first call unpacks the table of copies, which is then kept.
        let refused = || RunningProgram::start("inline:sha2::sha256::nothing:entry { @ = count(); }").is_err();
        assert!(refused() && stopwatch.time(refused));
    }),
    hit("hit.with-1-armed", target::among_instructions, Mode::Boosted, one),
    hit("hit.with-100000-armed", target::among_instructions, Mode::Boosted, |at, mode| {
        let others = target::instructions().filter(|&other| other != at).map(|at| probe(at, mode));
        Armed {
            _others: expect_all(Kprobe::register_all(others).expect("there is memory for the lists")),
            ..one(at, mode)
        }
    }),
];

/// An event, which dereferences to its probe.
struct Event(Events<Probe>);

impl Deref for Event {
    type Target = Registration;

    fn deref(&self) -> &Registration {
        self.0.iter().find_map(events::Event::probe).expect("an event has a probe").registration()
    }
}

/// The group and the name of the event in the definitions of this module.
const EVENT: (&str, &str) = ("kprobes", "e");

/// Defines and enables an event. Its instruction is executed in the fastest mode.
fn event(line: &str, _: Mode) -> Armed {
    controlled(line, |events| events.set_enabled(None, None, true))
}

/// Defines an event, and applies `set` to it.
fn controlled(line: &str, set: fn(&mut Events<Probe>) -> Result<(), Errno>) -> Armed {
    let Ok(Some(Command::Define(definition))) = definition::parse(line) else { panic!("{line} is no definition") };
    let mut events = tracing::events(tracing::rings()).unwrap();
    events.define(definition, &tracing::Names).unwrap_or_else(|error| panic!("{line}: {error}"));
    set(&mut events).unwrap_or_else(|error| panic!("{line}: {error}"));
    Armed { probes: vec![Box::new(Event(events))], counted: 1, _others: vec![] }
}

/// A tracer and the number of a probe, to which this dereferences.
struct TracedProbe(Arc<Traced>, usize);

impl Deref for TracedProbe {
    type Target = Registration;

    fn deref(&self) -> &Registration {
        self.0.probes().nth(self.1).expect("the tracer has as many probes")
    }
}

/// Enables the probes of a tracer.
fn traced(traced: Result<Traced, impl fmt::Debug>) -> Armed {
    let traced = Arc::new(traced.expect("there is memory"));
    traced.set_enabled(true).expect("there is memory");
    let probe = |number| Box::new(TracedProbe(traced.clone(), number)) as Registered;
    Armed { probes: (0..traced.probes().count()).map(probe).collect(), counted: 1, _others: vec![] }
}

/// Enables a static event of the group `bench`.
fn static_event(name: &str) -> Armed {
    let mut events = tracing::events(tracing::rings()).unwrap();
    events.add_all_static().expect("there is memory for the events");
    let enabled = events.set_enabled(Some("bench"), Some(name), true);
    enabled.unwrap_or_else(|error| panic!("{name}: {error}"));
    Armed { probes: vec![Box::new(Event(events))], counted: 1, _others: vec![] }
}

/// A program with one probe, to which this dereferences.
struct OneProbe(RunningProgram);

impl Deref for OneProbe {
    type Target = Registration;

    fn deref(&self) -> &Registration {
        self.0.registrations().next().expect("a program has a probe")
    }
}

/// The body of the programs that are measured both compiled and interpreted.
const COUNT: &str = "{ @ = count(); }";

/// A program with probes on all functions.
const ALL_FUNCTIONS: &str = "kprobe:* { @[func] = count(); }";
/// Probes at the entry of every inlined copy.
const ALL_COPIES: &str = "inline:*:entry";

/// Returns 1, for a figure that is for the whole change.
fn one_change() -> usize {
    1
}

fn list(probes: &str) -> Vec<String> {
    kprobes_console::program::list(probes, false).unwrap_or_else(|_| panic!("{probes} means nothing"))
}

fn started(text: &str) -> RunningProgram {
    RunningProgram::start(text).unwrap_or_else(|_| panic!("{text} does not run"))
}

/// Puts a probe without a handler on every instruction that can be probed. `time` gets the function that registers and
/// arms them.
fn everything(time: impl FnOnce(&mut dyn FnMut())) -> Vec<Kprobe> {
    let (addresses, mut probes) = (target::everything(), Vec::new());
    time(&mut || {
        probes = expect_all(
            Kprobe::register_all(addresses.iter().map(|&at| Kprobe::at(at).disabled()))
                .expect("there is memory for the lists"),
        );
        let armed = Registration::set_all_enabled(probes.iter().map(|probe| &**probe), true);
        armed.expect("there is memory");
    });
    probes
}

/// Starts a compiled program that does `what` at the entry of the function at `at`.
fn compiled(at: usize, what: &str) -> Armed {
    program(at, what, |text| RunningProgram::start(text).inspect(|program| assert_eq!(program.handlers(), 1, "{text}")))
}

/// Starts a program that does `what` at the entry of the function at `at`, by `start`.
fn program(at: usize, what: &str, start: fn(&str) -> Result<RunningProgram, ProgramRefusal>) -> Armed {
    running(&format!("kprobe:{} {what}", function_at(at)), start)
}

fn function_at(at: usize) -> &'static str {
    symbol::lookup(at).expect("a function has a symbol").name
}

/// Starts a program with one probe.
fn running(text: &str, start: fn(&str) -> Result<RunningProgram, ProgramRefusal>) -> Armed {
    let Ok(program) = start(text) else { panic!("{text} does not run") };
    Armed { probes: vec![Box::new(OneProbe(program))], counted: 1, _others: vec![] }
}

/// Registers one probe with a pre-handler.
fn one(at: usize, mode: Mode) -> Armed {
    armed([probe(at, mode).register()])
}

fn probe(at: usize, mode: Mode) -> KprobeBuilder {
    Kprobe::at(at).pre(before).at_most(mode)
}

fn return_probe(at: usize, mode: Mode) -> KretprobeBuilder {
    Kretprobe::at(at).handler(returned).at_most(mode)
}

fn armed<P, const N: usize>(probes: [Result<P, ProbeError>; N]) -> Armed
where
    P: Deref<Target = Registration> + 'static,
{
    let probes = expect_all(probes.into());
    let probes = probes.into_iter().map(|probe| Box::new(probe) as Registered).collect();
    Armed { probes, counted: 1, _others: vec![] }
}

/// Returns the probes; panics if one was refused.
fn expect_all<P>(probes: Vec<Result<P, ProbeError>>) -> Vec<P> {
    let expect = |probe: Result<P, ProbeError>| {
        probe.unwrap_or_else(|error| panic!("a probe that is to be measured was refused: {error}"))
    };
    probes.into_iter().map(expect).collect()
}

extern "C" fn before(_: &mut Hit<'_>) {}

extern "C" fn after(_: &mut Hit<'_>) {}

extern "C" fn entered(_: &CallArguments) {}

extern "C" fn returned(_: &mut Call<'_>) {}

extern "C" fn see_result(_: &CallResult) {}

extern "C" fn follow(_: &mut Call<'_>) -> Decision {
    Decision::Follow
}

extern "C" fn decline(_: &mut Call<'_>) -> Decision {
    Decision::Decline
}
