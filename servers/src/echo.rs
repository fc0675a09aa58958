//! Echo (RFC 862): every byte that arrives is sent back.

use heapless::Vec;

use crate::protocol::Protocol;

/// The TCP port of the service.
pub const PORT: u16 = 7;

/// The most bytes of a connection that wait to be sent back.
const ROOM: usize = 2048;

/// The server's side of an echo connection.
#[derive(Default)]
pub struct Connection {
    bytes: Vec<u8, ROOM>,
}

impl Protocol for Connection {
    fn receive(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(ROOM - self.bytes.len());
        self.bytes.extend(bytes[..count].iter().copied());
        count
    }

    fn send(&mut self, room: &mut [u8]) -> usize {
        let count = room.len().min(self.bytes.len());
        room[..count].copy_from_slice(&self.bytes[..count]);
        self.bytes.drain(..count);
        count
    }

    fn has_output(&self) -> bool {
        !self.bytes.is_empty()
    }

    fn is_complete(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_goes_back_in_whatever_pieces() {
        let sent: std::vec::Vec<u8> = (0..10_000_u32).map(|number| (number % 251) as u8).collect();
        let mut back = std::vec::Vec::<u8>::new();
        let mut echo = Connection::default();
        let (mut at, mut turn) = (0, 0);
        while back.len() < sent.len() {
            at += echo.receive(&sent[at..sent.len().min(at + 1 + turn % 3000)]);
            let mut room = std::vec![0; turn % 1700];
            let count = echo.send(&mut room);
            back.extend(&room[..count]);
            assert_eq!(echo.has_output(), back.len() < at);
            turn += 613;
        }
        assert!(back == sent && !echo.is_complete());
    }
}
