//! The example `minimal` on machines that it is not written for: with the MMU on, read-only text and larger pages than
//! those of 4 KiB; and at EL2, with the Virtualization Host Extensions. Each prints what the example prints.

use super::{
    EL2, QemuMachine, VIRT, WITHOUT_LSE,
    derived::{File, Package, Replacement},
    prints,
};
use crate::test::{
    pool::{BuildContext, Pool},
    wanted::Wanted,
};

/// log2 of the sizes of pages, and the bits of TCR_EL1.TG0 for them.
pub const SMALLEST: Granule = Granule { shift: 14, code: 0b10 };
const LARGEST: Granule = Granule { shift: 16, code: 0b01 };

#[derive(Clone, Copy)]
pub struct Granule {
    shift: u32,
    code: u32,
}

/// A kernel, and the machine that it runs on.
struct Variant {
    name: &'static str,
    granule: Granule,
    is_at_el2: bool,
    machine: QemuMachine,
}

const VARIANTS: [Variant; 4] = [
    Variant { name: "pages_of_16_kib", granule: SMALLEST, is_at_el2: false, machine: VIRT },
    Variant { name: "pages_of_64_kib", granule: LARGEST, is_at_el2: false, machine: VIRT },
    Variant { name: "pages_of_64_kib_without_lse", granule: LARGEST, is_at_el2: false, machine: WITHOUT_LSE },
    Variant { name: "el2_with_vhe", granule: LARGEST, is_at_el2: true, machine: EL2 },
];

/// The changes that give the example pages.
pub struct Pages {
    each: Vec<(File, &'static str, String)>,
    /// The module that maps them.
    pub module: String,
}

impl Pages {
    pub fn each(&self) -> Vec<Replacement<'_>> {
        self.each.iter().map(|(file, from, to)| (*file, *from, to.as_str())).collect()
    }
}

