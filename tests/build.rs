//! Links the image.

#[path = "../runtime/linked.rs"]
mod linked;

fn main() {
    linked::by_script();
}
