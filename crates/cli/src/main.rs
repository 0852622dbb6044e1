//! The binary `schedlab`.
fn main() {}
