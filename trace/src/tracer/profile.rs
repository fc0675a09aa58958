//! How often functions were called, and how long the calls took: Linux's `function_profile_enabled` and
//! `trace_stat/functionN` (`kernel/trace/ftrace.c`, `function_stat_show`).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::sync::atomic::Ordering::Relaxed;

use fallible::OutOfMemory;

use super::graph::Microseconds;
use crate::atomic::AtomicU64;
use crate::clock::Clock;
use crate::symbols::Symbols;
use crate::text::ShowError;

/// The counts of a function.
#[derive(Debug)]
pub struct Counts {
    /// The virtual address of the function.
    pub(crate) function: u64,
    /// For each CPU.
    pub(crate) cells: Box<[Cell]>,
}

/// The counts of a function on one CPU, on which the calls have returned.
#[derive(Debug, Default)]
pub(crate) struct Cell {
    pub calls: AtomicU64,
    /// The sum of the durations of the calls, in ticks of the system counter.
    pub ticks: AtomicU64,
    /// The sum of the squares of the durations.
    pub squares: AtomicU64,
}

impl Counts {
    /// Creates counts for each of `functions` on `cpus` CPUs.
    ///
    /// # Errors
    ///
    /// There is no memory.
    pub fn of(functions: &[u64], cpus: usize) -> Result<Box<[Self]>, OutOfMemory> {
        let counts = functions.iter().map(|&function| {
            let cells = fallible::boxed_slice((0..cpus).map(|_| Cell::default()))?;
            Ok(Self { function, cells })
        });
        fallible::boxed_slice(fallible::collect_results::<_, OutOfMemory>(counts)?)
    }
}

/// A line of `trace_stat/functionN`.
struct FunctionProfile {
    function: u64,
    calls: u64,
    nanoseconds: u64,
    /// The variance, in square nanoseconds.
    variance: u64,
}

const HEADER: &str = "\
\x20 Function                               Hit    Time            Avg             s^2
\x20 --------                               ---    ----            ---             ---
";

/// Writes `trace_stat/functionN` of `cpu`, with the functions that took longest first.
///
/// # Errors
///
/// Returns the error of `out`, or that there is no memory to sort the functions.
pub fn write(
    out: &mut dyn Write,
    counts: &[Counts],
    cpu: usize,
    symbols: &dyn Symbols,
    clock: Clock,
) -> Result<(), ShowError> {
    let mut profiles = Vec::new();
    for Counts { function, cells } in counts {
        let Some(cell) = cells.get(cpu) else { continue };
        let (calls, ticks, squares) = (cell.calls.load(Relaxed), cell.ticks.load(Relaxed), cell.squares.load(Relaxed));
        if calls > 0 {
            let scale = |ticks: u128| ticks * 1_000_000_000 / u128::from(clock.frequency.max(1));
            let nanoseconds = scale(ticks.into()) as u64;
            let profile = FunctionProfile {
                function: *function,
                calls,
                nanoseconds,
                variance: variance(calls, ticks, squares, &scale),
            };
            fallible::push(&mut profiles, profile)?;
        }
    }
    fallible::sort_by_key(&mut profiles, |profile| (u64::MAX - profile.nanoseconds, profile.function));
    out.write_str(HEADER)?;
    Ok(profiles.iter().try_for_each(|profile| profile.write(out, symbols))?)
}

/// Returns the sample variance, in nanoseconds squared: `s² = (n ∑x² - (∑x)²) / (n (n - 1))`.
fn variance(calls: u64, ticks: u64, squares: u64, scale: &dyn Fn(u128) -> u128) -> u64 {
    if calls < 2 {
        return 0;
    }
    let (calls, ticks) = (u128::from(calls), u128::from(ticks));
    let sum = (calls * u128::from(squares)).saturating_sub(ticks * ticks);
    u64::try_from(scale(scale(sum / (calls * (calls - 1))))).unwrap_or(u64::MAX)
}

impl FunctionProfile {
    fn write(&self, out: &mut dyn Write, symbols: &dyn Symbols) -> fmt::Result {
        const NAME: usize = 30;
        let Self { function, calls, nanoseconds, variance } = *self;
        let name = symbols.lookup(function).map(|function| function.name);
        match name {
            Some(name) => write!(out, "  {name:<NAME$.NAME$}  {calls:>10}")?,
            None => write!(out, "  {function:<#NAME$x}  {calls:>10}")?,
        }
        // As in Linux, the variance has a thousandth of a square microsecond as its unit.
        let average = nanoseconds / calls.max(1);
        let [time, average, variance] = [nanoseconds, average, variance / 1000].map(Microseconds);
        writeln!(out, "    {time}    {average}    {variance}")
    }
}
