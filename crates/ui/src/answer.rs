//! Answers over HTTP, each with the headers that keep a page to itself.

use crate::guard::Refusal;
use schedlab_http::{Request, Response, Stream};
use serde::Serialize;
use std::io::{self, Write as _};

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

/// An answer of this type of content.
fn answer(status: u16, kind: &str, body: impl Into<Vec<u8>>) -> Response {
    let headers = HEADERS.iter();
    headers.fold(Response::new(status, kind, body), |response, (name, value)| {
        response.with_header(name, value)
    })
}

/// Text of a type.
pub(crate) fn text(status: u16, kind: &str, text: impl Into<Vec<u8>>) -> Response {
    answer(status, &format!("{kind}; charset=utf-8"), text)
}

/// A file that the browser keeps under this name.
pub(crate) fn file(name: &str, kind: &str, content: String) -> Response {
    let place = format!("attachment; filename=\"{name}\"");
    text(200, kind, content).with_header("Content-Disposition", &place)
}

/// JSON.
pub(crate) fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(bytes) => text(200, "application/json", bytes),
        Err(error) => failed(500, &format!("the answer is no JSON: {error}")),
    }
}

/// What is wrong, as the program's other errors are: `schedlab-error/1`.
pub(crate) fn failed(status: u16, why: &str) -> Response {
    let error = schedlab_study::error_output::ErrorOutput::new(why);
    text(status, "application/json", serde_json::to_vec(&error).unwrap_or_default())
}

/// Why a request is refused.
pub(crate) fn refused(refusal: Refusal) -> Response {
    let (status, why) = refusal.words();
    failed(status, why)
}

/// Server-sent events (the HTML standard, section 9.2), each of which leaves at once.
pub(crate) struct Events(Stream);

impl Events {
    /// Begins the answer.
    ///
    /// # Errors
    /// The reader is gone.
    pub(crate) fn begin(request: Request) -> io::Result<Events> {
        request.stream(answer(200, "text/event-stream", "")).map(Events)
    }

    /// Sends an event. Its data is JSON, which has no line ends.
    ///
    /// # Errors
    /// The reader is gone.
    pub(crate) fn send(&mut self, name: &str, data: &str) -> io::Result<()> {
        self.0.write_all(format!("event: {name}\ndata: {data}\n\n").as_bytes())
    }

    /// Sends a comment, which a reader ignores: whether it is still there.
    ///
    /// # Errors
    /// The reader is gone.
    pub(crate) fn beat(&mut self) -> io::Result<()> {
        self.0.write_all(b":\n\n")
    }

    /// Ends the answer.
    pub(crate) fn end(self) {
        self.0.end();
    }
}
