//! The memory that probes take, in kernels for one and for more CPUs: the example `minimal` with a heap that counts.
//! The first probe takes memory in proportion to the text, so it is measured in the example's own text. The other
//! kernels have 100,000 more instructions, which are all probed.

use super::{
    QemuMachine, VIRT,
    derived::{File, Package, Replacement},
    read, run,
};
use crate::test::{
    pool::{BuildContext, Pool},
    report::Outcome,
    wanted::Wanted,
};

/// The numbers of CPUs that kernels are made for.
const CPUS: [u32; 3] = [1, 4, 32];
const TEST: &str = "examples::memory_of_probes";
const PAGE: &str = "docs/embedding.md";
/// How far a figure may be away from that of the page, in its unit: KiB, or bytes.
const TOLERANCE: u64 = 1;

/// The functions to probe: of 99 instructions and a return each.
const FUNCTIONS: &str = r#"
#[cfg(target_os = "none")]
core::arch::global_asm!(
    ".section .text.many, \"ax\"",
    ".balign 64",
    ".global many; many:",
    ".rept 1000; .rept 99; nop; .endr; ret; .endr",
    ".global many_end; many_end:",
);
"#;

/// The code that prints the memory in use, before the first probe and with it.
const FIRST: &str = r#"
        let tell = |what: &str| {
            let memory = aarch64_kprobes::probe::memory();
            let bytes = crate::kernel::live() + memory.slot_bytes + memory.stub_bytes;
            println(format_args!("{what} {bytes}"));
        };
        extern "C" fn count(_: &mut Hit<'_>) {}
        tell("before");
        let address = sum as *const () as usize;
        let one = Kprobe::at(address).pre(count).register().unwrap_or_else(|error| panic!("{error}"));
        tell("one");
        drop(one);
"#;

/// The code that prints the memory in use, before and with a probe on each of many instructions.
const ALL: &str = r#"
        unsafe extern "C" {
            safe static many: u8;
            safe static many_end: u8;
        }
        extern "C" fn count(_: &mut Hit<'_>) {}
        let instructions = (&raw const many as usize..&raw const many_end as usize).step_by(4);
        let tell = |what: &str| {
            let memory = aarch64_kprobes::probe::memory();
            let bytes = crate::kernel::live() + memory.slot_bytes + memory.stub_bytes;
            println(format_args!("{what} {bytes}"));
        };
        tell("before");
        let others = instructions.map(|address| Kprobe::at(address).pre(count));
        let others = Kprobe::register_all(others).unwrap_or_else(|error| panic!("{error}"));
        others.iter().for_each(|one| assert!(one.is_ok(), "{one:?}"));
        // The list of the probes is the caller's.
        let list = others.capacity() * size_of_val(&others[0]);
        tell("all");
        println(format_args!("list {list}\ncount {}", others.len()));
        drop(others);
        let address = sum as *const () as usize;
"#;

/// Adds the test.
pub fn add(pool: &Pool<'_>, wanted: &Wanted) {
    pool.add_for(wanted.among([TEST]), "kernels with many probes", |context| {
        context.results.step("build::memory", add_test(context));
    });
}

fn add_test(context: &BuildContext<'_, '_>) -> Result<(), String> {
    let package = Package::new("memory")?;
    let mut names = Vec::new();
    for cpus in CPUS {
        let platform = format!(
            "unsafe impl Platform for Minimal {{
        const CPUS: usize = {cpus};
        // Only the first runs.
        fn hold_cpus(action: &mut dyn FnMut()) {{
            action();
        }}
        fn interrupted(_: &mut dyn FnMut(usize)) {{}}"
        );
        let counts: [Replacement<'_>; 4] = [
            (File::Source, "unsafe impl Platform for Minimal {", &platform),
            (
                File::Source,
                "Ok(used) => memory",
                "Ok(used) => { LIVE.fetch_add(layout.size(), Ordering::Relaxed); memory",
            ),
            (File::Source, ".wrapping_add(start(used)),", ".wrapping_add(start(used)) }"),
            (File::Source, "unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}", DEALLOC),
        ];
        let first: Replacement<'_> = (File::Source, "        let address = sum as *const () as usize;", FIRST);
        let all: [Replacement<'_>; 6] = [
            (first.0, first.1, ALL),
            (File::Source, "probed.contains(&address).then_some(probed)", OF_MANY),
            (File::Source, "const HEAP_SIZE: usize = 1 << 20;", "const HEAP_SIZE: usize = 600 << 20;"),
            // The compiler would evaluate every word of the heap.
            (
                File::Source,
                "Memory([AtomicUsize; HEAP_SIZE / 8]);",
                "Memory(core::mem::MaybeUninit<[AtomicUsize; HEAP_SIZE / 8]>);",
            ),
            (
                File::Source,
                "Memory([const { AtomicUsize::new(0) }; HEAP_SIZE / 8])",
                "Memory(core::mem::MaybeUninit::uninit())",
            ),
            (File::Script, "SECTIONS\n", "__kprobes_pool_size = 0x1000000;\nSECTIONS\n"),
        ];
        let [name_of_first, name_of_all] = ["first", "all"].map(|what| format!("{what}{cpus}"));
        package.put(&name_of_first, &[&counts[..], &[first]].concat(), "")?;
        package.put(&name_of_all, &[&counts[..], &all].concat(), FUNCTIONS)?;
        names.extend([name_of_first, name_of_all]);
    }
    let directory = package.build(&names.iter().map(String::as_str).collect::<Vec<_>>(), &[])?;
    context.add_test(TEST, move || {
        let run = |name: String| run(&directory.join(name), QemuMachine { machine: "virt -m 1G", ..VIRT });
        let figures = |cpus| Figures::of(&run(format!("first{cpus}"))?, &run(format!("all{cpus}"))?);
        let rows: Vec<_> = CPUS.into_iter().map(|cpus| Ok((cpus, figures(cpus)?))).collect::<Result<_, String>>()?;
        compare(&read(PAGE)?, &rows)
    });
    Ok(())
}

/// The end of the platform's `function`: the one of the many functions that contains the address.
const OF_MANY: &str = "unsafe extern \"C\" {
                safe static many: u8;
                safe static many_end: u8;
            }
            let all = &raw const many as usize..&raw const many_end as usize;
            if all.contains(&address) {
                let start = address - (address - all.start) % 400;
                return Some(start..start + 400);
            }
            probed.contains(&address).then_some(probed)";

const DEALLOC: &str = "unsafe fn dealloc(&self, _: *mut u8, layout: Layout) {
            LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        }
    }

    static LIVE: AtomicUsize = AtomicUsize::new(0);

    pub fn live() -> usize {
        LIVE.load(Ordering::Relaxed)";

/// The memory of a kernel's probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Figures {
    /// The memory of the first probe, in bytes.
    first: u64,
    /// The memory of each of many probes, in bytes.
    each: u64,
}

