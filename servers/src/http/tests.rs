use std::string::String;
use std::vec::Vec;

use kprobes_random::Random;

use super::content::MEGABYTE;
use super::{Connection, REQUEST_MAX};
use crate::protocol::Protocol;
use kprobes_random::words::are_words;

/// Returns the answer to `sent`, which arrives in pieces of `piece` bytes, and whether the connection is over then.
fn answer(sent: &[u8], piece: usize) -> (Vec<u8>, bool) {
    let (mut connection, mut reply, mut rest) = (Connection::default(), Vec::new(), sent);
    loop {
        let received = connection.receive(&rest[..rest.len().min(piece)]);
        rest = &rest[received..];
        let mut room = std::vec![0; piece];
        let count = connection.send(&mut room);
        reply.extend(&room[..count]);
        if received + count == 0 {
            return (reply, connection.is_complete());
        }
    }
}

/// Splits the first response into head and content. Also returns what follows it.
fn split(reply: &[u8]) -> (String, &[u8], &[u8]) {
    let end = reply.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("there is no head") + 4;
    let head = String::from_utf8(reply[..end].to_vec()).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap().parse().unwrap();
    let (content, rest) = reply[end..].split_at(reply[end..].len().min(length));
    (head, content, rest)
}

#[test]
fn the_megabyte_is_the_same_in_whatever_pieces() {
    for piece in [1, 7, 1000, 1 << 21] {
        let (reply, is_complete) = answer(b"GET /megabyte HTTP/1.1\r\nHost: a\r\n\r\n", piece);
        let (head, content, rest) = split(&reply);
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && rest.is_empty() && !is_complete);
        assert!(content.len() == MEGABYTE && are_words(0, content), "in pieces of {piece} bytes");
    }
}

#[test]
fn requests_follow_each_other_on_a_connection() {
    let one = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let sent = [one, "HEAD /megabyte HTTP/1.1\r\nHost: a\r\n\r\n", &one.replace("/ ", "/nothing ")].concat();
    for piece in [1, 20, 5000] {
        let (reply, is_complete) = answer(sent.as_bytes(), piece);
        let (head, content, rest) = split(&reply);
        assert!(head.contains("text/html") && content.starts_with(b"<!DOCTYPE html>"), "{head}");
        let described = "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: 1048576\r\n\r\n";
        let rest = rest.strip_prefix(described.as_bytes()).expect("HEAD has another answer");
        let (head, content, rest) = split(rest);
        assert!(head.starts_with("HTTP/1.1 404 Not Found\r\n") && content == b"404 Not Found", "{head}");
        assert!(rest.is_empty() && !is_complete);
    }
}

/// A target may be a whole URI, as if the server were a proxy.
#[test]
fn a_uri_names_the_resource_of_its_path() {
    for (target, status, kind) in [
        ("http://a/", "200 OK", "text/html"),
        ("http://a", "200 OK", "text/html"),
        ("http://a?x", "200 OK", "text/html"),
        ("HTTP://a:80/?x=http://b/c", "200 OK", "text/html"),
        ("http://a/megabyte", "200 OK", "application/octet-stream"),
        ("/megabyte?x=http://a/", "200 OK", "application/octet-stream"),
        ("http://a/nothing", "404 Not Found", "text/plain"),
        ("http:///", "404 Not Found", "text/plain"),
        ("http://", "404 Not Found", "text/plain"),
        ("ftp://a/", "404 Not Found", "text/plain"),
        ("/http://a/", "404 Not Found", "text/plain"),
    ] {
        let sent = std::format!("HEAD {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let (reply, is_complete) = answer(sent.as_bytes(), 100);
        let head = String::from_utf8(reply).unwrap();
        let expected = std::format!("HTTP/1.1 {status}\r\nContent-Type: {kind}");
        assert!(head.starts_with(&expected) && !is_complete, "{target}: {head}");
    }
}

#[test]
fn who_wants_no_more_is_believed() {
    for sent in [
        "GET / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\nconnection: x , CLOSE\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
        "GET /?x=/megabyte HTTP/1.0\r\n\r\nGET / HTTP/1.0\r\n\r\n",
    ] {
        let (reply, is_complete) = answer(sent.as_bytes(), 10);
        let (head, content, rest) = split(&reply);
        assert!(
            head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("\r\nConnection: close\r\n"),
            "{sent}: {head}"
        );
        assert!(content.starts_with(b"<!DOCTYPE html>") && rest.is_empty() && is_complete, "{sent}");
    }
}

#[test]
fn what_is_no_request_is_answered_and_ends_the_connection() {
    let long = std::format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", "a".repeat(REQUEST_MAX));
    let many = std::format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "a: b\r\n".repeat(100));
    for (sent, status) in [
        (&b"\x16\x03\x01\x02\x00"[..], "400 Bad Request"),
        (b"GET / HTTP/1.1\r\n\r\n", "400 Bad Request"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400 Bad Request"),
        (b"GET  HTTP/1.1\r\n\r\n", "400 Bad Request"),
        (many.as_bytes(), "400 Bad Request"),
        (long.as_bytes(), "431 Request Header Fields Too Large"),
    ] {
        for piece in [1, 3000] {
            let (reply, is_complete) = answer(sent, piece);
            let (head, content, rest) = split(&reply);
            assert!(head.starts_with(&std::format!("HTTP/1.1 {status}\r\n")), "{sent:?}: {head}");
            assert!(content == status.as_bytes() && rest.is_empty() && is_complete);
        }
    }
    let (reply, is_complete) = answer(b"POST / HTTP/1.1\r\nHost: a\r\n\r\n", 100);
    let (head, _, _) = split(&reply);
    assert!(head.starts_with("HTTP/1.1 405 ") && head.contains("\r\nAllow: GET, HEAD\r\n") && !is_complete, "{head}");
}

/// The server sends nothing but responses, whatever bytes arrive, in whatever pieces.
#[test]
fn noise_is_answered_by_responses() {
    const PARTS: [&[u8]; 10] = [
        b"GET ",
        b" ",
        b"/ ",
        b"HTTP/1.1\r\n",
        b"\r\n",
        b"Host: a\r\n",
        b"\r\n\r\n",
        b":",
        b"\xff\0",
        b"Connection: close",
    ];
    let mut random = Random::new(1);
    let mut responses = 0;
    for _ in 0..20_000 {
        let mut sent = if random.one_in(2) { Vec::new() } else { b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec() };
        sent.extend((0..random.below(20)).flat_map(|_| random.of(&PARTS).iter().copied()));
        let (reply, _) = answer(&sent, 1 + random.below(40));
        let mut rest = &reply[..];
        while !rest.is_empty() {
            let (head, content, behind) = split(rest);
            assert!(head.starts_with("HTTP/1.1 ") && !content.is_empty(), "{sent:?}: {head}");
            rest = behind;
            responses += 1;
        }
    }
    assert!(responses > 20_000, "{responses}");
}
