//! HTTP/1.1 for code that blocks. hyper reads and writes in one thread, and what was asked is taken
//! from a queue: a connection that stays open holds no thread, and delays no other.
//!
//! What a stranger can make a server keep is bounded here: connections, the head of a request and
//! the time that it may take. The body is read piece by piece, as far as the one who answers reads.

#![forbid(unsafe_code)]

mod message;
mod server;

pub use hyper::Method;
pub use message::{Request, Response, Stream};
pub use server::{Listener, Server, SocketFile};
