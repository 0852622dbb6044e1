//! The thread that reads and writes.

use crate::message::{Answer, Request};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use schedlab_files::FileId;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Connections at a time; more wait until one ends. Chosen: a browser has six to a host.
const CONNECTIONS: usize = 256;
/// Bytes of a request's head, and of a connection's buffer, at most.
const HEAD: usize = 64 << 10;
/// Time for the head of a request, and between two requests of a connection.
const HEAD_TIME: Duration = Duration::from_secs(60);
/// Time for answers that are on their way when the server ends.
const LAST: Duration = Duration::from_secs(1);
/// Time after which a system that gave no connection is asked again: it may lack descriptors.
const AGAIN: Duration = Duration::from_millis(50);

/// Where a server listens.
pub enum Listener {
    /// A port.
    Port(TcpListener),
    /// A socket of the file system.
    Socket(SocketFile),
}

/// A socket of the file system, which is removed with its value.
pub struct SocketFile {
    own: UnixListener,
    path: PathBuf,
    id: FileId,
}

impl SocketFile {
    /// Makes it, and listens.
    ///
    /// # Errors
    /// There is a file of this name, or none may be made.
    pub fn bind(path: &Path) -> io::Result<SocketFile> {
        let own = UnixListener::bind(path)?;
        let id = FileId::from(&std::fs::symlink_metadata(path)?);
        Ok(SocketFile { own, path: path.to_owned(), id })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // One that is gone already needs no removing, and another program's is left.
        let _ = schedlab_files::remove_if(&self.path, self.id);
    }
}

/// A server. When it is dropped, answers on their way have a second.
pub struct Server {
    /// One thread at a time takes what is next.
    requests: Mutex<Receiver<Request>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts the thread that reads and writes. It has the capabilities of the one that starts it.
    ///
    /// # Errors
    /// The system gives no thread, or not what a thread needs to wait for many connections.
    pub fn start(listener: &Listener) -> io::Result<Server> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let listener = Waiting::new(listener, &runtime)?;
        let ((to, requests), (stop, stopped)) = (channel(), oneshot::channel());
        let serve = move || runtime.block_on(accept(listener, to, stopped));
        let thread = std::thread::Builder::new().name("http".to_owned()).spawn(serve)?;
        Ok(Server { requests: Mutex::new(requests), stop: Some(stop), thread: Some(thread) })
    }

    /// Takes the next request, if one comes within this time.
    pub fn next(&self, patience: Duration) -> Option<Request> {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.recv_timeout(patience).ok()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It failed: there is nothing left to wait for.
            let _ = thread.join();
        }
    }
}

/// A listener that waits without a thread.
enum Waiting {
    Port(tokio::net::TcpListener),
    Socket(tokio::net::UnixListener),
}

impl Waiting {
    fn new(listener: &Listener, runtime: &Runtime) -> io::Result<Waiting> {
        let _inside = runtime.enter();
        match listener {
            Listener::Port(own) => {
                let own = own.try_clone()?;
                own.set_nonblocking(true)?;
                tokio::net::TcpListener::from_std(own).map(Waiting::Port)
            }
            Listener::Socket(file) => {
                let own = file.own.try_clone()?;
                own.set_nonblocking(true)?;
                tokio::net::UnixListener::from_std(own).map(Waiting::Socket)
            }
        }
    }
}

/// Accepts connections until `stopped`.
async fn accept(listener: Waiting, to: Sender<Request>, mut stopped: oneshot::Receiver<()>) {
    let (over, ending) = watch::channel(false);
    let free = Arc::new(Semaphore::new(CONNECTIONS));
    let mut open = JoinSet::new();
    loop {
        let next = async {
            let place = free.clone().acquire_owned().await.map_err(io::Error::other)?;
            let (to, ending) = (to.clone(), ending.clone());
            Ok::<_, io::Error>(match &listener {
                Waiting::Port(own) => {
                    let (stream, _) = own.accept().await?;
                    // An event leaves when it is written.
                    stream.set_nodelay(true)?;
                    let served = serve(stream, false, to, ending);
                    (place, Box::pin(served) as Served)
                }
                Waiting::Socket(own) => {
                    let (stream, _) = own.accept().await?;
                    (place, Box::pin(serve(stream, true, to, ending)) as Served)
                }
            })
        };
        tokio::select! {
            _ = &mut stopped => break,
            Some(_) = open.join_next() => {}
            accepted = next => match accepted {
                Ok((place, served)) => {
                    open.spawn(async move {
                        served.await;
                        drop(place);
                    });
                }
                Err(_) => sleep(AGAIN).await,
            },
        }
    }
    drop(listener);
    let _ = over.send(true);
    // Those that are not finished by then are cut off.
    let _ = timeout(LAST, async { while open.join_next().await.is_some() {} }).await;
}

type Served = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// Serves a connection.
async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    is_local: bool,
    to: Sender<Request>,
    mut ending: watch::Receiver<bool>,
) {
    let answer = service_fn(|request| answer(request, is_local, to.clone()));
    let mut rules = http1::Builder::new();
    rules
        .timer(TokioTimer::new())
        .title_case_headers(true)
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD);
    let mut served = pin!(rules.serve_connection(TokioIo::new(stream), answer));
    let ended = async move { ending.wait_for(|over| *over).await.is_ok() };
    // One that fails is no reason to stop serving others.
    tokio::select! {
        _ = served.as_mut() => {}
        _ = ended => {
            served.as_mut().graceful_shutdown();
            let _ = served.await;
        }
    }
}

/// Puts a request into the queue, and waits for its answer.
async fn answer(
    request: hyper::Request<Incoming>,
    is_local: bool,
    to: Sender<Request>,
) -> io::Result<hyper::Response<Answer>> {
    let (request, answered) = Request::new(request, is_local);
    to.send(request).map_err(|_| io::Error::other("the server ended"))?;
    answered.await.map_err(|_| io::Error::other("it was not answered"))
}
