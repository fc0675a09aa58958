//! Runs the work of a test run in parallel, so that the cores of the host are busy until the end.
//!
//! There are two kinds of work. Builds run Cargo, which locks its target directory, so they run one at a time, in the
//! order in which they were given. A build adds the jobs that it makes possible, so machines run while Cargo still
//! compiles. Jobs are independent of each other, and begin in the order in which they were added, with one exception:
//! see below.
//!
//! A job takes a core for each CPU of its machine, up to half of the cores but at least two: CPUs that wait for each
//! other spin, so several machines on the same cores hold each other up. While such a machine runs, jobs for one core
//! may pass one for which there is no room, and use what is left. Once no such machine runs, no job passes another.
//! Patient jobs, which wait most of the time, take no core. One of them for two cores runs beside the others. Builds
//! use what the jobs leave: Cargo may use every core, with a lower priority. Jobs take one core more than there is
//! while nothing is built, for what waits for a line or a clock.

use std::{
    any::Any,
    collections::VecDeque,
    fmt::Display,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        mpsc::{self, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::process::nice;

use super::report::{Finished, Outcome};

/// A job, which reports its results itself.
pub type Job<'a> = Box<dyn FnOnce(&Results) + Send + 'a>;
/// A build, which adds jobs and may report results.
type Build<'a> = Box<dyn FnOnce(&BuildContext<'_, 'a>) + Send + 'a>;

/// A message from a worker.
pub enum WorkerMessage {
    Finished(Finished),
    /// The time that a build took.
    Built(String, Duration),
    /// When tests are listed: a line about a test, and how often it runs.
    Listed(String, usize),
}

/// Where workers send results.
#[derive(Clone)]
pub struct Results(Sender<WorkerMessage>);

impl Results {
    fn send(&self, message: WorkerMessage) {
        // The receiver outlives every worker: `Pool::run` holds it until all senders are gone.
        let _ = self.0.send(message);
    }

    /// Reports the result of a test.
    pub fn add(&self, finished: Finished) {
        self.send(WorkerMessage::Finished(finished));
    }

    /// Runs a test, and reports its result and how long it took.
    pub fn time(&self, name: String, test: impl FnOnce() -> Result<Outcome, String>) {
        let start = Instant::now();
        let outcome = test();
        self.add(Finished::test(name, outcome, start.elapsed()));
    }

    /// Reports that a step failed on which tests depend.
    pub fn step_failed(&self, name: impl Into<String>, error: impl Display) {
        self.add(Finished::failed_step(name, format!("{error:#}")));
    }

    /// Returns the value of a step on which tests depend, or reports its error.
    pub fn step<T>(&self, name: impl Into<String>, result: Result<T, impl Display>) -> Option<T> {
        result.map_err(|error| self.step_failed(name, error)).ok()
    }

    /// Reports, when tests are listed, a test that runs `count` times.
    pub fn list(&self, line: String, count: usize) {
        self.send(WorkerMessage::Listed(line, count));
    }
}

/// What a build may use: the pool and the results.
pub struct BuildContext<'p, 'a> {
    pool: &'p Pool<'a>,
    /// Where results go.
    pub results: &'p Results,
}

impl<'a> BuildContext<'_, 'a> {
    /// Whether tests are listed instead of run.
    pub fn is_listing(&self) -> bool {
        self.pool.is_listing
    }

    /// Adds a test for one CPU, or lists it.
    pub fn add_test(&self, name: impl Into<String>, test: impl FnOnce() -> Result<Outcome, String> + Send + 'a) {
        let name = name.into();
        match self.is_listing() {
            true => self.results.list(name, 1),
            false => self.add(name.clone(), 1, Box::new(move |results| results.time(name, test))),
        }
    }

    /// Adds a job for `cpus` CPUs. A panic of the job becomes the result of the test `name`.
    pub fn add(&self, name: String, cpus: usize, job: Job<'a>) {
        let cores = self.pool.cores_for(cpus);
        self.pool.lock().jobs.push_back(Waiting { name, cores, job });
        self.pool.changed.notify_all();
    }

    /// Adds a job that begins before all waiting jobs.
    pub fn add_first(&self, name: String, cpus: usize, job: Job<'a>) {
        let cores = self.pool.cores_for(cpus);
        self.pool.lock().jobs.push_front(Waiting { name, cores, job });
        self.pool.changed.notify_all();
    }

    /// Adds a patient job.
    pub fn add_patient(&self, name: String, job: Job<'a>) {
        self.pool.lock().patient_jobs.push_back(Waiting { name, cores: 0, job });
        self.pool.changed.notify_all();
    }
}

/// The work that remains, and the number of the host's cores.
pub struct Pool<'a> {
    cores: usize,
    /// Whether tests are listed instead of run.
    is_listing: bool,
    work: Mutex<Work<'a>>,
    changed: Condvar,
}

