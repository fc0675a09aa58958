//! Lets the linker scripts of kernels say `INCLUDE kprobes.x`, and tells the engine whether it is compiled without
//! optimization.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(kprobes_unoptimized)");
    if std::env::var("OPT_LEVEL").is_ok_and(|level| level == "0")
        && std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "none")
    {
        println!("cargo::rustc-cfg=kprobes_unoptimized");
    }
    println!("cargo::rerun-if-changed=trampoline/kprobes.x");
    println!("cargo::rerun-if-changed=trampoline/kprobes-hit.x");
    let root = std::env::var("CARGO_MANIFEST_DIR").expect("Cargo tells where the package is");
    println!("cargo::rustc-link-search={root}/trampoline");
    // For build scripts of crates that depend on this one: the environment variable `DEP_KPROBES_SCRIPTS`.
    println!("cargo::metadata=scripts={root}/trampoline");
}
