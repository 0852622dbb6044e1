//! A new file appears whole or not at all.

use schedlab_files::{NewFile, TempDir, make_folder};
use std::fs;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::MetadataExt;

#[test]
fn what_was_there_stays_until_the_new_file_is_whole() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("x");
    for create in [NewFile::create, NewFile::growing] {
        fs::write(&path, "before").unwrap();
        let mut dropped = create(&path).unwrap();
        dropped.write_all(b"half").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"before");
        drop(dropped);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing is left beside it");
        assert_eq!(fs::read(&path).unwrap(), b"before");
        let mut whole = create(&path).unwrap();
        whole.write_all(b"after").unwrap();
        assert_eq!(fs::read(whole.path()).unwrap(), b"after");
        whole.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"after");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }
}

#[test]
fn a_growing_file_is_at_its_place_where_nothing_was() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("x");
    drop(NewFile::growing(&path).unwrap());
    assert!(!path.exists(), "an empty one goes");
    let mut file = NewFile::growing(&path).unwrap();
    file.write_all(b"half").unwrap();
    assert!(!file.is_beside());
    assert_eq!(fs::read(&path).unwrap(), b"half");
    file.keep();
    drop(file);
    assert_eq!(fs::read(&path).unwrap(), b"half");
}

#[test]
fn names_of_the_greatest_length_and_new_folders_work() {
    let folder = TempDir::new().unwrap();
    let deep = folder.path().join("a/b");
    assert!(make_folder(&deep).unwrap());
    assert!(!make_folder(&deep).unwrap());
    let path = deep.join("x".repeat(255));
    NewFile::create(&path).unwrap().put().unwrap();
    assert_eq!(fs::read_dir(&deep).unwrap().count(), 1);
    // A new file has the mode that every other program gives.
    fs::write(deep.join("usual"), "").unwrap();
    let mode = |name: &std::path::Path| fs::metadata(name).unwrap().mode();
    assert_eq!(mode(&path), mode(&deep.join("usual")));
    assert!(NewFile::create(&folder.path().join("no/such/folder")).is_err());
}

#[test]
fn an_unnamed_file_is_written_and_read() {
    let mut file = schedlab_files::unnamed().unwrap();
    file.write_all(b"text").unwrap();
    file.rewind().unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), file.metadata().unwrap().nlink()), ("text", 0));
}
