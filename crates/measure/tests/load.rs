//! The client against a server whose behaviour is known.

use schedlab_measure::{LoadRequest, LoopKind, run};
use schedlab_model::Ns;
use schedlab_testing::settles;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A server that answers `PONG` to each line-ended `PING`, and stalls once for `stall` before reply
/// `at`.
fn server(stall: Duration, at: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let request = schedlab_measure::command(&[b"PING"]).len();
        let (mut buffer, mut held, mut served) = ([0; 4096], 0, 0);
        while let Ok(count) = stream.read(&mut buffer) {
            if count == 0 {
                return;
            }
            held += count;
            while held >= request {
                held -= request;
                served += 1;
                if served == at {
                    std::thread::sleep(stall);
                }
                stream.write_all(b"+PONG\r\n").unwrap();
            }
        }
    });
    address
}

fn request(address: SocketAddr, kind: LoopKind) -> LoadRequest {
    let duration = Ns::from_ms(500);
    let words = vec!["PING".to_owned()];
    LoadRequest {
        address,
        kind,
        connections: 1,
        duration,
        warmup: Ns::ZERO,
        words,
        prepare: Vec::new(),
    }
}

#[test]
fn an_open_loop_sees_the_whole_stall() {
    settles(3, the_whole_stall);
}

fn the_whole_stall() {
    let address = server(Duration::from_millis(200), 300);
    let report = run(&request(address, LoopKind::Open { rate_per_s: 2000.0, seed: 7 })).unwrap();
    assert_eq!((report.unanswered, report.errors), (0, 0));
    assert_eq!(report.sent, report.replies);
    // The requests that were to leave during the stall waited for 100 ms on average: they are about
    // 400 of
    // 1000. A client that corrects nothing but sends on sees them too, since it sends without
    //       waiting.
    assert!(report.latency.max_ns >= 200_000_000, "{:?}", report.latency);
    assert!(report.latency.p90_ns >= 100_000_000, "{:?}", report.latency);
    assert!(report.latency.count > 700, "{:?}", report.latency);
}

#[test]
fn a_closed_loop_hides_it() {
    settles(3, the_stall_is_hidden);
}

fn the_stall_is_hidden() {
    let address = server(Duration::from_millis(200), 30);
    let report = run(&request(address, LoopKind::Closed)).unwrap();
    assert_eq!((report.unanswered, report.errors), (0, 0));
    assert!(report.latency.max_ns >= 200_000_000);
    let waited = report.latency.count as f64;
    assert!(waited > 30.0 && report.latency.p90_ns < 100_000_000, "{:?}", report.latency);
}

#[test]
fn a_server_that_speaks_something_else_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.write_all(b"SSH-2.0-OpenSSH\r\n");
        let _ = stream.read(&mut [0; 100]);
    });
    let error = run(&request(address, LoopKind::Closed)).unwrap_err().to_string();
    assert!(error.contains("RESP") && error.contains("SSH"), "{error}");
}

/// Answers each of so many connections once, with these bytes, and hands on what the connections
/// sent first.
fn answers(replies: [&'static [u8]; 2]) -> (SocketAddr, Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (heard, hear) = channel();
    std::thread::spawn(move || {
        // The load's own connection comes first and sends last.
        let (load, _) = listener.accept().unwrap();
        let (prepare, _) = listener.accept().unwrap();
        for (mut stream, reply) in [prepare, load].into_iter().zip(replies) {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                let _ = heard.send(buffer[..count].to_vec());
                let _ = stream.write_all(reply);
            }
        }
    });
    (address, hear)
}

#[test]
fn what_the_requests_need_is_made_before_them() {
    let words = ["SETRANGE", "bits", "131071", "x"];
    let prepare = vec![words.map(str::to_owned).to_vec()];
    let (address, hear) = answers([b":131072\r\n", b"+PONG\r\n"]);
    let short =
        LoadRequest { prepare, duration: Ns::from_ms(200), ..request(address, LoopKind::Closed) };
    let report = run(&short).unwrap();
    assert!(report.replies > 0 && report.errors == 0, "{report:?}");
    let first = hear.recv().unwrap();
    assert_eq!(first, schedlab_measure::command(&words.map(str::as_bytes)));
    assert_eq!(hear.recv().unwrap(), schedlab_measure::command(&[b"PING"]));
    // A server that does not take it is named, and nothing is measured.
    let (address, _hear) = answers([b"-OOM command not allowed\r\n", b"+PONG\r\n"]);
    let error = run(&LoadRequest { address, ..short }).unwrap_err().to_string();
    assert!(error.contains("SETRANGE bits 131071 x") && error.contains("OOM"), "{error}");
}
