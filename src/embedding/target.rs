//! The checks that need the target: the linked image, system registers and an MMU.

use core::arch::asm;
use core::ops::Range;

use super::EmbeddingError;
use crate::event::{self, site};
use crate::exception::nofault;
use crate::interrupts::{self, is_at_el2};
use crate::probe::atomics;
use crate::probe::{CpuState, TaskCalls};
use crate::{exception, kernel, probe};

/// Checks the regions, this CPU, and the writable alias of the word at `address`, which is in the text.
pub(super) fn check(address: usize) -> Result<(), EmbeddingError> {
    let region = probe::blacklist();
    let hit_path = [exception::handle_sync as *const () as usize, probe::hit::breakpoint as *const () as usize];
    if let Some(function) = outside(&hit_path, &region) {
        return Err(EmbeddingError::HitPathOutside { function, region });
    }
    if let Some(function) = outside(&[probe::hit::function_of_a_trait()], &region) {
        return Err(EmbeddingError::Mangling { function, region });
    }
    if let Some(function) = outside(&kernel::at_a_hit(), &region) {
        return Err(EmbeddingError::PlatformOutside { function, region });
    }
    let sites = site::all().iter().map(|site| (site.instruction(), site.block()));
    super::check_sites(sites, &region, &kernel::text())?;
    super::check_names(event::all())?;
    // Before anything that may take an exception: the vector of the engine is for this state.
    check_state()?;
    // A breakpoint finds the state of the CPU only if there is a watchpoint.
    check_register(read_register())?;
    if !nofault::receives_exceptions() {
        let vectors: usize;
        // SAFETY: reads a register.
        unsafe { asm!("mrs {}, vbar_el1", out(reg) vectors, options(nomem, nostack, preserves_flags)) };
        return Err(EmbeddingError::NoVector { vectors });
    }
    // Masked, so that the task stays on this CPU, and TPIDR_EL1 leads to what is this CPU's.
    interrupts::with_masked(check_cpu)?;
    crate::text::cache::join();
    if !atomics::join() {
        return Err(EmbeddingError::LateCpuWithoutAtomics);
    }
    let text = kernel::text();
    for address in [text.start, text.end - 4] {
        // SAFETY: by the contract of `Platform::text` there is text, and no device register.
        unsafe { nofault::read::<u32>(address) }.map_err(|_| EmbeddingError::NotReadable { address })?;
    }
    check_alias_of(address)
}

/// Checks that instructions are executed in the memory of [`check_executable`](super::check_executable), which can be
/// written to.
pub(super) fn check_execution(memory: usize) -> Result<(), EmbeddingError> {
    use crate::insn::encode::compute::RETURN;

    super::check_reach(memory, &kernel::text())?;
    // Where nothing is mapped, the maintenance of the caches would fault.
    // SAFETY: by the contract of `allocate_executable` there is memory, and no device register.
    unsafe { nofault::read::<u32>(memory) }
        .map_err(|fault| EmbeddingError::NotExecutable { address: memory, syndrome: fault.syndrome })?;
    check_alias_of(memory)?;
    crate::text::write(&[crate::text::Words { address: memory, words: [BTI_C, RETURN] }]);
    // SAFETY: the alias through which `write` has stored both instructions was found to be of this memory, and the
    // caller holds the lock of the registry.
    match unsafe { nofault::call(memory) } {
        0 => Ok(()),
        syndrome => Err(EmbeddingError::NotExecutable { address: memory, syndrome }),
    }
}

/// BTI c (Arm ARM, C6.2), to which a call may lead in a guarded page; elsewhere it is a NOP.
const BTI_C: u32 = 0xd503_245f;

/// Checks the writable alias of the word at `address`.
fn check_alias_of(address: usize) -> Result<(), EmbeddingError> {
    let mut result = Ok(());
    // Masked, because an alias belongs to one CPU.
    interrupts::with_masked(|| {
        kernel::with_writable(address, 4, &mut |writable| result = check_alias(address, writable.addr()));
    });
    result
}

/// Returns the first of these addresses that is outside the region in which nothing is probed.
fn outside(functions: &[usize], region: &Range<usize>) -> Option<usize> {
    functions.iter().copied().find(|function| !region.contains(function))
}

/// Checks the exception level and the stack pointer of this CPU.
fn check_state() -> Result<(), EmbeddingError> {
    let (level, sp_sel): (u64, u64);
    // SAFETY: reads CurrentEL and SPSel.
    unsafe {
        asm!("mrs {}, currentel", "mrs {}, spsel", out(reg) level, out(reg) sp_sel,
            options(nomem, nostack, preserves_flags));
    }
    let mut hcr = 0_u64;
    if is_at_el2() {
        // SAFETY: reads a register, which can be read at EL2.
        unsafe { asm!("mrs {}, hcr_el2", out(reg) hcr, options(nomem, nostack, preserves_flags)) };
    }
    super::check_state(level, sp_sel, hcr)
}

