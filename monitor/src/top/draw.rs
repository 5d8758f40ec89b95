//! The screen: a head of two lines, the views, the page, and the keys.

use ansi_to_tui::IntoText;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Table, TableState};

use super::content::{Content, Page, View};
use super::state::State;
use crate::report::{self, fit};

/// The keys, as they are explained.
const HELP: &str = "\
 1 2 3 4, Tab     processes, working set, misses, source
 Up Down PgUp PgDn Home End
 Enter            the source of a line or function, a process
 l f d o i        misses by line, function, data, object, instruction
 c                rank by the next of this host's caches
 s                the next line size: 16 to 256 bytes
 p                random replacement or LRU
 Esc              back from the source
 q                end; the program and its profile go on
";

/// Lines for what is said of the selected row: a rule, its text, and three of notes; and fewest of a page that has them.
const SAID: u16 = 5;
/// See [`SAID`].
const LEAST: u16 = 14;

/// Draws `state` with `content`, or why there is none.
pub fn draw(frame: &mut Frame<'_>, state: &mut State, content: Result<Option<&Content>, &str>) {
    let [head, tabs, page, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    self::head(frame, head, state, content);
    self::tabs(frame, tabs, state, content);
    match content {
        Err(error) => {
            let text = Paragraph::new(error).wrap(ratatui::widgets::Wrap { trim: false });
            frame.render_widget(text, page);
        }
        Ok(None) => frame.render_widget(Paragraph::new("reading the profile"), page),
        Ok(Some(content)) => self::page(frame, page, state, &content.page),
    }
    let keys =
        "q end  1-4 views  Enter source  l/f/d/o/i lists  c cache  s line size  p policy  ? help";
    frame.render_widget(Paragraph::new(faint(keys)), foot);
    if state.help {
        help(frame);
    }
}

fn faint(text: &str) -> Span<'_> {
    Span::styled(text, Style::new().add_modifier(Modifier::DIM))
}

fn strong(text: String) -> Span<'static> {
    Span::styled(text, Style::new().add_modifier(Modifier::BOLD))
}

fn head(frame: &mut Frame<'_>, area: Rect, state: &State, content: Result<Option<&Content>, &str>) {
    let style = &state.request.style;
    let width = usize::from(area.width);
    let lines = match content {
        Ok(Some(content)) => {
            let live = if content.is_live { "live · " } else { "" };
            let facts = format!("{live}{}", content.facts);
            vec![
                Line::from(strong(fit(&content.command, width, style))),
                Line::from(fit(&facts, width, style)),
            ]
        }
        _ => {
            let name = state.request.profile.display().to_string();
            vec![Line::from(strong(fit(&name, width, style)))]
        }
    };
    frame.render_widget(Paragraph::new(lines), area);
}

/// The views, and by what they are worked out.
fn tabs(frame: &mut Frame<'_>, area: Rect, state: &State, content: Result<Option<&Content>, &str>) {
    let mut spans = Vec::new();
    for (at, view) in View::ALL.into_iter().enumerate() {
        let name = format!(" {} {} ", at + 1, view.name());
        let style = match view == state.request.view {
            true => Style::new().add_modifier(Modifier::REVERSED),
            false => Style::new(),
        };
        spans.push(Span::styled(name, style));
    }
    if let Ok(Some(content)) = content {
        let policy = match state.request.policy {
            statcache_model::Policy::Random { .. } => "random",
            statcache_model::Policy::Lru { .. } => "LRU",
        };
        let busy = if state.is_waiting { " · working" } else { "" };
        let by = format!(
            "  {} · {}-byte lines · {policy}{busy}",
            content.caches[content.ranking], state.request.line_bytes
        );
        spans.push(Span::styled(by, Style::new().add_modifier(Modifier::DIM)));
    }
    frame.render_widget(Paragraph::new(Line::from(spans)), area);
}

