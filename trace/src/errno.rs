//! Error numbers: why a write to a file was refused, in the few words that a Linux shell prints. The exact cause is in
//! [`error_log`](crate::error_log).

use core::fmt;

use fallible::OutOfMemory;

/// An error number, as the write to a file returns it. `Display` writes the text of Linux's `strerror`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errno {
    /// EPERM
    NotAllowed,
    /// ENOENT
    NotFound,
    /// ESRCH
    NoProcess,
    /// E2BIG
    TooLong,
    /// ENOMEM
    NoMemory,
    /// EBUSY
    Busy,
    /// EEXIST
    Exists,
    /// ENODEV
    NoDevice,
    /// EISDIR
    IsDirectory,
    /// ENOTDIR
    NotDirectory,
    /// EINVAL
    Invalid,
    /// EDOM
    Domain,
    /// ENAMETOOLONG
    NameTooLong,
    /// EOVERFLOW
    Overflow,
    /// EBADF
    BadFile,
    /// EOPNOTSUPP
    NotSupported,
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAllowed => "Operation not permitted",
            Self::NotFound => "No such file or directory",
            Self::NoProcess => "No such process",
            Self::TooLong => "Argument list too long",
            Self::NoMemory => "Cannot allocate memory",
            Self::Busy => "Device or resource busy",
            Self::Exists => "File exists",
            Self::NoDevice => "No such device",
            Self::IsDirectory => "Is a directory",
            Self::NotDirectory => "Not a directory",
            Self::Invalid => "Invalid argument",
            Self::NameTooLong => "File name too long",
            Self::Domain => "Numerical argument out of domain",
            Self::Overflow => "Value too large for defined data type",
            Self::BadFile => "Bad file descriptor",
            Self::NotSupported => "Operation not supported",
        })
    }
}

impl core::error::Error for Errno {}

impl From<OutOfMemory> for Errno {
    fn from(_: OutOfMemory) -> Self {
        Self::NoMemory
    }
}
