//! Types keys at the console, as a person at a terminal does: tabs, a search, and a program in several rows. The
//! terminal's answer is sent after each key that the console asks it for.

use crate::{
    console::Event,
    dialogue::{Reply, Subject},
};

/// The answer to a question for the number of columns.
const ANSWER: &str = "\x1b[24;80R";

/// Keys, in which `?` stands for [`ANSWER`], and texts, each of which is a part of a line of the reply.
const TYPED: [(&str, &[&str]); 8] = [
    ("ca\t?tracing_o\t?\r", &["1"]),
    ("list-p\t?k:compress25\t?\r", &["kprobe:sha2::sha256::compress256"]),
    ("list-p\t?tracep\t?sched:sched_sw\t?\r", &["tracepoint:sched:sched_switch"]),
    // After a list of names, the console shows the prompt again.
    ("ls events/sched/\t?\t?", &["enable  ", "sched_switch/"]),
    ("\x15\x12?tracing\r", &["1"]),
    ("echo \x1b.\r", &["tracing_on"]),
    ("trace 'BEGIN { pri\t?\x1b\x7fprintf(\"%s\\n\",\r\"two rows\"); exi\t?); }'\r", &["1 probe", "two rows"]),
    // A program types no keys.
    ("echo\ta\t\tb '\n", &["this quote is not closed"]),
];

/// Types the keys and checks the replies.
#[derive(Default)]
pub struct Keys {
    typed: usize,
    reply: Vec<String>,
}

impl Subject<()> for Keys {
    fn event(&mut self, event: Event) -> Reply<()> {
        if let Event::Line(line) = event {
            self.reply.push(line);
            return Reply::Wait;
        }
        let before = self.typed.checked_sub(1).and_then(|last| TYPED.get(last));
        if let Some((keys, expected)) = before {
            let mut lines = self.reply.iter();
            let missing = expected.iter().find(|part| !lines.any(|line| line.contains(**part)));
            if let Some(part) = missing {
                return Reply::Done(Err(format!("the reply to {keys:?} lacks `{part}`: {:?}", self.reply)));
            }
        }
        self.reply.clear();
        let Some((keys, _)) = TYPED.get(self.typed) else { return Reply::Done(Ok(())) };
        self.typed += 1;
        Reply::Keys(keys.replace('?', ANSWER).into_bytes())
    }
}
