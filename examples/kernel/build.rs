//! Links the kernel by its own script.

fn main() {
    println!("cargo::rerun-if-changed=kernel.ld");
    if std::env::var_os("CARGO_CFG_TARGET_OS").is_some_and(|system| system == "none") {
        println!("cargo::rustc-link-arg-bins=-Texamples/kernel/kernel.ld");
    }
}
