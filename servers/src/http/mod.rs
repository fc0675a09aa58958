//! HTTP/1.1 (RFC 9112), as far as two resources need it: a page, and a megabyte whose every byte is known to the
//! client.
//!
//! A connection serves one request after the other, until the client asks to close it or sends bytes that are no
//! request.

mod content;
mod request;

use core::fmt::Write;

use heapless::{String, Vec};

use crate::protocol::Protocol;
use content::Content;
use request::{Parsed, Request};

/// The TCP port of the service.
pub const PORT: u16 = 80;

/// The length in bytes of the longest request.
const REQUEST_MAX: usize = 2048;
/// The length in bytes of the longest head of a response.
const HEAD_MAX: usize = 256;

/// The server's side of an HTTP connection.
#[derive(Default)]
pub struct Connection {
    /// Bytes that have arrived and not been answered.
    received: Vec<u8, REQUEST_MAX>,
    /// The response that is being sent.
    response: Option<Response>,
    /// Whether the current response is the last. Input is ignored from then on.
    is_last: bool,
}

/// A response, and how much of it has been sent.
struct Response {
    head: String<HEAD_MAX>,
    content: Content,
    /// The number of bytes to send of head and content.
    length: usize,
    sent: usize,
}

/// The status of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Ok,
    BadRequest,
    NotFound,
    MethodNotAllowed,
    TooLarge,
}

impl Status {
    /// Returns its number and its phrase (RFC 9110, section 15; RFC 6585, section 5).
    fn text(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::BadRequest => "400 Bad Request",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::TooLarge => "431 Request Header Fields Too Large",
        }
    }
}

impl Response {
    /// Creates a response. With `head_only` it has no content, but states the content's length.
    fn new(status: Status, content: Content, head_only: bool, is_last: bool) -> Self {
        let mut head = String::new();
        let length = content.length();
        // The buffer has room for the longest of each part.
        let _ = write!(
            head,
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {length}\r\n",
            status.text(),
            content.kind()
        );
        if status == Status::MethodNotAllowed {
            let _ = head.push_str("Allow: GET, HEAD\r\n");
        }
        if is_last {
            let _ = head.push_str("Connection: close\r\n");
        }
        let _ = head.push_str("\r\n");
        let length = head.len() + if head_only { 0 } else { length };
        Self { head, content, length, sent: 0 }
    }

    fn send(&mut self, room: &mut [u8]) -> usize {
        let count = room.len().min(self.length - self.sent);
        let head = &self.head.as_bytes()[self.sent.min(self.head.len())..];
        let (of_head, of_content) = room[..count].split_at_mut(count.min(head.len()));
        of_head.copy_from_slice(&head[..of_head.len()]);
        self.content.copy((self.sent + of_head.len()).saturating_sub(self.head.len()), of_content);
        self.sent += count;
        count
    }
}

impl Connection {
    /// Answers the request that has arrived, if there is one and no response is being sent.
    fn answer(&mut self) {
        if self.is_last || self.response.is_some() {
            return;
        }
        let (status, content, head_only) = match request::parse(&self.received) {
            Parsed::Request(Request { length, is_get, is_head, is_last, content }) => {
                self.received.drain(..length);
                self.is_last = is_last;
                match content {
                    _ if !is_get && !is_head => (Status::MethodNotAllowed, None, false),
                    Some(content) => (Status::Ok, Some(content), is_head),
                    None => (Status::NotFound, None, is_head),
                }
            }
            Parsed::Nothing if !self.received.is_full() => return,
            Parsed::Nothing => (Status::TooLarge, None, false),
            Parsed::Garbage => (Status::BadRequest, None, false),
        };
        self.is_last |= matches!(status, Status::TooLarge | Status::BadRequest);
        let content = content.unwrap_or(Content::Text(status.text()));
        self.response = Some(Response::new(status, content, head_only, self.is_last));
    }
}

impl Protocol for Connection {
    fn receive(&mut self, bytes: &[u8]) -> usize {
        if self.is_last {
            // The bytes are read although they are not answered: unread bytes would reset the connection before the
            // client has the response.
            return bytes.len();
        }
        let count = bytes.len().min(REQUEST_MAX - self.received.len());
        self.received.extend(bytes[..count].iter().copied());
        self.answer();
        count
    }

    fn send(&mut self, room: &mut [u8]) -> usize {
        let Some(response) = &mut self.response else { return 0 };
        let count = response.send(room);
        if response.sent == response.length {
            self.response = None;
            self.answer();
        }
        count
    }

    fn has_output(&self) -> bool {
        self.response.is_some()
    }

    fn is_complete(&self) -> bool {
        self.is_last && self.response.is_none()
    }
}

#[cfg(test)]
mod tests;
