//! The tests on the target. Every test has a machine of its own, so that none can affect another, and a machine that
//! hangs is one result. All results are derived from the UART.

use std::{ffi::OsString, path::Path};

use anyhow::Result;

use super::{
    boot,
    keys::Keys,
    network,
    pool::{BuildContext, Job},
    protocol::{Listing, Trial},
    report::{Finished, Outcome},
    select::{Demands, Trait},
    sessions,
    wanted::Wanted,
};
use crate::{
    bench,
    board::{self, BASE, Board, Configuration, Interruption, Overrides, Traits},
    dialogue::{Subject, converse},
    machine::{Start, value_of},
    workspace,
};

/// A dialogue with a machine that gives the result of a test.
pub enum Dialogue {
    Trial(Trial),
    Other(Box<dyn Subject<()> + Send>),
}

impl Dialogue {
    /// Starts the machine and talks to it. There may be `seconds` between one line and the next.
    pub fn with(self, start: &dyn Start, seconds: u64) -> Result<Outcome, String> {
        match self {
            Self::Trial(mut trial) => converse(start, seconds, &mut trial),
            Self::Other(mut subject) => converse(start, seconds, &mut *subject).map(|()| Outcome::Passed),
        }
    }
}

/// A configuration, with its prefix and traits.
pub struct NamedConfiguration<'a> {
    pub board: &'a Board,
    configuration: &'a Configuration,
    /// The prefix of the names of the tests in it.
    prefix: String,
    traits: Traits,
}

impl NamedConfiguration<'_> {
    /// Whether this is the board without any variation.
    pub fn is_base(&self) -> bool {
        self.configuration.name == BASE
    }

    /// Returns the options of a command line that choose it.
    pub fn options(&self) -> [String; 4] {
        ["--board", &self.board.name, "--configuration", &self.configuration.name].map(String::from)
    }

    /// Returns QEMU's arguments to boot `image` in it.
    pub fn arguments(&self, image: &Path) -> Result<Vec<OsString>> {
        self.arguments_with(&Overrides::default(), image)
    }

    fn arguments_with(&self, overrides: &Overrides, image: &Path) -> Result<Vec<OsString>> {
        self.board.arguments(self.configuration, overrides, image)
    }
}

/// The share of the host that a test takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    /// A core for each CPU of the configuration.
    Cpus,
    /// One core: the machine has one CPU, whatever the configuration has.
    OneCpu,
    /// Little: it waits most of the time, as for clients or for a dead line.
    Patient,
}

/// One test in one configuration.
pub struct Candidate<'a> {
    /// The index of the configuration.
    configuration: usize,
    /// The name without the prefix.
    name: String,
    demands: Demands,
    load: Load,
    run: Box<dyn FnOnce() -> Result<Outcome, String> + Send + 'a>,
}

impl<'a> Candidate<'a> {
    /// Creates the test `name` in the configuration with this index.
    pub fn new(
        configuration: usize,
        name: String,
        demands: Demands,
        run: impl FnOnce() -> Result<Outcome, String> + Send + 'a,
    ) -> Self {
        Self { configuration, name, demands, load: Load::Cpus, run: Box::new(run) }
    }

    /// Creates a test whose error may have a context.
    pub fn try_new(
        configuration: usize,
        name: impl Into<String>,
        demands: Demands,
        run: impl FnOnce() -> Result<Outcome> + Send + 'a,
    ) -> Self {
        Self::new(configuration, name.into(), demands, move || run().map_err(|error| format!("{error:#}")))
    }

    /// Sets what it takes of the host.
    fn with(self, load: Load) -> Self {
        Self { load, ..self }
    }

    /// Says that it waits most of the time, and takes no core of the host.
    pub fn patient(self) -> Self {
        self.with(Load::Patient)
    }

    /// Creates a test by a dialogue with a machine. The error of `subject` says why there can be no dialogue.
    fn talk(
        configuration: usize,
        name: String,
        demands: Demands,
        machine: impl Start + Send + 'a,
        subject: Result<Dialogue, String>,
        seconds: u64,
    ) -> Self {
        Self::new(configuration, name, demands, move || subject.and_then(|subject| subject.with(&machine, seconds)))
    }
}

/// When a job begins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Before all waiting jobs. This is for jobs that take long, so that no core waits for them at the end.
    First,
    /// After all jobs that were added before.
    Last,
}

