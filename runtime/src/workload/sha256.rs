//! SHA-256 of a fixed message, computed in every iteration.

use sha2::{Digest, Sha256};

use super::random::Random;

/// The message: 1000 pseudo-random bytes, which are 15 whole blocks and a last one with padding.
static MESSAGE: [u8; 1000] = {
    let mut message = [0; 1000];
    let mut random = Random::new(1);
    let mut at = 0;
    while at < message.len() {
        message[at] = random.next(8) as u8;
        at += 1;
    }
    message
};

/// The digest of [`MESSAGE`], as this Python program computes it:
///
/// ```text
/// import hashlib
/// state, message = 1, []
/// for _ in range(1000):
///     state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
///     message.append(state >> 56)
/// print(hashlib.sha256(bytes(message)).hexdigest())
/// ```
const ANSWER: [u8; 32] = *b"\xb8\xd7\x7f\x2d\x82\x5b\x23\x55\xd8\x5a\x24\xab\x81\x13\x73\x0a\
    \x7c\x8d\xcd\xda\x8c\x82\x92\x70\xe1\xb6\x48\xb6\x17\xa3\xb8\x8a";

/// Digests the message. Returns whether the digest is right.
pub fn iterate() -> bool {
    digest(&MESSAGE) == ANSWER
}

/// Not inlined, so that it can be probed. Called once in an iteration.
#[inline(never)]
fn digest(message: &[u8]) -> [u8; 32] {
    Sha256::digest(message).into()
}
