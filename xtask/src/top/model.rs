//! The model of the machine, from the objects that the program prints.

use std::collections::{BTreeMap, VecDeque};

use anyhow::{Context, Result};
use serde_json::Value;

use super::program::ROWS;

/// How many intervals of a row are remembered.
pub const HISTORY: usize = 30;
const SECOND: f64 = 1e9;

/// A row of a page: a function, a task, a CPU or a caller.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PageRow {
    /// Hits a second in the last interval; `None` if the row was below those that the target prints.
    pub rate: Option<f64>,
    /// All hits, up to the last interval in which the row was printed.
    pub total: u64,
    /// The calls that returned, of those that were timed, and their time in nanoseconds.
    returns: u64,
    nanoseconds: u64,
    /// The average time of the calls that returned since the row was printed before.
    pub average: Option<f64>,
    /// Hits a second, in the newest interval last.
    pub history: VecDeque<Option<f64>>,
    /// The number of the interval in which the row was printed last.
    seen: u64,
}

impl PageRow {
    /// The calls whose return was not seen: they are in progress, or were missed.
    pub fn open(&self) -> u64 {
        self.total.saturating_sub(self.returns)
    }

    fn remember(&mut self, rate: Option<f64>) {
        self.rate = rate;
        self.history.push_back(rate);
        self.history.drain(..self.history.len().saturating_sub(HISTORY));
    }
}

/// The rows of a page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PageRows {
    pub rows: BTreeMap<String, PageRow>,
    /// Whether rows may have been left out in the last interval.
    is_cut: bool,
}

impl PageRows {
    /// Adds the new hits of each name, which an interval of `seconds` seconds has printed. If `is_cut`, the target had
    /// as many rows as it prints, so others may have been left out.
    fn add(&mut self, printed: BTreeMap<String, Printed>, is_cut: bool, seconds: f64, interval: u64) {
        for (name, new) in printed {
            let row = self.rows.entry(name).or_default();
            row.remember(new.hits.map(|hits| hits as f64 / seconds));
            if new.returns > row.returns {
                let nanoseconds = new.nanoseconds.saturating_sub(row.nanoseconds);
                row.average = Some(nanoseconds as f64 / (new.returns - row.returns) as f64);
            }
            (row.total, row.returns, row.nanoseconds) = (new.total, new.returns, new.nanoseconds);
            row.seen = interval;
        }
        for row in self.rows.values_mut().filter(|row| row.seen != interval) {
            row.remember(if is_cut { None } else { Some(0.0) });
        }
        self.is_cut = is_cut;
    }

    /// Returns the new hits of each name in the interval of this number, from counts that are never cleared. They are
    /// unknown for a name that may have been left out in the interval before.
    fn grown(&self, totals: BTreeMap<String, u64>, interval: u64) -> BTreeMap<String, Printed> {
        let new = |(name, total): (String, u64)| {
            let row = self.rows.get(&name);
            let is_known = !self.is_cut || row.is_some_and(|row| row.seen + 1 == interval);
            let hits = is_known.then(|| total.saturating_sub(row.map_or(0, |row| row.total)));
            (name, Printed { hits, total, ..Printed::default() })
        };
        totals.into_iter().map(new).collect()
    }
}

/// The numbers of a row in one interval.
#[derive(Clone, Copy, Debug, Default)]
struct Printed {
    /// The new hits; `None` if they are unknown.
    hits: Option<u64>,
    total: u64,
    returns: u64,
    nanoseconds: u64,
}

/// The objects of an interval that is not over.
#[derive(Clone, Debug, Default)]
struct Interval {
    /// The nanoseconds since the program was loaded.
    elapsed: u64,
    hits: u64,
    hit_functions: u64,
    maps: BTreeMap<String, Value>,
}

/// A row of a histogram: calls that took from `min` to `max` nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    pub min: u64,
    pub max: u64,
    pub count: u64,
}

