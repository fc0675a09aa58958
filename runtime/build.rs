//! Links the images of the packages that have this as their build script by linker.ld, and again when it has changed.

fn main() {
    println!("cargo::rerun-if-changed=../linker.ld");
    if std::env::var_os("CARGO_CFG_TARGET_OS").is_some_and(|system| system == "none") {
        println!("cargo::rustc-link-arg-bins=-Tlinker.ld");
    }
}
