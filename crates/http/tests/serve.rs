//! A server and those that ask it, over real connections.

use schedlab_http::{Listener, Method, Request, Response, Server};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Time for what comes at once; reached only by a test that fails.
const PATIENCE: Duration = Duration::from_secs(60);

fn server() -> (Server, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (Server::start(&Listener::Port(listener)).unwrap(), address)
}

fn ask(address: SocketAddr, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

/// Reads until the text ends so.
fn until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = Vec::new();
    while !text.ends_with(end.as_bytes()) {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        text.push(byte[0]);
    }
    String::from_utf8(text).unwrap()
}

fn all(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

fn next(server: &Server) -> Request {
    server.next(PATIENCE).expect("a request")
}

fn plain(text: &str) -> Response {
    Response::new(200, "text/plain", text)
}

/// A browser keeps connections open, and asks for several things at once.
#[test]
fn connections_that_stay_open_delay_no_other() {
    let (server, address) = server();
    let asked = |number| ask(address, &format!("GET /{number} HTTP/1.1\r\nHost: x\r\n\r\n"));
    let mut open: Vec<TcpStream> = (0..64).map(asked).collect();
    // All of them are asked for before the first is answered.
    let requests: Vec<Request> = open.iter().map(|_| next(&server)).collect();
    for request in requests {
        let url = request.url().to_owned();
        request.respond(plain(&format!("{url} is here"))).unwrap();
    }
    for (number, stream) in open.iter_mut().enumerate() {
        until(stream, &format!("/{number} is here"));
    }
    // Each takes a second one.
    for stream in &mut open {
        stream.write_all(b"HEAD /again HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let request = next(&server);
        assert_eq!((request.method(), request.url()), (&Method::HEAD, "/again"));
        request.respond(plain("not sent")).unwrap();
        assert!(until(stream, "\r\n\r\n").contains("Content-Length: 8\r\n"));
    }
}

#[test]
fn a_head_has_an_end() {
    let (server, address) = server();
    let mut stream = ask(address, "GET / HTTP/1.1\r\nHost: x\r\nX: ");
    // It is cut off: the rest may find no reader.
    let sent = (0..1000).try_for_each(|_| stream.write_all(&[b'a'; 1000]));
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let is_cut = |error: std::io::Error| {
        matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
    };
    assert!(sent.map_err(is_cut) == Err(true) || read.map_err(is_cut) != Err(false));
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"), "{answer:?}");
    assert!(server.next(Duration::ZERO).is_none());
}

#[test]
fn a_body_is_read_as_it_comes() {
    let (server, address) = server();
    let mut stream = ask(address, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\nfour");
    let mut request = next(&server);
    let mut text = [0; 4];
    request.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"four");
    stream.write_all(b"more").unwrap();
    request.read_exact(&mut text).unwrap();
    assert_eq!((&text, request.read(&mut [0]).unwrap()), (b"more", 0));
    request.respond(plain("read")).unwrap();
    until(&mut stream, "read");
    // One that ends too early is no shorter body.
    let half = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\nfour";
    drop(ask(address, half));
    assert!(next(&server).read_to_end(&mut Vec::new()).is_err());
    // Nor must it be read at all.
    let mut stream = ask(address, half);
    next(&server).respond(plain("not wanted")).unwrap();
    until(&mut stream, "not wanted");
}

#[test]
fn a_stream_that_is_not_ended_is_seen_to_be_cut_off() {
    let (server, address) = server();
    for is_ended in [true, false] {
        let mut stream = ask(address, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let mut answer = next(&server).stream(plain("first ")).unwrap();
        until(&mut stream, "first \r\n");
        answer.write_all(b"second").unwrap();
        until(&mut stream, "second\r\n");
        match is_ended {
            true => answer.end(),
            false => drop(answer),
        }
        assert_eq!(all(&mut stream), if is_ended { "0\r\n\r\n" } else { "" });
    }
}

#[test]
fn a_reader_that_left_is_noticed() {
    let (server, address) = server();
    let stream = ask(address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut answer = next(&server).stream(plain("")).unwrap();
    drop(stream);
    let gone = std::iter::repeat_with(|| answer.write_all(&[0; 1000])).find_map(Result::err);
    assert_eq!(gone.unwrap().kind(), ErrorKind::BrokenPipe);
}

#[test]
fn a_server_that_ends_closes_what_is_open() {
    let (server, address) = server();
    let mut idle = ask(address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    next(&server).respond(plain("read")).unwrap();
    until(&mut idle, "read");
    let mut waiting = ask(address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    drop(next(&server));
    drop(server);
    assert_eq!((all(&mut idle), all(&mut waiting)), (String::new(), String::new()));
    assert!(TcpStream::connect(address).is_err());
}
