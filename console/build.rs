//! Lets the linker scripts of kernels have `INCLUDE kprobes-tables.x`.

fn main() {
    println!("cargo::rerun-if-changed=kprobes-tables.x");
    let root = std::env::var("CARGO_MANIFEST_DIR").expect("Cargo tells where the package is");
    println!("cargo::rustc-link-search={root}");
}
