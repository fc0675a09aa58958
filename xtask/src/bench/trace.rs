//! Counts the instructions of one hit, or of one change to probes, in QEMU's log, by function, and the exceptions.
//!
//! QEMU logs a line for each block of code before it executes it, and is told to make blocks of one instruction. The
//! image's round begins and ends at known instructions. The instructions in between that do not belong to the round
//! itself are the cost of the hit above the bare call. A change is between two marks.

use std::io::{self, BufRead};

use kprobes_symbols::{Symbol, SymbolTable};

/// The function that calls the target; the marks; and the common prefix of their names and the targets' names: see
/// `benches/src/targets.S`.
const ROUND: &str = "bench_round";
const MARKS: [&str; 2] = ["bench_begin", "bench_end"];
const BARE: &str = "bench_";
/// The vectors, 16 of 128 bytes each: an exception begins with the first instruction of one.
const VECTORS: &str = "exception_vectors";
const VECTOR: u64 = 128;
/// The name for the copies of probed instructions and the stubs, which are in no function.
const ARENA: &str = "[slot or stub]";

/// The instructions of one hit or change.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The number of instructions by function, in the order in which the functions were entered.
    pub functions: Vec<(String, u64)>,
    /// The number of exceptions that were taken.
    pub exceptions: u64,
}

impl Trace {
    /// Reads QEMU's log, which may be long. The error says what is missing.
    pub fn read(log: impl BufRead, symbols: &SymbolTable<'_>) -> Result<Self, String> {
        let find = |name| symbols.find(name).next().ok_or_else(|| format!("the image has no {name}"));
        let (round, begin, end) = (find(ROUND)?, find(MARKS[0])?, find(MARKS[1])?);
        let mut trace = Self::default();
        // The address at which the counting ends, once it has begun.
        let mut last = None;
        for address in Addresses::new(log) {
            let address = address.map_err(|error| format!("the log cannot be read: {error}"))?;
            match last {
                None if address == round.address => last = Some(round.address + round.size - 4),
                None if address == begin.address => last = Some(end.address),
                None => {}
                Some(last) if address == last => return Ok(trace),
                Some(_) => trace.add(address, symbols),
            }
        }
        Err("the log has no complete hit or change".into())
    }

    fn add(&mut self, address: u64, symbols: &SymbolTable<'_>) {
        let around = symbols.lookup(address);
        let Symbol { name, address: start, .. } = around.unwrap_or(Symbol { name: ARENA, address, size: 0 });
        if name.starts_with(BARE) {
            return;
        }
        if name == VECTORS && (address - start).is_multiple_of(VECTOR) {
            self.exceptions += 1;
        }
        match self.functions.iter_mut().find(|(known, _)| known == name) {
            Some((_, count)) => *count += 1,
            None => self.functions.push((name.into(), 1)),
        }
    }

    /// Returns the number of all instructions.
    pub fn total(&self) -> u64 {
        self.functions.iter().map(|(_, count)| count).sum()
    }
}

/// The addresses of the executed instructions.
///
/// `Trace 0: 0x7f… [FLAGS/PC/…] NAME` announces an instruction. If it is not executed after all,
/// `Stopped execution of TB chain before …` follows.
struct Addresses<R> {
    log: R,
    line: String,
    /// The address in the last line, which may not be executed after all.
    pending: Option<u64>,
}

impl<R: BufRead> Addresses<R> {
    fn new(log: R) -> Self {
        Self { log, line: String::new(), pending: None }
    }
}

impl<R: BufRead> Iterator for Addresses<R> {
    type Item = io::Result<u64>;

    fn next(&mut self) -> Option<io::Result<u64>> {
        loop {
            self.line.clear();
            match self.log.read_line(&mut self.line) {
                Ok(0) => return self.pending.take().map(Ok),
                Ok(_) => {}
                Err(error) => return Some(Err(error)),
            }
            if self.line.starts_with("Stopped execution") {
                self.pending = None;
            } else if self.line.starts_with("Trace ") {
                let pc = self.line.split_once('[').and_then(|(_, rest)| rest.split('/').nth(1));
                let executed = self.pending.take();
                self.pending = pc.and_then(|pc| u64::from_str_radix(pc, 16).ok());
                if let Some(executed) = executed {
                    return Some(Ok(executed));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kprobes_symbols::{Contents, Symbol, SymbolTable};

    use super::Trace;

    const FUNCTIONS: [Symbol<'_>; 6] = [
        Symbol { name: "exception_vectors", address: 0x1000, size: 0x800 },
        Symbol { name: "hit", address: 0x2000, size: 16 },
        Symbol { name: "bench_round", address: 0x3000, size: 16 },
        Symbol { name: "bench_begin", address: 0x5000, size: 4 },
        Symbol { name: "bench_end", address: 0x5004, size: 4 },
        Symbol { name: "bench_target_add", address: 0x4000, size: 8 },
    ];

    fn log(addresses: &[u64]) -> String {
        addresses.iter().map(|pc| format!("Trace 0: 0x7fd4 [00800400/{pc:016x}/01000d11/ff021201] name\n")).collect()
    }

    fn read_with(functions: &[Symbol<'_>], log: &str) -> Result<Trace, String> {
        let table = kprobes_symbols::write(0, &Contents { functions, ..Contents::default() }).unwrap();
        Trace::read(log.as_bytes(), &SymbolTable::parse(&table).unwrap())
    }

    fn read(log: &str) -> Result<Trace, String> {
        read_with(&FUNCTIONS, log)
    }

    const HIT: [u64; 12] =
        [0x3000, 0x3004, 0x4000, 0x1200, 0x1204, 0x2000, 0x1208, 0x9000, 0x9004, 0x4004, 0x3008, 0x300c];

    #[test]
    fn counts_by_function_what_is_above_the_bare_call() {
        let before_and_after = [&[0x2000, 0x1280][..], &HIT, &[0x2004, 0x2008]].concat();
        let trace = read(&log(&before_and_after)).unwrap();
        let functions = [("exception_vectors", 3), ("hit", 1), ("[slot or stub]", 2)];
        assert_eq!(trace.functions, functions.map(|(name, count)| (name.to_string(), count)));
        assert_eq!((trace.total(), trace.exceptions), (6, 1));
    }

    #[test]
    fn a_block_that_was_not_executed_does_not_count() {
        let whole = log(&HIT);
        let twice = whole.replacen(
            "Trace 0: 0x7fd4 [00800400/0000000000002000",
            "Trace 0: 0x7fd4 [00800400/0000000000002000/01000d11/ff021201] name\n\
            Stopped execution of TB chain before 0x7fd4 [0000000000002000] name\n\
            cpu_io_recompile: rewound execution of TB\n\
            Trace 0: 0x7fd4 [00800400/0000000000002000",
            1,
        );
        assert_ne!(whole, twice);
        assert_eq!(read(&twice), read(&whole));
    }

    #[test]
    fn a_change_is_between_its_marks() {
        let trace = read(&log(&[0x2000, 0x5000, 0x2004, 0x2008, 0x5004, 0x200c])).unwrap();
        assert_eq!((trace.functions, trace.exceptions), (vec![("hit".into(), 2)], 0));
    }

    #[test]
    fn half_a_round_is_none() {
        for part in [&HIT[1..], &HIT[..11], &[]] {
            assert!(read(&log(part)).is_err());
        }
        assert!(read_with(&[], &log(&HIT)).unwrap_err().contains("bench_round"));
    }
}
