//! The flattened format: header, blocks and tokens (Devicetree Specification 0.4, chapter 5).
//!
//! A blob is checked as a whole before anything is read from it, with the same code that reads it, so that what comes
//! after need not expect errors.

use super::DeviceTreeError as Error;

/// Bytes of the header.
pub const HEADER_SIZE: usize = 40;
/// The boot protocol's limit (Linux, Documentation/arch/arm64/booting.rst).
const MAX_SIZE: usize = 2 << 20;
const MAGIC: u32 = 0xd00d_feed;
/// The version that has the size of the structure block in its header.
const VERSION: u32 = 17;
/// Nodes within nodes. Real trees have fewer than ten; the walk over the tree takes stack for each.
const MAX_DEPTH: usize = 24;
/// Bytes of an entry in the reservation block: address and size.
const RESERVATION_SIZE: usize = 16;

const BEGIN_NODE: u32 = 1;
const END_NODE: u32 = 2;
const PROPERTY: u32 = 3;
const NOP: u32 = 4;
const END: u32 = 9;

/// Checks the physical address at which the boot loader says that the blob is, below `limit`.
pub fn check_address(address: u64, limit: u64) -> Result<(), Error> {
    match address {
        0 => Err(Error::Absent),
        _ if !address.is_multiple_of(8) => Err(Error::Misaligned { address }),
        _ if address > limit - HEADER_SIZE as u64 => Err(Error::OutOfReach { address }),
        _ => Ok(()),
    }
}

/// The size of the blob in bytes, from its header.
pub fn total_size(header: &[u8]) -> Result<usize, Error> {
    let truncated = Error::Truncated { length: header.len(), size: HEADER_SIZE };
    let field = |index: usize| word(header, index * 4).ok_or(truncated);
    let (magic, size, version, compatible) = (field(0)?, field(1)?, field(5)?, field(6)?);
    if magic != MAGIC {
        return Err(Error::Magic { found: magic });
    }
    if version < VERSION || compatible > VERSION {
        return Err(Error::Version { version, compatible });
    }
    if !(HEADER_SIZE..=MAX_SIZE).contains(&(size as usize)) {
        return Err(Error::Size { size });
    }
    Ok(size as usize)
}

/// The big-endian word at `offset`.
pub(super) fn word(bytes: &[u8], offset: usize) -> Option<u32> {
    let bytes = bytes.get(offset..offset.checked_add(4)?)?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

/// A blob that is well-formed.
#[derive(Clone, Copy)]
pub(super) struct Blob<'a> {
    reservations: &'a [u8],
    tokens: Tokens<'a>,
}

impl<'a> Blob<'a> {
    /// Checks `bytes`, which may be followed by something else.
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        let size = total_size(bytes)?;
        let bytes = bytes.get(..size).ok_or(Error::Truncated { length: bytes.len(), size })?;
        let field = |index: usize| word(bytes, index * 4).unwrap_or(0);
        let block = |name, offset: u32, length: u32, alignment| {
            let start = offset as usize;
            let block = start.checked_add(length as usize).and_then(|end| bytes.get(start..end));
            block.filter(|_| start >= HEADER_SIZE && start.is_multiple_of(alignment)).ok_or(Error::Block {
                block: name,
                offset,
                length,
            })
        };
        let structure = block("structure", field(2), field(9), 4)?;
        let strings = block("strings", field(3), field(8), 1)?;
        block("reservation", field(4), RESERVATION_SIZE as u32, 8)?;
        let reservations = reservations(bytes, field(4) as usize)?;
        let tokens = Tokens { structure, strings, offset: 0 };
        tokens.check().map_err(|(offset, reason)| Error::Structure { offset: field(2) as usize + offset, reason })?;
        Ok(Self { reservations, tokens })
    }

    /// The name and the contents of the root.
    pub(super) fn root(mut self) -> Tokens<'a> {
        let _ = self.tokens.next();
        self.tokens
    }

    /// The reservation block: physical address and size in bytes.
    pub(super) fn reservations(self) -> impl Iterator<Item = (u64, u64)> {
        self.reservations.chunks_exact(RESERVATION_SIZE).map(|entry| {
            let cell = |index: usize| u64::from(word(entry, index * 4).unwrap_or(0));
            (cell(0) << 32 | cell(1), cell(2) << 32 | cell(3))
        })
    }
}

