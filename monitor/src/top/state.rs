//! What keys do: the state of the screen, and what is to be asked of the worker for it.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use statcache_model::Policy;
use std::path::PathBuf;

use super::content::{Content, Leads, Page, Request, View};
use crate::analysis::By;
use crate::profile::types::LINE_SIZES;
use crate::report::Style;

/// What misses can be listed by, and the keys for it.
pub const KINDS: [(char, By); 5] = [
    ('l', By::Line),
    ('f', By::Function),
    ('d', By::Data),
    ('o', By::Object),
    ('i', By::Instruction),
];

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// To draw what there is.
    Draw,
    /// To ask the worker for [`State::request`].
    Ask,
    /// To end.
    Quit,
}

/// The screen.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// What is asked for.
    pub request: Request,
    /// Selected row of a table.
    pub selected: usize,
    /// First line of a text that is shown.
    pub scroll: usize,
    /// Line of the source that is to be seen, until it was shown.
    pub seek: Option<u32>,
    /// Whether the keys are explained.
    pub help: bool,
    /// Whether the worker has been asked and has not answered.
    pub is_waiting: bool,
    /// Rows and lines that the page had room for when it was last drawn.
    pub room: usize,
}

impl State {
    /// The first of a session.
    #[must_use]
    pub fn new(profile: PathBuf, style: Style) -> Self {
        Self {
            request: Request::new(profile, style),
            selected: 0,
            scroll: 0,
            seek: None,
            help: false,
            is_waiting: true,
            room: 20,
        }
    }

    /// What a key does to it, where `content` is shown.
    pub fn key(&mut self, key: KeyEvent, content: Option<&Content>) -> Action {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Action::Quit,
                _ => Action::Draw,
            };
        }
        if std::mem::take(&mut self.help) && key.code != KeyCode::Char('q') {
            return Action::Draw;
        }
        match key.code {
            KeyCode::Char('q') => Action::Quit,
            KeyCode::Char('?' | 'h') => {
                self.help = true;
                Action::Draw
            }
            KeyCode::Char(digit @ '1'..='4') => self.view(View::ALL[digit as usize - '1' as usize]),
            KeyCode::Tab | KeyCode::Right => self.next_view(1),
            KeyCode::BackTab | KeyCode::Left => self.next_view(View::ALL.len() - 1),
            KeyCode::Esc => match self.request.view {
                View::Source => self.view(View::Misses),
                _ => Action::Draw,
            },
            KeyCode::Enter => self.enter(content),
            KeyCode::Char('c') => self.next_cache(content),
            KeyCode::Char('s') => {
                let at = LINE_SIZES
                    .iter()
                    .position(|&l| l == self.request.line_bytes);
                let next = at.map_or(0, |at| (at + 1) % LINE_SIZES.len());
                self.request.line_bytes = LINE_SIZES[next];
                Action::Ask
            }
            KeyCode::Char('p') => {
                self.request.policy = match self.request.policy {
                    Policy::Random { .. } => Policy::LRU,
                    Policy::Lru { .. } => Policy::RANDOM,
                };
                Action::Ask
            }
            KeyCode::Char(letter) => match KINDS.iter().find(|(key, _)| *key == letter) {
                Some(&(_, by)) => {
                    self.request.by = by;
                    self.view(View::Misses)
                }
                None => self.walk(key.code, content),
            },
            code => self.walk(code, content),
        }
    }

    fn view(&mut self, view: View) -> Action {
        self.request.view = view;
        (self.selected, self.scroll) = (0, 0);
        Action::Ask
    }

    fn next_view(&mut self, by: usize) -> Action {
        let now = View::ALL.iter().position(|&v| v == self.request.view);
        self.view(View::ALL[(now.unwrap_or(0) + by) % View::ALL.len()])
    }

    fn next_cache(&mut self, content: Option<&Content>) -> Action {
        let Some(content) = content else {
            return Action::Draw;
        };
        self.request.cache = Some((content.ranking + 1) % content.caches.len());
        Action::Ask
    }

    fn enter(&mut self, content: Option<&Content>) -> Action {
        let Some(Page::Table { rows, .. }) = content.map(|content| &content.page) else {
            return Action::Draw;
        };
        match rows.get(self.selected).map(|row| row.leads.clone()) {
            Some(Leads::Source(wanted, line)) => {
                self.request.source = Some(wanted);
                self.seek = (line > 0).then_some(line);
                self.view(View::Source)
            }
            Some(Leads::Process(pid)) => {
                self.request.process = Some(pid);
                self.request.source = None;
                self.view(View::Misses)
            }
            Some(Leads::Profile(profile)) => {
                self.request = Request {
                    view: View::Misses,
                    ..Request::new(profile, self.request.style)
                };
                self.view(View::Misses)
            }
            Some(Leads::Nowhere) | None => Action::Draw,
        }
    }

    /// Up and down.
    fn walk(&mut self, code: KeyCode, content: Option<&Content>) -> Action {
        let page = self.room.saturating_sub(1).max(1);
        let (place, last) = match content.map(|content| &content.page) {
            Some(Page::Table { rows, .. }) => (&mut self.selected, rows.len().saturating_sub(1)),
            Some(Page::Text(text)) => {
                let lines = text.lines().count();
                (&mut self.scroll, lines.saturating_sub(self.room))
            }
            None => return Action::Draw,
        };
        *place = match code {
            KeyCode::Up | KeyCode::Char('k') => place.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => *place + 1,
            KeyCode::PageUp => place.saturating_sub(page),
            KeyCode::PageDown | KeyCode::Char(' ') => *place + page,
            KeyCode::Home | KeyCode::Char('g') => 0,
            KeyCode::End | KeyCode::Char('G') => last,
            _ => *place,
        }
        .min(last);
        Action::Draw
    }

    /// A new content has come: what is selected stays within it, and a line that was looked for is shown.
    pub fn answered(&mut self, content: &Content) {
        if content.request == self.request {
            self.is_waiting = false;
        }
        match &content.page {
            Page::Table { rows, .. } => {
                self.selected = self.selected.min(rows.len().saturating_sub(1));
            }
            Page::Text(text) => {
                if content.request.view == View::Source
                    && let Some(line) = self.seek.take()
                {
                    self.scroll = line_of(text, line).saturating_sub(self.room / 3);
                }
                let last = text.lines().count().saturating_sub(self.room);
                self.scroll = self.scroll.min(last);
            }
        }
    }
}