/// The model of the machine.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// The number of probes; 0 until they are placed.
    pub probes: u64,
    pub functions: PageRows,
    pub tasks: PageRows,
    /// The names of the tasks that are known, by the tasks' numbers.
    names: BTreeMap<String, String>,
    pub cpus: PageRows,
    /// The pairs of a CPU and a task, as the target prints them. Tasks and CPUs are their sums.
    pairs: PageRows,
    pub callers: PageRows,
    pub histogram: Vec<Bucket>,
    /// Hits a second of all functions in the last interval, and their number in all.
    pub rate: f64,
    pub total: u64,
    /// The number of functions that were hit in the last interval.
    pub hit_functions: u64,
    /// The number of intervals, and the nanoseconds from the load of the program to the end of the last.
    pub intervals: u64,
    elapsed: u64,
    /// Sentences about what is missing from the numbers.
    pub losses: Vec<String>,
    /// The wanted length of an interval in nanoseconds.
    nominal: u64,
    pending: Option<Interval>,
}

impl Model {
    /// Creates the model for a program with this interval in milliseconds.
    pub fn new(interval: u64) -> Self {
        Self { nominal: interval * 1_000_000, ..Self::default() }
    }

    /// Takes a line of the program's output. Returns whether an interval is complete.
    pub fn feed(&mut self, line: &str) -> Result<bool> {
        let object: Value = serde_json::from_str(line).with_context(|| format!("the machine says `{line}`"))?;
        let data = &object["data"];
        match object["type"].as_str() {
            Some("attached_probes") => self.probes = number(&object["count"]),
            Some("printf") if data == "end\n" => return Ok(self.finish()),
            Some("printf") => {
                // An interval without an end has lost output, and the rest of it is worth showing.
                self.finish();
                let mut words = data.as_str().unwrap_or_default().split_whitespace().map(|word| word.parse().ok());
                let mut next = || words.next().flatten();
                self.pending = match (next(), next(), next()) {
                    (Some(elapsed), Some(hits), Some(hit_functions)) => {
                        Some(Interval { elapsed, hits, hit_functions, ..Interval::default() })
                    }
                    _ => None,
                };
            }
            Some("map" | "hist") => {
                if let (Some(pending), Some(maps)) = (&mut self.pending, data.as_object()) {
                    pending.maps.extend(maps.iter().map(|(name, map)| (name.clone(), map.clone())));
                }
            }
            Some("lost_events") => self.losses.push(format!("Lost {} events", number(&object["count"]))),
            Some(_) => self.losses.extend(object["msg"].as_str().map(String::from)),
            None => {}
        }
        Ok(false)
    }

    /// Completes the interval in progress, if there is one and it is newer than the last.
    fn finish(&mut self) -> bool {
        let Some(Interval { elapsed, hits, hit_functions, mut maps }) = self.pending.take() else { return false };
        if elapsed <= self.elapsed {
            return false;
        }
        // The program is loaded long before its first interval begins.
        let length = if self.intervals == 0 { self.nominal } else { elapsed - self.elapsed };
        let seconds = length.max(1) as f64 / SECOND;
        (self.elapsed, self.intervals) = (elapsed, self.intervals + 1);
        (self.rate, self.total, self.hit_functions) = (hits as f64 / seconds, self.total + hits, hit_functions);

        // The entries have no order.
        let mut take = |name| -> Vec<(String, Value)> {
            let Some(Value::Object(map)) = maps.remove(name) else { return Vec::new() };
            map.into_iter().collect()
        };
        let (functions, places, names, callers) = (take("@d"), take("@w"), take("@n"), take("@c"));
        let is_cut = functions.len() >= ROWS;
        let functions = functions.iter().map(|(key, hits)| function(key, number(hits)));
        let mut printed = BTreeMap::new();
        for (name, new) in functions {
            // A function has two rows if the one of the interval before was not yet cleared.
            let row: &mut Printed = printed.entry(name).or_default();
            let hits = row.hits.unwrap_or(0) + new.hits.unwrap_or(0);
            *row = if new.total > row.total { new } else { *row };
            row.hits = Some(hits);
        }
        self.functions.add(printed, is_cut, seconds, self.intervals);

        // A task is among them only if it was switched out in this interval. It keeps its name in later ones.
        for (tid, name) in &names {
            let Some(name) = name.as_str() else { continue };
            let before = self.names.insert(tid.clone(), name.into());
            if let Some(row) = self.tasks.rows.remove(&task(tid, before.as_deref())) {
                self.tasks.rows.insert(task(tid, Some(name)), row);
            }
        }
        let pairs_are_cut = places.len() >= ROWS;
        let grown = self.pairs.grown(totals(places), self.intervals);
        self.pairs.add(grown.clone(), pairs_are_cut, seconds, self.intervals);
        let [mut tasks, mut cpus] = [const { BTreeMap::<String, Printed>::new() }; 2];
        for (pair, row) in &self.pairs.rows {
            let (cpu, tid) = pair.split_once(',').unwrap_or((pair, ""));
            let hits = grown.get(pair).map_or((!pairs_are_cut).then_some(0), |new| new.hits);
            let task = task(tid, self.names.get(tid).map(String::as_str));
            for sum in [tasks.entry(task).or_default(), cpus.entry(format!("CPU {cpu}")).or_default()] {
                sum.total += row.total;
                sum.hits = hits.map_or(sum.hits, |hits| Some(sum.hits.unwrap_or(0) + hits));
            }
        }
        self.tasks.add(tasks, pairs_are_cut, seconds, self.intervals);
        self.cpus.add(cpus, pairs_are_cut, seconds, self.intervals);
        let callers_are_cut = callers.len() >= ROWS;
        let grown = self.callers.grown(totals(callers), self.intervals);
        self.callers.add(grown, callers_are_cut, seconds, self.intervals);
        if let Some(Value::Array(rows)) = maps.remove("@t") {
            self.histogram = rows.iter().map(bucket).collect();
        }
        true
    }

