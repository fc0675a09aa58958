//! Compiled programs do the same as interpreted ones: random programs run in both ways for the same simulated hits, and
//! all observable results must be equal.
//!
//! The seed and the number of programs are chosen when the image is built, and the test prints both:
//!
//! ```text
//! RANDOM_PROGRAMS=100000 RANDOM_SEED=1 cargo xtask test --timeout 3600 compiled
//! ```
//!
//! Each program runs for [`HITS`] hits. A usual run has the first quarter of the programs of a thorough one.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::arch::asm;
use core::fmt;
use core::mem::offset_of;
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use kprobes_generate::programs;
use kprobes_program::check::{Symbols, check};
use kprobes_program::checked::Checked;
use kprobes_program::error::Problem;
use kprobes_program::report::{Names, OutputFormat, drain, write_maps};
use kprobes_program::syntax::parse;
use kprobes_random::Random;
use kprobes_symbols::names::matches;
use kprobes_vm::hit::{self, Machine};
use kprobes_vm::ir::{Op, Operand, Register, Word};
use kprobes_vm::jit::{Base, Clock, Directory, Kernel, MachineCode, Path, Source, WORDS_MAX, compile};
use kprobes_vm::maps::{Limits, Store};
use runtime::memory::{self, layout};
use runtime::sync::IrqMask;
use runtime::task::JoinHandle;
use runtime::{println, smp, task, time};

use crate::random::{arena, lose_registers};
use crate::{is_thorough, parameter, test};

/// The number of hits for each program.
const HITS: usize = 6;
/// The number of CPUs for the hits.
const CPUS: usize = 2;

/// The functions of the simulated image, with their addresses; each is 0x100 bytes long.
const IMAGE: [(&str, u64); 3] = [("blk::submit", 0x1000), ("blk::read", 0x1100), ("main", 0x1200)];

struct SimulatedImage;

impl Symbols for SimulatedImage {
    fn address(&self, name: &str) -> Option<u64> {
        IMAGE.iter().find(|(of, _)| *of == name).map(|&(_, address)| address)
    }

    fn functions(&self, path: &str) -> Result<Vec<Range<u64>>, Problem> {
        Ok(IMAGE.iter().filter(|(name, _)| matches(path, name)).map(|&(_, start)| start..start + 0x100).collect())
    }
}

impl Names for SimulatedImage {
    fn symbol(&self, address: u64) -> Option<(&str, u64)> {
        IMAGE.iter().find(|(_, start)| (*start..start + 0x100).contains(&address)).map(|&(name, start)| (name, start))
    }

    fn probe(&self, number: u64, out: &mut dyn fmt::Write) -> fmt::Result {
        write!(out, "probe {number}")
    }
}

/// A simulated hit, in its layout in memory.
#[repr(C)]
struct Hit {
    /// x0 to x30, sp, pc, pstate.
    registers: [u64; 34],
    /// The address of `words`.
    more: *const [u64; 4],
    /// The values of the function, the caller, the probe, and the time.
    words: [u64; 4],
    cpu: u64,
    task: u64,
    comm: [u8; 16],
    stack: [u64; 3],
    memory: [u8; 64],
}

impl Hit {
    fn random(random: &mut Random) -> Box<Self> {
        let mut memory = [0; 64];
        memory.fill_with(|| random.of(b"abcdef \0\xff\x80"));
        let mut comm = [0; 16];
        let name: &[u8] = random.of(&[&b"worker"[..], b"idle", b"a long name ...", b""]);
        comm[..name.len()].copy_from_slice(name);
        let functions = [0x1000, 0x1100, 0x1234];
        let mut hit = Box::new(Self {
            registers: [0; 34],
            more: ptr::null(),
            words: [random.of(&functions), random.of(&functions), 1 + random.next() % 4, random.next()],
            cpu: random.below(CPUS) as u64,
            task: random.next() % 3,
            comm,
            stack: [random.of(&functions), 0x1110, random.of(&functions)],
            memory,
        });
        hit.registers.fill_with(|| random.value());
        hit.more = &raw const hit.words;
        hit
    }
}

impl Machine for Hit {
    fn register(&self, register: Register) -> u64 {
        self.registers[usize::from(number(register))]
    }

    fn result(&self) -> u64 {
        0
    }

    fn function(&self) -> u64 {
        self.words[0]
    }

    fn caller(&self) -> u64 {
        self.words[1]
    }

    fn probe(&self) -> u64 {
        self.words[2]
    }

    fn cpu(&self) -> usize {
        self.cpu as usize
    }

    fn task(&self) -> u64 {
        self.task
    }

    fn comm(&self) -> [u8; 16] {
        self.comm
    }