fn read_register() -> usize {
    let register: usize;
    // SAFETY: reads a register.
    unsafe { asm!("mrs {}, tpidr_el1", out(reg) register, options(nomem, nostack, preserves_flags)) };
    register
}

/// Checks that `register`, the value of TPIDR_EL1, can lead to the state of a CPU. Returns where its address is.
fn check_register(register: usize) -> Result<usize, EmbeddingError> {
    let address = register.wrapping_add(kernel::cpu_offset().into());
    let is_set = register != 0 && address.is_multiple_of(8);
    if is_set { Ok(address) } else { Err(EmbeddingError::NoContext { register }) }
}

/// Checks that TPIDR_EL1 leads to the state of this CPU, and to the calls of a task. Called with interrupts masked.
fn check_cpu() -> Result<(), EmbeddingError> {
    let register = read_register();
    let address = check_register(register)?;
    // SAFETY: TPIDR_EL1 belongs to the engine by the contract of `Context` and `Platform`: it leads to memory or to
    // no mapping. A kernel keeps no device register at such an address.
    let word = unsafe { nofault::read::<u64>(address) }.map_err(|_| EmbeddingError::NoContext { register })? as usize;
    let mpidr: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mrs {}, mpidr_el1", out(reg) mpidr, options(nomem, nostack, preserves_flags)) };
    let is_state = |&number: &usize| core::ptr::from_ref(CpuState::of(number)).addr() == word;
    let number = (0..kernel::cpus()).find(is_state).ok_or(EmbeddingError::NotCpuState { address, word })?;
    CpuState::of(number).claim(mpidr).map_err(|affinities| EmbeddingError::SharedCpuState { number, affinities })?;
    let address = register.wrapping_add(kernel::calls_offset().into());
    // SAFETY: as above, TPIDR_EL1 leads to memory, and both offsets are below 4096.
    let word = unsafe { nofault::read::<u64>(address) }.map_err(|_| EmbeddingError::NoContext { register })? as usize;
    // SAFETY: if a return probe was registered, this check has passed on the CPU that registered it, so the
    // platform gives the offset of a `TaskCalls`. Its word is the address of an instance or of `END`; or, if the
    // task was made without `TaskCalls::new`, what a kernel may leave in memory, which is not the address of a
    // device register.
    if unsafe { TaskCalls::is_list(word) } { Ok(()) } else { Err(EmbeddingError::NotTaskCalls { address, word }) }
}

/// Checks that `alias` can be written to, and maps the memory at `address`. Called with interrupts masked.
fn check_alias(address: usize, alias: usize) -> Result<(), EmbeddingError> {
    /// PAR_EL1.F: the translation has failed (Arm ARM, D24.2.133).
    const FAILED: u64 = 1;
    /// The address in PAR_EL1, without the page offset.
    const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
    let (written, read): (u64, u64);
    macro_rules! translate {
        ($write:literal, $read:literal) => {
            // SAFETY: address translation changes only PAR_EL1, which is restored. The caller has masked
            // interrupts, whose handlers may change it.
            unsafe {
                asm!(
                    "mrs {before}, par_el1",
                    concat!("at ", $write, ", {alias}"), "isb", "mrs {written}, par_el1",
                    concat!("at ", $read, ", {address}"), "isb", "mrs {read}, par_el1",
                    "msr par_el1, {before}",
                    alias = in(reg) alias, address = in(reg) address,
                    before = out(reg) _, written = out(reg) written, read = out(reg) read,
                    options(nostack, preserves_flags)
                );
            }
        };
    }
    // AT S1E2W and AT S1E2R exist at EL2 only. They use the regime of the kernel there: EL2&0 if HCR_EL2.E2H is 1,
    // whatever HCR_EL2.TGE is. AT S1E1W and AT S1E1R would use that regime only if TGE is 1, too (Arm ARM, C5.4).
    if is_at_el2() {
        translate!("s1e2w", "s1e2r");
    } else {
        translate!("s1e1w", "s1e1r");
    }
    if written & FAILED != 0 {
        return Err(EmbeddingError::NotWritable { address, alias });
    }
    if read & FAILED == 0 && (read ^ written) & ADDRESS != 0 {
        return Err(EmbeddingError::AliasMismatch { address, alias });
    }
    Ok(())
}