    /// Returns the time in nanoseconds that this part of the calls did not exceed: the end of its row of the histogram.
    pub fn quantile(&self, part: f64) -> Option<u64> {
        let all: u64 = self.histogram.iter().map(|bucket| bucket.count).sum();
        let mut sum = 0;
        let reaches = |bucket: &&Bucket| {
            sum += bucket.count;
            sum as f64 >= part * all as f64
        };
        self.histogram.iter().find(reaches).map(|bucket| bucket.max)
    }
}

/// Returns a number that is written as one, or, where a double cannot hold it, as a string.
fn number(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_str()?.parse().ok()).unwrap_or(0)
}

/// Returns the entries of a map whose values are numbers.
fn totals(entries: Vec<(String, Value)>) -> BTreeMap<String, u64> {
    entries.into_iter().map(|(name, total)| (name, number(&total))).collect()
}

/// Takes a key of `@d` apart: a function, its total, and, if it is timed, its returns and their time. The function may
/// have commas in its name.
fn function(key: &str, hits: u64) -> (String, Printed) {
    let mut numbers = Vec::new();
    let mut name = key;
    while let Some((rest, last)) = name.rsplit_once(',')
        && let Ok(last) = last.parse()
        && numbers.len() < 3
    {
        (name, _) = (rest, numbers.push(last));
    }
    let (total, returns, nanoseconds) = match numbers[..] {
        [nanoseconds, returns, total] => (total, returns, nanoseconds),
        [total] => (total, 0, 0),
        _ => (hits, 0, 0),
    };
    (name.into(), Printed { hits: Some(hits), total, returns, nanoseconds })
}

/// Returns how a task is shown.
fn task(tid: &str, name: Option<&str>) -> String {
    format!("{} ({tid})", name.unwrap_or("?"))
}

/// Takes a row of a histogram. The last one may have no end.
fn bucket(row: &Value) -> Bucket {
    let min = number(&row["min"]);
    Bucket { min, max: number(&row["max"]).max(min), count: number(&row["count"]) }
}

#[cfg(test)]
pub mod tests {
    use super::{HISTORY, Model, ROWS};

    /// Returns the lines of an interval that ends after `elapsed` milliseconds, with these entries of `@d`.
    pub fn interval(elapsed: u64, rows: &[(&str, u64)], more: &[&str]) -> Vec<String> {
        let sum: u64 = rows.iter().map(|(_, hits)| hits).sum();
        let entries: Vec<_> = rows.iter().map(|(key, hits)| format!("\"{key}\": {hits}")).collect();
        let map = format!("{{\"type\": \"map\", \"data\": {{\"@d\": {{{}}}}}}}", entries.join(", "));
        let head = format!("{{\"type\": \"printf\", \"data\": \"{elapsed}000000 {sum} {}\\n\"}}", rows.len());
        let more = more.iter().map(|line| line.to_string());
        let end = r#"{"type": "printf", "data": "end\n"}"#.into();
        [head].into_iter().chain((!rows.is_empty()).then_some(map)).chain(more).chain([end]).collect()
    }

