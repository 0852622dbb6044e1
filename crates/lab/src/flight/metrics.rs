//! Where the metrics are served: HTTP on loopback, or on a unix socket.

use super::FlightError;
use prometheus_client::encoding::prometheus_protobuf::encode_to_vec;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use schedlab_host::privileges::give_up_all_but;
use schedlab_http::{Listener, Method, Request, Response, Server, SocketFile};
use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// What OpenMetrics 1.0 calls itself (Prometheus' exposition formats).
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What Prometheus' protobuf form calls itself, which alone carries native histograms. Prometheus
/// asks for it by this name where `scrape_native_histograms` is on.
const PROTOBUF: &str = "application/vnd.google.protobuf; \
                        proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// Time between two looks at whether to end.
const LOOK: Duration = Duration::from_millis(200);

/// Where metrics are served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// A port of this machine's loopback.
    Loopback(SocketAddr),
    /// A unix socket.
    Socket(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match Path::new(path).is_absolute() {
                true => Ok(Address::Socket(PathBuf::from(path))),
                false => Err("a unix socket has a whole path, such as \
                              \"unix:/run/schedlab/metrics.sock\""
                    .to_owned()),
            };
        }
        let address: SocketAddr = text.parse().map_err(|_| {
            "give an address of loopback with a port, such as \"127.0.0.1:9920\", or \
             \"unix:/run/schedlab/metrics.sock\""
                .to_owned()
        })?;
        match address.ip().is_loopback() {
            true => Ok(Address::Loopback(address)),
            false => Err("only loopback is served (127.0.0.1 or [::1]): names of programs and \
                          units are not for other machines. For those put a proxy with TLS \
                          before it (docs/flight.md)"
                .to_owned()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Loopback(address) => write!(f, "http://{address}/metrics"),
            Address::Socket(path) => write!(f, "unix:{} (/metrics)", path.display()),
        }
    }
}

/// Binds the address. The threads that read requests have no capabilities.
///
/// # Errors
/// It is taken, or may not be used.
pub(crate) fn bind(address: &Address) -> Result<Bound, FlightError> {
    // A thread has at first the capabilities of the one that makes it.
    let bound = std::thread::scope(|threads| {
        let binding = threads.spawn(|| bind_and_give_up(address));
        binding.join().unwrap_or_else(|_| Err("a thread failed".into()))
    });
    bound.map_err(|error| FlightError::Metrics {
        address: address.to_string(),
        reason: error.to_string(),
    })
}

fn bind_and_give_up(address: &Address) -> Result<Bound, Box<dyn Error + Send + Sync>> {
    let listener = match address {
        Address::Loopback(address) => Listener::Port(TcpListener::bind(address)?),
        Address::Socket(path) => Listener::Socket(socket(path)?),
    };
    give_up_all_but(&[])?;
    Ok(Bound { server: Server::start(&listener)?, _listener: listener })
}

/// Makes the socket; one that a recorder left behind is replaced, nothing else is.
fn socket(path: &Path) -> io::Result<SocketFile> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|data| data.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err() {
        schedlab_files::remove_if(path, super::folder::id(path)?)?;
    }
    SocketFile::bind(path)
}

/// A server that listens.
pub(crate) struct Bound {
    server: Server,
    /// The file of a socket is removed with it.
    _listener: Listener,
}

impl Bound {
    /// Serves until `stop`.
    pub(crate) fn serve(&self, registry: &Registry, stop: &dyn Fn() -> bool) {
        while !stop() {
            // One request that fails is no reason to stop serving others.
            if let Some(request) = self.server.next(LOOK) {
                let _ = answer(request, registry);
            }
        }
    }
}

fn answer(request: Request, registry: &Registry) -> io::Result<()> {
    if !is_local(&request) {
        return request.respond(plain(403, "this address is for programs of this machine\n"));
    }
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        return request.respond(plain(405, "metrics are only read: GET /metrics\n"));
    }
    let metrics = match request.url().split('?').next() {
        Some("/metrics") if wants_protobuf(&request) => encode_to_vec(registry)
            .map(|bytes| Response::new(200, PROTOBUF, bytes))
            .map_err(|error| error.to_string()),
        Some("/metrics") => {
            let mut text = String::new();
            encode(&mut text, registry)
                .map(|()| Response::new(200, CONTENT_TYPE, text))
                .map_err(|error| error.to_string())
        }
        _ => Ok(plain(404, "see /metrics\n")),
    };
    request.respond(metrics.unwrap_or_else(|error| plain(500, &format!("{error}\n"))))
}

