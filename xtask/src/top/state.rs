//! The state of the view: what is shown of the model, and how keys change it.

use std::mem;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::model::{Model, PageRow, PageRows};

/// The pages, in the order of their keys.
pub const PAGES: [Page; 3] = [Page::Functions, Page::Tasks, Page::Cpus];

/// A page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Page {
    #[default]
    Functions,
    Tasks,
    Cpus,
    /// The callers of one function, and its times.
    Callers,
}

/// A column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Column {
    #[default]
    Rate,
    Total,
    Average,
    Open,
    Name,
}

/// A request of a key to the owner of the state.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    Quit,
    /// Count the callers of this function.
    Enter(String),
    /// Show the source of this function.
    Source(String),
    /// Count all functions again.
    Back,
    /// Write what is shown to a file.
    Save,
}

/// The source of a function. The lines from `first` on are shown.
#[derive(Clone, Debug)]
pub struct Listing {
    pub lines: Vec<String>,
    pub first: usize,
}

/// The state of a view.
#[derive(Clone, Debug, Default)]
pub struct ViewState {
    pub page: Page,
    /// Whether calls are timed, so that there are columns about times.
    pub is_timed: bool,
    /// The function whose callers are shown.
    pub function: String,
    /// Its source, while that is shown instead.
    pub source: Option<Listing>,
    pub sort: Column,
    pub is_reversed: bool,
    /// Rows whose names do not contain this are hidden.
    pub filter: String,
    /// Whether keys go to the filter.
    pub is_filtering: bool,
    /// The name of the selected row; `None` for the first row, whichever it is.
    pub selected: Option<String>,
    /// The model as it was when the view was paused.
    pub paused: Option<Box<Model>>,
    pub has_help: bool,
    /// The activity of the program, if it is not counting.
    pub activity: String,
    /// A message about the last key.
    pub message: String,
}

impl ViewState {
    /// Creates the state in which a view begins.
    pub fn new(is_timed: bool) -> Self {
        Self { is_timed, ..Self::default() }
    }

    /// Returns the model to show, if `model` is the newest.
    pub fn shown<'a>(&'a self, model: &'a Model) -> &'a Model {
        self.paused.as_deref().unwrap_or(model)
    }

