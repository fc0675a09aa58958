//! Makes `kprobes-tables.x` available to `INCLUDE` in the linker scripts of kernels.

fn main() {
    println!("cargo::rerun-if-changed=kprobes-tables.x");
    let root = std::env::var("CARGO_MANIFEST_DIR").expect("Cargo tells where the package is");
    println!("cargo::rustc-link-search={root}");
    // For build scripts of crates that depend on this one: the environment variable `DEP_KPROBES_SYMBOLS_SCRIPTS`.
    println!("cargo::metadata=scripts={root}");
}
