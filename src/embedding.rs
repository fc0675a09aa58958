//! Finds mistakes in how a kernel embeds the engine, before the first probe could hang or corrupt the kernel.
//!
//! [`check`] examines the CPU that it runs on, and the image. The first registration of a probe calls it, and fails
//! with the mistake that it finds. A kernel with several CPUs calls it on each of them when they start, after it has
//! set TPIDR_EL1 and VBAR_EL1.

mod error;
#[cfg(target_os = "none")]
mod target;

#[cfg(any(test, target_os = "none"))]
use core::ops::Range;

#[cfg(any(test, target_os = "none"))]
use crate::event::Event;
#[cfg(any(test, target_os = "none"))]
use crate::insn;

pub use error::EmbeddingError;

/// Checks what can be checked of the embedding before there is a probe: this CPU, and the image. Call it on each CPU,
/// after TPIDR_EL1 and VBAR_EL1 are set.
///
/// It asks for no executable memory. The engine checks each page of that memory when it takes it, so the registration
/// or the enabling of a probe, not this function, reports
/// [`ExecutableMisaligned`](EmbeddingError::ExecutableMisaligned),
/// [`NoGuardedMemory`](EmbeddingError::NoGuardedMemory), [`ExecutableOutOfReach`](EmbeddingError::ExecutableOutOfReach)
/// and [`NotExecutable`](EmbeddingError::NotExecutable).
///
/// To find out whether exceptions lead to the engine, it executes a breakpoint (`brk #0x5`, at
/// `kprobes_nofault_breakpoint`). A kernel whose vectors do not lead to the engine reports that breakpoint as an
/// exception of its own, and most kernels stop there.
///
/// # Errors
///
/// The first mistake that it finds.
pub fn check() -> Result<(), EmbeddingError> {
    if cfg!(kprobes_unoptimized) {
        return Err(EmbeddingError::Unoptimized);
    }
    let text = crate::kernel::text();
    if text.is_empty() || !text.start.is_multiple_of(4) || !text.end.is_multiple_of(4) {
        return Err(EmbeddingError::Text { text });
    }
    #[cfg(target_os = "none")]
    target::check(text.start)?;
    Ok(())
}

/// Checks memory of [`allocate_executable`](crate::platform::Platform::allocate_executable), in which there is nothing
/// yet: that it begins where a page does, that a branch leads there from the text and back, that it can be written to,
/// and that instructions are executed there. Writes two instructions at the virtual address `memory`. Called with the
/// registry's lock held, and with interrupts unmasked.
///
/// # Errors
///
/// The first mistake that it finds.
pub(crate) fn check_executable(memory: usize) -> Result<(), EmbeddingError> {
    if !memory.is_multiple_of(4096) {
        return Err(EmbeddingError::ExecutableMisaligned { address: memory });
    }
    // Nothing is executed on the host.
    #[cfg(target_os = "none")]
    target::check_execution(memory)?;
    Ok(())
}

/// Checks that direct branches lead from an end of the text to `memory`, and back.
#[cfg(any(test, target_os = "none"))]
fn check_reach(memory: usize, text: &Range<usize>) -> Result<(), EmbeddingError> {
    let reaches = |from: usize, to: usize| insn::branch(from as u64, to as u64).is_ok();
    let is_in_reach = |end: usize| reaches(end, memory) && reaches(memory, end);
    if is_in_reach(text.start) || is_in_reach(text.end - 4) {
        return Ok(());
    }
    Err(EmbeddingError::ExecutableOutOfReach { address: memory, text: text.clone() })
}

/// Checks the execution state, by the values of CurrentEL, SPSel and, at EL2, HCR_EL2.
#[cfg(any(test, target_os = "none"))]
fn check_state(current_el: u64, sp_sel: u64, hcr: u64) -> Result<(), EmbeddingError> {
    /// HCR_EL2.E2H (Arm ARM, D24.2).
    const E2H: u64 = 1 << 34;
    let level = current_el >> 2 & 0b11;
    let has_sp_el0 = sp_sel & 1 == 0;
    let has_registers = level == 1 || level == 2 && hcr & E2H != 0;
    if has_registers && !has_sp_el0 { Ok(()) } else { Err(EmbeddingError::ExecutionState { level, has_sp_el0 }) }
}