/// The reservations without the empty one that ends them.
fn reservations(bytes: &[u8], start: usize) -> Result<&[u8], Error> {
    let rest = &bytes[start..];
    let is_empty = |entry: &[u8]| entry.iter().all(|byte| *byte == 0);
    match rest.chunks_exact(RESERVATION_SIZE).position(is_empty) {
        Some(count) => Ok(&rest[..count * RESERVATION_SIZE]),
        None => Err(Error::Structure { offset: start, reason: "the list of reservations has no end" }),
    }
}

/// What the structure block consists of.
pub(super) enum Token<'a> {
    /// A node begins; its name.
    Begin(&'a str),
    /// The node ends.
    End,
    /// Name and value.
    Property(&'a str, &'a [u8]),
    /// The block ends.
    Last,
}

/// The tokens from some place on.
#[derive(Clone, Copy)]
pub(super) struct Tokens<'a> {
    structure: &'a [u8],
    strings: &'a [u8],
    offset: usize,
}

impl<'a> Tokens<'a> {
    /// The next token; or the offset in the block at which there is none, and why.
    pub(super) fn next(&mut self) -> Result<Token<'a>, (usize, &'static str)> {
        let mut at = self.offset;
        while word(self.structure, at) == Some(NOP) {
            at += 4;
        }
        let wrong = |reason| (at, reason);
        let token = word(self.structure, at).ok_or(wrong("it ends within a node"))?;
        let contents = at + 4;
        let (token, end) = match token {
            BEGIN_NODE => {
                let name = text(&self.structure[contents..]).ok_or(wrong("a node's name is not text"))?;
                (Token::Begin(name), contents + name.len() + 1)
            }
            END_NODE => (Token::End, contents),
            PROPERTY => {
                let length = word(self.structure, contents).ok_or(wrong("a property is cut off"))?;
                let name = word(self.structure, contents + 4).ok_or(wrong("a property is cut off"))?;
                let name = self.strings.get(name as usize..).and_then(text);
                let name = name.ok_or(wrong("a property's name is not text"))?;
                let value = self.structure[contents + 8..].get(..length as usize);
                let value = value.ok_or(wrong("a property reaches beyond the block"))?;
                (Token::Property(name, value), contents + 8 + value.len())
            }
            END => (Token::Last, contents),
            _ => return Err(wrong("an unknown token")),
        };
        self.offset = end.next_multiple_of(4);
        Ok(token)
    }

    /// Skips the rest of the node that has just begun.
    pub(super) fn skip_node(&mut self) {
        let mut depth = 1;
        while depth > 0 {
            match self.next() {
                Ok(Token::Begin(_)) => depth += 1,
                Ok(Token::End) => depth -= 1,
                Ok(Token::Property(..)) => {}
                Ok(Token::Last) | Err(_) => return,
            }
        }
    }

    /// Checks that the tokens are one node and what is in it, with properties before nodes (5.4.2).
    fn check(mut self) -> Result<(), (usize, &'static str)> {
        let mut depth = 0;
        let mut properties = false;
        loop {
            let at = self.offset;
            let first = at == 0;
            match self.next()? {
                Token::Begin(_) if depth == 0 && !first => return Err((at, "there is a second root")),
                Token::Begin(_) if depth == MAX_DEPTH => return Err((at, "nodes are nested too deeply")),
                Token::Begin(_) => {
                    depth += 1;
                    properties = true;
                }
                Token::End if depth == 0 => return Err((at, "a node ends that did not begin")),
                Token::End => {
                    depth -= 1;
                    properties = false;
                }
                Token::Property(..) if !properties => {
                    return Err((at, "a property is outside the properties of a node"));
                }
                Token::Property(..) => {}
                Token::Last if depth > 0 || first => return Err((at, "it ends within a node")),
                Token::Last => return Ok(()),
            }
        }
    }
}

/// The text up to the first NUL.
fn text(bytes: &[u8]) -> Option<&str> {
    core::ffi::CStr::from_bytes_until_nul(bytes).ok()?.to_str().ok()
}