/// All tests on machines, and the configurations for them.
pub struct Targets<'a> {
    pub configurations: Vec<NamedConfiguration<'a>>,
    pub wanted: &'a Wanted,
    /// Whether every test runs in every configuration, and not only in those that can make a difference.
    pub is_thorough: bool,
    /// Whether some configurations were left out, so that there may be none for a test.
    pub is_narrowed: bool,
    /// How many seconds a machine may take from one line to the next.
    pub seconds: u64,
}

impl<'a> Targets<'a> {
    /// Adds a configuration.
    pub fn add(&mut self, board: &'a Board, configuration: &'a Configuration) -> Result<()> {
        let (prefix, traits) = (board.prefix(configuration), board.traits(configuration)?);
        self.configurations.push(NamedConfiguration { board, configuration, prefix, traits });
        Ok(())
    }

    /// Returns how many seconds the machine of a configuration may take from one line to the next. QEMU takes several
    /// times as long for the same where it translates each instruction alone.
    fn patience(&self, named: &NamedConfiguration<'_>) -> u64 {
        match named.traits.interruption {
            Interruption::Blocks => self.seconds,
            Interruption::Instructions => 4 * self.seconds,
        }
    }

    /// Returns how many CPUs the machine of a test has in a configuration. On several, QEMU takes up to ten times as
    /// long for the same, so a test that does not depend on their number runs on one. A thorough run also tries it on
    /// several: in the first configuration of each board that has as many.
    fn load(&self, named: &NamedConfiguration<'_>, demands: &Demands) -> Load {
        let has_as_many = |other: &&Configuration| named.board.cpus(other) == named.traits.cpus;
        let first = named.board.configurations.iter().find(has_as_many);
        let is_first = first.is_some_and(|first| first.name == named.configuration.name);
        if demands.depends.contains(&Trait::Cpus) || self.is_thorough && is_first { Load::Cpus } else { Load::OneCpu }
    }

    /// Returns the configurations in which a test takes its long form: in a thorough run, those in which a usual run has
    /// the test. In the others its result should be the same, and the short form is enough to notice that it is not.
    fn long_in(&self, demands: &Demands) -> Vec<usize> {
        if !self.is_thorough {
            return Vec::new();
        }
        let traits: Vec<_> = self.configurations.iter().map(|named| named.traits.clone()).collect();
        demands.select(&traits)
    }

    /// Adds the tests of the tests image.
    pub fn add_listed(&'a self, context: &BuildContext<'_, 'a>, image: &Path) -> Result<()> {
        let Some(first) = self.configurations.first() else { return Ok(()) };
        let tests =
            converse(&first.arguments(image)?, self.seconds, &mut Listing::default()).map_err(anyhow::Error::msg)?;
        let long_in: Vec<_> = tests.iter().map(|test| self.long_in(&test.demands)).collect();
        let mut candidates = Vec::new();
        for (index, named) in self.configurations.iter().enumerate() {
            let (arguments, of_one_cpu) =
                (named.arguments(image)?, named.arguments_with(&Overrides::cpus(1, None), image)?);
            candidates.extend(tests.iter().zip(&long_in).map(|(test, long_in)| {
                let trial = Trial::new(test.clone(), named.traits.lacks.clone()).thorough(long_in.contains(&index));
                let trial = Dialogue::Trial(trial);
                let (name, demands) = (test.name.clone(), test.demands.clone());
                let load = self.load(named, &demands);
                let machine = if load == Load::OneCpu { of_one_cpu.clone() } else { arguments.clone() };
                Candidate::talk(index, name, demands, machine, Ok(trial), self.patience(named)).with(load)
            }));
        }
        self.begin(context, candidates, Order::Last);
        Ok(())
    }

    /// Adds all tests of the kernel itself: the program `elf` and its image `image`.
    pub fn add_kernel(&'a self, context: &BuildContext<'_, 'a>, elf: &Path, image: &Path) {
        let mut candidates = Vec::new();
        for (index, named) in self.configurations.iter().enumerate() {
            let name = format!("{}::kernel", named.prefix);
            candidates.extend(context.results.step(name, self.of_kernel(index, elf, image)).into_iter().flatten());
        }
        self.begin(context, candidates, Order::Last);
    }