impl Figures {
    /// Reads what the kernel with one probe prints, and that with all.
    fn of(first: &str, all: &str) -> Result<Self, String> {
        let number = |printed: &str, start: &str| -> Result<u64, String> {
            let line = printed.lines().find_map(|line| line.strip_prefix(start));
            let number = line.and_then(|rest| rest.split(' ').next()?.parse().ok());
            number.ok_or_else(|| format!("it prints\n{printed}"))
        };
        let less =
            |number: u64, part: u64| number.checked_sub(part).ok_or_else(|| format!("{first}\n{all}\nis no sum"));
        let taken = less(less(number(all, "all ")?, number(all, "before ")?)?, number(all, "list ")?)?;
        let of_first = less(number(first, "one ")?, number(first, "before ")?)?;
        let each = taken.checked_div(number(all, "count ")?).ok_or("there is no probe")?;
        Ok(Self { first: of_first, each })
    }

    fn row(self, cpus: u32) -> String {
        format!("| {cpus} | {} KiB | {} bytes |", self.first.div_ceil(1024), self.each)
    }
}

/// Compares the figures with those of the page.
fn compare(page: &str, rows: &[(u32, Figures)]) -> Result<Outcome, String> {
    let is_close = |&(cpus, figures): &(u32, Figures)| {
        let numbers = |row: &str| -> Vec<u64> { row.split(['|', ' ']).filter_map(|word| word.parse().ok()).collect() };
        let found = numbers(&figures.row(cpus));
        page.lines().filter(|line| line.ends_with(" bytes |")).map(numbers).any(|said| {
            said.len() == 3 && said[0] == found[0] && said.iter().zip(&found).all(|(a, b)| a.abs_diff(*b) <= TOLERANCE)
        })
    };
    let figures: Vec<String> = rows.iter().map(|&(cpus, figures)| figures.row(cpus)).collect();
    if rows.iter().all(is_close) {
        return Ok(Outcome::Passed);
    }
    Err(format!("{PAGE} should say\n{}", figures.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::{Figures, compare};

    #[test]
    fn figures_are_of_the_probes_alone() {
        let all = "before 100\nall 20200\nlist 100\ncount 10\nthe sum is 10\n";
        assert_eq!(Figures::of("before 100\none 5220\n", all), Ok(Figures { first: 5120, each: 2000 }));
        assert!(Figures::of("before 100\none 5220\n", "before 100\n").is_err());
        assert!(Figures::of("before 100\none 50\n", all).is_err());
        assert!(Figures::of("before 100\none 5220\n", &all.replace("count 10", "count 0")).is_err());
    }

    #[test]
    fn figures_are_those_of_the_page() {
        let page = "| 1 | 5 KiB | 200 bytes |\n| 4 | 9 KiB | 250 bytes |\n";
        let [one, four] = [(5120, 200), (9216, 251)].map(|(first, each)| Figures { first, each });
        assert!(compare(page, &[(1, one), (4, four)]).is_ok());
        assert!(compare(page, &[(1, one), (4, Figures { each: 252, ..four })]).is_err());
        assert!(compare(page, &[(2, one)]).is_err());
        assert!(compare(page, &[(1, Figures { first: 7 << 10, ..one })]).is_err());
    }
}
