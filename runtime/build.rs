//! Links each package that uses this build script with linker.ld, and relinks it when that file changes.

fn main() {
    println!("cargo::rerun-if-changed=../linker.ld");
    if std::env::var_os("CARGO_CFG_TARGET_OS").is_some_and(|system| system == "none") {
        println!("cargo::rustc-link-arg-bins=-Tlinker.ld");
    }
}
