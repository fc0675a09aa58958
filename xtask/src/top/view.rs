//! Draws the state. It uses bold, dim and reversed text and no colors, so it looks the same on every terminal.

use ratatui::{
    Frame,
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    style::{Modifier, Style, Stylize},
    text::{Line, Span},
    widgets::{Block, Clear, Paragraph},
};
use unicode_width::UnicodeWidthStr;

use super::{
    model::{Bucket, HISTORY, Model, PageRow},
    state::{Column, Listing, PAGES, Page, ViewState},
};

const HELP: &str = "\
1 2 3, Tab    functions, tasks, CPUs
j k, arrows   select a row
Enter         callers and times of the function
o             its source, beside its callers
Esc           go back; remove the filter
/             show only names with this text
s < >         sort by another column
r             reverse the order
p, space      pause, and go on
w             write what is shown to a file
q, ^C         end

hits/s  in the last interval; - if the function was
        below the rows that the machine sends
total   up to the last interval with a number
open    calls in progress, and those whose return
        was missed (--time)
Counts begin anew when the program does: Enter, Esc.";

/// The width from which all remembered intervals are drawn.
const WIDE: u16 = 110;
/// How many intervals are drawn otherwise: fewer beside the columns about times.
const NARROW_HISTORY: usize = 12;
const TIMED_HISTORY: usize = 8;
/// The most rows that a histogram takes.
const BUCKETS: usize = 16;

/// Draws the state with the newest model.
pub fn draw(frame: &mut Frame<'_>, state: &ViewState, newest: &Model) {
    let model = state.shown(newest);
    let buckets = match state.page {
        Page::Callers if state.source.is_none() => {
            model.histogram.len().min(BUCKETS).min(usize::from(frame.area().height / 2))
        }
        _ => 0,
    };
    let times = if buckets > 0 { buckets as u16 + 2 } else { 0 };
    let parts = [Constraint::Length(2), Constraint::Min(2), Constraint::Length(times), Constraint::Length(1)];
    let [head, table, histogram, foot] = Layout::vertical(parts).areas(frame.area());
    frame.render_widget(Paragraph::new(vec![summary(state, model), tabs(state)]), head);
    let body = match &state.source {
        Some(Listing { lines, first }) => lines.iter().skip(*first).map(|line| Line::from(line.clone())).collect(),
        None => rows(state, model, table),
    };
    frame.render_widget(Paragraph::new(body), table);
    if buckets > 0 {
        frame.render_widget(Paragraph::new(bars(model, buckets, histogram.width)), histogram);
    }
    frame.render_widget(Paragraph::new(footer(state, newest)), foot);
    if state.has_help {
        let [width, height] = [54, HELP.lines().count() as u16 + 2];
        let area = frame.area().centered(Constraint::Length(width), Constraint::Length(height));
        frame.render_widget(Clear, area);
        frame.render_widget(Paragraph::new(HELP).block(Block::bordered().title(" keys and columns ")), area);
    }
}

fn summary(state: &ViewState, model: &Model) -> Line<'static> {
    let mut line = Line::from(match (model.probes, state.page) {
        (0, _) => String::new(),
        (probes, Page::Callers) => format!("{} of one function", counted(probes, "probe")),
        (probes, _) => format!(
            "{}   {} hits/s in {}   {} hits",
            counted(probes, "probe"),
            grouped(model.rate.round() as u64),
            counted(model.hit_functions, "function"),
            grouped(model.total)
        ),
    });
    for (is_shown, word) in [(state.paused.is_some(), "PAUSED"), (!state.activity.is_empty(), &*state.activity)] {
        if is_shown {
            line.push_span(if line.width() > 0 { "   " } else { "" });
            line.push_span(word.to_string().bold());
        }
    }
    line
}