#[derive(Default)]
struct Work<'a> {
    builds: VecDeque<(&'static str, Build<'a>)>,
    is_building: bool,
    jobs: VecDeque<Waiting<'a>>,
    /// The cores of the jobs that run now.
    used: usize,
    /// The number of those that take several cores.
    large: usize,
    patient_jobs: VecDeque<Waiting<'a>>,
    /// The number of patient jobs that run now.
    patient: usize,
}

impl Work<'_> {
    /// Records the end of a job that took this number of cores.
    fn end(&mut self, cores: usize) {
        match cores {
            0 => self.patient -= 1,
            _ => self.used -= cores,
        }
        self.large -= usize::from(cores > 1);
    }
}

/// A job that has not begun.
struct Waiting<'a> {
    name: String,
    /// The number of cores that it takes; 0 for a patient job.
    cores: usize,
    job: Job<'a>,
}

/// How much less urgent builds are than jobs, as for `nice`: beside two jobs on two cores, a build gets a quarter of
/// the time.
const NICE: i32 = 5;

impl<'a> Pool<'a> {
    /// Creates a pool for a host with this number of cores.
    pub fn new(cores: usize, is_listing: bool) -> Self {
        Self { cores, is_listing, work: Mutex::default(), changed: Condvar::new() }
    }

    fn cores_for(&self, cpus: usize) -> usize {
        cpus.clamp(1, (self.cores / 2).max(2))
    }

    /// Returns the number of patient jobs that may run at once.
    fn patient_max(&self) -> usize {
        (self.cores / 2).max(1)
    }

    /// Adds a build, after those that were added before.
    pub fn add(&self, name: &'static str, build: impl FnOnce(&BuildContext<'_, 'a>) + Send + 'a) {
        self.lock().builds.push_back((name, Box::new(build)));
    }

    /// Adds a build that these tests need, if there are any. Tests that are listed need no build.
    pub fn add_for(
        &self,
        tests: Vec<String>,
        name: &'static str,
        build: impl FnOnce(&BuildContext<'_, 'a>) + Send + 'a,
    ) {
        if !tests.is_empty() {
            self.add(name, move |context| match context.is_listing() {
                true => tests.into_iter().for_each(|test| context.results.list(test, 1)),
                false => build(context),
            });
        }
    }

    /// Adds a test that runs Cargo, which is a build for that reason.
    pub fn add_check(&self, name: &'static str, check: impl FnOnce() -> Result<Outcome, String> + Send + 'a) {
        self.add_for(vec![name.into()], name, move |context| context.results.time(name.into(), check));
    }

