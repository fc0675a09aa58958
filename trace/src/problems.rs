//! Enums of problems, each listed once with its text.

/// Defines an enum of problems from a list of them, each with the text that `Display` writes.
macro_rules! problems {
    ($(#[$attribute:meta])* pub enum $problem:ident; $($(#[$comment:meta])* $name:ident = $text:literal;)*) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $problem {
            $($(#[$comment])* $name,)*
        }

        impl $problem {
            /// Returns the text that `Display` writes.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }

        impl core::fmt::Display for $problem {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.text())
            }
        }
    };
}
pub(crate) use problems;
