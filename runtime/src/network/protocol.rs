//! What is said on a connection, apart from what carries it: so it is tested where there is no network.

/// One end of a connection: that of the server.
pub trait Protocol {
    /// Reads from the beginning of `bytes`, which have come. Returns how many are done with; the rest will come again.
    fn hear(&mut self, bytes: &[u8]) -> usize;

    /// Writes to the beginning of `room` what is to be said next. Returns how many bytes that is: 0 where there is nothing, or
    /// no room.
    fn say(&mut self, room: &mut [u8]) -> usize;

    /// Whether there is something to be said.
    fn is_speaking(&self) -> bool;

    /// Whether everything was said that ever will be.
    fn is_over(&self) -> bool;
}
