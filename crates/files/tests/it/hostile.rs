//! Folders that another user prepared. As root these tests play that user (65534) with
//! files that they give away; without root only what needs no second user is asked.
#![allow(clippy::print_stderr)]

use schedlab_files::{
    Folder, NewFile, Refused, TempDir, claim, create_new, make_folder, open, remove_if,
};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

/// The other user: the number that Debian gives to a user who owns no file (base-passwd;
/// overflowuid of the kernel).
const NOBODY: u32 = 65534;

fn folder() -> TempDir {
    let folder = TempDir::with_prefix("schedlab-files-").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

fn is_root(test: &str) -> bool {
    let root = fs::metadata("/proc/self").unwrap().uid() == 0;
    if !root {
        eprintln!("skipped {test}: it gives files to another user, which only root can");
    }
    root
}

/// Makes a folder of `owner` with `mode`, which others cannot read away.
fn made(path: PathBuf, owner: u32, mode: u32) -> PathBuf {
    fs::create_dir(&path).unwrap();
    chown(&path, Some(owner), Some(owner)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

fn link(to: &Path, at: &Path, owner: u32) {
    symlink(to, at).unwrap();
    std::os::unix::fs::lchown(at, Some(owner), Some(owner)).unwrap();
}

fn put(path: &Path) -> io::Result<()> {
    let mut file = NewFile::create(path)?;
    file.write_all(b"new")?;
    file.commit()
}

fn refused(result: io::Result<impl Sized>) -> Refused {
    let error = result.err().expect("refused");
    error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Refused>())
        .cloned()
        .unwrap_or_else(|| panic!("{error}"))
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn permission_bits_of_a_file_that_is_ours_are_kept_and_no_others() {
    let folder = folder();
    let path = folder.path().join("x");
    for (mode, want) in [(0o640, 0o640), (0o4755, 0o755), (0o2777, 0o777), (0o1600, 0o600)] {
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        put(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, want, "{mode:o}");
    }
}

#[test]
fn the_file_of_another_user_gives_the_new_one_nothing() {
    if !is_root("the_file_of_another_user_gives_the_new_one_nothing") {
        return;
    }
    let folder = folder();
    let hostile = made(folder.path().join("theirs"), NOBODY, 0o755);
    let path = hostile.join("r.json");
    for mode in [0o4777, 0o2777, 0o666] {
        let _ = fs::remove_file(&path);
        fs::write(&path, "old").unwrap();
        chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        put(&path).unwrap();
        let data = fs::metadata(&path).unwrap();
        assert_eq!((data.uid(), data.gid(), data.mode() & 0o7777), (0, 0, 0o600), "{mode:o}");
    }
    // A file of this user keeps its group, which sees what it saw.
    chown(&path, None, Some(NOBODY)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    put(&path).unwrap();
    let data = fs::metadata(&path).unwrap();
    assert_eq!((data.uid(), data.gid(), data.mode() & 0o7777), (0, NOBODY, 0o640));
    assert_eq!(names(&hostile), ["r.json"]);
}

#[test]
fn links_of_other_users_lead_to_their_own_only() {
    if !is_root("links_of_other_users_lead_to_their_own_only") {
        return;
    }
    let folder = folder();
    let root = folder.path();
    let victim = root.join("victim");
    fs::write(&victim, "precious").unwrap();
    let sticky = made(root.join("sticky"), 0, 0o1777);
    let theirs = made(root.join("theirs"), NOBODY, 0o755);
    let (planted, foreign) = (sticky.join("out"), theirs.join("out"));
    link(&victim, &planted, NOBODY);
    link(&victim, &foreign, NOBODY);
    link(root, &theirs.join("folder"), NOBODY);
    link(Path::new("/nowhere"), &theirs.join("dangling"), NOBODY);
    // Twice around: a link of root to a link of theirs.
    link(&foreign, &root.join("ours"), 0);
    let owner = NOBODY;
    assert_eq!(
        refused(NewFile::create(&planted)),
        Refused::Planted { link: planted.clone(), owner }
    );
    assert_eq!(
        refused(NewFile::growing(&planted)),
        Refused::Planted { link: planted.clone(), owner }
    );
    assert_eq!(refused(claim(&planted)), Refused::Planted { link: planted.clone(), owner });
    for path in [
        foreign,
        theirs.join("folder/victim"),
        theirs.join("folder/new"),
        root.join("ours"),
        theirs.join("dangling"),
    ] {
        for result in [
            NewFile::create(&path).map(drop),
            create_new(&path.join("x")).map(drop),
            make_folder(&path.join("x")).map(drop),
        ] {
            assert!(
                matches!(result, Err(error) if error.to_string().contains("a link of user 65534") || error.kind() == io::ErrorKind::NotADirectory),
                "{path:?}"
            );
        }
        assert!(NewFile::create(&path).is_err(), "{path:?}");
    }
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
    // To their own files and folders they lead.
    let own = made(theirs.join("own"), NOBODY, 0o755);
    link(&own, &theirs.join("to-own"), NOBODY);
    put(&theirs.join("to-own/x")).unwrap();
    assert_eq!(fs::read(own.join("x")).unwrap(), b"new");
    assert_eq!(names(root), ["ours", "sticky", "theirs", "victim"]);
}

/// What works on every machine: `/var/run -> /run`, a user's own link as output, also in /tmp, and
/// one that leads nowhere yet.
#[test]
fn own_links_work() {
    let folder = folder();
    let root = folder.path();
    let (file, inner) = (root.join("file"), root.join("inner"));
    fs::create_dir(&inner).unwrap();
    fs::write(&file, "old").unwrap();
    for sticky in [0o755, 0o1777] {
        fs::set_permissions(root, fs::Permissions::from_mode(sticky)).unwrap();
        for (to, at) in [
            (file.as_path(), "link"),
            (Path::new("inner"), "to-inner"),
            (Path::new("inner/later"), "dangling"),
            (Path::new("../inner/.."), "inner/up"),
        ] {
            let _ = fs::remove_file(root.join(at));
            symlink(to, root.join(at)).unwrap();
        }
        put(&root.join("link")).unwrap();
        assert!(fs::symlink_metadata(root.join("link")).unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"new");
        put(&root.join("to-inner/x")).unwrap();
        put(&root.join("dangling")).unwrap();
        assert_eq!(fs::read(inner.join("later")).unwrap(), b"new");
        put(&root.join("inner/up/inner/y")).unwrap();
        assert_eq!(names(&inner), ["later", "up", "x", "y"]);
        for made in ["x", "y", "later"] {
            fs::remove_file(inner.join(made)).unwrap();
        }
    }
    symlink("round", root.join("round")).unwrap();
    assert!(NewFile::create(&root.join("round")).is_err(), "a link to itself");
}

#[test]
fn pipes_of_other_users_are_refused_and_never_waited_for() {
    let folder = folder();
    let path = folder.path().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    let reader = path.clone();
    let reader = std::thread::spawn(move || fs::read(reader).unwrap());
    put(&path).unwrap();
    assert_eq!(reader.join().unwrap(), b"new", "a pipe of our own is written at once");
    if is_root("pipes_of_other_users_are_refused_and_never_waited_for") {
        chown(&path, Some(NOBODY), None).unwrap();
        assert_eq!(
            refused(NewFile::create(&path)),
            Refused::Pipe { path: path.clone(), owner: NOBODY }
        );
    }
    put(Path::new("/dev/null")).unwrap();
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
    assert!(NewFile::create(folder.path()).is_err() && NewFile::create(Path::new("/")).is_err());
}

#[test]
fn open_files_of_this_process_are_written_where_they_are() {
    let folder = folder();
    let file = fs::File::create(folder.path().join("x")).unwrap();
    fs::remove_file(folder.path().join("x")).unwrap();
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    put(Path::new(&path)).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
    let (out, thread) = (
        NewFile::create(Path::new("/dev/stdout")),
        NewFile::create(Path::new("/proc/thread-self/fd/1")),
    );
    assert!(out.is_ok() && thread.is_ok(), "{out:?} {thread:?}");
}

#[test]
fn an_output_is_never_an_input() {
    let folder = folder();
    let (input, other, link) =
        (folder.path().join("in"), folder.path().join("hard"), folder.path().join("link"));
    fs::write(&input, "precious").unwrap();
    fs::hard_link(&input, &other).unwrap();
    symlink("in", &link).unwrap();
    open(&input).unwrap();
    for output in [&input, &other, &link] {
        let want = Refused::Input { output: output.clone(), input: input.clone() };
        assert_eq!(refused(NewFile::create(output)), want);
        assert_eq!(refused(NewFile::growing(output)), want);
        assert_eq!(refused(claim(output)), want);
    }
    // The other way round: the output is known first.
    let output = folder.path().join("out");
    fs::write(&output, "precious").unwrap();
    claim(&output).unwrap();
    let path = folder.path().join("./out");
    assert_eq!(refused(open(&path)), Refused::Input { output: output.clone(), input: path });
    // It becomes an input while the new file is written.
    let late = folder.path().join("late");
    fs::write(&late, "precious").unwrap();
    let mut new = NewFile::create(&late).unwrap();
    new.write_all(b"new").unwrap();
    open(&late).unwrap();
    assert!(matches!(refused(new.commit()), Refused::Input { .. }));
    assert_eq!(fs::read(&late).unwrap(), b"precious");
    // What this process wrote it reads and writes again.
    for _ in 0..2 {
        put(&output).unwrap();
        open(&output).unwrap();
    }
    assert_eq!(names(folder.path()), ["hard", "in", "late", "link", "out"]);
}

#[test]
fn only_what_this_process_made_is_removed() {
    let folder = folder();
    let path = folder.path().join("x");
    let made = NewFile::growing(&path).unwrap();
    let id = made.id().unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, "of another program").unwrap();
    drop(made);
    assert!(!remove_if(&path, id).unwrap());
    assert_eq!(fs::read(&path).unwrap(), b"of another program");
    assert_eq!(NewFile::fresh(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(create_new(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    fs::remove_file(&path).unwrap();
    let fresh = NewFile::fresh(&path).unwrap();
    fs::write(&path, "of another program").unwrap();
    assert_eq!(fresh.commit().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(names(folder.path()), ["x"]);
    assert_eq!(fs::read(&path).unwrap(), b"of another program");
}

#[test]
fn a_trusted_folder_has_no_folder_above_that_others_change() {
    let folder = folder();
    let root = folder.path();
    let place = root.join("a/b");
    Folder::trusted(&place).unwrap();
    assert_eq!(fs::metadata(root.join("a")).unwrap().mode() & 0o777, 0o700);
    symlink("a", root.join("link")).unwrap();
    Folder::trusted(&root.join("link/b")).unwrap();
    fs::set_permissions(root.join("a"), fs::Permissions::from_mode(0o777)).unwrap();
    let want = Refused::Changeable { folder: root.join("a"), fault: "can be written by others" };
    assert_eq!(refused(Folder::trusted(&place)), want);
    fs::set_permissions(root.join("a"), fs::Permissions::from_mode(0o1777)).unwrap();
    Folder::trusted(&place).unwrap();
    if is_root("a_trusted_folder_has_no_folder_above_that_others_change") {
        chown(&place, Some(NOBODY), None).unwrap();
        let want = Refused::Changeable { folder: place.clone(), fault: "belongs to another user" };
        assert_eq!(refused(Folder::trusted(&place.join("c"))), want);
        chown(root.join("a"), Some(NOBODY), None).unwrap();
        assert!(
            matches!(refused(Folder::trusted(&place)), Refused::Changeable { folder, .. } if folder == root.join("a"))
        );
        std::os::unix::fs::lchown(root.join("link"), Some(NOBODY), None).unwrap();
        assert!(matches!(
            refused(Folder::trusted(&root.join("link/b"))),
            Refused::Changeable { .. }
        ));
    }
}