fn tabs(state: &ViewState) -> Line<'static> {
    let mut line = Line::default();
    if state.page == Page::Callers {
        line.push_span(if state.source.is_some() { "source of " } else { "callers of " });
        line.push_span(state.function.clone().bold());
    }
    for (number, page) in PAGES.iter().enumerate().filter(|_| state.page != Page::Callers) {
        let name = ["functions", "tasks", "CPUs"][number];
        let label = Span::from(format!(" {} {name} ", number + 1));
        line.push_span(if state.page == *page { label.reversed() } else { label });
        line.push_span(" ");
    }
    if state.is_filtering || !state.filter.is_empty() {
        line.push_span(format!("  /{}", state.filter));
        line.push_span(if state.is_filtering { "_" } else { "" });
    }
    line
}

/// Draws the table: its header, and the rows around the selected one.
fn rows(state: &ViewState, model: &Model, area: Rect) -> Vec<Line<'static>> {
    let history = match (area.width, state.columns().len()) {
        (WIDE.., _) => HISTORY,
        (_, 3) => NARROW_HISTORY,
        _ => TIMED_HISTORY,
    };
    let arrow = if state.is_reversed { "▴" } else { "▾" };
    let mut header = Line::default().bold();
    for column in state.columns() {
        let title = match column {
            Column::Rate => "hits/s",
            Column::Total => "total",
            Column::Average => "average",
            Column::Open => "open",
            Column::Name => ["function", "task", "CPU", "caller"][state.page as usize],
        };
        let title = if state.sort == *column { format!("{title}{arrow}") } else { title.into() };
        match width(*column) {
            Some(width) => header.push_span(format!("{title:>width$} ")),
            None => header.push_span(format!("{:history$} {title}", format!("last {history}"))),
        }
    }
    let mut lines = vec![header];
    let rows = state.rows(model);
    let height = usize::from(area.height.saturating_sub(1)).max(1);
    let place = state.place(&rows);
    // The first page as long as the selected row is on it.
    let first = (place + 1).saturating_sub(height);
    // The style of a selected row covers its whole width.
    for (number, (name, row)) in rows.iter().enumerate().skip(first).take(height) {
        let line = entry(state, name, row, history, usize::from(area.width));
        let is_old = row.rate.is_none() || row.rate == Some(0.0);
        let style = if is_old { Style::new().add_modifier(Modifier::DIM) } else { Style::new() };
        lines.push(line.style(if number == place { Style::new().reversed() } else { style }));
    }
    if rows.is_empty() {
        lines.push(Line::from(match (model.intervals, state.filter.as_str()) {
            (0, _) => "",
            (_, "") => "nothing was hit yet",
            _ => "no name has this text",
        }));
    }
    lines
}

/// The width of a column of numbers; `None` for the name, which takes the rest.
fn width(column: Column) -> Option<usize> {
    match column {
        Column::Rate => Some(9),
        Column::Total => Some(12),
        Column::Average | Column::Open => Some(8),
        Column::Name => None,
    }
}

fn entry(state: &ViewState, name: &str, row: &PageRow, history: usize, all: usize) -> Line<'static> {
    let mut text = String::new();
    for column in state.columns() {
        let value = match column {
            Column::Rate => row.rate.map_or("-".into(), |rate| grouped(rate.round() as u64)),
            Column::Total => grouped(row.total),
            Column::Average => row.average.map_or("-".into(), duration),
            Column::Open => grouped(row.open()),
            Column::Name => String::new(),
        };
        if let Some(width) = width(*column) {
            text += &format!("{value:>width$} ");
        }
    }
    text += &sparkline(row, history);
    text.push(' ');
    let rest = all.saturating_sub(text.width());
    text += &shortened(name, rest);
    // Until the end of the line, so that a selected row is reversed as a whole.
    text += &" ".repeat(all.saturating_sub(text.width()));
    Line::from(text)
}

/// Draws the newest `count` intervals, each in proportion to the greatest of the row. Intervals without a known number
/// are blank.
fn sparkline(row: &PageRow, count: usize) -> String {
    const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let newest = row.history.iter().skip(row.history.len().saturating_sub(count));
    let greatest = newest.clone().flatten().copied().fold(1.0, f64::max);
    let drawn = newest.map(|rate| BARS[(rate.unwrap_or(0.0) / greatest * 8.0).ceil() as usize]);
    format!("{:>count$}", drawn.collect::<String>())
}

