//! DEFLATE: compresses a text and decompresses the result, in every iteration.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::mem::MaybeUninit;

use miniz_oxide::deflate::core::{CompressorOxide, TDEFLFlush, TDEFLStatus, compress};
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::{
    TINFL_FLAG_PARSE_ZLIB_HEADER, TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF,
};
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

use super::random::Random;

/// The length of the text in bytes.
const LENGTH: usize = 32 * 1024;

const WORDS: [&str; 32] = [
    "the",
    "kernel",
    "calls",
    "a",
    "probe",
    "when",
    "an",
    "instruction",
    "is",
    "about",
    "to",
    "run",
    "and",
    "its",
    "handler",
    "reads",
    "registers",
    "of",
    "whatever",
    "task",
    "was",
    "there",
    "before",
    "it",
    "returns",
    "to",
    "code",
    "that",
    "can",
    "not",
    "tell",
    "why",
];

/// The Adler-32 checksum of the text, as this Python program computes it:
///
/// ```text
/// import zlib
/// words = "the kernel calls a probe when an instruction is about to run and its handler reads registers of " \
///     "whatever task was there before it returns to code that can not tell why".split()
/// state, text, count = 1, b"", 0
/// while len(text) < 32768:
///     state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
///     count += 1
///     text += words[state >> 59].encode() + (b" " if count % 12 else b"\n")
/// print(hex(zlib.adler32(text[:32768])))
/// ```
const ANSWER: u32 = 0x01f4_ad87;

/// The text: lines of twelve words.
static TEXT: [u8; LENGTH] = {
    let mut text = [0; LENGTH];
    let mut random = Random::new(1);
    let mut at = 0;
    let mut count = 0;
    while at < LENGTH {
        let word = WORDS[random.next(5) as usize].as_bytes();
        count += 1;
        let mut letter = 0;
        while letter <= word.len() && at < LENGTH {
            text[at] = match letter {
                letter if letter < word.len() => word[letter],
                _ if count % 12 == 0 => b'\n',
                _ => b' ',
            };
            letter += 1;
            at += 1;
        }
    }
    text
};

/// Compresses the text and decompresses the result. Returns whether the text and its checksum come out again.
pub fn iterate() -> bool {
    let Some(packed) = pack(&TEXT) else { return false };
    let Some(text) = unpack(&packed, LENGTH) else { return false };
    text == TEXT && adler2::adler32_slice(&text) == ANSWER && packed.len() < LENGTH / 2
}

/// Makes a compressor in `place`.
///
/// A compressor has 64 KiB, which is more than a stack. A compiler that optimizes for size builds the value on the
/// stack before it moves it. So `place` is passed as the address of the function's result (AAPCS64, section 6.9).
fn make(place: &mut MaybeUninit<CompressorOxide>) {
    // SAFETY: the function has no parameters and does not unwind. x8 is the address for its result, and `place` has
    // room for it.
    unsafe {
        core::arch::asm!(
            "bl {}",
            sym compressor,
            inout("x8") place.as_mut_ptr() => _,
            clobber_abi("C"),
        );
    }
}

#[expect(improper_ctypes_definitions, reason = "callers rely on where the result is returned, not on its layout")]
extern "C" fn compressor() -> CompressorOxide {
    CompressorOxide::default()
}

/// Compresses `text` to a zlib stream. Returns `None` if the stream is longer than the text.
///
/// Not inlined, so that it can be probed. Called once in an iteration.
#[inline(never)]
fn pack(text: &[u8]) -> Option<Vec<u8>> {
    let mut compressor = Box::new_uninit();
    make(&mut compressor);
    // SAFETY: `make` has just initialized it.
    let mut compressor = unsafe { compressor.assume_init() };
    let mut packed = vec![0; text.len()];
    let (status, _, length) = compress(&mut compressor, text, &mut packed, TDEFLFlush::Finish);
    packed.truncate(length);
    (status == TDEFLStatus::Done).then_some(packed)
}

/// Decompresses a zlib stream to `length` bytes. Returns `None` if the stream is damaged, which its own checksum also
/// detects, or has another length.
///
/// Not inlined, so that it can be probed. Called once in an iteration.
#[inline(never)]
fn unpack(packed: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut decompressor = Box::<DecompressorOxide>::default();
    let mut text = vec![0; length];
    let flags = TINFL_FLAG_PARSE_ZLIB_HEADER | TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
    let (status, _, written) = decompress(&mut decompressor, packed, &mut text, 0, flags);
    (status == TINFLStatus::Done && written == length).then_some(text)
}