/// Returns the changes that give the example pages of this size: text that is read-only at its own address, and an
/// alias to write through, from which nothing is executed.
pub fn replacements(granule: Granule) -> Pages {
    let Granule { shift, code } = granule;
    let size = 1u32 << shift;
    let each = vec![
        (File::Source, "probes::run(); // probes", "crate::paging::enable(); probes::run(); // probes".to_owned()),
        (
            File::Source,
            "unsafe impl Platform for Minimal {",
            "unsafe impl Platform for Minimal {
        fn with_writable(address: usize, _: usize, write: &mut dyn FnMut(*mut u8)) {
            write((address | paging::BLOCK) as *mut u8);
        }"
            .to_owned(),
        ),
        (File::Source, "use crate::kernel::{println, sum};", "use crate::{kernel::{println, sum}, paging};".to_owned()),
        (File::Script, "    .rodata", format!("    . = ALIGN({size});\n    .rodata")),
    ];
    let module = format!(
        r#"
#[cfg(target_os = "none")]
mod paging {{
    use core::sync::atomic::{{AtomicU64, Ordering::Relaxed}};

    const SHIFT: usize = {shift};
    const ENTRIES: usize = 1 << (SHIFT - 3);
    /// What an entry of the first table maps. The address of the alias has this bit set.
    pub const BLOCK: usize = 1 << (2 * SHIFT - 3);
    const RAM: usize = 0x4000_0000;
    const UART: usize = 0x0900_0000;

    #[repr(align(65536))]
    struct TranslationTable([AtomicU64; ENTRIES]);
    static BLOCKS: TranslationTable = TranslationTable([const {{ AtomicU64::new(0) }}; ENTRIES]);
    static PAGES: TranslationTable = TranslationTable([const {{ AtomicU64::new(0) }}; ENTRIES]);

    const BLOCK_ENTRY: u64 = 0b01;
    const TABLE_OR_PAGE: u64 = 0b11;
    const DEVICE: u64 = 1 << 2;
    const READ_ONLY: u64 = 0b10 << 6;
    const SHARED: u64 = 0b11 << 8;
    const ACCESSED: u64 = 1 << 10;
    const NOT_EXECUTED: u64 = 1 << 53;

    unsafe extern "C" {{
        safe static __kprobes_text_start: u8;
        safe static __text_end: u8;
    }}

    /// Maps everything at its own address, the text read-only, and the memory again one block above, writable.
    pub fn enable() {{
        let text = &raw const __kprobes_text_start as usize..&raw const __text_end as usize;
        for (index, entry) in PAGES.0.iter().enumerate() {{
            let address = RAM + (index << SHIFT);
            let is_text = text.contains(&address);
            let kind = if is_text {{ READ_ONLY }} else {{ NOT_EXECUTED }};
            entry.store(address as u64 | kind | SHARED | ACCESSED | TABLE_OR_PAGE, Relaxed);
        }}
        let normal = SHARED | ACCESSED | NOT_EXECUTED | BLOCK_ENTRY;
        let blocks = [
            (UART, (UART & !(BLOCK - 1)) as u64 | DEVICE | ACCESSED | NOT_EXECUTED | BLOCK_ENTRY),
            (RAM, PAGES.0.as_ptr() as u64 | TABLE_OR_PAGE),
            (RAM | BLOCK, RAM as u64 | normal),
        ];
        blocks.into_iter().for_each(|(address, entry)| BLOCKS.0[address / BLOCK].store(entry, Relaxed));
        // One table from TTBR0_EL1 covers all: 42 bits of addresses with pages of 64 KiB, 36 with pages of 16 KiB.
        let bits = 3 * SHIFT - 6;
        let control: u64 = (64 - bits as u64) | 1 << 8 | 1 << 10 | 0b11 << 12 | {code} << 14 | 1 << 23 | 0b010 << 32;
        // SAFETY: everything that the kernel uses stays at its address.
        unsafe {{
            core::arch::asm!(
                "msr mair_el1, {{attributes}}",
                "msr tcr_el1, {{control}}",
                "msr ttbr0_el1, {{table}}",
                "isb",
                "mrs {{scratch}}, sctlr_el1",
                "orr {{scratch}}, {{scratch}}, #1",
                "orr {{scratch}}, {{scratch}}, #1 << 2",
                "orr {{scratch}}, {{scratch}}, #1 << 12",
                "msr sctlr_el1, {{scratch}}",
                "isb",
                attributes = in(reg) 0x00ffu64,
                control = in(reg) control,
                table = in(reg) BLOCKS.0.as_ptr(),
                scratch = out(reg) _,
            );
        }}
    }}
}}
"#
    );
    Pages { each, module }
}

/// The changes with which the example runs at EL2, as a host: HCR_EL2.E2H, TGE and RW. It then calls its firmware by
/// SMC.
pub const AT_EL2: [Replacement<'_>; 2] = [
    (
        File::Source,
        "\"start:\",",
        "\"start:\", \"mov x0, #0x88000000\", \"movk x0, #4, lsl #32\", \"msr hcr_el2, x0\", \"isb\",",
    ),
    (File::Source, "\"hvc #0\"", "\"smc #0\""),
];

/// Adds a test for each kernel.
pub fn add<'a>(pool: &Pool<'a>, wanted: &'a Wanted) {
    pool.add_for(wanted.among(VARIANTS.iter().map(test_name)), "kernels with pages", move |context| {
        context.results.step("build::pages", add_all(context, wanted));
    });
}

fn test_name(variant: &Variant) -> String {
    format!("examples::minimal_with_{}", variant.name)
}

fn add_all(context: &BuildContext<'_, '_>, wanted: &Wanted) -> Result<(), String> {
    let package = Package::new("pages")?;
    let variants: Vec<_> = VARIANTS.iter().filter(|variant| wanted.has(&test_name(variant))).collect();
    for Variant { name, granule, is_at_el2, .. } in &variants {
        let pages = replacements(*granule);
        let mut all = pages.each();
        all.extend(AT_EL2.iter().filter(|_| *is_at_el2));
        package.put(name, &all, &pages.module)?;
    }
    let names: Vec<&str> = variants.iter().map(|variant| variant.name).collect();
    let directory = package.build(&names, &[])?;
    for variant in variants {
        let elf = directory.join(variant.name);
        context.add_test(test_name(variant), move || prints("minimal", &elf, variant.machine));
    }
    Ok(())
}
