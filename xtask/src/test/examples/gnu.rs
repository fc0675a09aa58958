//! The example `minimal`, linked by GNU ld: `kprobes.x` is for that linker, too.

use std::process::{Command, Stdio};

use super::{derived::Package, run, shown};
use crate::test::{
    pool::{BuildContext, Job, Pool},
    report::Outcome,
    wanted::Wanted,
};

const TEST: &str = "examples::minimal_linked_by_gnu_ld";
/// The linker of Debian's package `binutils-aarch64-linux-gnu`.
const LINKER: &str = "aarch64-linux-gnu-ld";

/// Adds the test.
pub fn add<'a>(pool: &Pool<'a>, wanted: &'a Wanted, is_listing: bool) {
    if !wanted.has(TEST) {
        return;
    }
    pool.add("a kernel linked by GNU ld", move |context| {
        if is_listing {
            return context.results.list(TEST.into(), 1);
        }
        if let Err(error) = add_test(context) {
            context.results.step_failed("build::gnu_ld", error);
        }
    });
}

fn add_test(context: &BuildContext<'_, '_>) -> Result<(), String> {
    let version = Command::new(LINKER).arg("--version").stdin(Stdio::null()).output();
    let job: Job<'_> = match version {
        Err(error) => {
            let reason = format!("{LINKER} is not installed: {error}");
            Box::new(move |results| results.time(TEST.into(), || Ok(Outcome::Skipped(reason))))
        }
        Ok(_) => {
            let package = Package::new("gnu_ld")?;
            package.put("gnu_ld", &[], "")?;
            let elf = package.build_with_linker("gnu_ld", LINKER)?;
            let check = move || match (run(&elf, "virt", "max", 1)?, shown("minimal")?) {
                (printed, expected) if printed == expected => Ok(Outcome::Passed),
                (printed, _) => Err(format!("it prints\n{printed}")),
            };
            Box::new(move |results| results.time(TEST.into(), check))
        }
    };
    context.add(TEST.into(), 1, job);
    Ok(())
}