fn page(frame: &mut Frame<'_>, area: Rect, state: &mut State, page: &Page) {
    match page {
        Page::Text(text) => {
            state.room = usize::from(area.height);
            let lines: Vec<&str> = text
                .lines()
                .skip(state.scroll)
                .take(state.room.max(1))
                .collect();
            let shown = lines.join("\n");
            let text = shown.into_text().unwrap_or_else(|_| Text::raw(shown));
            frame.render_widget(Paragraph::new(text), area);
        }
        Page::Table { title, heads, rows } => {
            // What is said of the selected row has its place below, where there is one.
            let says = rows
                .iter()
                .any(|row| row.code.is_some() || !row.why.is_empty());
            let said = if says && area.height >= LEAST {
                SAID
            } else {
                0
            };
            let [above, below, detail] = Layout::vertical([
                Constraint::Length(1),
                Constraint::Min(1),
                Constraint::Length(said),
            ])
            .areas(area);
            frame.render_widget(Paragraph::new(faint(title)), above);
            if let Some(row) = rows.get(state.selected).filter(|_| said > 0) {
                self::detail(frame, detail, state, row);
            }
            // One is the heads'.
            state.room = usize::from(below.height).saturating_sub(1);
            table(frame, below, state, heads, rows);
        }
    }
}

/// What is known of the selected row besides its figures.
fn detail(frame: &mut Frame<'_>, area: Rect, state: &State, row: &super::content::Line) {
    let (style, width) = (&state.request.style, usize::from(area.width));
    let rule = style.glyph("─", "-").repeat(width);
    let mut lines = vec![Line::from(Span::styled(
        rule,
        Style::new().add_modifier(Modifier::DIM),
    ))];
    let code = row.code.as_deref();
    lines.extend(code.map(|code| Line::from(strong(fit(code, width, style)))));
    lines.extend(
        report::notes(&row.why, width, style)
            .into_iter()
            .map(Line::from),
    );
    frame.render_widget(Paragraph::new(lines), area);
}

fn table(
    frame: &mut Frame<'_>,
    area: Rect,
    state: &State,
    heads: &[String],
    rows: &[super::content::Line],
) {
    let last = heads.len() - 1;
    let wide = |at: usize| {
        let cells = rows.iter().map(|row| row.cells[at].chars().count());
        cells.max().unwrap_or(0).max(heads[at].chars().count())
    };
    let widths: Vec<usize> = (0..last).map(wide).collect();
    let taken: usize = widths.iter().map(|w| w + 2).sum();
    let room = usize::from(area.width).saturating_sub(taken).max(8);
    let texts = &state.request.style;
    let right = |text: &str, at: usize| match at == last {
        true => fit(text, room, texts),
        false => format!("{text:>width$}", width = widths[at]),
    };
    let cells = heads.iter().enumerate();
    let head = cells.map(|(at, text)| Cell::from(right(text, at)));
    let head = Row::new(head).style(Style::new().add_modifier(Modifier::DIM));
    let body = rows.iter().map(|row| {
        let cells = row.cells.iter().enumerate();
        let cells = cells.map(|(at, text)| Cell::from(right(text, at)));
        Row::new(cells).style(ink(row, texts))
    });
    let constraints = (0..=last).map(|at| match at == last {
        true => Constraint::Min(8),
        false => Constraint::Length(widths[at] as u16),
    });
    let table = Table::new(body, constraints)
        .header(head)
        .column_spacing(2)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut at = TableState::new().with_selected(Some(state.selected));
    frame.render_stateful_widget(table, area, &mut at);
}

/// As reports colour shares.
fn ink(row: &super::content::Line, style: &report::Style) -> Style {
    match row.share {
        _ if row.weak => Style::new().add_modifier(Modifier::DIM),
        _ if !style.colour => Style::new(),
        share if share >= report::HOT => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
        share if share >= report::WARM => Style::new().fg(Color::Yellow),
        _ => Style::new(),
    }
}

fn help(frame: &mut Frame<'_>) {
    let area = frame.area();
    let wide = HELP.lines().map(|line| line.chars().count()).max();
    let (width, height) = (
        wide.unwrap_or(0) as u16 + 3,
        HELP.lines().count() as u16 + 2,
    );
    let place = Rect {
        x: area.width.saturating_sub(width) / 2,
        y: area.height.saturating_sub(height) / 2,
        width: width.min(area.width),
        height: height.min(area.height),
    };
    frame.render_widget(Clear, place);
    let block = Block::bordered().title(" keys ");
    frame.render_widget(Paragraph::new(HELP).block(block), place);
}
