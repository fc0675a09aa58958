//! The files that print records (`trace`, `trace_pipe`, `snapshot`, those of each CPU, and `saved_cmdlines`), emptying
//! them, and the options for printing records.

use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::mem;

use fallible::OutOfMemory;

use super::{Events, RegisteredProbe};
use crate::clock::Clock;
use crate::errno::Errno;
use crate::options::{Flag, Options, TraceClock};
use crate::recorder::{GRAPH_ENTRY_EVENT, GRAPH_RETURN_EVENT};
use crate::ring::{Pages, Record, Snapshot, Stats};
use crate::symbols::Symbols;
use crate::text::{self, ShowError};
use crate::tracer::Tracer;
use crate::tracer::graph::{self, Printer, Style};

/// Records that were taken out of the rings for a `trace_pipe`.
#[derive(Debug, Default)]
pub(super) struct Pipe {
    pub(super) taken: Snapshot,
    /// The number of records already written. The next read of the file writes the rest.
    written: usize,
    /// The state of the tracer `function_graph` after the written records.
    graph: Printer,
}

/// The contents of the file `snapshot`.
#[derive(Debug, Default)]
pub(super) struct SnapshotFile {
    /// Whether a snapshot was taken, or a trigger that takes one was set, and it was not freed since.
    is_allocated: bool,
    pub(super) snapshot: Snapshot,
}

/// The text of the file `snapshot` if there are no records.
const SNAPSHOT_HELP: &str = "\
# Snapshot commands:
# echo 0 > snapshot : Clears and frees snapshot buffer
# echo 1 > snapshot : Allocates snapshot buffer, if not already allocated.
#                      Takes a snapshot of the main buffer.
# echo 2 > snapshot : Clears snapshot buffer (but does not allocate or free)
#                      (Doesn't have to be '2' works with any number that
#                       is not a '0' or '1')
";

/// The text of the file `per_cpu/cpuN/snapshot` if there are no records. It is that of a Linux kernel that takes
/// snapshots of all CPUs only.
const SNAPSHOT_HELP_OF_CPU: &str = "\
# Snapshot commands:
# echo 0 > snapshot : Invalid for per_cpu snapshot file.
# echo 1 > snapshot : Not supported with this kernel.
#                     Must use main snapshot file to allocate.
# echo 2 > snapshot : Clears this cpu's snapshot buffer (but does not allocate)
#                      (Doesn't have to be '2' works with any number that
#                       is not a '0' or '1')
";

impl<P: RegisteredProbe> Events<P> {
    /// Empties the rings.
    pub fn clear_trace(&mut self) {
        self.keep_parted();
        self.rings.clear();
        self.pipes.iter_mut().for_each(|pipe| *pipe.get_mut() = Pipe::default());
        self.drop_formats();
    }

    /// Moves the records that a trigger `snapshot` has split off out of the rings, before the rings are changed. If
    /// there is no memory for them, they are lost with the rings' contents.
    pub fn keep_parted(&self) {
        let _ = self.keep_snapshot(false);
    }

    /// Moves the records that a trigger `snapshot` has split off into the file; with `now`, all records of the rings.
    pub(super) fn keep_snapshot(&self, now: bool) -> Result<(), OutOfMemory> {
        let mut file = self.snapshot_file.lock();
        if let Some(snapshot) = self.rings.split_off(now)? {
            *file = SnapshotFile { is_allocated: true, snapshot };
        }
        Ok(())
    }

    /// Reports the snapshot as allocated, as Linux does once a trigger that takes one is set. Memory is allocated when
    /// a snapshot is taken.
    pub(crate) fn allocate_snapshot(&mut self) {
        self.snapshot_file.get_mut().is_allocated = true;
    }

    /// Acts on a number that is written to `snapshot`: 0 frees the snapshot, 1 takes one, any other number empties it.
    ///
    /// # Errors
    ///
    /// Fails if an action of a histogram takes snapshots, or if there is no memory for the records.
    pub fn set_snapshot(&mut self, number: u64) -> Result<(), Errno> {
        if self.has_conditional_snapshot() {
            return Err(Errno::Busy);
        }
        match number {
            1 => self.keep_snapshot(true)?,
            // Freeing must not fail for lack of memory.
            _ => self.keep_parted(),
        }
        let file = self.snapshot_file.get_mut();
        match number {
            0 => *file = SnapshotFile::default(),
            1 => {}
            _ => file.snapshot = Snapshot::default(),
        }
        self.drop_formats();
        Ok(())
    }