    fn nanoseconds(&self) -> u64 {
        self.words[3]
    }

    fn read(&self, address: u64, bytes: u8) -> Option<u64> {
        let start = usize::try_from(address.checked_sub(programs::MEMORY)?).ok()?;
        let found = self.memory.get(start..start.checked_add(bytes.into())?)?;
        let mut word = [0; 8];
        word[..found.len()].copy_from_slice(found);
        Some(u64::from_le_bytes(word))
    }

    fn stack(&self, frames: &[AtomicU64]) -> usize {
        frames.iter().zip(self.stack).map(|(to, frame)| to.store(frame, Relaxed)).count()
    }
}

/// Returns the number of a register in a hit.
fn number(register: Register) -> u8 {
    match register {
        Register::X(number) => number,
        Register::Sp => 31,
        Register::Pc => 32,
        Register::Pstate => 33,
    }
}

const CPU: Path = Path { base: Base::Hit, offsets: &[offset_of!(Hit, cpu) as u16] };
const TASK: Path = Path { base: Base::Hit, offsets: &[offset_of!(Hit, task) as u16] };
const COMM: Path = Path { base: Base::Hit, offsets: &[offset_of!(Hit, comm) as u16] };
const FUNCTION: Path = Path { base: Base::Hit, offsets: &[offset_of!(Hit, more) as u16, 0] };
const CALLER: Path = Path { base: Base::Hit, offsets: &[offset_of!(Hit, words) as u16 + 8] };

/// A loaded program.
struct Loaded {
    program: Checked,
    store: Store,
}

impl Loaded {
    fn new(program: &str, limits: &Limits) -> Option<Box<Self>> {
        let program = parse(program).and_then(|tree| check(&tree, &SimulatedImage)).ok()?;
        let store = Store::new(&program.code, limits, 1_000).expect("the checker keeps the rules");
        Some(Box::new(Self { program, store }))
    }

    /// Returns all output, and the contents of all maps.
    fn report(&self) -> String {
        let mut text = String::new();
        drain(&self.program, &self.store, &SimulatedImage, &masked, OutputFormat::Text, &mut text)
            .expect("strings take all");
        write_maps(&self.program, &self.store, &SimulatedImage, &masked, OutputFormat::Text, &mut text)
            .expect("strings take all");
        for (number, map) in self.program.code.maps.iter().enumerate() {
            let entries = self.store.read(number, map.value, &masked).expect("there is memory for a copy");
            text.push_str(&format!("{} {:x?}\n", map.name, entries.iter().collect::<Vec<_>>()));
        }
        text
    }
}

fn masked(action: &mut dyn FnMut()) {
    let _mask = IrqMask::new();
    action();
}

/// Executes an op that has no compiled form, for compiled code.
extern "C" fn perform(hit: &Hit, number: u64, context: &Loaded) {
    hit::perform(&context.program.code, (number >> 16) as usize, (number & 0xffff) as usize, &context.store, hit);
    lose_registers();
}

/// Returns a clock that shows `time`, which is below 2³², during the next 2³² ticks.
fn clock_at(time: u64) -> Clock {
    Clock { start: time::counter().wrapping_sub(time << 32), per_tick: 1 }
}

/// Returns a kernel in which the code gets each value by a call or by loads, as `random` chooses. The time is always
/// `time`.
fn kernel(random: &mut Random, context: &Loaded, time: u64) -> Kernel {
    let mut some = |source| (random.below(3) > 0).then_some(source);
    Kernel {
        function: some(Source::Path(FUNCTION)),
        caller: some(Source::Path(CALLER)),
        probe: None,
        cpu: CPU,
        cpus: CPUS,
        task: some(Source::Path(TASK)),
        comm: (random.below(2) == 0).then_some(COMM),
        nanoseconds: (random.below(2) == 0).then(|| clock_at(time)),
        register: match random.below(2) {
            0 => |register| Some(8 * u16::from(number(register))),
            _ => |register| Some(number(register)).filter(|&number| number < 8).map(|number| 8 * u16::from(number)),
        },
        perform: perform as *const () as u64,
        context: ptr::from_ref(context).addr() as u64,
    }
}

/// Memory for the instructions of a clause.
struct Memory(usize);

impl Memory {
    fn new() -> Self {
        let bytes = (4 * WORDS_MAX).next_multiple_of(layout::PAGE_SIZE);
        Self(memory::allocate_executable(bytes, false).expect("there is memory"))
    }

    fn fill(&self, compiled: &MachineCode) {
        for (page, words) in compiled.words.chunks(layout::PAGE_SIZE / 4).enumerate() {
            arena::write(self.0 + page * layout::PAGE_SIZE, words);
        }
    }

