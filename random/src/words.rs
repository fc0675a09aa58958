//! Test data of which every word is known from its index: the disk of the emulated machines has it, and the HTTP server
//! sends it, so that each word can be checked where it arrives.

/// The word with the index 0. The 64-bit word with the index n is n + 1 times this odd number, modulo 2^64, so no two
/// words are alike.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the word with the index `index`.
#[must_use]
pub const fn word(index: u64) -> u64 {
    (index + 1).wrapping_mul(MULTIPLIER)
}

/// Returns whether `bytes` are the words from the index `first` on, little-endian, and nothing else.
#[must_use]
pub fn are_words(first: u64, bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut expected = word(first);
    let are_right = words.iter().all(|word| {
        let is_right = u64::from_le_bytes(*word) == expected;
        expected = expected.wrapping_add(MULTIPLIER);
        is_right
    });
    are_right && rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_words_are_told() {
        let mut bytes: Vec<u8> = (2..66).flat_map(|index| word(index).to_le_bytes()).collect();
        assert!(are_words(2, &bytes));
        assert!(!are_words(1, &bytes) && !are_words(2, &bytes[..511]));
        bytes[511] ^= 1;
        assert!(!are_words(2, &bytes));
    }
}