    pub fn feed(model: &mut Model, lines: &[String]) -> bool {
        lines.iter().fold(false, |_, line| model.feed(line).unwrap())
    }

    fn rates(model: &Model) -> Vec<(&str, Option<f64>, u64)> {
        model.functions.rows.iter().map(|(name, row)| (name.as_str(), row.rate, row.total)).collect()
    }

    #[test]
    fn rates_are_of_the_time_that_an_interval_took() {
        let mut model = Model::new(500);
        assert!(feed(&mut model, &interval(7_000, &[("f,10", 10)], &[])));
        assert_eq!(rates(&model), [("f", Some(20.0), 10)]);
        // Late, and with a function that has a comma in its name.
        assert!(feed(&mut model, &interval(9_000, &[("f,30", 20), ("<T as A<u8, u8>>::g#2,4", 4)], &[])));
        assert_eq!(rates(&model), [("<T as A<u8, u8>>::g#2", Some(2.0), 4), ("f", Some(10.0), 30)]);
        assert_eq!((model.rate, model.total, model.hit_functions, model.intervals), (12.0, 34, 2, 2));
    }

    #[test]
    fn an_interval_that_comes_twice_or_in_part_is_no_second_one() {
        let mut model = Model::new(1000);
        let [first, second] = [interval(1_000, &[("f,10", 10)], &[]), interval(2_000, &[("f,13", 3)], &[])];
        feed(&mut model, &first);
        assert!(!feed(&mut model, &first));
        assert_eq!((model.total, model.functions.rows["f"].history.len()), (10, 1));
        // Its end is lost.
        assert!(!feed(&mut model, &second[..2]));
        assert!(feed(&mut model, &interval(3_000, &[("f,14", 1)], &[])));
        assert_eq!(model.functions.rows["f"].history, [Some(10.0), Some(3.0), Some(1.0)]);
        // Its head is lost: there is nothing to relate the numbers to.
        assert!(!feed(&mut model, &interval(4_000, &[("f,15", 1)], &[])[1..]));
        assert_eq!(model.total, 14);
    }

    #[test]
    fn a_row_that_vanishes_had_no_hits_or_is_unknown() {
        let mut model = Model::new(1000);
        feed(&mut model, &interval(1_000, &[("f,10", 10), ("g,1", 1)], &[]));
        feed(&mut model, &interval(2_000, &[("f,12", 2)], &[]));
        assert_eq!(rates(&model), [("f", Some(2.0), 12), ("g", Some(0.0), 1)]);
        let many: Vec<_> = (0..ROWS).map(|number| (format!("h{number},9"), 9)).collect();
        let many: Vec<_> = many.iter().map(|(key, hits)| (key.as_str(), *hits)).collect();
        feed(&mut model, &interval(3_000, &many, &[]));
        assert_eq!((model.functions.rows["f"].rate, model.functions.rows["f"].total), (None, 12));
        feed(&mut model, &interval(4_000, &[], &[]));
        assert_eq!(model.functions.rows["f"].rate, Some(0.0));
        for second in 5..50 {
            feed(&mut model, &interval(second * 1_000, &[], &[]));
        }
        assert_eq!(model.functions.rows["f"].history.len(), HISTORY);
    }

    #[test]
    fn averages_are_of_the_calls_that_returned_since() {
        let mut model = Model::new(1000);
        feed(&mut model, &interval(1_000, &[("f,10,8,800", 10)], &[]));
        assert_eq!((model.functions.rows["f"].average, model.functions.rows["f"].open()), (Some(100.0), 2));
        feed(&mut model, &interval(2_000, &[("f,20,10,1200", 10)], &[]));
        assert_eq!((model.functions.rows["f"].average, model.functions.rows["f"].open()), (Some(200.0), 10));
        // No call returned, so the last average is the newest.
        feed(&mut model, &interval(3_000, &[("f,21,10,1200", 1)], &[]));
        assert_eq!(model.functions.rows["f"].average, Some(200.0));
    }

