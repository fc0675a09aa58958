//! The history: the earlier lines, of which one can be shown again or found by a search, and the program on the host
//! that keeps them when the machine ends.

use alloc::string::String;
use core::fmt::{self, Write};
use core::mem;

use fallible::TryClone;
use kprobes_wire::history::Report;

use super::keys::Key;
use super::{BELL, EditedLine, LINE_MAX, LineEditor, LineRefusal};

/// The number of lines in the history.
pub(super) const HISTORY_MAX: usize = 50;

/// A search in the history.
#[derive(Debug)]
pub(super) struct Search {
    pub(super) wanted: String,
    /// The line from before the search, its cursor, and its index as in `LineEditor::shown`.
    line: EditedLine,
    cursor: usize,
    shown: usize,
}

/// The state of the program on the host that keeps the history, if there is one.
#[derive(Debug, Default)]
pub(super) struct HistoryKeeper {
    /// Whether lines are reported to the program.
    is_present: bool,
    /// Whether the program was asked for its lines.
    is_asked: bool,
    /// The earlier line that the program is sending, and whether there was room for all of the line.
    earlier: Option<(String, bool)>,
}

impl LineEditor {
    /// Handles a key that the program on the host sends about the history. Returns `false` for other keys.
    pub(super) fn is_from_keeper(&mut self, key: Key, out: &mut dyn Write) -> Result<bool, fmt::Error> {
        match (key, &mut self.keeper.earlier) {
            (Key::KeepHistory, _) => {
                self.keeper.is_present = true;
                if !mem::replace(&mut self.keeper.is_asked, true) {
                    tell(Report::<&str>::First, out)?;
                }
            }
            (Key::LeaveHistory, _) => self.keeper.is_present = false,
            (Key::EarlierBegin, earlier) => *earlier = Some((String::new(), true)),
            (Key::Character(character), Some((text, is_whole))) => {
                *is_whole &=
                    text.len() + character.len_utf8() <= LINE_MAX && fallible::push_char(text, character).is_ok();
            }
            (Key::EarlierEnd, Some(_)) => {
                if self.remember_earlier() {
                    tell(Report::<&str>::Next, out)?;
                }
            }
            // The end of a line without its beginning is noise, or noise has cut the line off.
            (Key::EarlierEnd, None) => self.refuse(LineRefusal::NoKey, out)?,
            (_, earlier) => {
                *earlier = None;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Adds the line from the host at the front of the history. Returns whether there is room for more.
    fn remember_earlier(&mut self) -> bool {
        let is_new = |text: &String| !text.is_empty() && self.history.front() != Some(text);
        let text = self.keeper.earlier.take().and_then(|(text, is_whole)| (is_whole && is_new(&text)).then_some(text));
        if self.history.len() == HISTORY_MAX || self.history.try_reserve(1).is_err() {
            return false;
        }
        if let Some(text) = text {
            self.history.push_front(text);
            self.shown += 1;
            self.search.iter_mut().for_each(|search| search.shown += 1);
        }
        self.history.len() < HISTORY_MAX
    }

    /// Adds the row that `key` ends to the history if `key` is the enter key, and if the row is neither empty nor equal
    /// to the newest row there. Reports the row to the program on the host that keeps the history. If there is no
    /// memory, the row cannot be recalled.
    pub(super) fn remember(&mut self, key: Key, out: &mut dyn Write) -> fmt::Result {
        let text = &self.line.text;
        if key == Key::Enter
            && !text.trim().is_empty()
            && self.history.back() != Some(text)
            && let Ok(kept) = fallible::copy(text)
            && self.history.try_reserve(1).is_ok()
        {
            if self.history.len() == HISTORY_MAX {
                self.history.pop_front();
            }
            self.history.push_back(kept);
            if self.keeper.is_present {
                tell(Report::Line(text), out)?;
            }
        }
        Ok(())
    }

    /// Shows line `index` of the history. The line that is being typed has the index after the last one.
    pub(super) fn show(&mut self, index: usize, out: &mut dyn Write) -> fmt::Result {
        if index > self.history.len() {
            return Ok(());
        }
        if self.shown == self.history.len() {
            let Ok(draft) = self.line.try_clone() else { return out.write_str(BELL) };
            self.draft = draft;
        }
        let line = match self.history.get(index) {
            Some(text) => fallible::copy(text).map(|text| EditedLine { text, refusal: None }),
            None => self.draft.try_clone(),
        };
        let Some(line) = line.ok().filter(|line| self.has_room(line.text.len())) else { return out.write_str(BELL) };
        self.shown = index;
        self.move_to(0, out)?;
        let place = self.cell(0);
        self.line = line;
        self.redraw(place, 0, self.line.text.len(), out)
    }

    /// Begins a search. The line is shown until another one is found.
    pub(super) fn begin_search(&mut self, out: &mut dyn Write) -> fmt::Result {
        let Ok(line) = self.line.try_clone() else { return out.write_str(BELL) };
        let Self { cursor, shown, .. } = *self;
        let search = Search { wanted: String::new(), line, cursor, shown };
        // Noise in a search refuses the line that is found.
        self.line.refusal = None;
        self.change(cursor, out, |editor| editor.search = Some(search))
    }

    /// Handles a key in a search. Returns `false` if the key ends the search; the caller then applies the key to the
    /// line found.
    pub(super) fn search_for(&mut self, key: Key, out: &mut dyn Write) -> Result<bool, fmt::Error> {
        let Some(Search { wanted, cursor, .. }) = &self.search else { return Ok(false) };
        // The text, and the end of the range of lines in which it is searched, backward.
        let (wanted, end) = match key {
            Key::Search => (fallible::copy(wanted), self.shown),
            Key::Character(character) => (fallible::format(format_args!("{wanted}{character}")), self.shown + 1),
            Key::Backspace => {
                let last = wanted.char_indices().next_back().map_or(0, |(at, _)| at);
                (fallible::copy(&wanted[..last]), self.history.len())
            }
            Key::Abort | Key::Interrupt => {
                self.change(*cursor, out, |editor| {
                    if let Some(Search { line, shown, .. }) = editor.search.take() {
                        (editor.line, editor.shown) = (line, shown);
                    }
                })?;
                return Ok(true);
            }
            _ => {
                self.change(self.cursor, out, |editor| {
                    if let Some(Search { line, shown, .. }) = editor.search.take()
                        && shown == editor.history.len()
                    {
                        if editor.shown == shown {
                            editor.line.refusal = line.refusal.or(editor.line.refusal);
                        }
                        editor.draft = line;
                    }
                })?;
                return Ok(false);
            }
        };
        let found = wanted.ok().filter(|wanted| wanted.len() <= LINE_MAX).and_then(|wanted| {
            let mut earlier = self.history.iter().enumerate().take(end).rev();
            let (index, at, text) = earlier.find_map(|(index, text)| Some((index, text.find(&wanted)?, text)))?;
            Some((wanted, index, at, fallible::copy(text).ok().filter(|text| self.has_room(text.len()))?))
        });
        match found {
            None => out.write_str(BELL)?,
            Some((wanted, index, at, text)) => self.change(at, out, |editor| {
                let refusal = editor.line.refusal;
                (editor.line, editor.shown) = (EditedLine { text, refusal }, index);
                if let Some(search) = &mut editor.search {
                    search.wanted = wanted;
                }
            })?,
        }
        Ok(true)
    }
}

/// Writes a report at once, so that it is whole if other tasks write meanwhile. Without memory, there is no report.
fn tell<T: fmt::Display>(report: Report<T>, out: &mut dyn Write) -> fmt::Result {
    fallible::format(format_args!("{report}")).map_or(Ok(()), |report| out.write_str(&report))
}