/// Checks that every static event happens in the text, which the engine can patch, outside the region in which nothing
/// is probed, and within reach of its block. `sites` are the addresses of sites and of their blocks.
#[cfg(any(test, target_os = "none"))]
fn check_sites(
    mut sites: impl Iterator<Item = (usize, usize)>,
    region: &Range<usize>,
    text: &Range<usize>,
) -> Result<(), EmbeddingError> {
    sites.try_for_each(|(site, block)| {
        if region.contains(&site) {
            return Err(EmbeddingError::EventInHitPath { site, region: region.clone() });
        }
        if !text.contains(&site) {
            return Err(EmbeddingError::EventOutsideText { site, text: text.clone() });
        }
        match insn::branch(site as u64, block as u64) {
            Ok(_) => Ok(()),
            Err(_) => Err(EmbeddingError::EventOutOfReach { site, block }),
        }
    })
}

/// Checks that no two static events have the same group and name.
#[cfg(any(test, target_os = "none"))]
fn check_names(mut events: impl Iterator<Item = &'static Event> + Clone) -> Result<(), EmbeddingError> {
    while let Some(event) = events.next() {
        let (group, name) = (event.group(), event.name());
        if events.clone().any(|other| (other.group(), other.name()) == (group, name)) {
            return Err(EmbeddingError::EventTwice { group, name });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    /// The engine would write to memory that is not text, such as that of code that ran once at the start.
    #[test]
    fn an_event_outside_the_text_is_refused() {
        let (region, text) = (0x1000..0x2000, 0x1000..0x8000);
        let check = |sites: &[usize]| check_sites(sites.iter().map(|&site| (site, site + 64)), &region, &text);
        assert_eq!(check(&[0x2000, 0x7ffc]), Ok(()));
        let inside = EmbeddingError::EventInHitPath { site: 0x1ffc, region: region.clone() };
        assert_eq!(check(&[0x2000, 0x1ffc]), Err(inside));
        assert_eq!(
            check(&[0x2000, 0x8000]).unwrap_err().to_string(),
            "a static event happens at 0x8000, outside of 0x1000..0x8000, the text that `Platform::text` returns: move \
             its `emit!` to code inside"
        );
    }

    /// The site would stay a NOP, and no probe would hear of the event.
    #[test]
    fn an_event_whose_block_is_out_of_reach_is_refused() {
        const REACH: usize = 1 << 27;
        let check = |block| check_sites([(0x2000, 0x2008), (0x4000, block)].into_iter(), &(0..0), &(0x1000..0x8000));
        assert_eq!(check(0x4000 + REACH - 4), Ok(()));
        assert_eq!(
            check(0x4000 + REACH).unwrap_err().to_string(),
            "a static event happens at 0x4000, and the block that tells of it is at 0x8004000, out of reach of a branch: place the \
             sections of the text within 128 MiB of each other"
        );
    }

    /// Probes would be stepped, at the cost of a second exception.
    #[test]
    fn executable_memory_out_of_reach_is_refused() {
        const REACH: usize = 1 << 27;
        let text = 0x1000_0000..0x1010_0000;
        for memory in [text.start, text.end - 4 + (REACH - 4), text.start - (REACH - 4)] {
            assert_eq!(check_reach(memory, &text), Ok(()));
        }
        for memory in [text.end + REACH, text.start - REACH - 4] {
            let error = EmbeddingError::ExecutableOutOfReach { address: memory, text: text.clone() };
            assert_eq!(check_reach(memory, &text), Err(error));
        }
    }

    /// Exceptions would be taken to another vector, on another stack, or with other registers.
    #[test]
    fn a_state_in_which_no_probe_works_is_refused() {
        const E2H: u64 = 1 << 34;
        let check = |level: u64, sp_sel, hcr| check_state(level << 2, sp_sel, hcr).map_err(|error| error.to_string());
        assert_eq!([check(1, 1, 0), check(2, 1, E2H)], [Ok(()), Ok(())]);
        for (refused, says) in [
            (check(1, 0, 0), "with SP_EL0 (PSTATE.SP is 0)"),
            (check(2, 0, E2H), "the stack pointer of EL2"),
            (check(2, 1, !E2H), "at EL2 with HCR_EL2.E2H clear"),
            (check(3, 1, 0), "runs at EL3, but the engine needs EL1 or EL2"),
            (check(3, 0, 0), "runs at EL3, but the engine needs EL1 or EL2"),
        ] {
            let error = refused.unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    /// Only one of the two could be listened to by its name.
    #[test]
    fn two_events_of_one_name_are_refused() {
        crate::event! {
            struct First = plant:filled { litres: u64 }
        }
        crate::event! {
            struct Other = plant:emptied { litres: u64 }
        }
        crate::event! {
            struct Second = plant:filled { tank: u8 }
        }
        assert_eq!(check_names([First::EVENT, Other::EVENT].into_iter()), Ok(()));
        assert_eq!(
            check_names([First::EVENT, Other::EVENT, Second::EVENT].into_iter()).unwrap_err().to_string(),
            "two static events are named plant:filled: rename one of them in its `event!`"
        );
    }
}
