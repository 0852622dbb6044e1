//! The workbench's server, as programs and pages of strangers meet it: plain HTTP, without a
//! browser.

mod ask;
mod browser;
mod film;
mod first;
mod font;
mod hands;
mod large;
mod parts;
mod pictures;
mod refused;
mod socket;
mod tune;
mod walk;

use super::root;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const REDIS: &str = "recordings/redis-other-other-closed8.slt";

/// A workbench that runs; it ends with its value.
struct Server {
    child: Child,
    port: u16,
    token: String,
}

/// What was answered.
#[derive(Debug)]
struct Answered {
    status: u16,
    head: String,
    body: String,
}

impl Answered {
    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Server {
    fn new(arguments: &[&str]) -> Server {
        Server::try_new(arguments).expect("it says its address")
    }

    /// `None`: it ended without an address.
    fn try_new(arguments: &[&str]) -> Option<Server> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_schedlab"))
            .args(["ui", "--no-open"])
            .args(arguments)
            .current_dir(root())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it is built");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        let Some(address) = line.split("http://127.0.0.1:").nth(1) else {
            let _ = child.wait();
            return None;
        };
        let (port, token) = address.trim().split_once("/#token=").expect("a token");
        Some(Server { port: port.parse().expect("a port"), token: token.to_owned(), child })
    }

    /// Sends a request with these lines of a head, and reads all of the answer.
    fn raw(&self, lines: &str, body: &[u8]) -> Answered {
        let mut stream = self.connect();
        // One who is refused early may stop listening.
        let _ = stream.write_all(format!("{lines}Connection: close\r\n\r\n").as_bytes());
        let _ = stream.write_all(body);
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        answered(&bytes)
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
        stream
    }

    /// The lines of a request as the page sends it.
    fn lines(&self, method: &str, path: &str, length: usize) -> String {
        format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nAuthorization: Bearer \
             {}\r\nContent-Length: {length}\r\n",
            self.port, self.token
        )
    }

    fn get(&self, path: &str) -> Answered {
        self.raw(&self.lines("GET", path, 0), b"")
    }

    fn post(&self, path: &str, body: &[u8]) -> Answered {
        self.raw(&self.lines("POST", path, body.len()), body)
    }

    /// Asks, and returns the events of the answer.
    fn ask(&self, question: &Value) -> Vec<(String, Value)> {
        self.stream("/api/1/ask", question)
    }

    /// Sends a question to this address, and returns the events of the answer.
    fn stream(&self, path: &str, question: &Value) -> Vec<(String, Value)> {
        let answered = self.post(path, question.to_string().as_bytes());
        assert_eq!(answered.status, 200, "{answered:?}");
        events(&answered.body)
    }

    /// The address of the page for a browser.
    fn page(&self, state: &str) -> String {
        format!("http://127.0.0.1:{}/#token={}&{state}", self.port, self.token)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn answered(bytes: &[u8]) -> Answered {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(bytes.len());
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let body = bytes.get(end + 4..).unwrap_or_default();
    let status = head.split(' ').nth(1).and_then(|number| number.parse().ok()).unwrap_or(0);
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if chunked { whole(body) } else { String::from_utf8_lossy(body).into_owned() };
    Answered { status, head, body }
}

/// Puts chunks together.
fn whole(mut rest: &[u8]) -> String {
    let mut all = Vec::new();
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let length = std::str::from_utf8(&rest[..end]).expect("ASCII");
        let length = usize::from_str_radix(length, 16).expect("a length");
        let chunk = &rest[end + 2..];
        all.extend_from_slice(&chunk[..length.min(chunk.len())]);
        rest = chunk.get(length + 2..).unwrap_or_default();
    }
    String::from_utf8_lossy(&all).into_owned()
}

/// Reads server-sent events.
fn events(text: &str) -> Vec<(String, Value)> {
    let event = |block: &str| {
        let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
        let data = serde_json::from_str(field("data: ")?).expect("JSON");
        Some((field("event: ")?.to_owned(), data))
    };
    text.split("\n\n").filter_map(event).collect()
}

fn idle(tab: &str, seeds: &[u32]) -> Value {
    let options = json!([["variant", "sysbench policy=idle"], ["for", "1s"]]);
    json!({"input": "f0", "tab": tab, "options": options, "seeds": seeds})
}
