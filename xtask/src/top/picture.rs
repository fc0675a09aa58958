//! Draws a screen as an SVG.

use std::fmt::Write;

use ratatui::{
    buffer::{Buffer, Cell},
    style::Modifier,
};
use unicode_width::UnicodeWidthStr;

/// The size of a character in pixels, and the margin around all of them.
const WIDTH: f64 = 8.4;
const HEIGHT: f64 = 18.0;
const MARGIN: f64 = 10.0;
/// The distance from the top of a row to the line on which its characters stand.
const ASCENT: f64 = 13.5;
const PAPER: &str = "#1d1f21";
const INK: &str = "#d7dae0";
/// The modifiers that are drawn.
const DRAWN: Modifier = Modifier::BOLD.union(Modifier::DIM).union(Modifier::REVERSED);

/// Returns the screen as an SVG. Each run of characters has the width that it has on a terminal, whatever the font.
pub fn svg(buffer: &Buffer) -> String {
    let (columns, rows) = (buffer.area.width, buffer.area.height);
    let (width, height) = (2.0 * MARGIN + f64::from(columns) * WIDTH, 2.0 * MARGIN + f64::from(rows) * HEIGHT);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\">\n<rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{PAPER}\"/>\n\
         <g font-family=\"ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" font-size=\"14\" fill=\"{INK}\" \
         xml:space=\"preserve\">\n"
    );
    let cells = buffer.content.chunks(usize::from(columns).max(1));
    for (row, cells) in cells.enumerate() {
        let top = MARGIN + row as f64 * HEIGHT;
        let mut column = 0;
        for run in cells.chunk_by(|a, b| a.modifier & DRAWN == b.modifier & DRAWN) {
            let place = MARGIN + column as f64 * WIDTH;
            column += run.len();
            draw(&mut svg, run, place, top);
        }
    }
    svg + "</g>\n</svg>\n"
}

/// Draws cells with the same modifiers.
fn draw(svg: &mut String, run: &[Cell], place: f64, top: f64) {
    let modifier = run.first().map_or(Modifier::empty(), |cell| cell.modifier);
    let is_reversed = modifier.contains(Modifier::REVERSED);
    // Writing to a string does not fail.
    if is_reversed {
        let width = run.len() as f64 * WIDTH;
        let _ = writeln!(svg, "<rect x=\"{place:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{HEIGHT}\"/>");
    }
    let text: String = run.iter().map(Cell::symbol).collect();
    let shown = text.trim_end();
    if shown.is_empty() {
        return;
    }
    let mut style = String::new();
    for (is_set, attribute) in [
        (modifier.contains(Modifier::BOLD), " font-weight=\"bold\"".to_string()),
        (modifier.contains(Modifier::DIM), " opacity=\"0.6\"".to_string()),
        (is_reversed, format!(" fill=\"{PAPER}\"")),
    ] {
        if is_set {
            style += &attribute;
        }
    }
    let (base, length) = (top + ASCENT, shown.width() as f64 * WIDTH);
    let escaped = shown.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(
        svg,
        "<text x=\"{place:.1}\" y=\"{base:.1}\" textLength=\"{length:.1}\" lengthAdjust=\"spacingAndGlyphs\"{style}>{escaped}</text>"
    );
}

/// Returns the rows of a picture as text, for tests.
pub fn rows(svg: &str) -> Vec<String> {
    let mut rows: Vec<(&str, String)> = Vec::new();
    for line in svg.lines().filter(|line| line.starts_with("<text")) {
        let Some((base, text)) = line
            .split_once(" y=\"")
            .and_then(|(_, rest)| Some((rest.split('"').next()?, rest.split_once('>')?.1.strip_suffix("</text>")?)))
        else {
            continue;
        };
        let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
        match rows.last_mut() {
            Some((same, row)) if *same == base => row.push_str(&text),
            _ => rows.push((base, text)),
        }
    }
    rows.into_iter().map(|(_, row)| row).collect()
}

#[cfg(test)]
mod tests {
    use ratatui::{Terminal, backend::TestBackend, style::Stylize, text::Line, widgets::Paragraph};

    use super::{rows, svg};

    #[test]
    fn runs_of_a_style_are_drawn_at_their_columns() {
        let mut terminal = Terminal::new(TestBackend::new(20, 3)).unwrap();
        let first = Line::from(vec!["<A & B>".bold(), " ▁█ ".into(), "two".dim()]);
        let text = vec![first, Line::default(), Line::from("row ").reversed()];
        terminal.draw(|frame| frame.render_widget(Paragraph::new(text), frame.area())).unwrap();
        let svg = svg(terminal.backend().buffer());
        assert_eq!(rows(&svg), ["<A & B> ▁█two", "row"]);
        let expected = [
            "x=\"10.0\" y=\"23.5\" textLength=\"58.8\" lengthAdjust=\"spacingAndGlyphs\" font-weight=\"bold\">&lt;A &amp; B&gt;<",
            "x=\"68.8\" y=\"23.5\" textLength=\"25.2\" lengthAdjust=\"spacingAndGlyphs\"> ▁█<",
            "x=\"102.4\" y=\"23.5\" textLength=\"25.2\" lengthAdjust=\"spacingAndGlyphs\" opacity=\"0.6\">two<",
            "<rect x=\"10.0\" y=\"46.0\" width=\"33.6\" height=\"18\"/>",
            "fill=\"#1d1f21\">row<",
        ];
        for part in expected {
            assert!(svg.contains(part), "{part} is not in {svg}");
        }
    }
}
