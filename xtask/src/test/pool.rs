//! Does the work of a test run on all cores of the host, and no more than that at a time.
//!
//! There are two kinds of work. Builds run Cargo, which locks its target directory, so one runs at a time, in the
//! order in which they were given. A build adds the jobs that it makes possible. Jobs are independent of each other,
//! and are begun in the order in which they were added. So machines run while Cargo still compiles, each core is
//! busy until the end, and no test shares a core with more than the one that it has.

use std::{
    collections::VecDeque,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        mpsc::{self, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use super::report::{Finished, Outcome};

/// A job, which reports its results itself.
type Job<'a> = Box<dyn FnOnce(&Results) + Send + 'a>;
/// A build, which adds jobs and may report results.
type Build<'a> = Box<dyn FnOnce(&Site<'_, 'a>) + Send + 'a>;

/// What comes out of the pool.
pub enum News {
    Finished(Finished),
    /// A build took that long.
    Built(String, Duration),
    /// A test, instead of its result: a line about it, and how often it runs.
    Listed(String, usize),
}

/// Where results go.
#[derive(Clone)]
pub struct Results(Sender<News>);

impl Results {
    /// Reports what came of a test.
    pub fn add(&self, finished: Finished) {
        // The receiver outlives every job: `Pool::run` holds it until all senders are gone.
        let _ = self.0.send(News::Finished(finished));
    }

    /// Runs a test, and reports what came of it and how long it took.
    pub fn time(&self, name: String, test: impl FnOnce() -> Result<Outcome, String>) {
        let start = Instant::now();
        let outcome = test();
        self.add(Finished { name, outcome, duration: Some(start.elapsed()) });
    }

    /// Says that there is a test that runs `count` times.
    pub fn list(&self, line: String, count: usize) {
        let _ = self.0.send(News::Listed(line, count));
    }

    /// Reports what came of a test that cannot be skipped.
    pub fn result(&self, name: impl Into<String>, result: Result<(), String>) {
        self.add(Finished::new(name, result.map(|()| Outcome::Passed)));
    }
}

/// What a build works with.
pub struct Site<'p, 'a> {
    pool: &'p Pool<'a>,
    /// Where results go.
    pub results: &'p Results,
}

impl<'a> Site<'_, 'a> {
    /// How many processes Cargo may run at once: all cores while there is nothing else to do, or all but one.
    pub fn cargo_jobs(&self) -> usize {
        let others_work = self.pool.lock().jobs_begun > 0 || !self.pool.lock().jobs.is_empty();
        if others_work { (self.pool.cores - 1).max(1) } else { self.pool.cores }
    }

    /// Adds a job that begins before those that wait.
    pub fn add_first(&self, job: impl FnOnce(&Results) + Send + 'a) {
        self.pool.lock().jobs.push_front(Box::new(job));
        self.pool.changed.notify_one();
    }

    /// Adds a job that begins after those that wait.
    pub fn add(&self, job: impl FnOnce(&Results) + Send + 'a) {
        self.pool.lock().jobs.push_back(Box::new(job));
        self.pool.changed.notify_one();
    }
}

/// The work that is to be done.
pub struct Pool<'a> {
    cores: usize,
    work: Mutex<Work<'a>>,
    changed: Condvar,
}

#[derive(Default)]
struct Work<'a> {
    builds: VecDeque<(&'static str, Build<'a>)>,
    is_building: bool,
    jobs: VecDeque<Job<'a>>,
    /// Jobs that have begun.
    jobs_begun: usize,
}

/// What a worker does next.
enum Next<'a> {
    Build(&'static str, Build<'a>),
    Job(Job<'a>),
}

impl<'a> Pool<'a> {
    /// A pool for this number of cores.
    pub fn new(cores: usize) -> Self {
        Self { cores: cores.max(1), work: Mutex::default(), changed: Condvar::new() }
    }

    /// Adds a build, after those that were added before.
    pub fn add(&self, name: &'static str, build: impl FnOnce(&Site<'_, 'a>) + Send + 'a) {
        self.lock().builds.push_back((name, Box::new(build)));
    }

    fn lock(&self) -> MutexGuard<'_, Work<'a>> {
        // Every change of the lists is one call, so a panic leaves them whole.
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does all of it; `hear` gets what comes out as it does.
    pub fn run(self, mut hear: impl FnMut(News)) {
        let (sender, news) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..self.cores {
                let results = Results(sender.clone());
                let pool = &self;
                scope.spawn(move || pool.work(&results));
            }
            drop(sender);
            news.iter().for_each(&mut hear);
        });
    }

    fn work(&self, results: &Results) {
        while let Some(next) = self.next() {
            match next {
                Next::Job(job) => job(results),
                Next::Build(name, build) => {
                    let _done = Done(self);
                    let start = Instant::now();
                    build(&Site { pool: self, results });
                    let _ = results.0.send(News::Built(name.into(), start.elapsed()));
                }
            }
        }
    }

    /// Waits for something to do. `None` if all is done, or is being done without a build that could add to it.
    fn next(&self) -> Option<Next<'a>> {
        let mut work = self.lock();
        loop {
            if !work.is_building
                && let Some((name, build)) = work.builds.pop_front()
            {
                work.is_building = true;
                return Some(Next::Build(name, build));
            }
            if let Some(job) = work.jobs.pop_front() {
                work.jobs_begun += 1;
                return Some(Next::Job(job));
            }
            if !work.is_building {
                return None;
            }
            work = self.changed.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Ends a build, however it ends.
struct Done<'p, 'a>(&'p Pool<'a>);

impl Drop for Done<'_, '_> {
    fn drop(&mut self) {
        self.0.lock().is_building = false;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering::SeqCst},
    };

    use super::{News, Pool};

    /// The names of what came out.
    fn run(pool: Pool<'_>) -> Vec<String> {
        let mut names = Vec::new();
        pool.run(|news| {
            names.push(match news {
                News::Finished(finished) => finished.name,
                News::Built(name, _) | News::Listed(name, _) => name,
            })
        });
        names
    }

    #[test]
    fn builds_run_in_order_and_one_at_a_time() {
        let running = &AtomicUsize::new(0);
        let pool = Pool::new(3);
        for name in ["one", "two", "three"] {
            pool.add(name, move |_| {
                assert_eq!(running.fetch_add(1, SeqCst), 0);
                running.fetch_sub(1, SeqCst);
            });
        }
        assert_eq!(run(pool), ["one", "two", "three"]);
    }

    #[test]
    fn jobs_run_beside_the_build_that_added_them() {
        let together = &Barrier::new(2);
        let pool = Pool::new(2);
        pool.add("build", move |site| {
            assert_eq!(site.cargo_jobs(), 2);
            site.add(move |results| {
                together.wait();
                results.result("job", Ok(()));
            });
            assert_eq!(site.cargo_jobs(), 1);
            together.wait();
        });
        let mut names = run(pool);
        names.sort();
        assert_eq!(names, ["build", "job"]);
    }

    #[test]
    fn one_core_does_all_jobs_of_all_builds() {
        let pool = Pool::new(1);
        for name in ["a", "b"] {
            pool.add(name, move |site| {
                for number in 0..3 {
                    site.add(move |results| results.result(format!("{name}{number}"), Ok(())));
                }
            });
        }
        let mut names = run(pool);
        names.sort();
        assert_eq!(names, ["a", "a0", "a1", "a2", "b", "b0", "b1", "b2"]);
    }
}
