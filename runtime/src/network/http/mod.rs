//! HTTP/1.1 (RFC 9112), as much as it takes to fetch what there is: a page, and a megabyte that everybody can check.
//!
//! A connection serves one request after the other until the client wants no more, or says something that is no request.

mod content;
mod request;

use core::fmt::Write;

use heapless::{String, Vec};

use super::protocol::Protocol;
use content::Content;
use request::{Parsed, Request};

/// Its port.
pub const PORT: u16 = 80;

/// Bytes of the longest request.
const REQUEST_MAX: usize = 2048;
/// Bytes of the longest head of a response.
const HEAD_MAX: usize = 256;

/// A connection.
#[derive(Default)]
pub struct Connection {
    /// What has come and was not answered.
    heard: Vec<u8, REQUEST_MAX>,
    /// What is being said.
    response: Option<Response>,
    /// The response is the last, and nothing is read any more.
    is_last: bool,
}

/// A response, and how much of it was said.
struct Response {
    head: String<HEAD_MAX>,
    content: Content,
    /// Bytes of head and content that are to be said.
    length: usize,
    said: usize,
}

/// What is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Ok,
    BadRequest,
    NotFound,
    MethodNotAllowed,
    TooLarge,
}

impl Status {
    /// Its number and its name (RFC 9110, section 15; RFC 6585, section 5).
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
    /// `head_only` leaves the content out, whose length is told all the same.
    fn new(status: Status, content: Content, head_only: bool, is_last: bool) -> Self {
        let mut head = String::new();
        let length = content.length();
        // It has room for the longest of each.
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
        Self { head, content, length, said: 0 }
    }

    fn say(&mut self, room: &mut [u8]) -> usize {
        let count = room.len().min(self.length - self.said);
        let head = &self.head.as_bytes()[self.said.min(self.head.len())..];
        let (of_head, of_content) = room[..count].split_at_mut(count.min(head.len()));
        of_head.copy_from_slice(&head[..of_head.len()]);
        self.content.copy((self.said + of_head.len()).saturating_sub(self.head.len()), of_content);
        self.said += count;
        count
    }
}

impl Connection {
    /// Answers the request that has come, if one has, and nothing is being said.
    fn answer(&mut self) {
        if self.is_last || self.response.is_some() {
            return;
        }
        let (status, content, head_only) = match request::parse(&self.heard) {
            Parsed::Request(Request { length, is_get, is_head, is_last, content }) => {
                self.heard.drain(..length);
                self.is_last = is_last;
                match content {
                    _ if !is_get && !is_head => (Status::MethodNotAllowed, None, false),
                    Some(content) => (Status::Ok, Some(content), is_head),
                    None => (Status::NotFound, None, is_head),
                }
            }
            Parsed::Nothing if !self.heard.is_full() => return,
            Parsed::Nothing => (Status::TooLarge, None, false),
            Parsed::Garbage => (Status::BadRequest, None, false),
        };
        self.is_last |= matches!(status, Status::TooLarge | Status::BadRequest);
        let content = content.unwrap_or(Content::Text(status.text()));
        self.response = Some(Response::new(status, content, head_only, self.is_last));
    }
}

impl Protocol for Connection {
    fn hear(&mut self, bytes: &[u8]) -> usize {
        if self.is_last {
            // Not to be answered, but read: what is left unread would have the connection reset before the response is.
            return bytes.len();
        }
        let count = bytes.len().min(REQUEST_MAX - self.heard.len());
        self.heard.extend(bytes[..count].iter().copied());
        self.answer();
        count
    }

    fn say(&mut self, room: &mut [u8]) -> usize {
        let Some(response) = &mut self.response else { return 0 };
        let count = response.say(room);
        if response.said == response.length {
            self.response = None;
            self.answer();
        }
        count
    }

    fn is_speaking(&self) -> bool {
        self.response.is_some()
    }

    fn is_over(&self) -> bool {
        self.is_last && self.response.is_none()
    }
}

#[cfg(test)]
mod tests;
