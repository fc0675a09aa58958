//! The protocol on the UART between this command and the tests image: `list`, `run NAME` and, for the long form of a
//! test, `thorough NAME` one way, tests and results the other. The image may be broken in any way, so all other output
//! is skipped.

use super::{report::Outcome, select::Demands};
use crate::{
    console::{Event, stopped},
    conversation::TESTS_PROMPT,
    dialogue::{Reply, Subject},
};

/// A test on the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    /// `module::function`.
    pub name: String,
    /// The traits that can make a difference to its result, and what it needs.
    pub demands: Demands,
    /// The text that must be in the machine's reason to stop, if the test must stop it.
    pub stops: Option<String>,
}

impl Test {
    /// Parses a line of the list: `test NAME`, and then, if present, ` depends: TRAITS`, ` needs: WHAT` and
    /// ` stops: TEXT`. `None` if it is another line. The error is a sentence about a line with unknown parts.
    fn parse(line: &str) -> Option<Result<Self, String>> {
        let test = line.strip_prefix("test ")?;
        let (test, stops) = cut(test, " stops: ");
        let (test, needs) = cut(test, " needs: ");
        let (name, traits) = cut(test, " depends: ");
        let is_name =
            !name.is_empty() && !name.contains(|character: char| character.is_whitespace() || character.is_control());
        if !is_name {
            return None;
        }
        let demands = Demands::parse(traits, needs).map_err(|sentence| format!("{name} {sentence}"));
        Some(demands.map(|demands| Self { name: name.into(), demands, stops: stops.map(String::from) }))
    }
}

/// Splits `text` at the first `mark`, if there is one.
fn cut<'a>(text: &'a str, mark: &str) -> (&'a str, Option<&'a str>) {
    text.split_once(mark).map_or((text, None), |(before, behind)| (before, Some(behind)))
}

/// Asks for the list of tests.
#[derive(Default)]
pub struct Listing {
    asked: bool,
    tests: Vec<Test>,
}

impl Subject<Vec<Test>> for Listing {
    fn prompt(&self) -> &'static str {
        TESTS_PROMPT
    }

    fn event(&mut self, event: Event) -> Reply<Vec<Test>> {
        match event {
            Event::Prompt if !self.asked => {
                self.asked = true;
                Reply::Type("list".into())
            }
            Event::Prompt if self.tests.is_empty() => Reply::Done(Err("the tests image lists no test".into())),
            Event::Prompt => Reply::Done(Ok(std::mem::take(&mut self.tests))),
            Event::Line(line) => match Test::parse(&line) {
                Some(Err(sentence)) if self.asked => Reply::Done(Err(sentence)),
                Some(Ok(test)) if self.asked => {
                    if self.tests.iter().any(|other| other.name == test.name) {
                        return Reply::Done(Err(format!("the tests image lists {} twice", test.name)));
                    }
                    self.tests.push(test);
                    Reply::Wait
                }
                _ => Reply::Wait,
            },
        }
    }
}

/// The state of a test's run.
enum State {
    Booting,
    Running,
    /// The result, which counts if the machine still answers.
    Over(Outcome),
}

/// Runs one test.
pub struct Trial {
    test: Test,
    /// Needs of tests that the machine may not meet.
    lacks: Vec<String>,
    is_thorough: bool,
    state: State,
}

impl Trial {
    /// Creates a run of `test` on a machine that was just started, and that is known not to meet the needs `lacks`.
    pub fn new(test: Test, lacks: Vec<String>) -> Self {
        Self { test, lacks, is_thorough: false, state: State::Booting }
    }

    /// Chooses the long form of the test, if it has one and `is_thorough`.
    pub fn thorough(self, is_thorough: bool) -> Self {
        Self { is_thorough, ..self }
    }

