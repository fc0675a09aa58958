//! Makes cargo link again when the layout of the image has changed, of which it does not know.

fn main() {
    println!("cargo::rerun-if-changed=../linker.ld");
}