    /// Returns the tests of the kernel in the configuration with this index.
    fn of_kernel(&'a self, index: usize, elf: &Path, image: &Path) -> Result<Vec<Candidate<'a>>> {
        let named = &self.configurations[index];
        let (arguments, patience) = (named.arguments(image)?, self.patience(named));
        let of_one_cpu = named.arguments_with(&Overrides::cpus(1, None), image)?;
        let console = |name: &str, demands: &Demands, reboots: bool, subject: Result<_, String>| {
            let load = self.load(named, demands);
            let machine = if load == Load::OneCpu { of_one_cpu.clone() } else { arguments.clone() };
            let machine = if reboots { board::with_reboot(machine) } else { machine };
            let (name, subject) = (format!("console::{name}"), subject.map(Dialogue::Other));
            Candidate::talk(index, name, demands.clone(), machine, subject, patience).with(load)
        };
        let mut candidates = Vec::new();
        let profile = workspace::other_profile();
        let cpus = named.traits.cpus;
        let plain = named.board.cpus(named.board.configuration(BASE)?);
        for session in sessions::all(&named.board.name, cpus, cpus == plain)? {
            let of_other_profile = profile.as_ref().filter(|_| session.is_of_default_profile);
            let of_other_profile = of_other_profile
                .map(|profile| format!("it is for images of the default profile, but {profile} is set"));
            let lacking = session.demands.lacking(&named.traits).map(|need| format!("no {need}"));
            candidates.push(match of_other_profile.or(lacking) {
                Some(reason) => {
                    let name = format!("console::{}", session.name);
                    let skipped = move || Ok(Outcome::Skipped(reason));
                    Candidate::new(index, name, session.demands.clone(), skipped)
                }
                None => console(&session.name, &session.demands, false, session.subject()),
            });
        }
        let (of_board, of_nothing) = (Demands::on(&[Trait::Board]), Demands::default());
        let is_long = |demands| self.long_in(demands).contains(&index);
        candidates.extend([
            console("garbage", &of_board, false, sessions::garbage(is_long(&of_board))),
            console("keys", &of_nothing, false, Ok(Box::new(Keys::default()))),
            console("reboot", &Demands::on(&[Trait::Board, Trait::Cpus]), true, sessions::special("reboot")),
            console("blanks", &of_nothing, true, sessions::blanks(is_long(&of_nothing))),
        ]);
        for boot in boot::all(named.board, named.configuration, elf, image)? {
            let (name, subject) = (format!("boot::{}", boot.name), boot.subject.map(Dialogue::Other));
            candidates.push(Candidate::talk(index, name, boot.demands, boot.arguments, subject, patience));
        }
        let mut captures = image.as_os_str().to_owned();
        captures.push(format!(".captures/{}-{}", named.board.name, named.configuration.name));
        for trial in network::all(named.board, named.configuration, &arguments, captures.as_ref())? {
            let (name, subject) = (format!("network::{}", trial.name), trial.subject.map(Dialogue::Other));
            let candidate = Candidate::talk(index, name, trial.demands, trial.machine, subject, patience);
            candidates.push(if trial.is_patient { candidate.patient() } else { candidate });
        }
        Ok(candidates)
    }

    /// Adds every case of the benchmark. The machine affects the figures, but not whether a case works. On the machine
    /// of the page of figures, each case is measured, and compared with the page; elsewhere it runs once. The machine
    /// has one CPU, where the board allows that: on several, each change of a case waits for the others.
    pub fn add_benchmark(&'a self, context: &BuildContext<'_, 'a>, image: &Path) -> Result<()> {
        let (mut candidates, mut machines) = (Vec::new(), Vec::new());
        for (index, named) in self.configurations.iter().enumerate() {
            let mut arguments = named.arguments_with(&Overrides::cpus(1, None), image)?;
            // The size of the memory goes by the number of CPUs of the configuration, and is enough in each.
            let mut machine = arguments.clone();
            value_of(&mut machine, "-m")?.clear();
            let subject = if named.is_base() && named.board.name == board::DEFAULT {
                arguments.extend(bench::COUNT_INSTRUCTIONS.map(OsString::from));
                bench::Rehearsal::of_page(self.is_thorough)?
            } else {
                bench::Rehearsal::default()
            };
            let subject = Dialogue::Other(Box::new(subject));
            let (name, demands) = ("bench::cases".into(), Demands::default());
            let candidate = Candidate::talk(index, name, demands, arguments, Ok(subject), self.patience(named));
            // With one CPU, configurations that differ only in the number of CPUs are one machine, so a thorough run
            // needs only the first. A candidate that is not asked for, or is large, may not run, so it cannot stand for
            // another.
            let may_run = self.wanted.has(&self.full_name(&candidate)) && !named.configuration.is_large;
            if !(may_run && machines.contains(&machine)) {
                candidates.push(candidate.with(Load::OneCpu));
            }
            if may_run {
                machines.push(machine);
            }
        }
        self.begin(context, candidates, Order::First);
        Ok(())
    }

    /// Adds the candidates that `of` returns for each configuration with its index, or lists them. An error is that of
    /// the step `name`, and there is no candidate then.
    pub fn add_each(
        &'a self,
        context: &BuildContext<'_, 'a>,
        name: &str,
        of: impl Fn(usize, &'a NamedConfiguration<'a>) -> Result<Vec<Candidate<'a>>>,
    ) {
        let candidates = self.configurations.iter().enumerate().map(|(index, named)| of(index, named));
        if let Some(candidates) = context.results.step(name, candidates.collect::<Result<Vec<_>>>()) {
            self.begin(context, candidates.into_iter().flatten().collect(), Order::Last);
        }
    }

    /// Adds the candidates that must run, or lists them.
    pub fn begin(&'a self, context: &BuildContext<'_, 'a>, candidates: Vec<Candidate<'a>>, order: Order) {
        let mut tests: Vec<(String, Vec<Candidate<'a>>)> = Vec::new();
        for candidate in candidates {
            match tests.iter_mut().find(|(name, _)| *name == candidate.name) {
                Some((_, same)) => same.push(candidate),
                None => tests.push((candidate.name.clone(), vec![candidate])),
            }
        }
        for (name, candidates) in tests {
            self.begin_one(context, &name, candidates, order);
        }
    }

    /// Adds one test in the configurations in which it must run, out of those in which it can.
    fn begin_one(
        &'a self,
        context: &BuildContext<'_, 'a>,
        name: &str,
        mut candidates: Vec<Candidate<'a>>,
        order: Order,
    ) {
        let Some(first) = candidates.first() else { return };
        let (home, demands) = (self.full_name(first), first.demands.clone());
        let traits: Vec<_> =
            candidates.iter().map(|one| self.configurations[one.configuration].traits.clone()).collect();
        let selected = demands.select(&traits);
        if selected.is_empty() && (!self.is_thorough || !self.is_narrowed) {
            if self.wanted.has(&home) {
                let need = demands.needs.unwrap_or_default();
                let missing = format!("{name} runs nowhere: no configuration has what it needs: {need}");
                match self.is_narrowed {
                    true if context.is_listing() => context.results.list(missing, 0),
                    true => context.results.add(Finished::skipped(home, format!("no {need}"))),
                    false => context.results.step_failed(home, missing),
                }
            }
            return;
        }
        let mut index = 0;
        candidates.retain(|candidate| {
            index += 1;
            let is_large = self.configurations[candidate.configuration].configuration.is_large;
            let is_thorough = self.is_thorough && (!is_large || demands.depends.contains(&Trait::Cpus));
            (is_thorough || selected.contains(&(index - 1))) && self.wanted.has(&self.full_name(candidate))
        });
        if context.is_listing() {
            let prefixes: Vec<_> =
                candidates.iter().map(|one| self.configurations[one.configuration].prefix.as_str()).collect();
            if !prefixes.is_empty() {
                context.results.list(format!("{name}: {} ({demands})", prefixes.join(" ")), prefixes.len());
            }
            return;
        }
        for candidate in candidates {
            let full = self.full_name(&candidate);
            let name = full.clone();
            let run: Job<'a> = Box::new(move |results| results.time(full, candidate.run));
            let add = if order == Order::First { BuildContext::add_first } else { BuildContext::add };
            match candidate.load {
                Load::Cpus => {
                    add(context, name, self.configurations[candidate.configuration].traits.cpus as usize, run)
                }
                Load::OneCpu => add(context, name, 1, run),
                Load::Patient => context.add_patient(name, run),
            }
        }
    }

    fn full_name(&self, candidate: &Candidate<'_>) -> String {
        format!("{}::{}", self.configurations[candidate.configuration].prefix, candidate.name)
    }
}

#[cfg(test)]
mod tests {
    use super::{Board, Demands, Load, NamedConfiguration, Targets, Trait, Wanted};
    use crate::test::pool::{Pool, WorkerMessage};

    /// Returns the targets with all configurations of these boards.
    fn all<'a>(boards: &'a [Board], wanted: &'a Wanted, is_thorough: bool) -> Targets<'a> {
        let mut targets = Targets { configurations: Vec::new(), wanted, is_thorough, is_narrowed: false, seconds: 1 };
        for board in boards {
            board.configurations.iter().for_each(|one| targets.add(board, one).unwrap());
        }
        targets
    }

    /// Returns the line of the list about the benchmark.
    fn listed(filter: Option<&str>, is_thorough: bool) -> String {
        let (boards, wanted) = (Board::emulated().unwrap(), Wanted::new(filter.map(String::from), false, []));
        let targets = all(&boards, &wanted, is_thorough);
        let pool = Pool::new(1, true);
        pool.add("benchmark", |context| targets.add_benchmark(context, "k.img".as_ref()).unwrap());
        let mut lines = Vec::new();
        pool.run(|message| {
            if let WorkerMessage::Listed(line, count) = message {
                assert_eq!(count, line.split(' ').count() - 4);
                lines.push(line);
            }
        });
        lines.concat()
    }

    #[test]
    fn a_thorough_run_tries_every_test_on_several_cpus_of_each_board() {
        let boards = Board::emulated().unwrap();
        let with_all_cpus = |depends, is_thorough| {
            let (wanted, demands) = (Wanted::new(None, false, []), Demands::on(&[depends]));
            let targets = all(&boards, &wanted, is_thorough);
            let has_all = |named: &&NamedConfiguration<'_>| targets.load(named, &demands) == Load::Cpus;
            targets.configurations.iter().filter(has_all).map(|named| named.prefix.clone()).collect::<Vec<_>>()
        };
        assert_eq!(with_all_cpus(Trait::Core, false), [""; 0]);
        let several = with_all_cpus(Trait::Core, true);
        for (one, is_there) in [("qemu-virt/base-smp4", true), ("qemu-virt/el2", false), ("rpi3", true), ("rpi4", true)]
        {
            assert_eq!(several.iter().any(|prefix| prefix == one), is_there, "{one}: {several:?}");
        }
        assert!(with_all_cpus(Trait::Cpus, false).contains(&"qemu-virt/el2".to_string()));
    }

    #[test]
    fn a_test_is_long_where_a_usual_run_has_it() {
        let boards = Board::emulated().unwrap();
        let long_in = |depends: &[Trait], is_thorough| {
            let wanted = Wanted::new(None, false, []);
            let targets = all(&boards, &wanted, is_thorough);
            let long_in = targets.long_in(&Demands::on(depends));
            long_in.into_iter().map(|index| targets.configurations[index].prefix.clone()).collect::<Vec<_>>()
        };
        assert_eq!(long_in(&[Trait::Core], false), [""; 0]);
        assert_eq!(long_in(&[], true), ["qemu-virt"]);
        assert_eq!(long_in(&[Trait::Entry], true), ["qemu-virt", "qemu-virt/el2"]);
        assert!(long_in(&[Trait::Cpus], true).contains(&"qemu-virt/smp32".to_string()));
    }

    #[test]
    fn the_benchmark_runs_once_on_each_machine_of_one_cpu() {
        assert_eq!(listed(None, false), "bench::cases: qemu-virt (depends on nothing)");
        let all = listed(None, true);
        for (one, is_listed) in
            [("", true), ("/base-smp4", false), ("/a53", true), ("/a53-smp1", false), ("/el2", true)]
        {
            assert_eq!(all.contains(&format!(" qemu-virt{one} ")), is_listed, "{one}: {all}");
        }
        assert!(all.contains(" rpi3 ") && !all.contains("smp"), "{all}");
        let asked_for = listed(Some("smp1::bench"), true);
        assert!(["qemu-virt/a53-smp1", "rpi3/smp1"].iter().all(|one| asked_for.contains(one)), "{asked_for}");
    }
}
