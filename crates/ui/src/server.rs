//! The server: a port on loopback or a socket, and a thread for each request.

use crate::answer;
use crate::api::Api;
use crate::guard::Guard;
use crate::inputs::Inputs;
use crate::live::Live;
use crate::questions::Questions;
use crate::socket;
use crate::{UiError, WorkbenchOptions};
use schedlab_http::{Listener, Server};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Time between two looks at whether to end.
const LOOK: Duration = Duration::from_millis(200);
/// Requests that are answered at a time. Chosen: a browser has six connections to a host.
const MOST: usize = 64;

/// A workbench that listens.
pub struct Workbench {
    listener: Listener,
    at: At,
    api: Api,
}

/// Where a workbench listens.
enum At {
    Port(SocketAddr),
    Socket(PathBuf),
}

impl Workbench {
    /// Opens what the user named, and listens.
    ///
    /// # Errors
    /// An input cannot be opened, or the port is taken.
    pub fn bind(options: &WorkbenchOptions) -> Result<Workbench, UiError> {
        let inputs = Inputs::new(options)?;
        let (listener, at) = match &options.socket {
            Some(path) => {
                let listener = socket::listen(path)?;
                (listener, At::Socket(path.clone()))
            }
            None => loopback(options.port)?,
        };
        let port = match &at {
            At::Port(address) => Some(address.port()),
            At::Socket(..) => None,
        };
        let guard = Guard::new(port).map_err(UiError::Random)?;
        let questions = Questions::default();
        let comparisons = AtomicUsize::new(0);
        let origin = options.origin.clone();
        let api = Api { guard, inputs, questions, comparisons, origin, live: None };
        Ok(Workbench { listener, at, api })
    }

    /// Shows the machine, too.
    #[must_use]
    pub fn watching(mut self, live: Box<dyn Live>) -> Workbench {
        self.api.live = Some(live);
        self
    }

    /// The address for a user, with the token. The part behind `#` stays in the browser: no server
    /// and no log sees it. Of a socket: what a browser asks behind a tunnel to it.
    pub fn address(&self) -> String {
        match &self.at {
            At::Port(address) => format!("http://{address}/#token={}", self.api.guard.token()),
            At::Socket(..) => format!("http://localhost:8080/#token={}", self.api.guard.token()),
        }
    }

    /// The socket at which it listens; `None`: at a port.
    pub fn socket(&self) -> Option<&Path> {
        match &self.at {
            At::Port(_) => None,
            At::Socket(path) => Some(path),
        }
    }

    /// The address for the command line of a browser, which other users can read: it opens once.
    /// `None`: it was used, or no browser can open the socket.
    pub fn address_to_open(&self) -> Option<String> {
        let At::Port(address) = self.at else { return None };
        Some(format!("http://{address}/#key={}", self.api.guard.key()?))
    }

    /// Serves until `stop`.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn serve(&self, stop: &(dyn Fn() -> bool + Sync)) -> Result<(), UiError> {
        // Here, not where it was bound: until then privileges may have been given up.
        let server = Server::start(&self.listener).map_err(UiError::Server)?;
        let ended = AtomicBool::new(false);
        let busy = AtomicUsize::new(0);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let is_over = || ended.load(Relaxed);
                self.api.inputs.look(&is_over);
                self.api.questions.prepare_first(&self.api.inputs, &is_over);
            });
            while !stop() {
                let Some(request) = server.next(LOOK) else { continue };
                if busy.load(Relaxed) >= MOST {
                    let why = format!("{MOST} requests are being answered: ask again");
                    // One who is gone needs no answer.
                    let _ = request.respond(answer::failed(503, &why));
                    continue;
                }
                busy.fetch_add(1, Relaxed);
                let (api, busy) = (&self.api, &busy);
                threads.spawn(move || {
                    // One request that fails is no reason to stop serving others.
                    let _ = api.serve(request);
                    busy.fetch_sub(1, Relaxed);
                });
            }
            ended.store(true, Relaxed);
            self.api.questions.end();
        });
        Ok(())
    }
}

fn loopback(port: u16) -> Result<(Listener, At), UiError> {
    let failed = |error: io::Error| UiError::Port { port, reason: error.to_string() };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((Listener::Port(listener), At::Port(address)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    fn post_key(address: SocketAddr, key: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        let length = key.len();
        let head = format!(
            "POST /api/1/token HTTP/1.1\r\nHost: {address}\r\nContent-Length: \
             {length}\r\nConnection: close\r\n\r\n{key}"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// What is on a browser's command line opens once, and is not the token.
    #[test]
    fn the_key_of_a_browser_is_exchanged_once() {
        let bench = Workbench::bind(&WorkbenchOptions::default()).unwrap();
        let At::Port(address) = bench.at else { panic!("a port") };
        let key = bench.address_to_open().unwrap().split("#key=").nth(1).unwrap().to_owned();
        let token = bench.address().split("#token=").nth(1).unwrap().to_owned();
        assert_ne!(key, token);
        let ended = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| bench.serve(&|| ended.load(Relaxed)).unwrap());
            let answers = ["wrong", &key, &key].map(|key| post_key(address, key));
            ended.store(true, Relaxed);
            let has = |text: &String| text.contains(&token);
            assert_eq!(answers.each_ref().map(has), [false, true, false], "{answers:?}");
            assert!(answers[2].starts_with("HTTP/1.1 401"), "{answers:?}");
        });
        assert_eq!(bench.address_to_open(), None);
    }
}