/// Where in an annotated source a line is, counted from 0.
fn line_of(text: &str, line: u32) -> usize {
    let number = line.to_string();
    let is_it = |text: &str| {
        let mut words = text.split_whitespace().map(bare);
        // The number is the word before the bar.
        let bar = words.position(|word| word == "│" || word == "|");
        let before = bar.and_then(|bar| text.split_whitespace().nth(bar.checked_sub(1)?));
        before.is_some_and(|word| bare(word) == number)
    };
    text.lines().position(is_it).unwrap_or(0)
}

/// A word without the codes for colours that it holds.
fn bare(word: &str) -> String {
    let mut out = String::new();
    let mut rest = word;
    while let Some(at) = rest.find('\x1b') {
        out.push_str(&rest[..at]);
        rest = rest[at..].split_once('m').map_or("", |(_, rest)| rest);
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::super::content::Line;
    use super::*;

    const STYLE: Style = Style {
        width: 80,
        colour: false,
        unicode: true,
    };

    fn key(code: KeyCode) -> KeyEvent {
        KeyEvent::new(code, KeyModifiers::NONE)
    }

    /// A state that keys were pressed in one after the other, where `page` is shown.
    fn pressed(keys: &[KeyCode], page: Page) -> State {
        let mut state = State::new("p".into(), STYLE);
        let content = Content {
            request: state.request.clone(),
            command: String::new(),
            facts: String::new(),
            is_live: false,
            caches: vec!["L1".into(), "L2".into()],
            ranking: 1,
            page,
        };
        for &code in keys {
            state.key(key(code), Some(&content));
        }
        state
    }

    fn rows(leads: &[Leads]) -> Page {
        let line = |leads: &Leads| Line {
            cells: vec![String::new()],
            share: 0.0,
            weak: false,
            leads: leads.clone(),
            code: None,
            why: Vec::new(),
        };
        Page::Table {
            title: String::new(),
            heads: vec![String::new()],
            rows: leads.iter().map(line).collect(),
        }
    }

    #[test]
    fn a_row_is_walked_to_and_leads_to_its_source() {
        let page = rows(&[
            Leads::Nowhere,
            Leads::Process(7),
            Leads::Source("a.c".into(), 31),
        ]);
        let state = pressed(&[KeyCode::Down; 9], page.clone());
        assert_eq!(state.selected, 2, "the last one");
        let state = pressed(&[KeyCode::End, KeyCode::Enter], page.clone());
        assert_eq!(state.request.view, View::Source);
        assert_eq!(state.request.source.as_deref(), Some("a.c"));
        assert_eq!((state.seek, state.selected), (Some(31), 0));
        let state = pressed(&[KeyCode::Char('j'), KeyCode::Enter], page.clone());
        assert_eq!(state.request.process, Some(7));
        let state = pressed(&[KeyCode::Enter, KeyCode::Up], page);
        assert_eq!((state.request.view, state.selected), (View::Misses, 0));
    }

    #[test]
    fn lists_caches_line_sizes_and_policies_have_keys() {
        let page = || rows(&[]);
        let state = pressed(&[KeyCode::Char('2')], page());
        assert_eq!(state.request.view, View::WorkingSet);
        let state = pressed(&[KeyCode::BackTab, KeyCode::Char('d')], page());
        assert_eq!(
            (state.request.view, state.request.by),
            (View::Misses, By::Data)
        );
        let state = pressed(&[KeyCode::Char('c')], page());
        assert_eq!(state.request.cache, Some(0), "behind the last the first");
        let state = pressed(&[KeyCode::Char('s'); 3], page());
        assert_eq!(state.request.line_bytes, 16, "64, 128, 256, 16");
        let state = pressed(&[KeyCode::Char('p')], page());
        assert_eq!(state.request.policy, Policy::LRU);
    }

    #[test]
    fn keys_end_it_and_the_next_key_ends_the_help() {
        let mut state = State::new("p".into(), STYLE);
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(state.key(control_c, None), Action::Quit);
        assert_eq!(state.key(key(KeyCode::Char('q')), None), Action::Quit);
        state.key(key(KeyCode::Char('?')), None);
        assert!(state.help);
        assert_eq!(state.key(control_c, None), Action::Quit);
        state.key(key(KeyCode::Char('2')), None);
        assert!(!state.help && state.request.view == View::Misses);
    }

    #[test]
    fn a_line_of_source_is_found_by_its_number() {
        let text = "a.c ──\n/x/a.c\n misses\n                 30 │ a 31 | b\n\x1b[31m 3.1 %\x1b[0m \x1b[2m   31\x1b[0m \x1b[2m│\x1b[0m c\n";
        assert_eq!((line_of(text, 30), line_of(text, 31)), (3, 4));
        assert_eq!(line_of(text, 99), 0);
    }
}