/// Cuts the beginning of a name: the end of a path says more.
fn shortened(name: &str, width: usize) -> String {
    if name.width() <= width {
        return name.into();
    }
    let kept: Vec<char> = name.chars().rev().take(width.saturating_sub(1)).collect();
    std::iter::once('…').chain(kept.into_iter().rev()).take(width).collect()
}

/// Draws the histogram: its quantiles, and the rows with the most calls between its first and its last.
fn bars(model: &Model, rows: usize, width: u16) -> Vec<Line<'static>> {
    let quantile = |part| model.quantile(part).map_or("-".into(), |time| duration(time as f64));
    let calls: u64 = model.histogram.iter().map(|bucket| bucket.count).sum();
    let times = format!("p50 {}   p99 {}   {} returned", quantile(0.5), quantile(0.99), counted(calls, "call"));
    let mut lines = vec![Line::default(), Line::from(times).bold()];
    // Where there are too many rows, those at the ends are left out that have fewer calls.
    let mut shown: &[Bucket] = &model.histogram;
    while let [first, middle @ .., last] = shown
        && shown.len() > rows
    {
        shown = if first.count < last.count { &shown[1..] } else { &shown[..middle.len() + 1] };
    }
    let most = shown.iter().map(|bucket| bucket.count).max().unwrap_or(1).max(1);
    for Bucket { min, max, count } in shown {
        let room = f64::from(width.saturating_sub(38));
        let bar = "█".repeat((*count as f64 / most as f64 * room).ceil() as usize);
        let [min, max] = [min, max].map(|time| duration(*time as f64));
        lines.push(Line::from(format!("{min:>9} to {max:>9} {:>13} {bar}", grouped(*count))));
    }
    lines
}

fn footer(state: &ViewState, newest: &Model) -> Line<'static> {
    match (state.message.as_str(), newest.losses.last()) {
        ("", Some(loss)) => Line::from(loss.clone()).bold(),
        ("", None) if state.source.is_some() => Line::from("Esc back  j k scroll  w write  ? help  q end"),
        ("", None) if state.page == Page::Callers => {
            Line::from("Esc back  o source  / filter  s sort  p pause  w write  ? help  q end")
        }
        ("", None) => Line::from("Enter callers  Tab page  / filter  s sort  p pause  w write  ? help  q end"),
        (message, _) => Line::from(message.to_string()).bold(),
    }
}

/// Returns a number with commas between groups of three digits.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group)).collect();
    groups.join(",")
}

fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// Formats a time in nanoseconds with three digits.
fn duration(nanoseconds: f64) -> String {
    let mut value = nanoseconds;
    for unit in ["ns", "µs", "ms"] {
        if value < 999.5 {
            let digits = if unit == "ns" || value >= 99.95 {
                0
            } else if value >= 9.995 {
                1
            } else {
                2
            };
            return format!("{value:.digits$} {unit}");
        }
        value /= 1000.0;
    }
    format!("{value:.1} s")
}

