//! The on-target tests: one image, which runs a test on command.
//!
//! The host types `list` and `run NAME` at the prompt, over the UART, and reads the results there, so that the same
//! image serves an emulator and a board. `thorough NAME` runs the long form of a test that has one ([`is_thorough`]). A
//! test that fails panics, which stops the machine. Every test therefore gets a boot of its own, and need not clean up.
//! On a board, `reboot` makes room for the next test.
//!
//! The linker collects the tests: [`test!`] puts a [`Test`] into the section `.tests`, which `linker.ld` gathers.

#![no_std]
#![no_main]

extern crate alloc;

mod block;
mod compiled;
mod coverage;
mod debug;
mod entry;
mod events;
mod everything;
mod exclusive;
mod fast_interrupt;
mod fault;
mod fibers;
mod fixture;
mod inlined;
mod kprobe;
mod kretprobe;
mod machine;
mod memory;
mod need;
mod nofault;
mod programs;
mod protected;
mod random;
mod result;
mod scarce;
mod scheduling;
mod signal;
mod simulated;
mod smp;
mod snippets;
mod static_events;
mod step;
mod storm;
mod task;
mod tracer;
mod typed;
mod unwind;
mod watch;
mod workloads;

use core::slice;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use need::Need;
use runtime::console::read_line;
use runtime::{power, print, println};

/// A test. It passes when it returns or, if `stops` is given, when it stops the machine with a reason that contains
/// that text. It is skipped on a machine that lacks what it needs.
pub struct Test {
    name: &'static str,
    run: fn(),
    /// The traits of the machine that can affect the test. The host runs the test for each value of these traits, or
    /// once if there are none (`docs/testing.md`).
    depends: &'static [&'static str],
    needs: Option<Need>,
    stops: Option<&'static str>,
}

/// Defines a test: `test!(fn name() { … });`. Before `fn` may stand, in this order:
///
/// - `depends(TRAITS),` with traits that the host knows (`docs/testing.md`); the host refuses a list with other traits;
/// - `needs NEED,` with one of the constants in [`need`];
/// - `stops "text",`.
#[macro_export]
macro_rules! test {
    ($(depends($($trait:ident),+),)? $(needs $need:ident,)? $(stops $text:literal,)? fn $name:ident() $body:block) => {
        fn $name() $body
        const _: () = {
            #[used]
            #[unsafe(link_section = ".tests")]
            static TEST: $crate::Test = $crate::Test::new(concat!(module_path!(), "::", stringify!($name)), $name)
                $(.depends(&[$(stringify!($trait)),+]))?
                $(.needs($crate::need::$need))?
                $(.stops($text))?;
        };
    };
}

#[doc(hidden)]
impl Test {
    /// Creates a test with the full path `name`.
    pub const fn new(name: &'static str, run: fn()) -> Self {
        Self { name, run, depends: &[], needs: None, stops: None }
    }

    /// Sets the traits that the test depends on.
    pub const fn depends(self, depends: &'static [&'static str]) -> Self {
        Self { depends, ..self }
    }

    /// Sets the requirement of the test.
    pub const fn needs(self, need: Need) -> Self {
        Self { needs: Some(need), ..self }
    }

    /// Sets the text that the test's reason for stopping the machine contains.
    pub const fn stops(self, text: &'static str) -> Self {
        Self { stops: Some(text), ..self }
    }
}

impl Test {
    /// Prints the line of the list: `xtask/src/test/protocol.rs` reads it.
    fn list(&self) {
        print!("test {}", self.name());
        if !self.depends.is_empty() {
            print!(" depends:");
            self.depends.iter().for_each(|one| print!(" {one}"));
        }
        if let Some(need) = &self.needs {
            print!(" needs: {}", need.name);
        }
        if let Some(text) = self.stops {
            print!(" stops: {text}");
        }
        println!();
    }

    /// Returns the path of the test below the crate.
    fn name(&self) -> &'static str {
        self.name.split_once("::").map_or(self.name, |(_, name)| name)
    }
}

static IS_THOROUGH: AtomicBool = AtomicBool::new(false);

/// Returns whether the running test takes its long form, if it has one.
fn is_thorough() -> bool {
    IS_THOROUGH.load(Relaxed)
}

/// Returns the number that was passed to the build in the variable `name`, which is `text`, or `otherwise`.
fn parameter(name: &str, text: Option<&str>, otherwise: u64) -> u64 {
    text.map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name} is {text}, not a decimal number")))
}

/// Returns all tests.
fn tests() -> &'static [Test] {
    unsafe extern "C" {
        safe static __tests_start: u8;
        safe static __tests_end: u8;
    }
    let (start, end) = (&raw const __tests_start, &raw const __tests_end);
    let (start, end) = (start.cast::<Test>(), end.cast::<Test>());
    // SAFETY: the linker script defines these symbols as the bounds of the section `.tests`, into which only `test!`
    // puts values, all of this type.
    unsafe { slice::from_raw_parts(start, end.offset_from_unsigned(start)) }
}

runtime::entry!(main, scarce::Heap);

fn main() {
    loop {
        print!("tests> ");
        let line = read_line();
        match line.trim().split_once(' ') {
            None if line.trim() == "list" => {
                tests().iter().for_each(Test::list);
            }
            Some((command @ ("run" | "thorough"), name)) => match tests().iter().find(|test| test.name() == name) {
                Some(Test { needs: Some(need), .. }) if !(need.is_met)() => {
                    println!("result {name} skipped: no {}", need.name);
                }
                Some(test) => {
                    IS_THOROUGH.store(command == "thorough", Relaxed);
                    (test.run)();
                    println!("result {name} ok");
                }
                None => println!("result {name} failed: there is no such test"),
            },
            None if line.trim() == "reboot" => power::reset(),
            _ => println!("error: say `list`, `run NAME`, `thorough NAME` or `reboot`"),
        }
    }
}
