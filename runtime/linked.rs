//! Links each package that includes this in its build script with linker.ld, and relinks it when that file changes.

/// Prints the arguments of the linker.
pub fn by_script() {
    println!("cargo::rerun-if-changed=../linker.ld");
    if std::env::var_os("CARGO_CFG_TARGET_OS").is_some_and(|system| system == "none") {
        println!("cargo::rustc-link-arg-bins=-Tlinker.ld");
    }
}
