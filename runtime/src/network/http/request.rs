//! A request, as it is read from the bytes that have come, by the crate `httparse`. They may be anything.

use httparse::{EMPTY_HEADER, Status};

use super::content::Content;

/// Header fields of a request, at most.
const FIELDS_MAX: usize = 32;

/// What has come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// A request.
    Request(Request),
    /// Nothing yet, or the beginning of a request.
    Nothing,
    /// No request, whatever comes behind it.
    Garbage,
}

/// A request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// Bytes of it.
    pub length: usize,
    /// The content is asked for.
    pub is_get: bool,
    /// It is to be described only.
    pub is_head: bool,
    /// The connection is to be closed behind the response: the client wants that, or a body follows, which is not read.
    pub is_last: bool,
    /// What is asked for, if it exists.
    pub content: Option<Content>,
}

/// Reads the request that `bytes` begin with.
pub(super) fn parse(bytes: &[u8]) -> Parsed {
    let mut fields = [EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let length = match request.parse(bytes) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) => return Parsed::Nothing,
        Err(_) => return Parsed::Garbage,
    };
    let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version) else {
        return Parsed::Garbage;
    };
    let named = |name: &'static str| {
        request.headers.iter().filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
    };
    // RFC 9112, 3.2.
    if version >= 1 && named("host").count() != 1 {
        return Parsed::Garbage;
    }
    let has_body = named("content-length").any(|value| value != b"0") || named("transfer-encoding").next().is_some();
    let options = named("connection").flat_map(|value| value.split(|byte| *byte == b','));
    let wants_no_more = options.map(<[u8]>::trim_ascii).any(|option| option.eq_ignore_ascii_case(b"close"));
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    Parsed::Request(Request {
        length,
        is_get: method == "GET",
        is_head: method == "HEAD",
        is_last: version == 0 || wants_no_more || has_body,
        content: Content::at(path),
    })
}
