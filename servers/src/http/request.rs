//! Parses requests with the crate `httparse`. The bytes may be anything.

use httparse::{EMPTY_HEADER, Status};

use super::content::Content;

/// The most header fields of a request.
const FIELDS_MAX: usize = 32;

/// The result of parsing the bytes that have arrived.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// A complete request.
    Request(Request),
    /// Not enough bytes yet.
    Nothing,
    /// Bytes that cannot become a request.
    Garbage,
}

/// A request, as far as the server needs it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// The number of bytes of the request.
    pub length: usize,
    /// The method is GET.
    pub is_get: bool,
    /// The method is HEAD.
    pub is_head: bool,
    /// The connection is closed after the response: the client asks for that, or a body follows, which is not read.
    pub is_last: bool,
    /// The requested resource, if it exists.
    pub content: Option<Content>,
}

/// Parses the request at the start of `bytes`.
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
    // A request of HTTP/1.1 must have one Host field (RFC 9112, 3.2).
    if version >= 1 && named("host").count() != 1 {
        return Parsed::Garbage;
    }
    let has_body = named("content-length").any(|value| value != b"0") || named("transfer-encoding").next().is_some();
    let options = named("connection").flat_map(|value| value.split(|byte| *byte == b','));
    let wants_no_more = options.map(<[u8]>::trim_ascii).any(|option| option.eq_ignore_ascii_case(b"close"));
    Parsed::Request(Request {
        length,
        is_get: method == "GET",
        is_head: method == "HEAD",
        is_last: version == 0 || wants_no_more || has_body,
        content: Content::at(path_of(target)),
    })
}

/// Returns the path in the target of a request, without the query. The target is a path or, for example from a client
/// that takes the server for a proxy, a whole URI (RFC 9112, 3.2.1 and 3.2.2). The URI names a host (RFC 9110, 4.2.1)
/// and may have an empty path, which is the path `/` (4.2.3).
fn path_of(target: &str) -> &str {
    let target = target.split_once('?').map_or(target, |(target, _)| target);
    match target.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") && !rest.is_empty() && !rest.starts_with('/') => {
            rest.find('/').map_or("/", |start| &rest[start..])
        }
        _ => target,
    }
}
