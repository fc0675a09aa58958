//! Links the loader with its own layout.

fn main() {
    println!("cargo::rerun-if-changed=layout.ld");
    if std::env::var_os("CARGO_CFG_TARGET_OS").is_some_and(|system| system == "none") {
        println!("cargo::rustc-link-arg-bins=-Tloader/layout.ld");
    }
}
