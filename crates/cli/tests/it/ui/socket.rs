//! A socket of the file system instead of a port.

use super::super::{Folder, root, schedlab};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

fn start(path: &Path) -> (Child, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_schedlab"))
        .args(["ui", "--socket"])
        .arg(path)
        .current_dir(root())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it is built");
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut said = String::new();
    while !said.contains("#token=") {
        assert!(out.read_line(&mut said).expect("lines") > 0, "{said}");
    }
    let token = said.split("#token=").nth(1).expect("a token").trim().to_owned();
    (child, token)
}

fn get(path: &Path, host: &str, token: &str) -> String {
    let mut stream = UnixStream::connect(path).expect("it listens");
    let head = format!(
        "GET /api/1/inputs HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer \
         {token}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    text
}

#[test]
fn a_socket_is_for_its_user_alone_and_goes_with_the_program() {
    let folder = Folder::new("ui-socket");
    std::fs::set_permissions(&folder.0, PermissionsExt::from_mode(0o700)).unwrap();
    let path = folder.0.join("bench");
    let (mut child, token) = start(&path);
    let data = std::fs::symlink_metadata(&path).unwrap();
    assert!(data.file_type().is_socket());
    assert_eq!(data.permissions().mode() & 0o777, 0o600);
    for host in ["localhost", "localhost:8080", "127.0.0.1:1234"] {
        assert!(get(&path, host, &token).starts_with("HTTP/1.1 200"), "{host}");
    }
    assert!(get(&path, "evil.example", &token).starts_with("HTTP/1.1 421"));
    assert!(get(&path, "localhost", "wrong").starts_with("HTTP/1.1 401"));
    // A second one does not take it away.
    let second = schedlab(&["ui", "--socket", path.to_str().unwrap()]);
    assert_eq!(second.code, 2);
    assert!(second.stderr.contains("another program listens there"), "{second:?}");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(!path.exists(), "it goes with the program");
    // One that a killed program left is taken over.
    let (mut killed, _) = start(&path);
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(path.exists());
    let (mut third, token) = start(&path);
    assert!(get(&path, "localhost", &token).starts_with("HTTP/1.1 200"));
    third.kill().unwrap();
    third.wait().unwrap();
}

#[test]
fn a_folder_of_others_and_other_files_are_refused() {
    let folder = Folder::new("ui-socket-open");
    std::fs::set_permissions(&folder.0, PermissionsExt::from_mode(0o755)).unwrap();
    let file = folder.write("file", "mine\n");
    let refused = |path: &str, part: &str| {
        let ran = schedlab(&["ui", "--socket", path]);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains(part), "{ran:?}");
    };
    refused(&file, "can be entered by others");
    std::fs::set_permissions(&folder.0, PermissionsExt::from_mode(0o700)).unwrap();
    refused(&file, "which is no socket");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine\n");
    refused("/no/such/folder/x", "its folder");
}
