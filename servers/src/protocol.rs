//! Protocols on a connection, independent of what carries it, so that they are tested without a network.

/// The server's end of a connection.
pub trait Protocol {
    /// Reads from the start of `bytes`, which have arrived. Returns how many bytes are consumed. The rest will be
    /// passed again.
    fn receive(&mut self, bytes: &[u8]) -> usize;

    /// Writes the next bytes to send to the start of `room`. Returns how many bytes it has written: 0 if there is
    /// nothing to send or no room.
    fn send(&mut self, room: &mut [u8]) -> usize;

    /// Returns whether there are bytes to send.
    fn has_output(&self) -> bool;

    /// Returns whether all bytes have been written and none will follow.
    fn is_complete(&self) -> bool;
}
