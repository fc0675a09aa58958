//! Links the kernel by its own script, for QEMU's `raspi3b` at another address.

fn main() {
    println!("cargo::rerun-if-changed=kernel.ld");
    if std::env::var_os("CARGO_CFG_TARGET_OS").is_some_and(|system| system == "none") {
        println!("cargo::rustc-link-arg-bins=-Texamples/kernel/kernel.ld");
        if std::env::var_os("CARGO_FEATURE_RASPI3B").is_some() {
            println!("cargo::rustc-link-arg-bins=--defsym=ram_address=0");
            println!("cargo::rustc-link-arg-bins=--entry=start_on_raspi3b");
        }
    }
}
