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

const ALL: &[Image] = &[Image::Kernel, Image::Tests, Image::Example];
/// With fat LTO, functions of the example are inlined into the engine's, which its declarations do not describe.
const IMAGES_WITH_LTO: &[Image] = &[Image::Kernel, Image::Tests];
/// The names of the tests, how their profiles differ from that of `Cargo.toml`, and which images are audited.
const PROFILES: [(&str, &str, &[Image]); 5] = [
    ("check::profiles::opt_level_1", "opt-level=1", ALL),
    ("check::profiles::opt_level_3", "opt-level=3", ALL),
    ("check::profiles::opt_level_s", "opt-level=\"s\"", ALL),
    ("check::profiles::opt_level_z", "opt-level=\"z\"", ALL),
    ("check::profiles::lto", "lto=\"fat\"", IMAGES_WITH_LTO),
];
/// The profile of these builds. It has a directory of its own, so the images of the release profile stay unchanged.
const NAME: &str = "audited";

/// Adds a test for each profile.
pub fn add(pool: &Pool<'_>, wanted: &Wanted) {
    for (test, difference, images) in PROFILES.into_iter().filter(|(test, ..)| wanted.has(test)) {
        pool.add_check(test, move || {
            images.iter().try_for_each(|&image| check(image, difference)).map(|()| Outcome::Passed)
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