/// Whether a request names this machine: a page of another site that a browser opened here names
/// its own host, whatever address that is made to have.
fn is_local(request: &Request) -> bool {
    // Over a unix socket there is no address, and no browser.
    request.is_by_socket() || request.headers("Host").next().is_some_and(is_local_host)
}

fn is_local_host(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || address.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// Whether a scraper prefers Prometheus' protobuf form: it names that before every text, as
/// Prometheus does, whose list is in the order of its wishes.
fn wants_protobuf(request: &Request) -> bool {
    request.headers("Accept").next().is_some_and(prefers_protobuf)
}

fn prefers_protobuf(accept: &str) -> bool {
    let first = accept.split(',').next().unwrap_or_default();
    let mut parts = first.split(';').map(str::trim);
    parts.next() == Some("application/vnd.google.protobuf")
        && parts.any(|part| part == "proto=io.prometheus.client.MetricFamily")
}

fn plain(status: u16, text: &str) -> Response {
    Response::new(status, "text/plain; charset=utf-8", text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};

    #[test]
    fn only_loopback_and_sockets_are_addresses() {
        assert!("127.0.0.1:9920".parse::<Address>().is_ok());
        assert!("[::1]:9920".parse::<Address>().is_ok());
        assert!("unix:/run/x.sock".parse::<Address>().is_ok());
        for text in ["0.0.0.0:9920", "10.0.0.1:80", "[::]:9920", "unix:x.sock", "9920", ""] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn only_names_of_this_machine_are_answered() {
        for host in ["localhost", "localhost:9920", "127.0.0.1:9920", "127.3.2.1", "[::1]:9920"] {
            assert!(is_local_host(host), "{host}");
        }
        for host in ["evil.example", "evil.example:9920", "localhost.evil.example:9920", "10.0.0.1"]
        {
            assert!(!is_local_host(host), "{host}");
        }
    }

    /// The header of Prometheus 3.5 with and without native histograms.
    #[test]
    fn protobuf_is_for_those_that_ask_for_it_first() {
        let text =
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,*/*;q=0.1";
        let protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
                        encoding=delimited;q=0.6";
        assert!(prefers_protobuf(&format!("{protobuf},{text}")));
        assert!(!prefers_protobuf(&format!("{text},{protobuf}")));
        assert!(!prefers_protobuf(text) && !prefers_protobuf("") && !prefers_protobuf("*/*"));
    }

    fn ask(path: &Path, request: &str) -> String {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn a_socket_serves_metrics_and_nothing_else() {
        let name = format!("schedlab-metrics-{}.sock", std::process::id());
        let path = schedlab_testing::temp_dir().join(name);
        let bound = bind(&Address::Socket(path.clone())).unwrap();
        let server = &bound;
        assert!(bind(&Address::Socket(path.clone())).is_err(), "it is in use");
        let registry = &Registry::default();
        let done = &std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|threads| {
            let is_done = || done.load(std::sync::atomic::Ordering::Relaxed);
            threads.spawn(move || server.serve(registry, &is_done));
            let get = |method: &str, url: &str| {
                ask(&path, &format!("{method} {url} HTTP/1.0\r\nHost: x\r\n\r\n"))
            };
            let metrics = get("GET", "/metrics?x=1");
            assert!(metrics.contains("200 OK") && metrics.contains(CONTENT_TYPE), "{metrics}");
            assert!(metrics.ends_with("# EOF\n"), "{metrics}");
            let accept = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily";
            let answer = ask(
                &path,
                &format!("GET /metrics HTTP/1.0\r\nHost: x\r\nAccept: {accept}\r\n\r\n"),
            );
            assert!(answer.contains(PROTOBUF), "{answer}");
            assert!(get("GET", "/../etc/passwd").contains(" 404 "));
            assert!(get("POST", "/metrics").contains(" 405 "));
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        drop(bound);
        // What a killed recorder left is replaced; a file is not.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(bind(&Address::Socket(path.clone())).unwrap());
        std::fs::write(&path, "mine").unwrap();
        assert!(bind(&Address::Socket(path.clone())).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
        std::fs::remove_file(path).unwrap();
    }
}