    fn lock(&self) -> MutexGuard<'_, Work<'a>> {
        // Every change of the lists is one call, so a panic leaves them whole.
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does all of the work, and calls `hear` with each message from the workers.
    pub fn run(self, mut hear: impl FnMut(WorkerMessage)) {
        let (sender, message) = mpsc::channel();
        thread::scope(|scope| {
            let pool = &self;
            let results = Results(sender.clone());
            scope.spawn(move || pool.build(&results));
            // One for each core that is given away, and for each patient job.
            for _ in 0..self.cores + 1 + self.patient_max() {
                let results = Results(sender.clone());
                scope.spawn(move || pool.work(&results));
            }
            drop(sender);
            message.iter().for_each(&mut hear);
        });
    }

    /// Runs the builds.
    fn build(&self, results: &Results) {
        // Linux does this for the thread alone, and the processes that it starts. Where it fails, builds are as urgent
        // as jobs.
        let _ = nice(NICE);
        while let Some((name, build)) = self.next_build() {
            let start = Instant::now();
            let context = BuildContext { pool: self, results };
            match catch_unwind(AssertUnwindSafe(|| build(&context))) {
                Ok(()) => results.send(WorkerMessage::Built(name.into(), start.elapsed())),
                Err(panic) => results.step_failed(name, sentence_of(&*panic)),
            }
        }
        self.changed.notify_all();
    }

    /// Takes the next build. `None` if there is none: builds add only jobs.
    fn next_build(&self) -> Option<(&'static str, Build<'a>)> {
        let mut work = self.lock();
        let next = work.builds.pop_front();
        work.is_building = next.is_some();
        next
    }

    /// Runs jobs.
    fn work(&self, results: &Results) {
        while let Some(Waiting { name, cores, job }) = self.next() {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job(results))) {
                results.step_failed(name, sentence_of(&*panic));
            }
            self.lock().end(cores);
            self.changed.notify_all();
        }
    }

    /// Waits for a job. `None` if none is left, and no build could add one.
    fn next(&self) -> Option<Waiting<'a>> {
        let mut work = self.lock();
        loop {
            if let Some(next) = self.take(&mut work) {
                return Some(next);
            }
            let is_building = work.is_building || !work.builds.is_empty();
            if !is_building && work.jobs.is_empty() && work.patient_jobs.is_empty() {
                return None;
            }
            work = self.changed.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes the next job that may begin now.
    fn take(&self, work: &mut Work<'a>) -> Option<Waiting<'a>> {
        if work.patient < self.patient_max()
            && let Some(job) = work.patient_jobs.pop_front()
        {
            work.patient += 1;
            return Some(job);
        }
        let cores = if work.is_building { self.cores } else { self.cores + 1 };
        let room = cores.saturating_sub(work.used);
        let next = match work.jobs.front()? {
            first if first.cores <= room => 0,
            _ if work.large > 0 && room > 0 => work.jobs.iter().position(|job| job.cores == 1)?,
            _ => return None,
        };
        let job = work.jobs.remove(next)?;
        work.used += job.cores;
        work.large += usize::from(job.cores > 1);
        Some(job)
    }
}

/// Returns the message of a panic.
fn sentence_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the test command panicked: {}", text.unwrap_or("no message was given"))
}

#[cfg(test)]
mod tests {
    use std::{
        iter,
        sync::{
            Barrier,
            atomic::{AtomicUsize, Ordering::SeqCst},
        },
        time::Duration,
    };

    use super::{BuildContext, Outcome, Pool, Results, Work, WorkerMessage};
    use crate::test::report::Finished;

    fn passed(results: &Results, name: &str) {
        results.add(Finished::test(name, Ok(Outcome::Passed), Duration::ZERO));
    }

    /// Returns the names of the results, sorted, with failures marked.
    fn run(pool: Pool<'_>) -> Vec<String> {
        let mut names = Vec::new();
        pool.run(|message| {
            names.push(match message {
                WorkerMessage::Finished(finished) => match finished.outcome {
                    Ok(_) => finished.name,
                    Err(why) => format!("{}: {why}", finished.name),
                },
                WorkerMessage::Built(name, _) | WorkerMessage::Listed(name, _) => name,
            })
        });
        names.sort();
        names
    }