    /// Calls the handler, and checks that it preserves the callee-saved registers.
    fn call(&self, hit: &Hit) {
        const KEPT: u64 = 0x5eed;
        let (mut x20, mut x21, mut x22, mut x23, mut x24) = (KEPT, KEPT, KEPT, KEPT, KEPT);
        let (mut x25, mut x26, mut x27) = (KEPT, KEPT, KEPT);
        let lost: u64;
        // SAFETY: the words are a function that takes a hit of this layout. Everything that the hit points to is valid.
        unsafe {
            asm!(
                "mov x28, sp",
                "blr x9",
                "mov x0, sp",
                "sub x0, x28, x0",
                in("x9") self.0,
                inout("x0") hit => lost,
                out("x28") _,
                inout("x20") x20, inout("x21") x21, inout("x22") x22, inout("x23") x23, inout("x24") x24,
                inout("x25") x25, inout("x26") x26, inout("x27") x27,
                clobber_abi("C"),
            );
        }
        assert_eq!([x20, x21, x22, x23, x24, x25, x26, x27], [KEPT; 8]);
        assert_eq!(lost, 0);
    }
}

/// A program that was run in both ways for the same hits.
struct Outcome {
    interpreted: Box<Loaded>,
    compiled: MachineCode,
    /// The reports of the interpreter and of the compiled code.
    expected: String,
    found: String,
}

/// Runs a program by the interpreter, and as compiled code for its ops as `change` has modified them. Returns `None` if
/// the program exceeds the limits.
fn run_both(program: &str, random: &mut Random, memory: &Memory, change: impl FnOnce(&mut [Op])) -> Option<Outcome> {
    let limits = Limits { entries: 16, table_bytes: 1 << 10, stacks: 16, output_bytes: 2 << 10, ..Limits::usual(CPUS) };
    let interpreted = Loaded::new(program, &limits)?;
    let mut other = Loaded::new(program, &limits).expect("it has been loaded");
    change(&mut other.program.code.routines[0].ops);
    let directory = Directory::new(&other.store).expect("there is memory");
    let time = random.next() >> 32;
    let kernel = kernel(random, &other, time);
    let compiled = match compile(&other.program.code, 0, &other.store, &directory, &kernel) {
        Ok(compiled) => compiled,
        Err(error) => panic!("{error}: {program}"),
    };
    memory.fill(&compiled);
    for _ in 0..HITS {
        let mut hit = Hit::random(random);
        hit.words[3] = time;
        let _mask = IrqMask::new();
        hit::run(&interpreted.program.code, 0, &interpreted.store, &*hit);
        memory.call(&hit);
    }
    let (expected, found) = (interpreted.report(), other.report());
    Some(Outcome { interpreted, compiled, expected, found })
}

test!(
    fn random_programs_do_what_the_interpreter_does() {
        let seed = parameter("RANDOM_SEED", option_env!("RANDOM_SEED"), 0x5eed);
        let count =
            parameter("RANDOM_PROGRAMS", option_env!("RANDOM_PROGRAMS"), if is_thorough() { 1_000 } else { 250 });
        println!("seed {seed}, {count} programs, {HITS} hits each");
        let mut random = Random::new(seed);
        let memory = Memory::new();
        let (mut words, mut calls, mut done) = (0, 0, 0);
        while done < count {
            let program = programs::sound(&mut random);
            let Some(outcome) = run_both(&program, &mut random, &memory, |_| ()) else { continue };
            let Outcome { interpreted, compiled, expected, found } = outcome;
            assert!(expected == found, "{program}\n{}{expected}but instructions make\n{found}", interpreted.program);
            words += compiled.words.len();
            calls += compiled.calls.len();
            done += 1;
        }
        println!("{words} words, {calls} calls");
    }
);

/// Returns an op with another effect than `op`.
fn broken(op: Op) -> Op {
    match op {
        Op::Set { to, .. }
        | Op::Load { to, .. }
        | Op::Comm { to }
        | Op::Stack { to, .. }
        | Op::Compute { to, .. }
        | Op::Extend { to, .. }
        | Op::Compare { to, .. }
        | Op::Differ { to, .. }
        | Op::Read { to, .. }
        | Op::ReadText { to, .. }
        | Op::ReadBytes { to, .. }
        | Op::Find { to, .. }
        | Op::Length { to, .. }
        | Op::Frames { to, .. }
        | Op::Has { to, .. }
        | Op::Keys { to, .. }
        | Op::Get { to, .. }
        | Op::Total { to, .. }
        | Op::Modify { to, .. } => Op::Set { to, from: Operand::Constant(0x5eed_5eed) },
        Op::Copy { .. }
        | Op::Branch { .. }
        | Op::Jump { .. }
        | Op::Again { .. }
        | Op::Next { .. }
        | Op::Put { .. }
        | Op::Collect { .. }
        | Op::Delete { .. }
        | Op::Emit { .. }
        | Op::Exit { .. } => Op::Copy { to: Word(0), from: Word(0), words: 0 },
    }
}

