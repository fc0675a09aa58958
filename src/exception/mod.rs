//! Placeholder.
pub mod frame;
pub use frame::TrapFrame;