    /// Acts on a number that is written to `per_cpu/cpuN/snapshot` of `cpu`: any number from 2 on removes the records
    /// of the CPU from the snapshot.
    ///
    /// # Errors
    ///
    /// Fails for 0 and 1, or if an action of a histogram takes snapshots.
    pub fn set_snapshot_of(&mut self, cpu: usize, number: u64) -> Result<(), Errno> {
        if self.has_conditional_snapshot() {
            return Err(Errno::Busy);
        }
        if number < 2 {
            return Err(Errno::Invalid);
        }
        self.keep_parted();
        self.snapshot_file.get_mut().snapshot.clear_of(cpu);
        self.drop_formats();
        Ok(())
    }

    /// Writes the file `snapshot`, or `per_cpu/cpuN/snapshot` of `cpu`, for a machine with `cpus` CPUs.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`write_trace`](Self::write_trace).
    pub fn write_snapshot(
        &self,
        out: &mut dyn Write,
        cpu: Option<usize>,
        cpus: usize,
        symbols: &dyn Symbols,
        clock: Clock,
    ) -> Result<(), ShowError> {
        self.keep_snapshot(false)?;
        let SnapshotFile { is_allocated, snapshot } = &*self.snapshot_file.lock();
        let (present, _) = snapshot.entries_of(cpu);
        if present == 0 {
            let state = if *is_allocated { "allocated" } else { "freed" };
            let tracer = self.options.tracer.name();
            write!(out, "# tracer: {tracer}\n#\n#\n# * Snapshot is {state} *\n#\n")?;
            return Ok(out.write_str(if cpu.is_some() { SNAPSHOT_HELP_OF_CPU } else { SNAPSHOT_HELP })?);
        }
        self.write_copy(out, snapshot, cpu, cpus, symbols, clock)
    }

    /// Empties the ring of `cpu`.
    pub fn clear_trace_of(&mut self, cpu: usize) {
        self.keep_parted();
        self.rings.clear_of(Some(cpu));
        if let Some(pipe) = self.pipes.get_mut(cpu + 1) {
            *pipe.get_mut() = Pipe::default();
        }
        self.drop_formats();
    }

    /// Returns the options of the trace.
    #[must_use]
    pub fn options(&self) -> Options {
        let mut options = self.options;
        options.set(Flag::Overwrite, self.rings.overwrites());
        options
    }

    /// Turns an option on or off.
    pub fn set_option(&mut self, flag: Flag, on: bool) {
        match flag {
            Flag::Overwrite => self.rings.set_overwrites(on),
            _ => self.options.set(flag, on),
        }
    }

    /// Sets the tracer, which decides how records are printed. As in Linux, all records are dropped.
    pub fn set_tracer(&mut self, tracer: Tracer) {
        self.options.tracer = tracer;
        self.clear_trace();
    }

    /// Sets the number of tasks that `saved_cmdlines` names.
    pub fn set_names(&mut self, names: usize) {
        self.options.names = names;
    }

    /// Sets the clock of the records. As in Linux, all records are dropped, even if the clock stays the same.
    pub fn set_clock(&mut self, clock: TraceClock) {
        self.options.clock = clock;
        self.clear_trace();
        self.snapshot_file.get_mut().snapshot = Snapshot::default();
    }

    /// Writes the file `saved_cmdlines`: the number and the newest name of each task in the trace, for at most
    /// [`Options::names`] tasks. The tasks that appeared first are left out.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`write_trace`](Self::write_trace).
    pub fn write_names(&self, out: &mut dyn Write) -> Result<(), ShowError> {
        let snapshot = self.rings.snapshot()?;
        let mut tasks: Vec<(u32, [u8; 16])> = Vec::new();
        for record in snapshot.records()?.filter(|record| record.task() != 0) {
            match tasks.iter_mut().find(|(task, _)| *task == record.task()) {
                Some((_, name)) => *name = record.name,
                None => fallible::push(&mut tasks, (record.task(), record.name))?,
            }
        }
        let skipped = tasks.len().saturating_sub(self.options.names);
        let mut shown = tasks.iter().skip(skipped);
        Ok(shown.try_for_each(|(task, name)| writeln!(out, "{task} {}", text::task_name(name)))?)
    }