    /// The columns of the page.
    pub fn columns(&self) -> &'static [Column] {
        match self.page == Page::Functions && self.is_timed {
            true => &[Column::Rate, Column::Total, Column::Average, Column::Open, Column::Name],
            false => &[Column::Rate, Column::Total, Column::Name],
        }
    }

    /// Returns the rows of the page in their order: numbers from the greatest on, names by the alphabet.
    pub fn rows<'a>(&self, model: &'a Model) -> Vec<(&'a str, &'a PageRow)> {
        let needle = self.filter.to_lowercase();
        let rows = self.all(model).rows.iter().map(|(name, row)| (name.as_str(), row));
        let mut rows: Vec<_> = rows.filter(|(name, _)| name.to_lowercase().contains(&needle)).collect();
        let greatest = |a: Option<f64>, b: Option<f64>| b.unwrap_or(-1.0).total_cmp(&a.unwrap_or(-1.0));
        // Rows that are equal keep the order of their names, so that they do not jump.
        rows.sort_by(|(_, a), (_, b)| match self.sort {
            Column::Rate => greatest(a.rate, b.rate).then(b.total.cmp(&a.total)),
            Column::Total => b.total.cmp(&a.total),
            Column::Average => greatest(a.average, b.average),
            Column::Open => b.open().cmp(&a.open()),
            Column::Name => std::cmp::Ordering::Equal,
        });
        if self.is_reversed {
            rows.reverse();
        }
        rows
    }

    /// Returns all rows of the page.
    pub fn all<'a>(&self, model: &'a Model) -> &'a PageRows {
        match self.page {
            Page::Functions => &model.functions,
            Page::Tasks => &model.tasks,
            Page::Cpus => &model.cpus,
            Page::Callers => &model.callers,
        }
    }

    /// Returns the place of the selected row among these.
    pub fn place(&self, rows: &[(&str, &PageRow)]) -> usize {
        let is_selected = |(name, _): &(&str, &PageRow)| self.selected.as_deref() == Some(*name);
        rows.iter().position(is_selected).unwrap_or(0)
    }

    /// Takes a key.
    pub fn key(&mut self, key: KeyEvent, model: &Model) -> Option<Action> {
        self.message.clear();
        if let KeyCode::Char(c) = key.code
            && key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT)
        {
            let is_interrupt = c.eq_ignore_ascii_case(&'c') && key.modifiers.contains(KeyModifiers::CONTROL);
            return is_interrupt.then_some(Action::Quit);
        }
        if self.is_filtering {
            match key.code {
                KeyCode::Enter => self.is_filtering = false,
                KeyCode::Esc => (self.is_filtering, self.filter) = (false, String::new()),
                KeyCode::Backspace => drop(self.filter.pop()),
                KeyCode::Char(c) => self.filter.push(c),
                _ => {}
            }
            return None;
        }
        if mem::take(&mut self.has_help) && key.code != KeyCode::Char('q') {
            return None;
        }
        match key.code {
            KeyCode::Char('q') => return Some(Action::Quit),
            KeyCode::Char('w') => return Some(Action::Save),
            KeyCode::Char('?' | 'h') => self.has_help = true,
            _ if self.source.is_some() => self.scroll(key.code),
            KeyCode::Char('o') if self.page == Page::Callers => return Some(Action::Source(self.function.clone())),
            KeyCode::Char('/') => self.is_filtering = true,
            KeyCode::Char('r') => self.is_reversed = !self.is_reversed,
            KeyCode::Char('s' | '>') => self.turn_sort(1),
            KeyCode::Char('<') => self.turn_sort(self.columns().len() - 1),
            KeyCode::Char('p' | ' ') => {
                self.paused = if self.paused.is_some() { None } else { Some(Box::new(model.clone())) };
            }
            KeyCode::Esc if self.page == Page::Callers => {
                self.leave();
                return Some(Action::Back);
            }
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Enter if self.page == Page::Functions => {
                let rows = self.rows(self.shown(model));
                let name = rows.get(self.place(&rows))?.0.to_string();
                self.show(Page::Callers);
                self.function.clone_from(&name);
                return Some(Action::Enter(name));
            }
            KeyCode::Tab | KeyCode::BackTab => self.turn_page(key.code == KeyCode::BackTab),
            KeyCode::Char(digit @ '1'..='3') if self.page != Page::Callers => {
                self.show(PAGES[digit as usize - '1' as usize]);
            }
            KeyCode::Down | KeyCode::Char('j') => self.select(model, |place, _| place + 1),
            KeyCode::Up | KeyCode::Char('k') => self.select(model, |place, _| place.saturating_sub(1)),
            KeyCode::PageDown => self.select(model, |place, _| place + 10),
            KeyCode::PageUp => self.select(model, |place, _| place.saturating_sub(10)),
            KeyCode::Home => self.selected = None,
            KeyCode::End => self.select(model, |_, last| last),
            _ => {}
        }
        None
    }

    /// Takes a key while source is shown.
    fn scroll(&mut self, key: KeyCode) {
        let Some(Listing { lines, first }) = &mut self.source else { return };
        let last = lines.len().saturating_sub(1);
        *first = match key {
            KeyCode::Down | KeyCode::Char('j') => *first + 1,
            KeyCode::Up | KeyCode::Char('k') => first.saturating_sub(1),
            KeyCode::PageDown => *first + 10,
            KeyCode::PageUp => first.saturating_sub(10),
            KeyCode::Home => 0,
            KeyCode::End => last,
            KeyCode::Char('o') | KeyCode::Esc | KeyCode::Enter => return self.source = None,
            _ => return,
        }
        .min(last);
    }

    /// Goes from the callers of a function back to the functions, where that one is selected.
    pub fn leave(&mut self) {
        (self.paused, self.source) = (None, None);
        self.show(Page::Functions);
        self.selected = Some(mem::take(&mut self.function));
    }

    fn show(&mut self, page: Page) {
        (self.page, self.selected) = (page, None);
        if page == Page::Callers {
            self.paused = None;
            self.filter.clear();
        }
        if !self.columns().contains(&self.sort) {
            self.sort = Column::Rate;
        }
    }

    fn turn_page(&mut self, is_back: bool) {
        if let Some(place) = PAGES.iter().position(|page| *page == self.page) {
            let turns = if is_back { PAGES.len() - 1 } else { 1 };
            self.show(PAGES[(place + turns) % PAGES.len()]);
        }
    }

    fn turn_sort(&mut self, turns: usize) {
        let columns = self.columns();
        let place = columns.iter().position(|column| *column == self.sort).unwrap_or(0);
        self.sort = columns[(place + turns) % columns.len()];
    }

    fn select(&mut self, model: &Model, place: impl Fn(usize, usize) -> usize) {
        let rows = self.rows(self.shown(model));
        let last = rows.len().saturating_sub(1);
        let selected = rows.get(place(self.place(&rows), last).min(last)).map(|(name, _)| name.to_string());
        self.selected = selected;
    }
}