/// Returns the text of a screen, without the blanks at the end of its lines.
pub fn text(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width).max(1);
    let lines = buffer.content.chunks(width).map(|cells| cells.iter().map(|cell| cell.symbol()).collect::<String>());
    lines.map(|line| format!("{}\n", line.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use ratatui::{Terminal, backend::TestBackend};

    use super::{
        super::{
            model::{
                Model,
                tests::{feed, interval},
            },
            state::{Page, ViewState},
        },
        draw, duration, grouped, shortened, text,
    };

    /// A model with all kinds of rows.
    fn model() -> Model {
        let mut model = Model::new(1000);
        model.feed(r#"{"type": "attached_probes", "count": 2143, "data": {"probes": 2143}}"#).unwrap();
        for second in 1..40 {
            let wave = second * 37 % 100;
            let (blocks, long) = (
                format!("sha2::sha256::compress256,{0},{0},{1}", second * 20_000, second * 30_000_000),
                format!(
                    "<kprobes_console::host::masked as core::ops::function::Fn<(&mut dyn core::ops::function::FnMut<(), Output = ()>,)>>::call,{},0,0",
                    second * 100
                ),
            );
            let memset = format!("memset,{},{second},{}", second * 100_000, second * 90);
            let rows = [(&*blocks, 20_000), (&*long, wave), (&*memset, wave * 1_000)];
            let places = format!(
                r#"{{"type": "map", "data": {{"@w": {{"0,7": {}, "1,8": {}}}}}}}"#,
                second * 10,
                second * 19_000
            );
            let more = [
                &*places,
                r#"{"type": "map", "data": {"@n": {"7": "main", "8": "sha256/0"}}}"#,
                r#"{"type": "map", "data": {"@c": {"runtime::workload::sha256::digest": 40, "sha2::x": 2}}}"#,
                r#"{"type": "hist", "data": {"@t": [{"min": 768, "max": 1023, "count": 7}, {"min": 1024, "max": 1535, "count": 3500}, {"min": 1536, "max": 2047, "count": 0}, {"min": 2048, "max": 3071, "count": 70}, {"min": 3072, "max": 4095, "count": 1}]}}"#,
            ];
            feed(&mut model, &interval(second * 1_000, if second % 13 == 5 { &rows[..2] } else { &rows }, &more));
        }
        model
    }

    fn screen(width: u16, height: u16, state: &ViewState, model: &Model) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state, model)).unwrap();
        text(terminal.backend().buffer())
    }

    /// Compares a screen with the one in the file. To write the files anew: `TOP_SCREENS=1 cargo test …`.
    fn check(name: &str, (width, height): (u16, u16), state: &ViewState) {
        let path = format!("{}/src/top/screens/{name}-{width}x{height}.txt", env!("CARGO_MANIFEST_DIR"));
        let screen = screen(width, height, state, &model());
        if std::env::var_os("TOP_SCREENS").is_some() {
            std::fs::write(&path, &screen).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap();
        assert!(screen == expected, "{path} has\n{expected}\nand this is\n{screen}");
    }

    #[test]
    fn screens_are_as_in_the_files() {
        for size in [(80, 24), (200, 50)] {
            let mut state = ViewState::new(true);
            check("functions", size, &state);
            state.page = Page::Callers;
            state.function = "sha2::sha256::compress256".into();
            check("callers", size, &state);
        }
        let small = (80, 24);
        let mut state = ViewState::new(false);
        state.page = Page::Tasks;
        state.paused = Some(Box::new(model()));
        (state.filter, state.is_filtering) = ("sha".into(), true);
        check("tasks", small, &state);
        let mut state = ViewState::new(false);
        (state.page, state.has_help) = (Page::Cpus, true);
        check("help", small, &state);
    }

    #[test]
    fn no_size_is_too_small() {
        let model = model();
        for width in 0..60 {
            for height in 0..12 {
                for page in [Page::Functions, Page::Callers] {
                    let mut state = ViewState::new(true);
                    (state.page, state.has_help) = (page, width % 2 == 0);
                    screen(width, height, &state, &model);
                }
            }
        }
    }

    #[test]
    fn the_selected_row_is_on_the_screen() {
        let mut model = Model::new(1000);
        let rows: Vec<_> = (10..60).map(|number| (format!("f{number},1"), 1)).collect();
        let rows: Vec<_> = rows.iter().map(|(key, hits)| (key.as_str(), *hits)).collect();
        feed(&mut model, &interval(1_000, &rows, &[]));
        let mut state = ViewState::new(false);
        assert!(screen(80, 10, &state, &model).contains("f10"));
        state.selected = Some("f42".into());
        assert!(screen(80, 10, &state, &model).contains("f42"));
        assert!(!screen(80, 10, &state, &model).contains("f43"));
    }

    #[test]
    fn numbers_and_names_are_short() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        let times = [0.0, 999.4, 999.6, 12_345.0, 123_456.0, 999_600.0, 1.5e9, 100e9].map(duration);
        assert_eq!(times, ["0 ns", "999 ns", "1.00 µs", "12.3 µs", "123 µs", "1.00 ms", "1.5 s", "100.0 s"]);
        assert_eq!([6, 4, 1, 0].map(|width| shortened("a::bcd", width)), ["a::bcd", "…bcd", "…", ""]);
    }
}
