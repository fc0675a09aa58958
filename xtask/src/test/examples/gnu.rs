//! The example `minimal`, linked by GNU ld: `kprobes.x` is for that linker, too.

use std::process::{Command, Stdio};

use super::{VIRT, derived::Package, prints};
use crate::test::{
    pool::{BuildContext, Pool},
    report::Outcome,
    wanted::Wanted,
};

const TEST: &str = "examples::minimal_linked_by_gnu_ld";
/// The linker of Debian's package `binutils-aarch64-linux-gnu`.
const LINKER: &str = "aarch64-linux-gnu-ld";

/// Adds the test.
pub fn add(pool: &Pool<'_>, wanted: &Wanted) {
    pool.add_for(wanted.among([TEST]), "a kernel linked by GNU ld", |context| {
        context.results.step("build::gnu_ld", add_test(context));
    });
}

fn add_test(context: &BuildContext<'_, '_>) -> Result<(), String> {
    if let Err(error) = Command::new(LINKER).arg("--version").stdin(Stdio::null()).output() {
        let reason = format!("{LINKER} is not installed: {error}");
        context.add_test(TEST, || Ok(Outcome::Skipped(reason)));
        return Ok(());
    }
    let package = Package::new("gnu_ld")?;
    package.put("gnu_ld", &[], "")?;
    let elf = package.build_with_linker("gnu_ld", LINKER)?;
    context.add_test(TEST, move || prints("minimal", &elf, VIRT));
    Ok(())
}
