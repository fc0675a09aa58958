//! Parses a program's output at its end into named numbers: `@x[net0]` for a map, and `@y[net0] [64, 128)` for a row of
//! a histogram.

use std::collections::BTreeMap;

use super::capture::Packet;

/// Numbers by their names.
pub type Numbers = BTreeMap<String, u64>;

/// A program's output at its end.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Printed {
    pub maps: Numbers,
    /// The lines about missed hits and losses.
    pub losses: Vec<String>,
}

impl Printed {
    /// Parses the lines that follow ^C or the command.
    pub fn parse(lines: &[String]) -> Result<Self, String> {
        let mut printed = Self::default();
        let mut histogram = None;
        for line in lines.iter().filter(|line| !line.is_empty()) {
            let unknown = || format!("{line:?} is not a line of a map");
            let (name, number): (String, u64) = if let Some(name) = line.strip_suffix(':') {
                histogram = Some(name);
                continue;
            } else if line.starts_with('@') && !line.contains(" lost") {
                histogram = None;
                let (name, number) = line.rsplit_once(": ").ok_or_else(unknown)?;
                (name.to_string(), number.parse().map_err(|_| unknown())?)
            } else if let (Some(name), Some((row, _))) = (histogram, line.split_once(" |")) {
                let (label, number) = row.rsplit_once(' ').ok_or_else(unknown)?;
                (format!("{name} {}", label.trim_end()), number.parse().map_err(|_| unknown())?)
            } else if line.contains(" lost") || line.starts_with("Missed ") {
                printed.losses.push(line.clone());
                continue;
            } else {
                return Err(unknown());
            };
            // Several functions may have one name.
            *printed.maps.entry(name).or_default() += number;
        }
        Ok(printed)
    }
}

/// Returns the numbers of a program that counts these packets of an interface in `@packets`, and their lengths in a
/// histogram `@bytes`.
pub fn of_packets(interface: &str, packets: &[Packet]) -> Numbers {
    let mut numbers = Numbers::new();
    let (Some(least), Some(most)) =
        (packets.iter().map(|packet| packet.length).min(), packets.iter().map(|packet| packet.length).max())
    else {
        return numbers;
    };
    numbers.insert(format!("@packets[{interface}]"), packets.len() as u64);
    for exponent in least.max(1).ilog2()..=most.max(1).ilog2() {
        let range = 1 << exponent..2 << exponent;
        let bound = |bytes: u64| if bytes < 1024 { format!("{bytes}") } else { format!("{}K", bytes >> 10) };
        let row = format!("@bytes[{interface}] [{}, {})", bound(range.start), bound(range.end));
        numbers.insert(row, packets.iter().filter(|packet| range.contains(&packet.length)).count() as u64);
    }
    numbers
}

/// Returns the number of losses in a line about them: the first number in it.
pub fn number_of(loss: &str) -> Result<u64, String> {
    let number = loss.split(' ').find_map(|word| word.parse().ok());
    number.ok_or_else(|| format!("{loss:?} does not say how much is lost"))
}

/// Returns the differences, a line each.
pub fn difference(printed: &Numbers, captured: &Numbers) -> String {
    let mut text = String::new();
    for name in printed.keys().chain(captured.keys().filter(|name| !printed.contains_key(*name))) {
        let number = |of: &Numbers| of.get(name).map_or("nothing".into(), u64::to_string);
        if printed.get(name) != captured.get(name) {
            text += &format!("{name} is {}, and {} was captured\n", number(printed), number(captured));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Packet, Printed, difference, of_packets};

    const TEXT: &str = "@bytes[net1]:\n\
        [32, 64)              10 |                                                    |\n\
        [64, 128)              0 |                                                    |\n\
        [128, 256)             1 |@@@@@                                               |\n\
        \n@packets[net1]: 11\n";

    fn printed(text: &str) -> Result<Printed, String> {
        Printed::parse(&text.lines().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_printed_is_compared_with_packets() {
        let lengths = [54; 10].into_iter().chain([255]);
        let packets: Vec<_> = lengths.map(|length| Packet { is_transmitted: true, length, control: None }).collect();
        let (read, captured) = (printed(TEXT).unwrap(), of_packets("net1", &packets));
        assert_eq!(
            (&read.maps, &read.losses[..], difference(&read.maps, &captured).as_str()),
            (&captured, &[][..], "")
        );
        let fewer = of_packets("net1", &packets[1..]);
        let text = "@bytes[net1] [32, 64) is 10, and 9 was captured\n@packets[net1] is 11, and 10 was captured\n";
        assert_eq!(difference(&read.maps, &fewer), text);
        assert_eq!(difference(&fewer, &Default::default()).lines().count(), 4);
        assert_eq!(
            of_packets("net1", &[Packet { is_transmitted: true, length: 1514, control: None }])["@bytes[net1] [1K, 2K)"],
            1
        );
        assert!(of_packets("net1", &[]).is_empty());
    }

    #[test]
    fn losses_are_kept_and_what_is_unknown_is_refused() {
        let lossy = printed("@[f]: 1\n@[f]: 2\nMissed 2 hits: x\n@: 3 values lost: y\n").unwrap();
        assert_eq!((lossy.maps["@[f]"], lossy.losses.len()), (3, 2));
        for text in ["nothing\n", "@[f]: many\n", "[1, 2)  3 |  |\n"] {
            assert!(printed(text).is_err(), "{text}");
        }
    }
}
