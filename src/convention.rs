//! The calling convention of what assembly calls.

/// Defines types of handlers, and handlers, as `extern "C"`: assembly calls them, with one pointer in x0 (AAPCS64, section 6.8.2).
///
/// In the tests of the host they have Rust's own convention. Nothing there is assembly, and a test that fails panics in the middle
/// of a hit, which has to come out of it: so does a model that is made wrong on purpose.
macro_rules! called_by_assembly {
    ($($(#[$attribute:meta])* $visibility:vis type $name:ident = fn($argument:ty) $(-> $result:ty)?;)+) => {
        $(
            #[cfg(not(test))]
            $(#[$attribute])*
            $visibility type $name = extern "C" fn($argument) $(-> $result)?;
            #[cfg(test)]
            $(#[$attribute])*
            $visibility type $name = fn($argument) $(-> $result)?;
        )+
    };
    ($(#[$attribute:meta])* $visibility:vis fn $name:ident($argument:tt: $type:ty) $body:block) => {
        #[cfg(not(test))]
        $(#[$attribute])*
        $visibility extern "C" fn $name($argument: $type) $body
        #[cfg(test)]
        $(#[$attribute])*
        $visibility fn $name($argument: $type) $body
    };
}
