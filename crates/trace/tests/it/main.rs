//! All tests of recordings but `bombs`, in one program.

mod analyses;
mod common;
mod damage;
mod damaged_imports;
mod export;
mod facts;
mod field;
mod format;
mod guests;
mod import;
mod index;
mod messages;
mod one_pass;
mod options;
mod partition;
mod replay;
mod summary;
mod text_forms;