    /// Ends a job that took this number of cores, if there is one, and returns the names of the jobs that begin then.
    fn taken<'a>(pool: &Pool<'a>, work: &mut Work<'a>, ends: Option<usize>) -> Vec<String> {
        ends.into_iter().for_each(|cores| work.end(cores));
        iter::from_fn(|| pool.take(work)).map(|job| job.name).collect()
    }

    #[test]
    fn builds_run_in_order_and_one_at_a_time() {
        let (running, next) = &(AtomicUsize::new(0), AtomicUsize::new(0));
        let pool = Pool::new(6, false);
        for (number, name) in ["a", "b", "c"].into_iter().enumerate() {
            pool.add(name, move |_| {
                assert_eq!((running.fetch_add(1, SeqCst), next.fetch_add(1, SeqCst)), (0, number));
                running.fetch_sub(1, SeqCst);
            });
        }
        assert_eq!(run(pool), ["a", "b", "c"]);
    }

    #[test]
    fn jobs_run_beside_the_build_that_added_them() {
        let together = &Barrier::new(2);
        let pool = Pool::new(2, false);
        pool.add("build", move |context| {
            let job = move |results: &Results| {
                together.wait();
                passed(results, "job");
            };
            context.add("job".into(), 1, Box::new(job));
            together.wait();
        });
        assert_eq!(run(pool), ["build", "job"]);
    }

    #[test]
    fn a_machine_of_several_cpus_waits_for_room_and_those_behind_it_wait_too() {
        let pool = Pool::new(2, false);
        let results = &Results(std::sync::mpsc::channel().0);
        let context = BuildContext { pool: &pool, results };
        for cpus in [1, 1, 4, 1] {
            context.add(cpus.to_string(), cpus, Box::new(|_| {}));
        }
        let mut work = pool.lock();
        let mut taken = |ends| taken(&pool, &mut work, ends);
        assert_eq!(taken(None), ["1", "1"]);
        assert_eq!(taken(Some(1)), ["4"]);
        assert!(taken(None).is_empty());
        assert_eq!(taken(Some(2)), ["1"]);
    }

    #[test]
    fn jobs_for_one_core_pass_a_machine_that_waits_for_another() {
        let pool = Pool::new(2, false);
        let results = &Results(std::sync::mpsc::channel().0);
        let context = BuildContext { pool: &pool, results };
        for (number, cpus) in [4, 4, 1, 1, 4].into_iter().enumerate() {
            context.add(number.to_string(), cpus, Box::new(|_| {}));
        }
        let mut work = pool.lock();
        let mut taken = |ends| taken(&pool, &mut work, ends);
        assert_eq!(taken(None), ["0", "2"]);
        assert_eq!(taken(Some(1)), ["3"]);
        assert_eq!(taken(Some(2)), ["1"]);
        assert!(taken(Some(1)).is_empty());
        assert_eq!(taken(Some(2)), ["4"]);
    }

    #[test]
    fn patient_jobs_run_beside_those_that_take_all_cores() {
        let pool = Pool::new(2, false);
        let results = &Results(std::sync::mpsc::channel().0);
        let context = BuildContext { pool: &pool, results };
        for cpus in [1, 2, 1] {
            context.add(cpus.to_string(), cpus, Box::new(|_| {}));
        }
        for name in ["patient", "more patient"] {
            context.add_patient(name.into(), Box::new(|_| {}));
        }
        let mut work = pool.lock();
        let mut taken = |ends| taken(&pool, &mut work, ends);
        assert_eq!(taken(None), ["patient", "1", "2"]);
        assert_eq!(taken(Some(0)), ["more patient"]);
        assert_eq!(taken(Some(1)), ["1"]);
        assert!(taken(Some(0)).is_empty());
    }

    #[test]
    fn all_jobs_of_all_builds_are_done() {
        let pool = Pool::new(1, false);
        for name in ["a", "b"] {
            pool.add(name, move |context| {
                for number in 0..3 {
                    let name = format!("{name}{number}");
                    context.add(name.clone(), 1, Box::new(move |results| passed(results, &name)));
                    let patient = format!("{number}");
                    context.add_patient(patient.clone(), Box::new(move |results| passed(results, &patient)));
                }
            });
        }
        assert_eq!(run(pool), ["0", "0", "1", "1", "2", "2", "a", "a0", "a1", "a2", "b", "b0", "b1", "b2"]);
    }

    #[test]
    fn listed_tests_need_no_build() {
        let pool = Pool::new(1, true);
        pool.add_for(vec!["a".into(), "b".into()], "build", |_| panic!("it is built"));
        pool.add_for(Vec::new(), "build of nothing", |_| panic!("it is built"));
        pool.add("image", |context| context.add_test("c", || panic!("it runs")));
        assert_eq!(run(pool), ["a", "b", "build", "c", "image"]);
    }

    #[test]
    fn a_panic_is_a_result_and_the_rest_goes_on() {
        let pool = Pool::new(2, false);
        pool.add("a", |context| {
            for name in ["one", "two", "three"] {
                context.add(name.into(), 1, Box::new(move |_| panic!("on purpose in {name}")));
            }
            context.add("four".into(), 1, Box::new(|results| passed(results, "four")));
        });
        pool.add("b", |_| panic!("on purpose"));
        let panicked = |name: &str, text: &str| format!("{name}: the test command panicked: {text}");
        let expected = [
            "a".into(),
            panicked("b", "on purpose"),
            "four".into(),
            panicked("one", "on purpose in one"),
            panicked("three", "on purpose in three"),
            panicked("two", "on purpose in two"),
        ];
        assert_eq!(run(pool), expected);
    }
}
