//! The calling convention of functions that assembly calls.

/// Defines handlers and their types as `extern "C"`: assembly calls them, with one pointer in x0 (AAPCS64, section
/// 6.8.2).
///
/// In tests on the host they use Rust's own convention. No assembly runs there, and a failing test panics in the
/// middle of a hit: the panic has to unwind through the handler. A model that is deliberately wrong does the same.
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
