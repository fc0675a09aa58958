//! The figures in docs/benchmarks.md: written by a run, and compared with one.

use std::{fs, ops::Range};

use anyhow::{Context, Result};

use super::{comparison::Comparison, protocol::Measured, table::number};
use crate::workspace;

/// The path of the page, below the root.
const PATH: &str = "docs/benchmarks.md";
/// The marks around its figures, and the first word of the figures.
const FENCE: &str = "\n```\n";
const HEAD: &str = "case ";
/// How far the figure of a change may differ from that of the page, relative to it. The state of the allocator makes a
/// difference, and so does the layout of the image, which depends on the path of the checkout.
const TOLERANCE: f64 = 0.05;

/// The page.
pub struct Page(String);

impl Page {
    /// Loads the page of this repository.
    pub fn load() -> Result<Self> {
        let text = fs::read_to_string(workspace::root().join(PATH));
        text.map(Self).with_context(|| format!("{PATH} cannot be read"))
    }

    /// Replaces the page's figures by `figures`, a table and how it was measured.
    pub fn update(mut self, figures: &str) -> Result<()> {
        let range = self.figures().with_context(|| format!("{PATH} has no figures"))?;
        self.0.replace_range(range, figures);
        fs::write(workspace::root().join(PATH), &self.0).with_context(|| format!("{PATH} cannot be written"))
    }

    /// Returns the range of the figures in the page.
    fn figures(&self) -> Option<Range<usize>> {
        let opening = format!("{FENCE}{HEAD}");
        let start = self.0.find(&opening)? + FENCE.len();
        let length = self.0.get(start..)?.find("```")?;
        Some(start..start + length)
    }

    /// Returns the figure of each case, as it is written.
    fn rows(&self) -> impl Iterator<Item = (&str, &str)> {
        let table = self.figures().and_then(|range| self.0.get(range)).unwrap_or_default();
        let rows = table.lines().skip(1).take_while(|line| !line.is_empty());
        rows.filter_map(|row| {
            let mut words = row.split_whitespace();
            Some((words.next()?, words.next()?))
        })
    }

    /// Compares the page with these figures, which are of all cases but those that are `left_out`. The error has a
    /// sentence for each difference.
    pub fn compare(&self, figures: &[Measured], comparison: &Comparison, left_out: &[&str]) -> Result<(), String> {
        let doubts = self.doubts(figures, comparison, left_out);
        if doubts.is_empty() {
            return Ok(());
        }
        Err(format!("{}\n`cargo xtask bench --update-page` updates the page", doubts.join("\n")))
    }

    fn doubts(&self, figures: &[Measured], comparison: &Comparison, left_out: &[&str]) -> Vec<String> {
        let mut doubts = Vec::new();
        for measured in figures {
            let Measured { name, bare, .. } = measured;
            let value = measured.value();
            let found = number(Some(value));
            let is_exact = *bare != 0;
            let tolerance = if is_exact { 0.0 } else { TOLERANCE };
            if let Some(most) = comparison.of(name).and_then(|known| known.at_most)
                && value > f64::from(most) * (1.0 + tolerance)
            {
                doubts.push(format!("{name} takes {found} instructions; its limit is {most}"));
            }
            match self.rows().find(|(known, _)| known == name) {
                None => doubts.push(format!("{PATH} has no {name}")),
                Some((_, written)) if written == found => {}
                Some((_, written)) if !is_exact && is_near(written, value) => {}
                Some((_, written)) => doubts.push(format!("{PATH} says {written} for {name}, but it is {found}")),
            }
        }
        let is_gone = |name: &str| !left_out.contains(&name) && figures.iter().all(|measured| measured.name != name);
        doubts.extend(
            self.rows().filter(|(name, _)| is_gone(name)).map(|(name, _)| format!("{name} in {PATH} is not a case")),
        );
        doubts
    }
}

/// Whether the number that is `written` is about `value`.
fn is_near(written: &str, value: f64) -> bool {
    written.replace(',', "").parse().is_ok_and(|written: f64| (written - value).abs() <= TOLERANCE * value)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs};

    use super::{Comparison, Measured, Page};
    use crate::workspace;

    const PAGE: &str = "\
Words.

```
case              instructions
kprobe.entry                43
register.one             5,938

Measured
```

