//! Parses the output of the image of `benches/` on the UART. The image may be broken in any way, so all other output is
//! skipped.

use serde::Deserialize;

/// The prompt of the image.
pub const PROMPT: &str = "bench> ";

/// A line of the protocol.
#[derive(Debug, PartialEq, Eq)]
pub enum ProtocolLine {
    /// A case that exists.
    Case(Case),
    /// The measurement of a case.
    Measured(Measured),
    /// The throughput of a case.
    Throughput(Throughput),
    /// A case that was run once, without a measurement.
    Done(String),
    /// The probes are in place. The next typed line causes the hit.
    Armed,
    /// The hit is over. The next typed line continues.
    Traced,
    /// The image refuses a command, for this reason.
    Refused(String),
}

/// A case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    pub name: String,
    /// How many copies of its target function there are. 0 if the case is a change to probes.
    pub copies: u32,
}

/// A measurement.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Measured {
    pub name: String,
    /// The total of `count` hits or changes.
    pub total: u64,
    /// The total of as many bare calls.
    pub bare: u64,
    pub count: u64,
    /// `instructions` or `cycles`.
    pub unit: String,
}

impl Measured {
    /// The cost of one hit above the bare call, or of one change.
    pub fn value(&self) -> f64 {
        (self.total as f64 - self.bare as f64) / self.count as f64
    }
}

/// The throughput of a case.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Throughput {
    pub name: String,
    /// The number of CPUs that called.
    pub cpus: u32,
    /// The number of functions that they called.
    pub functions: u32,
    /// The number of calls by all CPUs together.
    pub calls: u64,
    pub nanoseconds: u64,
}

impl ProtocolLine {
    /// Parses a line. `None` if it is not one of the protocol.
    pub fn parse(line: &str) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Done {
            name: String,
        }
        if line.starts_with('{') {
            let measured = serde_json::from_str(line).ok().filter(|measured: &Measured| measured.count != 0);
            let throughput = || serde_json::from_str(line).ok().map(Self::Throughput);
            let done = || serde_json::from_str(line).ok().map(|Done { name }| Self::Done(name));
            return measured.map(Self::Measured).or_else(throughput).or_else(done);
        }
        let (word, rest) = line.split_once(' ')?;
        match word {
            "case" => {
                let words: Vec<_> = rest.split(' ').collect();
                let [name, "hit" | "change", copies] = words[..] else { return None };
                Some(Self::Case(Case { name: name.into(), copies: copies.parse().ok()? }))
            }
            "armed" => Some(Self::Armed),
            "traced" => Some(Self::Traced),
            "error:" => Some(Self::Refused(rest.into())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Case, Measured, ProtocolLine, Throughput};

    #[test]
    fn reads_lines_among_garbage() {
        let measured = Measured { name: "a.b".into(), total: 300, bare: 100, count: 100, unit: "cycles".into() };
        let throughput = Throughput { name: "a.b".into(), cpus: 4, functions: 1, calls: 5, nanoseconds: 6 };
        for (text, line) in [
            ("case a.b hit 4", Some(ProtocolLine::Case(Case { name: "a.b".into(), copies: 4 }))),
            ("case a.b change 0", Some(ProtocolLine::Case(Case { name: "a.b".into(), copies: 0 }))),
            (
                r#"{"name":"a.b","total":300,"bare":100,"count":100,"unit":"cycles"}"#,
                Some(ProtocolLine::Measured(measured)),
            ),
            (r#"{"name":"a.b","total":300,"bare":100,"count":0,"unit":"cycles"}"#, None),
            (
                r#"{"name":"a.b","cpus":4,"functions":1,"calls":5,"nanoseconds":6}"#,
                Some(ProtocolLine::Throughput(throughput)),
            ),
            (r#"{"name":"a.b"}"#, Some(ProtocolLine::Done("a.b".into()))),
            ("armed a.b", Some(ProtocolLine::Armed)),
            ("traced a.b", Some(ProtocolLine::Traced)),
            ("error: no clock", Some(ProtocolLine::Refused("no clock".into()))),
            ("bench> run a.b", None),
            ("case a.b other 1", None),
            ("case a.b hit", None),
            ("{}", None),
            ("", None),
        ] {
            assert_eq!(ProtocolLine::parse(text), line, "{text}");
        }
    }
}