    #[test]
    fn tasks_and_cpus_are_sums_and_tasks_get_their_names_later() {
        let mut model = Model::new(1000);
        let places = r#"{"type": "map", "data": {"@w": {"0,7": 5, "1,7": 6, "1,8": 7}}}"#;
        feed(&mut model, &interval(1_000, &[], &[places]));
        assert_eq!(model.tasks.rows["? (7)"].total, 11);
        let places = r#"{"type": "map", "data": {"@w": {"0,7": 8, "1,7": 6, "1,8": 7}}}"#;
        let names = r#"{"type": "map", "data": {"@n": {"7": "sha256/0"}}}"#;
        feed(&mut model, &interval(3_000, &[], &[places, names]));
        let rows = |rows: &super::PageRows| -> Vec<_> {
            rows.rows.iter().map(|(name, row)| (name.clone(), row.rate, row.total)).collect()
        };
        assert_eq!(rows(&model.tasks), [("? (8)".into(), Some(0.0), 7), ("sha256/0 (7)".into(), Some(1.5), 14)]);
        assert_eq!(rows(&model.cpus), [("CPU 0".into(), Some(1.5), 8), ("CPU 1".into(), Some(0.0), 13)]);
        // A task that was not switched out since, and one that has another name.
        let names = r#"{"type": "map", "data": {"@n": {"8": "idle/1"}}}"#;
        feed(&mut model, &interval(4_000, &[], &[places, names]));
        feed(&mut model, &interval(5_000, &[], &[places, &names.replace("idle/1", "shell")]));
        assert_eq!(rows(&model.tasks), [("sha256/0 (7)".into(), Some(0.0), 14), ("shell (8)".into(), Some(0.0), 7)]);
    }

    #[test]
    fn hits_from_before_a_row_was_printed_are_of_no_interval() {
        let map = |name: &str, rows: &[(String, u64)]| {
            let entries: Vec<_> = rows.iter().map(|(key, hits)| format!("\"{key}\": {hits}")).collect();
            format!("{{\"type\": \"map\", \"data\": {{\"{name}\": {{{}}}}}}}", entries.join(", "))
        };
        let mut model = Model::new(1000);
        let mut all: Vec<(String, u64)> = (0..ROWS).map(|number| (format!("0,{number}"), 100)).collect();
        // The last row of the first interval makes room for another, which had fewer hits until then.
        for (second, last) in [(1, ("0,59", 100)), (2, ("1,99", 101)), (3, ("1,99", 105)), (4, ("0,59", 110))] {
            all[ROWS - 1] = (last.0.into(), last.1);
            feed(&mut model, &interval(second * 1_000, &[], &[map("@w", &all).as_str(), map("@c", &all).as_str()]));
        }
        let rows = |rows: &super::PageRows, name: &str| {
            let row = &rows.rows[name];
            (row.total, row.history.iter().copied().collect::<Vec<_>>())
        };
        let of_new = (105, vec![None, Some(4.0), None]);
        assert_eq!(rows(&model.callers, "1,99"), of_new);
        assert_eq!(rows(&model.callers, "0,59"), (110, vec![Some(100.0), None, None, None]));
        assert_eq!(rows(&model.cpus, "CPU 1"), of_new);
        assert_eq!(rows(&model.cpus, "CPU 0"), (6010, vec![Some(6000.0), Some(0.0), Some(0.0), Some(0.0)]));
        assert_eq!(rows(&model.tasks, "? (99)"), of_new);
    }

    #[test]
    fn quantiles_are_ends_of_rows_and_losses_are_kept() {
        let mut model = Model::new(1000);
        let times = r#"{"type": "hist", "data": {"@t": [{"min": 64, "max": 95, "count": 98}, {"min": 96, "max": 127, "count": 1}, {"min": 128, "count": 1}]}}"#;
        feed(&mut model, &interval(1_000, &[], &[times]));
        assert_eq!([0.5, 0.99, 1.0].map(|part| model.quantile(part)), [Some(95), Some(127), Some(128)]);
        model.feed(r#"{"type": "lost_events", "count": 3, "data": {"events": 3}}"#).unwrap();
        model.feed(r#"{"type": "runtime_error", "msg": "Missed 1 hit: reason"}"#).unwrap();
        assert_eq!(model.losses, ["Lost 3 events", "Missed 1 hit: reason"]);
        assert!(model.feed("not JSON").is_err());
    }
}