    /// Returns the result of this line. `None` if it is another line.
    fn result(&self, line: &str) -> Option<Result<Outcome, String>> {
        let outcome = line.strip_prefix("result ")?.strip_prefix(self.test.name.as_str())?;
        if let Some(reason) = outcome.strip_prefix(" skipped: ") {
            let is_known = self.lacks.iter().any(|lack| reason.strip_prefix("no ") == Some(lack));
            return Some(match is_known {
                true => Ok(Outcome::Skipped(reason.into())),
                false => Err(format!("it was skipped ({reason}), but the board is not known to lack that")),
            });
        }
        match outcome {
            " ok" => Some(Ok(Outcome::Passed)),
            _ => outcome.strip_prefix(" failed: ").map(|sentence| Err(sentence.into())),
        }
    }
}

impl Subject<Outcome> for Trial {
    fn prompt(&self) -> &'static str {
        TESTS_PROMPT
    }

    fn event(&mut self, event: Event) -> Reply<Outcome> {
        match (&self.state, event) {
            (State::Booting, Event::Prompt) => {
                self.state = State::Running;
                let command = if self.is_thorough { "thorough" } else { "run" };
                Reply::Type(format!("{command} {}", self.test.name))
            }
            (State::Running, Event::Prompt) => Reply::Done(Err("the image asks again without a result".into())),
            (State::Over(outcome), Event::Prompt) => Reply::Done(Ok(outcome.clone())),
            (state, Event::Line(line)) => {
                let running = matches!(state, State::Running);
                match self.result(&line) {
                    Some(Ok(outcome)) if running => {
                        self.state = State::Over(outcome);
                        match &self.test.stops {
                            Some(text) => {
                                Reply::Done(Err(format!("it came back, but was to stop the machine with {text:?}")))
                            }
                            None => Reply::Wait,
                        }
                    }
                    Some(Err(sentence)) if running => Reply::Done(Err(sentence)),
                    _ => Reply::Wait,
                }
            }
        }
    }

    fn stopped(&mut self, reason: &str) -> Result<Outcome, String> {
        let sentence = stopped(reason);
        match &self.test.stops {
            Some(text) if matches!(self.state, State::Running) && reason.contains(text) => Ok(Outcome::Passed),
            Some(text) => Err(format!("{sentence}; it was to stop with {text:?}")),
            None => Err(sentence),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Demands, Listing, Outcome, Reply, Subject, TESTS_PROMPT, Test, Trial};
    use crate::{
        console::{Console, Event},
        test::select::Trait,
    };

    /// Returns all replies to a stream of bytes.
    fn replies<T: PartialEq>(stream: &[u8], mut event: impl FnMut(Event) -> Reply<T>) -> Vec<Reply<T>> {
        let mut replies: Vec<_> = Console::new(TESTS_PROMPT).feed(stream).into_iter().map(&mut event).collect();
        replies.retain(|reply| *reply != Reply::Wait);
        replies
    }

    fn test(name: &str, stops: Option<&str>) -> Test {
        Test { name: name.into(), demands: Demands::default(), stops: stops.map(String::from) }
    }

    fn trial(stops: Option<&str>, stream: &str) -> Result<Outcome, String> {
        let mut trial = Trial::new(test("m::f", stops), vec!["disk".into()]);
        let stream = format!("boot\r\ntests> {stream}");
        let mut replies = replies(stream.as_bytes(), |event| trial.hear(event)).into_iter();
        assert_eq!(replies.next(), Some(Reply::Type("run m::f".into())));
        match replies.next() {
            Some(Reply::Done(result)) => result,
            None => Err("waits".into()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn lists_tests_among_garbage() {
        let stream =
            b"test not::asked\r\n\xff\xfe\r\ntests> list\r\ntest a::b\r\ntest c::d stops: guard page\r\ntest\r\n\
            test two words\r\n test e\r\n\0\x1b[Ktest f\r\ntest \r\ntests> ";
        let mut listing = Listing::default();
        let expected = vec![test("a::b", None), test("c::d", Some("guard page"))];
        let replies = replies(stream, |event| listing.hear(event));
        assert_eq!(replies, [Reply::Type("list".into()), Reply::Done(Ok(expected))]);
    }

    #[test]
    fn a_test_says_what_it_demands() {
        let demanding = Test {
            name: "m::f".into(),
            demands: Demands { depends: vec![Trait::Cpus, Trait::Board], needs: Some("second CPU".into()) },
            stops: Some("needs: rest".into()),
        };
        let line = "test m::f depends: cpus board needs: second CPU stops: needs: rest";
        assert_eq!(Test::parse(line), Some(Ok(demanding)));
        let sentence = "m::f depends on moon, which nothing has";
        assert_eq!(Test::parse("test m::f depends: moon"), Some(Err(sentence.into())));
    }

    #[test]
    fn a_list_must_be_one() {
        for (stream, sentence) in [
            ("tests> \ntests> ", "the tests image lists no test"),
            ("tests> \ntest a\ntest a\n", "the tests image lists a twice"),
            ("tests> \ntest a depends: b\n", "a depends on b, which nothing has"),
            ("machine stopped: no memory\n", "the machine stopped: no memory"),
        ] {
            let mut listing = Listing::default();
            let replies = replies(stream.as_bytes(), |event| listing.hear(event));
            assert_eq!(replies.last(), Some(&Reply::Done(Err(sentence.into()))), "{stream}");
        }
    }

    #[test]
    fn a_test_passes_only_with_its_own_result_and_a_machine_that_goes_on() {
        assert_eq!(trial(None, "run m::f\r\nnoise\r\nresult m::f ok\r\ntests> "), Ok(Outcome::Passed));
        for (stream, sentence) in [
            ("run m::f\nresult m::f ok\n", "waits"),
            ("run m::f\nresult m::f okay\nresult m::ff ok\nresult m::f\n", "waits"),
            ("run m::f\nresult m::g ok\ntests> ", "the image asks again without a result"),
            ("run m::f\nresult m::f failed: 1 is not 2\ntests> ", "1 is not 2"),
            ("run m::f\nresult m::f ok\nmachine stopped: late\n", "the machine stopped: late"),
            ("run m::f\nmachine stopped: early\n", "the machine stopped: early"),
        ] {
            assert_eq!(trial(None, stream), Err(sentence.into()), "{stream}");
        }
    }

    #[test]
    fn a_thorough_run_asks_for_the_long_form() {
        let mut trial = Trial::new(test("m::f", None), Vec::new()).thorough(true);
        let stream = b"boot\ntests> thorough m::f\nresult m::f ok\ntests> ";
        let expected = [Reply::Type("thorough m::f".into()), Reply::Done(Ok(Outcome::Passed))];
        assert_eq!(replies(stream, |event| trial.hear(event)), expected);
    }

    #[test]
    fn a_test_is_skipped_only_for_what_the_board_lacks() {
        let skipped = |reason: &str| trial(None, &format!("run m::f\nresult m::f skipped: {reason}\ntests> "));
        assert_eq!(skipped("no disk"), Ok(Outcome::Skipped("no disk".into())));
        let sentence = "it was skipped (no CPU), but the board is not known to lack that";
        assert_eq!(skipped("no CPU"), Err(sentence.into()));
        assert!(skipped("").is_err() && skipped("disk").is_err());
        let late = "run m::f\nresult m::f skipped: no disk\nmachine stopped: late\n";
        assert_eq!(trial(None, late), Err("the machine stopped: late".into()));
        assert!(trial(Some("guard"), "run m::f\nresult m::f skipped: no disk\n").is_err());
    }

    #[test]
    fn a_test_may_have_to_stop_the_machine() {
        assert_eq!(trial(Some("guard"), "run m::f\nmachine stopped: hit a guard page\n"), Ok(Outcome::Passed));
        for (stream, sentence) in [
            ("run m::f\nmachine stopped: panic\n", "the machine stopped: panic; it was to stop with \"guard\""),
            ("run m::f\nresult m::f ok\n", "it came back, but was to stop the machine with \"guard\""),
            ("run m::f\nresult m::f failed: it lives\n", "it lives"),
        ] {
            assert_eq!(trial(Some("guard"), stream), Err(sentence.into()), "{stream}");
        }
        let mut early = Trial::new(test("m::f", Some("guard")), Vec::new());
        let replies = replies(b"machine stopped: guard page at boot\n", |event| early.hear(event));
        assert!(matches!(&replies[..], [Reply::Done(Err(_))]), "{replies:?}");
    }
}