    /// Writes the file `trace`: the newest `limit` records, oldest first, for a machine with `cpus` CPUs.
    ///
    /// # Errors
    ///
    /// Returns the error of `out`, or fails if there is no memory for a copy of the records.
    pub fn write_trace(
        &self,
        out: &mut dyn Write,
        limit: usize,
        cpus: usize,
        symbols: &dyn Symbols,
        clock: Clock,
    ) -> Result<(), ShowError> {
        self.keep_snapshot(false)?;
        let snapshot = self.rings.snapshot()?;
        self.write_header(out, snapshot.present(), snapshot.written(), cpus)?;
        let skipped = (snapshot.present() as usize).saturating_sub(limit);
        self.write_records(out, &snapshot, true, &|number, _| number >= skipped, symbols, clock)
    }

    /// Writes the file `per_cpu/cpuN/trace`: the records of `cpu`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`write_trace`](Self::write_trace).
    pub fn write_trace_of(
        &self,
        out: &mut dyn Write,
        cpu: usize,
        cpus: usize,
        symbols: &dyn Symbols,
        clock: Clock,
    ) -> Result<(), ShowError> {
        self.keep_snapshot(false)?;
        self.write_copy(out, &self.rings.snapshot()?, Some(cpu), cpus, symbols, clock)
    }

    /// Writes the heading and all records of a copy of the rings, or those of one `cpu`.
    fn write_copy(
        &self,
        out: &mut dyn Write,
        copy: &Snapshot,
        cpu: Option<usize>,
        cpus: usize,
        symbols: &dyn Symbols,
        clock: Clock,
    ) -> Result<(), ShowError> {
        let (present, written) = copy.entries_of(cpu);
        self.write_header(out, present, written, cpus)?;
        let is_meant = |_: usize, record: &Record<'_>| cpu.is_none_or(|cpu| cpu == record.cpu);
        self.write_records(out, copy, cpu.is_none(), &is_meant, symbols, clock)
    }

    /// Writes the file `per_cpu/cpuN/stats` of `cpu`; `now` is the system counter.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`write_trace`](Self::write_trace).
    pub fn write_stats(&self, out: &mut dyn Write, cpu: usize, clock: Clock, now: u64) -> Result<(), ShowError> {
        self.keep_snapshot(false)?;
        let snapshot = self.rings.snapshot()?;
        let Stats { entries, overrun, dropped, read, bytes, oldest } = snapshot.stats().nth(cpu).unwrap_or_default();
        // A hit that interrupts the recording of another one is counted as dropped, so Linux's "commit overrun" is
        // always 0.
        writeln!(out, "entries: {entries}\noverrun: {overrun}\ncommit overrun: 0\nbytes: {bytes}")?;
        let oldest = clock.microseconds(oldest.unwrap_or(clock.origin));
        match self.options.clock {
            TraceClock::Counter => {
                let of_cpu = |record: &Record<'_>| record.cpu == cpu;
                let oldest = snapshot.records()?.find(of_cpu).map_or(0, |record| record.count);
                writeln!(out, "oldest event ts: {oldest}\nnow ts: {}", snapshot.count())?;
            }
            _ => {
                let now = clock.microseconds(now);
                writeln!(out, "oldest event ts: {}\nnow ts: {}", text::Time(oldest), text::Time(now))?;
            }
        }
        Ok(writeln!(out, "dropped events: {dropped}\nread events: {read}")?)
    }

