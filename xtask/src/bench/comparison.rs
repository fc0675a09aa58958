//! What the figures are shown beside.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Deserialize;

/// What is known of the cases, by name.
#[derive(Deserialize)]
pub struct Comparison(BTreeMap<String, Entry>);

/// What is known of a case.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Entry {
    /// What the same costs in Linux 6.1 and 6.12.
    pub linux: Option<[u32; 2]>,
    /// The row of Linux's table that it is, for those who read the file.
    #[serde(rename = "linux-case")]
    _linux_case: Option<String>,
    /// What the project means to need at most.
    pub at_most: Option<u32>,
    /// What written by hand and for this alone it would need.
    pub floor: Option<u32>,
}

impl Comparison {
    /// The data of this program.
    pub fn load() -> Result<Self> {
        toml::from_str(include_str!("comparison.toml")).context("comparison.toml is wrong")
    }

    /// What is known of the case of this name.
    pub fn of(&self, name: &str) -> Option<&Entry> {
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