#[cfg(test)]
mod tests {
    use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    use super::{
        super::model::{
            Model,
            tests::{feed, interval},
        },
        Action, Column, Listing, Page, ViewState,
    };

    fn model() -> Model {
        let mut model = Model::new(1000);
        feed(
            &mut model,
            &interval(1_000, &[("b::low,900,1,50", 1), ("a::High,9,9,90", 9), ("c::mid,5,5,500", 5)], &[]),
        );
        model
    }

    fn press(state: &mut ViewState, keys: &str) -> Option<Action> {
        let code = |c| match c {
            '\n' => KeyCode::Enter,
            '\x1b' => KeyCode::Esc,
            '\t' => KeyCode::Tab,
            '\x08' => KeyCode::Backspace,
            c => KeyCode::Char(c),
        };
        let model = model();
        keys.chars().fold(None, |_, c| state.key(KeyEvent::from(code(c)), &model))
    }

    fn names(state: &ViewState) -> Vec<String> {
        state.rows(&model()).iter().map(|(name, _)| name.to_string()).collect()
    }

    #[test]
    fn every_column_sorts() {
        let mut state = ViewState::new(true);
        let mut seen = Vec::new();
        for _ in 0..6 {
            seen.push((state.sort, names(&state).concat()));
            press(&mut state, "s");
        }
        let [high, mid, low] = ["a::High", "c::mid", "b::low"];
        assert_eq!(
            seen,
            [
                (Column::Rate, [high, mid, low].concat()),
                (Column::Total, [low, high, mid].concat()),
                (Column::Average, [mid, low, high].concat()),
                (Column::Open, [low, high, mid].concat()),
                (Column::Name, [high, low, mid].concat()),
                (Column::Rate, [high, mid, low].concat()),
            ]
        );
        press(&mut state, "<<r");
        assert_eq!((state.sort, names(&state)), (Column::Name, vec!["c::mid".into(), low.into(), high.into()]));
    }

    #[test]
    fn typing_filters_until_it_is_ended() {
        let mut state = ViewState::new(false);
        assert_eq!(press(&mut state, "/hiq\x08"), None);
        assert_eq!((names(&state), state.is_filtering), (vec!["a::High".into()], true));
        assert_eq!(press(&mut state, "\n"), None);
        assert_eq!(press(&mut state, "\n"), Some(Action::Enter("a::High".into())));
        let mut state = ViewState::new(false);
        press(&mut state, "/zzz\x1b");
        assert_eq!((names(&state).len(), state.is_filtering), (3, false));
        press(&mut state, "/zzz\n");
        assert_eq!(press(&mut state, "\n"), None, "there is nothing to enter");
        press(&mut state, "\x1b");
        assert_eq!(names(&state).len(), 3);
    }