```
case of another table
```
";

    /// Compares the page with these cases: their totals and bare calls.
    fn compare(cases: &[(&str, u64, u64)]) -> Result<(), String> {
        compare_without(cases, &[])
    }

    /// Compares the page with these cases, and leaves out the cases `left_out`.
    fn compare_without(cases: &[(&str, u64, u64)], left_out: &[&str]) -> Result<(), String> {
        let measured = |&(name, total, bare): &(&str, u64, u64)| Measured {
            name: name.into(),
            total,
            bare,
            count: 100,
            unit: "instructions".into(),
        };
        let figures: Vec<_> = cases.iter().map(measured).collect();
        Page(PAGE.into()).compare(&figures, &Comparison::load().unwrap(), left_out)
    }

    #[test]
    fn a_page_is_that_of_a_run() {
        assert_eq!(compare(&[("kprobe.entry", 4922, 622), ("register.one", 593_800, 0)]), Ok(()));
        assert_eq!(compare(&[("kprobe.entry", 4922, 622), ("register.one", 600_000, 0)]), Ok(()), "changes vary");
        for (entry, register, sentence) in [
            (5022, 593_800, "docs/benchmarks.md says 43 for kprobe.entry, but it is 44"),
            (5222, 593_800, "kprobe.entry takes 46 instructions; its limit is 43"),
            (4922, 700_000, "docs/benchmarks.md says 5,938 for register.one, but it is 7,000"),
        ] {
            let error = compare(&[("kprobe.entry", entry, 622), ("register.one", register, 0)]).unwrap_err();
            assert!(error.lines().any(|line| line == sentence), "{error}");
        }
        let limited = |total| compare(&[("kprobe.entry", 4922, 622), ("unregister.batch-1000", total, 0)]).unwrap_err();
        assert!(!limited(47_200).contains("its limit"), "limits of changes vary, too");
        assert!(limited(47_300).contains("unregister.batch-1000 takes 473 instructions; its limit is 450"));
        let error = compare(&[("kprobe.entry", 4922, 622), ("new", 100, 50)]).unwrap_err();
        assert!(error.starts_with("docs/benchmarks.md has no new\nregister.one in docs/benchmarks.md is not a case\n"));
        assert_eq!(compare_without(&[("kprobe.entry", 4922, 622)], &["register.one"]), Ok(()));
    }

    /// Returns the figure of each case as a number.
    fn figures(page: &Page) -> BTreeMap<&str, f64> {
        page.rows().filter_map(|(name, figure)| Some((name, figure.replace(',', "").parse().ok()?))).collect()
    }

    #[test]
    fn the_readme_says_what_the_page_says() {
        const DROPPED: &str = "event.p.filtered-out";
        let (page, comparison) = (Page::load().unwrap(), Comparison::load().unwrap());
        let figures = figures(&page);
        let ratio = |(name, figure): (&str, f64)| Some(f64::from(comparison.of(name)?.linux?[1]) / figure);
        let is_of_a_hit = |name: &str| ["kprobe.", "kretprobe.", "event."].iter().any(|kind| name.starts_with(kind));
        let hits = figures.iter().map(|(&name, &figure)| (name, figure)).filter(|(name, _)| is_of_a_hit(name));
        let ratios: Vec<_> = hits.filter(|(name, _)| *name != DROPPED).filter_map(ratio).collect();
        let (least, most) =
            (ratios.iter().copied().fold(f64::MAX, f64::min), ratios.iter().copied().fold(0.0, f64::max));
        let dropped = ratio((DROPPED, figures[DROPPED])).unwrap();
        let readme = fs::read_to_string(workspace::root().join("README.md")).unwrap();
        for sentence in [
            format!("a count costs {} instructions a hit", figures["prog.count"]),
            format!("Linux 6.12 executes {least:.0} to {most:.0} times as many instructions"),
            format!("{dropped:.0} times as many where a filter drops the hit"),
        ] {
            assert!(readme.contains(&sentence), "README.md does not say: {sentence}");
        }
    }

    #[test]
    fn the_page_about_tracing_says_what_the_page_says() {
        let page = Page::load().unwrap();
        let figures = figures(&page);
        let tracing = fs::read_to_string(workspace::root().join("docs/tracing.md")).unwrap().replace('\n', " ");
        let [function, graph, limited] =
            ["tracer.function", "tracer.graph", "tracer.graph.limited"].map(|name| figures[name]);
        for sentence in [
            format!("A call costs {function:.0} instructions with `function`, and {graph:.0} with `function_graph`"),
            format!("A recorded call then costs {limited:.0} instructions with its return."),
        ] {
            assert!(tracing.contains(&sentence), "docs/tracing.md does not say: {sentence}");
        }
    }

    #[test]
    fn only_the_figures_are_replaced() {
        let page = Page(PAGE.into());
        let range = page.figures().unwrap();
        let mut text = PAGE.to_string();
        text.replace_range(range, "case new\n");
        assert_eq!(text, "Words.\n\n```\ncase new\n```\n\n```\ncase of another table\n```\n");
        let rows: Vec<_> = page.rows().collect();
        assert_eq!(rows, [("kprobe.entry", "43"), ("register.one", "5,938")]);
    }
}
