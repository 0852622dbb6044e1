//! Requests and answers.

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::{mpsc, oneshot};

/// Pieces of a body that are on their way. Chosen: the next one is there when one was taken, and a
/// slow reader holds the writer up soon.
const PIECES: usize = 2;

/// What was asked. Dropped without an answer, its connection ends.
pub struct Request {
    head: Parts,
    body: mpsc::Receiver<io::Result<Bytes>>,
    /// What is not read yet of the piece that came last.
    rest: Bytes,
    answer: oneshot::Sender<hyper::Response<Answer>>,
    is_local: bool,
}

impl Request {
    /// Takes a request apart: what is to be answered, and what becomes the answer.
    pub(crate) fn new(
        request: hyper::Request<Incoming>,
        is_local: bool,
    ) -> (Request, oneshot::Receiver<hyper::Response<Answer>>) {
        let (head, incoming) = request.into_parts();
        let (to, body) = mpsc::channel(PIECES);
        tokio::spawn(pass_on(incoming, to));
        let (answer, answered) = oneshot::channel();
        (Request { head, body, rest: Bytes::new(), answer, is_local }, answered)
    }

    /// How it asks.
    pub fn method(&self) -> &Method {
        &self.head.method
    }

    /// What it asks for: the path with the query.
    pub fn url(&self) -> &str {
        self.head.uri.path_and_query().map_or("", |path| path.as_str())
    }

    /// The values of the headers of this name. One that is not of visible ASCII is empty.
    pub fn headers(&self, name: &str) -> impl Iterator<Item = &str> {
        let all = self.head.headers.get_all(name).into_iter();
        all.map(|value| value.to_str().unwrap_or_default())
    }

    /// Whether it came through a socket of the file system.
    pub const fn is_by_socket(&self) -> bool {
        self.is_local
    }

    /// Answers.
    ///
    /// # Errors
    /// The one who asked is gone.
    pub fn respond(self, response: Response) -> io::Result<()> {
        let body = Answer::Whole(Bytes::from(response.body));
        self.send(response.status, response.headers, body)
    }

    /// Begins an answer whose body is written piece by piece.
    ///
    /// # Errors
    /// The one who asked is gone.
    pub fn stream(self, head: Response) -> io::Result<Stream> {
        let (to, body) = mpsc::channel(PIECES);
        let first = Bytes::from(head.body);
        self.send(head.status, head.headers, Answer::Pieces(body))?;
        let mut stream = Stream(Some(to));
        if !first.is_empty() {
            stream.write_all(&first)?;
        }
        Ok(stream)
    }

    fn send(self, status: StatusCode, headers: HeaderMap, body: Answer) -> io::Result<()> {
        let mut response = hyper::Response::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        self.answer.send(response).map_err(|_| gone())
    }
}

/// The body, as far as it is read; at its end there are no more bytes.
impl Read for Request {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.body.blocking_recv() {
                Some(piece) => self.rest = piece?,
                None => return Ok(0),
            }
        }
        let count = to.len().min(self.rest.len());
        to[..count].copy_from_slice(&self.rest.split_to(count));
        Ok(count)
    }
}

/// Hands a body on until it ends, or until there is no reader.
async fn pass_on(mut incoming: Incoming, to: mpsc::Sender<io::Result<Bytes>>) {
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut incoming).poll_frame(cx)).await {
        let piece = match frame.map(Frame::into_data) {
            Ok(Ok(data)) => Ok(data),
            // Trailers.
            Ok(Err(_)) => continue,
            Err(error) => Err(io::Error::other(error)),
        };
        let is_last = piece.is_err();
        if to.send(piece).await.is_err() || is_last {
            return;
        }
    }
}

/// An answer that is whole, or the beginning of one that is written piece by piece.
#[derive(Debug)]
pub struct Response {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Response {
    /// An answer of this status and type of content.
    ///
    /// # Panics
    /// The status is not in 100 … 999, or the type is not of visible ASCII.
    pub fn new(status: u16, kind: &str, body: impl Into<Vec<u8>>) -> Response {
        let status = StatusCode::from_u16(status).expect("a status has three digits");
        let response = Response { status, headers: HeaderMap::new(), body: body.into() };
        response.with_header(CONTENT_TYPE.as_str(), kind)
    }

    /// The same with a header.
    ///
    /// # Panics
    /// The name is no name of a header, or the value is not of visible ASCII.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Response {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
        self.headers.insert(name, HeaderValue::from_str(value).expect("visible ASCII"));
        self
    }
}

/// The body of an answer, piece by piece; each leaves at once. One that is dropped before its end
/// ends the connection, so that its reader sees that something is missing.
pub struct Stream(Option<mpsc::Sender<io::Result<Bytes>>>);

impl Stream {
    /// Ends the answer.
    pub fn end(mut self) {
        self.0 = None;
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let to = self.0.as_ref().ok_or_else(gone)?;
        to.blocking_send(Ok(Bytes::copy_from_slice(bytes))).map_err(|_| gone())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(to) = self.0.take() {
            // A reader that is gone needs no word.
            let _ = to.blocking_send(Err(io::Error::other("the answer was not finished")));
        }
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the one who asked is gone")
}

/// The body of an answer, for hyper.
pub(crate) enum Answer {
    Whole(Bytes),
    Pieces(mpsc::Receiver<io::Result<Bytes>>),
}

impl Body for Answer {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut *self {
            Answer::Whole(bytes) => {
                let all = std::mem::take(bytes);
                Poll::Ready((!all.is_empty()).then(|| Ok(Frame::data(all))))
            }
            Answer::Pieces(from) => {
                from.poll_recv(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Answer::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Answer::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Answer::Pieces(_) => SizeHint::default(),
        }
    }
}
