//! The audits of the images as other profiles compile them: at each level of optimization, and as a whole.
//!
//! What the compiler inlines differs from level to level, and LLVM's machine outliner moves code to functions of its
//! own. A call that is inlined at one level can be a call of a function that can be probed at another.

use std::path::PathBuf;

use anyhow::{Context, Result};

use super::{pool::Pool, report::Outcome, wanted::Wanted};
use crate::{
    audit::{self, Image},
    workspace,
};

/// The names of the tests, and how their profiles differ from that of `Cargo.toml`.
const PROFILES: [(&str, &str); 5] = [
    ("check::profiles::opt_level_1", "opt-level=1"),
    ("check::profiles::opt_level_3", "opt-level=3"),
    ("check::profiles::opt_level_s", "opt-level=\"s\""),
    ("check::profiles::opt_level_z", "opt-level=\"z\""),
    ("check::profiles::lto", "lto=\"fat\""),
];
/// The profile of these builds. It has a directory of its own, so the images of the release profile stay unchanged.
const NAME: &str = "audited";

/// Adds a test for each profile.
pub fn add<'a>(pool: &Pool<'a>, wanted: &Wanted, is_listing: bool) {
    for (test, difference) in PROFILES.into_iter().filter(|(test, _)| wanted.has(test)) {
        pool.add(test, move |context| {
            if is_listing {
                return context.results.list(test.into(), 1);
            }
            context.results.time(test.into(), || {
                let images = [Image::Kernel, Image::Tests, Image::Example];
                images.into_iter().try_for_each(|image| check(image, difference)).map(|()| Outcome::Passed)
            });
        });
    }
}

/// Builds an image with a profile that differs in one setting, and audits it. The error is the report.
fn check(image: Image, difference: &str) -> Result<(), String> {
    let built = build(image.package(), difference).map_err(|error| format!("{error:#}"));
    audit::check(image, &built?, false).map_err(|report| format!("{}: {report}", image.package()))
}

fn build(package: &str, difference: &str) -> Result<PathBuf> {
    let settings = ["inherits=\"release\"", "debug=false", difference].map(|one| format!("profile.{NAME}.{one}"));
    let mut arguments = vec!["build", "--profile", NAME, "--package", package];
    arguments.extend(settings.iter().flat_map(|setting| ["--config", setting]));
    let executable = workspace::build(&arguments)?.pop();
    executable.map(|one| one.path).with_context(|| format!("the package {package} has no binary"))
}
