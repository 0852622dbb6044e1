//! A page with one table, on standard output.

use schedlab_report::{Cell, Column, Page, Section, Table};
use std::io::Write;

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    Ok(std::io::stdout().write_all(page().render()?.as_bytes())?)
}

pub(crate) fn page() -> Page {
    let mut page = Page::new("Two hogs");
    page.verdict(
        "Both get half of the CPU.",
        "Over 5 seeds the range contains the median with 94 % confidence.",
    );
    let mut section = Section::new("Share of the CPU");
    section.push(Table {
        caption: "CPU share, median of 5 seeds".to_owned(),
        columns: vec![Column::text("task"), Column::number("CPU share")],
        rows: vec![vec![Cell::head("hog"), Cell::number("50.0 %", 0.5)]],
        fold: None,
    });
    page.push(section);
    page
}
