//! Brackets in the paths of Rust functions: `<a::B as c::D>::f`, `f::<[u8; 4]>`, `f::<fn(u8) -> u8>`.

/// Tracks whether the characters of a path lie in brackets. The arrow of a function's type closes nothing.
#[derive(Clone, Debug)]
pub struct Brackets {
    has_all: bool,
    depth: usize,
    previous: char,
}

impl Brackets {
    /// Angle brackets. Other brackets are ordinary characters.
    pub const ANGLE: Self = Self { has_all: false, depth: 0, previous: ' ' };
    /// Brackets of all four kinds. A closing bracket closes any opening one.
    pub const ALL: Self = Self { has_all: true, ..Self::ANGLE };

    /// Takes the next character. Returns whether it lies outside all brackets: an opening bracket does not, a closing
    /// one may.
    #[inline]
    pub fn pass(&mut self, character: char) -> bool {
        match character {
            '<' => self.depth += 1,
            '(' | '[' | '{' if self.has_all => self.depth += 1,
            '>' if self.previous == '-' => {}
            '>' => self.depth = self.depth.saturating_sub(1),
            ')' | ']' | '}' if self.has_all => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        self.previous = character;
        self.is_outside()
    }

    /// Returns whether all brackets are closed.
    #[must_use]
    pub fn is_outside(&self) -> bool {
        self.depth == 0
    }
}

#[cfg(test)]
mod tests {
    use super::Brackets;

    #[test]
    fn characters_are_inside_or_outside() {
        let outside = |mut brackets: Brackets, text: &str| -> std::string::String {
            text.chars().filter(|&character| brackets.pass(character)).collect()
        };
        assert_eq!(outside(Brackets::ANGLE, "<a::B as c::D>::f::<fn(u8) -> u8>+4"), ">::f::>+4");
        assert_eq!(outside(Brackets::ANGLE, "f[<]>a(]"), "f[>a(]");
        assert_eq!(outside(Brackets::ALL, "f[<]>a(]"), "f>a]");
        assert_eq!(outside(Brackets::ALL, ")f::{closure#0}.x"), ")f::}.x");
        assert_eq!(outside(Brackets::ALL, "f::<u8"), "f::");
    }
}
