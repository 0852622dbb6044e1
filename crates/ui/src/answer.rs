//! Answers over HTTP, each with the headers that keep a page to itself.

use crate::guard::Refusal;
use serde::Serialize;
use std::io::{self, Cursor, Write};
use tiny_http::{Header, Request, Response};

/// What a page may load and do: the files of this server, and nothing inline.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' \
                      data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// Headers of every answer.
const HEADERS: [(&str, &str); 5] = [
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
];

/// An answer that is whole.
pub(crate) type Whole = Response<Cursor<Vec<u8>>>;

fn header(name: &str, value: &str) -> Header {
    Header::from_bytes(name, value).expect("both are ASCII")
}

fn with_headers(response: Whole, kind: &str) -> Whole {
    let plain = header("Content-Type", &format!("{kind}; charset=utf-8"));
    HEADERS.iter().fold(response.with_header(plain), |response, (name, value)| {
        response.with_header(header(name, value))
    })
}

/// Text of a type.
pub(crate) fn text(status: u16, kind: &str, text: impl Into<Vec<u8>>) -> Whole {
    with_headers(Response::from_data(text.into()).with_status_code(status), kind)
}

/// A file that the browser keeps under this name.
pub(crate) fn file(name: &str, kind: &str, content: String) -> Whole {
    let place = format!("attachment; filename=\"{name}\"");
    text(200, kind, content).with_header(header("Content-Disposition", &place))
}

/// JSON.
pub(crate) fn json(value: &impl Serialize) -> Whole {
    match serde_json::to_vec(value) {
        Ok(bytes) => text(200, "application/json", bytes),
        Err(error) => failed(500, &format!("the answer is no JSON: {error}")),
    }
}

/// What is wrong, as the program's other errors are: `schedlab-error/1`.
pub(crate) fn failed(status: u16, why: &str) -> Whole {
    let error = schedlab_study::error_output::ErrorOutput::new(why);
    text(status, "application/json", serde_json::to_vec(&error).unwrap_or_default())
}

/// Why a request is refused.
pub(crate) fn refused(refusal: Refusal) -> Whole {
    let (status, why) = refusal.words();
    failed(status, why)
}

/// Server-sent events (the HTML standard, section 9.2), in chunks of HTTP/1.1 (RFC 9112, section
/// 7.1), each of which leaves at once.
pub(crate) struct Events(Box<dyn Write + Send>);

impl Events {
    /// Begins the answer.
    ///
    /// # Errors
    /// The reader is gone.
    pub(crate) fn begin(request: Request) -> io::Result<Events> {
        let mut out = request.into_writer();
        let mut head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
                        Transfer-Encoding: chunked\r\n"
            .to_owned();
        for (name, value) in HEADERS {
            head += &format!("{name}: {value}\r\n");
        }
        out.write_all((head + "\r\n").as_bytes())?;
        out.flush()?;
        Ok(Events(out))
    }

    /// Sends an event. Its data is JSON, which has no line ends.
    ///
    /// # Errors
    /// The reader is gone.
    pub(crate) fn send(&mut self, name: &str, data: &str) -> io::Result<()> {
        self.chunk(&format!("event: {name}\ndata: {data}\n\n"))
    }

    /// Sends a comment, which a reader ignores: whether it is still there.
    ///
    /// # Errors
    /// The reader is gone.
    pub(crate) fn beat(&mut self) -> io::Result<()> {
        self.chunk(":\n\n")
    }

    /// Ends the answer.
    ///
    /// # Errors
    /// The reader is gone.
    pub(crate) fn end(mut self) -> io::Result<()> {
        self.0.write_all(b"0\r\n\r\n")?;
        self.0.flush()
    }

    fn chunk(&mut self, text: &str) -> io::Result<()> {
        write!(self.0, "{:x}\r\n{text}\r\n", text.len())?;
        self.0.flush()
    }
}