/// Returns where the program has ops of these kinds. `None` if it exceeds the limits of the language.
fn places_of(program: &str, is_wanted: impl Fn(&Op) -> bool) -> Option<Vec<usize>> {
    let program = parse(program).and_then(|tree| check(&tree, &SimulatedImage)).ok()?;
    let ops = &program.code.routines[0].ops;
    Some((0..ops.len()).filter(|&at| is_wanted(&ops[at])).collect())
}

test!(
    fn an_op_of_any_kind_that_is_compiled_wrong_makes_a_difference() {
        const KINDS: [&str; 27] = [
            "Set",
            "Copy",
            "Load",
            "Comm",
            "Stack",
            "Compute",
            "Extend",
            "Compare",
            "Differ",
            "Branch",
            "Jump",
            "Read",
            "ReadText",
            "Get",
            "Total",
            "Put",
            "Modify",
            "Collect",
            "Delete",
            "Emit",
            "Exit",
            "ReadBytes",
            "Find",
            "Length",
            "Frames",
            "Has",
            "Keys",
        ];
        let mut random = Random::new(3);
        let memory = Memory::new();
        let mut unnoticed = Vec::from(KINDS);
        for _ in 0..20_000 {
            if unnoticed.is_empty() {
                break;
            }
            let program = programs::sound(&mut random);
            let of = |op: &Op| unnoticed.iter().position(|kind| format!("{op:?}").split(' ').next() == Some(kind));
            let Some(places) = places_of(&program, |op| of(op).is_some()) else { continue };
            let Some(&at) = places.get(random.value() as usize % places.len().max(1)) else { continue };
            let mut kind = None;
            let outcome = run_both(&program, &mut random, &memory, |ops| {
                kind = of(&ops[at]);
                ops[at] = broken(ops[at]);
            });
            if let (Some(kind), Some(outcome)) = (kind, outcome)
                && outcome.expected != outcome.found
            {
                unnoticed.swap_remove(kind);
            }
        }
        assert_eq!(unnoticed, [""; 0]);
    }
);

test!(
    depends(cpus),
    fn cpus_that_change_the_same_values_lose_nothing() {
        const CALLS: u64 = 20_000;
        const PROGRAM: &str = "kprobe:f { @n++; @k[arg0 % 3]++; @kk[arg0 % 2, arg0 % 3] += 2; @c = count(); @h[arg0 % 5] = hist(arg0); \
             @p[arg0 % 300] = arg0 % 300; $p = @p[arg0 * 7 % 300]; if ($p != arg0 * 7 % 300 && $p) { @wrong++; } }";
        let cpus = smp::running().count();
        let loaded: &'static Loaded = Box::leak(Loaded::new(PROGRAM, &Limits::usual(cpus)).expect("it is right"));
        let directory: &'static Directory =
            Box::leak(Box::new(Directory::new(&loaded.store).expect("there is memory")));
        let kernel = Kernel { cpus, ..kernel(&mut Random::new(1), loaded, 0) };
        let memory: &'static Memory = Box::leak(Box::new(Memory::new()));
        memory.fill(&compile(&loaded.program.code, 0, &loaded.store, directory, &kernel).expect("it is short"));
        let call = |cpu: usize| {
            move || {
                let mut hit = Hit::random(&mut Random::new(2));
                hit.cpu = cpu as u64;
                for number in 0..CALLS {
                    hit.registers = [number; 34];
                    let _mask = IrqMask::new();
                    memory.call(&hit);
                }
            }
        };
        let tasks: Vec<JoinHandle> = smp::running().map(|cpu| task::spawn_on(cpu, "caller", call(cpu))).collect();
        tasks.into_iter().for_each(JoinHandle::join);
        let all = CALLS * cpus as u64;
        // A value that was stored is read as a whole, and is the value for its key.
        let put: u64 = (0..300).sum();
        for (map, total) in [(0, all), (1, all), (2, 2 * all), (3, all), (4, all), (5, put), (6, 0)] {
            let values = loaded
                .store
                .read(map, loaded.program.code.maps[map].value, &masked)
                .expect("there is memory for a copy");
            assert_eq!(
                values.iter().flat_map(|(_, value)| value).sum::<u64>(),
                total,
                "{:?}",
                loaded.program.code.maps[map]
            );
        }
    }
);
