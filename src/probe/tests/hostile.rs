//! Safe code that would have undefined behavior if the engine allowed it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

use super::*;
use crate::interrupts;

/// Evaluates to whether a type is `Send` or `Sync`. A method that needs no further reference is preferred, if its bound
/// holds.
macro_rules! crosses_cpus {
    ($type:ty) => {{
        struct Of<T>(core::marker::PhantomData<T>);
        #[allow(dead_code, reason = "unused for a type that stays")]
        trait Crosses {
            fn crosses(&self) -> bool {
                true
            }
        }
        impl<T: Send> Crosses for Of<T> {}
        #[allow(dead_code, reason = "unused for a type that crosses")]
        trait Stays {
            fn crosses(&self) -> bool {
                false
            }
        }
        impl<T> Stays for &Of<T> {}
        (&Of::<$type>(core::marker::PhantomData)).crosses() || (&Of::<&$type>(core::marker::PhantomData)).crosses()
    }};
}

/// A call looks at the list of the task that runs, which another CPU could only read while it changes.
#[test]
fn what_a_handler_sees_stays_on_its_cpu() {
    assert!(crosses_cpus!(u64));
    assert!(!crosses_cpus!(Hit<'static>) && !crosses_cpus!(Call<'static>) && !crosses_cpus!(CallArguments));
}

#[test]
fn probes_are_not_changed_with_interrupts_masked() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), RET]);
    let register = || Kprobe::at(function).pre(see_x0).register();
    let refused = ProbeError::InterruptsMasked { address: function };
    assert!(refused.to_string().contains("cannot be registered or changed"), "{refused}");
    assert_eq!(interrupts::with_masked(register).unwrap_err(), refused);
    let probe = register().unwrap();
    for changed in [Registration::enable, Registration::disable] {
        assert_eq!(interrupts::with_masked(|| changed(&probe)), Err(refused.clone()));
    }
    assert_eq!(interrupts::with_masked(|| probe.exchange(&probe)), Err(refused));
    assert_eq!(computer.call(function, 10), 11);
    assert_eq!((SEEN.load(Relaxed), probe.hits()), (10, 1));
}

/// The engine reads all words of a function, so a wrong table of functions must not lead it out of the text.
#[test]
fn a_function_that_reaches_out_of_the_text_is_none() {
    let mut computer = computer();
    let function = computer.function(0, &[add(1), RET]);
    for (bytes, is_function) in [(4, true), (2, false), (1 << 28, false), (usize::MAX / 2, false), (0, true)] {
        computer::TOO_LONG.store(bytes, Relaxed);
        let outcome = check(function).map(|_| ());
        computer::TOO_LONG.store(0, Relaxed);
        let refused = Err(ProbeError::NoFunction { address: function });
        assert_eq!(outcome, if is_function { Ok(()) } else { refused }, "{bytes:#x}");
    }
    computer.call(function, 0);
}

/// The owner of a probe drops what its handlers use after it. An unwinding panic in between would leave the probe
/// armed, with handlers whose data is gone.
#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn a_probe_that_is_dropped_with_interrupts_masked_does_not_unwind() {
    const CHILD: &str = "KPROBES_TEST_DROPS";
    const UNWOUND: i32 = 77;
    if std::env::var_os(CHILD).is_some() {
        let computer = computer();
        let function = computer.function(0, &[add(1), RET]);
        let probe = Kprobe::at(function).pre(see_x0).register().unwrap();
        let outcome = catch_unwind(AssertUnwindSafe(|| interrupts::with_masked(|| drop(probe))));
        std::process::exit(if outcome.is_err() { UNWOUND } else { 0 });
    }
    let name = "probe::tests::hostile::a_probe_that_is_dropped_with_interrupts_masked_does_not_unwind";
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, "")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&child.stderr);
    assert!(!child.status.success() && child.status.code() != Some(UNWOUND), "{:?}\n{told}", child.status);
    assert!(told.contains("a probe must not be unregistered in a handler"), "{told}");
}
