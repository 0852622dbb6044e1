//! One connection: bytes out, replies in, and which request each reply answers.

use crate::resp::{Replies, RespError};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

pub(crate) struct Connection {
    stream: TcpStream,
    replies: Replies,
    /// Intended and actual send time of each request that is not answered yet.
    pending: VecDeque<(u64, u64)>,
    /// What the socket had no room for.
    out: Vec<u8>,
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> io::Result<Connection> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let (replies, pending) = (Replies::default(), VecDeque::new());
        Ok(Connection { stream, replies, pending, out: Vec::new(), buffer: vec![0; 16 << 10] })
    }

    pub(crate) fn send(&mut self, request: &[u8], intended: u64, sent: u64) -> io::Result<()> {
        self.pending.push_back((intended, sent));
        if !self.out.is_empty() {
            self.out.extend_from_slice(request);
            return self.flush();
        }
        let written = written(self.stream.write(request))?;
        self.out.extend_from_slice(&request[written..]);
        Ok(())
    }

    /// Writes what had no room before.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let done = written(self.stream.write(&self.out))?;
        self.out.drain(..done);
        Ok(())
    }

    /// Whether something waits for room.
    pub(crate) fn blocked(&self) -> bool {
        !self.out.is_empty()
    }

    /// The number of bytes that came into the buffer; `None` when the server closed the connection.
    pub(crate) fn receive(&mut self) -> io::Result<Option<usize>> {
        match self.stream.read(&mut self.buffer) {
            Ok(0) => Ok(None),
            Ok(count) => Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Some(0)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Some(0)),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// How many replies the first `bytes` of the buffer complete.
    pub(crate) fn count(&mut self, bytes: usize) -> Result<usize, RespError> {
        self.replies.push(&self.buffer[..bytes])
    }

    /// The oldest request under way: intended and actual send time.
    pub(crate) fn answered(&mut self) -> Option<(u64, u64)> {
        self.pending.pop_front()
    }

    pub(crate) fn errors(&self) -> u64 {
        self.replies.errors()
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn written(result: io::Result<usize>) -> io::Result<usize> {
    match result {
        Err(error)
            if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) =>
        {
            Ok(0)
        }
        other => other,
    }
}