    /// Takes the records of `cpu`, or of all CPUs if it is `None`, out of the rings, and writes them as `trace_pipe`
    /// does: without a header. Returns the number of records written.
    ///
    /// # Errors
    ///
    /// Returns the error of `out`: the record that was not written completely comes first in the next call. Fails also
    /// if there is no memory for the records.
    pub fn write_pipe(
        &self,
        out: &mut dyn Write,
        cpu: Option<usize>,
        symbols: &dyn Symbols,
        clock: Clock,
    ) -> Result<usize, ShowError> {
        self.keep_snapshot(false)?;
        let Some(pipe) = self.pipes.get(cpu.map_or(0, |cpu| cpu + 1)) else { return Ok(0) };
        let mut pipe = pipe.lock();
        if pipe.taken.records()?.nth(pipe.written).is_none() {
            (pipe.taken, pipe.written) = (self.rings.take(cpu)?, 0);
        }
        let Pipe { taken, written, graph } = &mut *pipe;
        let before = *written;
        for (record, next) in taken.records_with_next()?.skip(before) {
            self.write_record(out, &record, next.as_ref(), graph, symbols, clock)?;
            *written += 1;
        }
        let count = *written - before;
        (pipe.taken, pipe.written) = (Snapshot::default(), 0);
        Ok(count)
    }

    /// Takes the oldest records of `cpu` out of its ring, as pages of `trace_pipe_raw`. Records that were taken for
    /// `trace_pipe` are not among them.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for the pages. Then nothing was taken.
    pub fn take_pages(&self, cpu: usize, clock: Clock) -> Result<Pages, ShowError> {
        Ok(self.rings.take_pages(cpu, clock, &mut |_| Ok(()))?)
    }

    /// Writes the heading of `trace`: `present` of `written` records follow, from a machine with `cpus` CPUs. Writes
    /// only the tracer if [`Flag::ContextInfo`] is off.
    fn write_header(&self, out: &mut dyn Write, present: u64, written: u64, cpus: usize) -> fmt::Result {
        writeln!(out, "# tracer: {}\n#", self.options.tracer.name())?;
        if !self.options.is(Flag::ContextInfo) {
            return Ok(());
        }
        if self.options.tracer == Tracer::FunctionGraph {
            return graph::write_columns(out, self.options);
        }
        writeln!(out, "# entries-in-buffer/entries-written: {present}/{written}   #P:{cpus}\n#")?;
        text::write_columns(out, self.options)
    }

    /// Writes the records of `snapshot` for which `is_meant` is true. It gets the index and the record. If the records
    /// `are_of_all` CPUs, and some were overwritten, a line precedes the first record of each CPU, but as in Linux not
    /// the first two records of all.
    fn write_records(
        &self,
        out: &mut dyn Write,
        snapshot: &Snapshot,
        are_of_all: bool,
        is_meant: &dyn Fn(usize, &Record<'_>) -> bool,
        symbols: &dyn Symbols,
        clock: Clock,
    ) -> Result<(), ShowError> {
        let mut graph = Printer::of(snapshot.records()?, symbols)?;
        let is_annotated = are_of_all
            && self.options.is(Flag::Annotate)
            && self.options.tracer != Tracer::FunctionGraph
            && snapshot.stats().any(|stats| stats.overrun > 0);
        let mut started = fallible::boxed_slice((0..self.rings.cpus()).map(|_| false))?;
        for (number, (record, next)) in snapshot.records_with_next()?.enumerate() {
            let is_first = started.get_mut(record.cpu).is_some_and(|started| !mem::replace(started, true));
            if is_meant(number, &record) {
                if is_annotated && is_first && number > 1 {
                    text::write_start(out, record.cpu)?;
                }
                self.write_record(out, &record, next.as_ref(), &mut graph, symbols, clock)?;
            } else {
                graph.pass_over(&record, symbols)?;
            }
        }
        Ok(())
    }

    /// Writes `record`, which `next` follows on its CPU.
    fn write_record(
        &self,
        out: &mut dyn Write,
        record: &Record<'_>,
        next: Option<&Record<'_>>,
        graph: &mut Printer,
        symbols: &dyn Symbols,
        clock: Clock,
    ) -> Result<(), ShowError> {
        let (event, options) = (self.described(record.event()), self.options);
        // A snapshot may have records of a tracer that was set before.
        if options.tracer == Tracer::FunctionGraph || matches!(record.event(), GRAPH_ENTRY_EVENT | GRAPH_RETURN_EVENT) {
            let style = Style { symbols, clock, options, cpus: self.rings.cpus() };
            return graph.write(out, record, next, event, style);
        }
        Ok(text::write_record(out, record, event, symbols, clock, options)?)
    }
}
