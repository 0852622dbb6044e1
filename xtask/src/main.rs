//! Chores of the workspace: `cargo xtask tidy|ci|oracle|stress`.

fn main() {}
