//! Parses the events in pages of a ring, as `events/header_page` and `events/header_event` describe them.

/// The size of a page in bytes, and the offset of its data.
pub const PAGE: usize = 4096;
const HEADER: usize = 16;
/// Parts of `commit`: the number of data bytes; whether events are missing before the page, and whether their number
/// follows the data.
const LENGTH: u64 = 0x07ff_ffff;
const MISSING: u64 = 1 << 31;
const COUNTED: u64 = 1 << 30;

/// An event in a page.
#[derive(Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// The time in nanoseconds.
    pub time: u64,
    /// How many events are missing before this one, or 0 if the number is unknown. `None` if none are missing.
    pub lost: Option<u64>,
    /// The bytes that the event's format describes.
    pub bytes: &'a [u8],
}

impl Event<'_> {
    /// The number of the event's format.
    pub fn number(&self) -> u16 {
        self.bytes.first_chunk().map_or(0, |bytes| u16::from_le_bytes(*bytes))
    }

    /// The number of the task.
    pub fn task(&self) -> u32 {
        self.long(4) as u32
    }

    /// Returns the 64 bits at `offset`. Bytes after the end are 0.
    pub fn long(&self, offset: usize) -> u64 {
        let bytes = self.bytes.get(offset..).unwrap_or_default().iter().take(8);
        bytes.rev().fold(0, |long, byte| long << 8 | u64::from(*byte))
    }
}

/// Returns the events of these pages. A page that is not valid ends them.
pub fn events(pages: &[u8]) -> impl Iterator<Item = Event<'_>> {
    pages.chunks(PAGE).flat_map(|page| Page::new(page).into_iter().flatten())
}

struct Page<'a> {
    /// The data that was not read yet.
    data: &'a [u8],
    time: u64,
    lost: Option<u64>,
}

impl<'a> Page<'a> {
    fn new(page: &'a [u8]) -> Option<Self> {
        let (head, data) = page.split_first_chunk::<HEADER>()?;
        let long = |at: usize| Some(u64::from_le_bytes(*head.get(at..)?.first_chunk()?));
        let (time, commit) = (long(0)?, long(8)?);
        let (data, rest) = data.split_at_checked((commit & LENGTH) as usize)?;
        let counted =
            rest.first_chunk().filter(|_| commit & COUNTED != 0).map_or(0, |count| u64::from_le_bytes(*count));
        Some(Self { data, time, lost: (commit & MISSING != 0).then_some(counted) })
    }

    fn word(&mut self) -> Option<u32> {
        let (word, rest) = self.data.split_first_chunk()?;
        self.data = rest;
        Some(u32::from_le_bytes(*word))
    }
}

impl<'a> Iterator for Page<'a> {
    type Item = Event<'a>;

    fn next(&mut self) -> Option<Event<'a>> {
        loop {
            let head = self.word()?;
            self.time = self.time.wrapping_add(u64::from(head >> 5));
            let length = match head & 31 {
                30 => {
                    let ticks = u64::from(self.word()?) << 27;
                    self.time = self.time.wrapping_add(ticks);
                    continue;
                }
                0 => (self.word()? as usize).checked_sub(4)?,
                29 | 31 => return None,
                words => 4 * words as usize,
            };
            let (bytes, rest) = self.data.split_at_checked(length)?;
            self.data = rest;
            return Some(Event { time: self.time, lost: self.lost.take(), bytes });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, PAGE, events};

    #[test]
    fn events_are_read_as_the_kernel_describes_them() {
        let mut page = vec![0; PAGE];
        let data: Vec<u8> = [2 | 5 << 5, 0xaaaa_0007, 9, 30 | 1 << 5, 1, 10 << 5, 12, 0xbbbb_0008, 7]
            .into_iter()
            .flat_map(u32::to_le_bytes)
            .collect();
        page[..8].copy_from_slice(&1000_u64.to_le_bytes());
        page[8..16].copy_from_slice(&(data.len() as u64 | 3 << 30).to_le_bytes());
        page[16..16 + data.len()].copy_from_slice(&data);
        page[16 + data.len()] = 42;
        let found: Vec<Event<'_>> = events(&page).collect();
        let expected = [(1005, Some(42), 7, 9), (1005 + 1 + (1 << 27) + 10, None, 8, 7)];
        assert!(
            found.iter().map(|event| (event.time, event.lost, event.number(), u64::from(event.task()))).eq(expected)
        );
        // Damaged pages end the events.
        for at in 8..60 {
            let mut damaged = page.clone();
            damaged[at] ^= 0xff;
            assert!(events(&damaged).count() < PAGE);
        }
        page[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(events(&page).map(|event| event.time).next(), Some(4), "times are numbers of 64 bits");
    }
}