    #[test]
    fn a_selected_row_is_followed_by_its_name() {
        let mut state = ViewState::new(false);
        press(&mut state, "jr");
        assert_eq!(state.selected.as_deref(), Some("c::mid"));
        press(&mut state, "jjj");
        assert_eq!(state.selected.as_deref(), Some("a::High"));
        press(&mut state, "k");
        assert_eq!(press(&mut state, "\n"), Some(Action::Enter("c::mid".into())));
        assert_eq!((state.page, state.function.as_str()), (Page::Callers, "c::mid"));
        assert_eq!(press(&mut state, "2\t\n"), None, "a function has one page");
        assert_eq!(press(&mut state, "\x1b"), Some(Action::Back));
        assert_eq!((state.page, state.selected.as_deref()), (Page::Functions, Some("c::mid")));
    }

    #[test]
    fn source_scrolls_until_it_is_left() {
        let mut state = ViewState::new(false);
        assert_eq!(press(&mut state, "o\n"), Some(Action::Enter("a::High".into())), "all functions have no source");
        assert_eq!(press(&mut state, "o"), Some(Action::Source("a::High".into())));
        state.source = Some(Listing { lines: ["a", "b", "c"].map(String::from).into(), first: 0 });
        assert_eq!(press(&mut state, "jjjjk"), None);
        assert_eq!(state.source.as_ref().map(|source| source.first), Some(1));
        assert_eq!(press(&mut state, "\x1b"), None, "back to the callers");
        assert!(state.source.is_none());
        assert_eq!(press(&mut state, "\x1b"), Some(Action::Back));
    }

    #[test]
    fn pages_turn_and_a_pause_keeps_what_is_shown() {
        let mut state = ViewState::new(true);
        press(&mut state, "sss\t");
        assert_eq!((state.page, state.sort), (Page::Tasks, Column::Rate), "tasks have no such column");
        press(&mut state, "\t\t3");
        assert_eq!(state.page, Page::Cpus);
        press(&mut state, "1p");
        let newer = Model::new(1000);
        assert_eq!(state.rows(state.shown(&newer)).len(), 3);
        press(&mut state, " ");
        assert_eq!(state.rows(state.shown(&newer)).len(), 0);
    }

    #[test]
    fn the_view_ends_by_q_and_ctrl_c_from_everywhere() {
        let ctrl_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        for before in ["", "/text", "?", "\n", "p"] {
            let mut state = ViewState::new(false);
            press(&mut state, before);
            assert_eq!(state.key(ctrl_c, &model()), Some(Action::Quit), "{before:?}");
        }
        for (keys, action) in
            [("q", Some(Action::Quit)), ("?q", Some(Action::Quit)), ("?w", None), ("w", Some(Action::Save))]
        {
            assert_eq!(press(&mut ViewState::new(false), keys), action, "{keys}");
        }
    }

    #[test]
    fn a_letter_with_ctrl_or_alt_is_another_key() {
        for modifiers in [KeyModifiers::CONTROL, KeyModifiers::ALT, KeyModifiers::CONTROL | KeyModifiers::SHIFT] {
            let mut state = ViewState::new(true);
            let before = format!("{state:?}");
            for letter in "qwhrsjkp/?1 C".chars() {
                let is_interrupt = letter == 'C' && modifiers.contains(KeyModifiers::CONTROL);
                let expected = is_interrupt.then_some(Action::Quit);
                let action = state.key(KeyEvent::new(KeyCode::Char(letter), modifiers), &model());
                assert_eq!((action, format!("{state:?}")), (expected, before.clone()), "{letter:?} {modifiers:?}");
            }
        }
        // Shift makes another letter, with which no key of this view begins.
        let mut state = ViewState::new(true);
        assert_eq!(press(&mut state, "CQW"), None);
        press(&mut state, "/");
        state.key(KeyEvent::new(KeyCode::Char('w'), KeyModifiers::CONTROL), &model());
        state.key(KeyEvent::new(KeyCode::Char('H'), KeyModifiers::SHIFT), &model());
        assert_eq!(state.filter, "H");
    }
}
