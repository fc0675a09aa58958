//! Reads the descriptions of the boards, for build scripts.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use serde::de::DeserializeOwned;

/// Returns the part of each board's `board.toml` that `T` describes, with the path of the file, in the order of the
/// paths. The script runs again when the directory of boards changes, which is beside that of the package.
pub fn read<T: DeserializeOwned>() -> Vec<(PathBuf, T)> {
    let boards = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("Cargo sets it")).join("../boards");
    println!("cargo::rerun-if-changed={}", boards.display());
    let mut files: Vec<_> = fs::read_dir(boards)
        .expect("the directory of boards can be read")
        .map(|entry| entry.expect("the directory of boards can be read").path().join("board.toml"))
        .filter(|file| file.is_file())
        .collect();
    files.sort();
    let parse = |file: PathBuf| {
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let board = toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        (file, board)
    };
    files.into_iter().map(parse).collect()
}

/// Writes a file for the package to include.
pub fn write(name: &str, text: &str) {
    let out = Path::new(&env::var("OUT_DIR").expect("Cargo sets it")).join(name);
    fs::write(out, text).expect("the output directory can be written to");
}
