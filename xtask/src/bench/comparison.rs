//! Data to compare the figures with.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Deserialize;

/// The data of all cases, by name.
#[derive(Deserialize)]
pub struct Comparison(BTreeMap<String, CaseComparison>);

/// The data of a case.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CaseComparison {
    /// The cost of the corresponding hit or change in Linux 6.1 and 6.12, in instructions.
    pub linux: Option<[u32; 2]>,
    /// The row of Linux's table, for readers of the file.
    #[serde(rename = "linux-case")]
    _linux_case: Option<String>,
    /// The upper limit that the project sets itself.
    pub at_most: Option<u32>,
    /// The cost of code that is written by hand for this case alone.
    pub floor: Option<u32>,
}

impl Comparison {
    /// Loads the data of this program.
    pub fn load() -> Result<Self> {
        toml::from_str(include_str!("comparison.toml")).context("comparison.toml is wrong")
    }

    /// The data of the case of this name, if there is any.
    pub fn of(&self, name: &str) -> Option<&CaseComparison> {
        self.0.get(name)
    }
}

#[cfg(test)]
mod tests {
    use super::Comparison;

    #[test]
    fn the_data_are_right() {
        let comparison = Comparison::load().unwrap();
        assert_eq!(comparison.of("kprobe.simulated").unwrap().linux, Some([430, 322]));
        for (name, entry) in &comparison.0 {
            assert_eq!(entry.linux.is_some(), entry._linux_case.is_some(), "{name}");
            if let (Some(at_most), Some(floor)) = (entry.at_most, entry.floor) {
                assert!(floor <= at_most, "{name}");
            }
        }
    }
}
