//! How a terminal is written to: its width, its colours, its characters.
//!
//! Reads no environment itself ([`Style::of_terminal`] is handed what it needs), so every rendering
//! can be tested.

use std::fmt::Write;

/// Widths below and above these are treated as these.
const NARROWEST: usize = 60;
const WIDEST: usize = 160;

/// What the output can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Columns.
    pub width: usize,
    /// ANSI colours.
    pub colour: bool,
    /// Characters beyond ASCII.
    pub unicode: bool,
}

/// A role a piece of text has; roles, not colours, are chosen where text is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// As it comes.
    Plain,
    /// Headings, names.
    Strong,
    /// Secondary: units, explanations, figures not to be leaned on.
    Faint,
    /// A large share.
    Hot,
    /// A change for the better.
    Good,
    /// A noticeable share.
    Warm,
    /// The filled area of the plot.
    Area,
    /// Its uncertain part.
    Haze,
    /// The second curve of the plot.
    Mark,
}

impl Ink {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Strong => "1",
            Self::Faint => "2",
            Self::Hot => "1;31",
            Self::Good => "32",
            Self::Warm => "33",
            Self::Area => "36",
            Self::Haze => "2;36",
            Self::Mark => "1;35",
        }
    }
}

/// What decides the style of an output stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terminal<'a> {
    /// The output is a terminal.
    pub is_terminal: bool,
    /// Its columns, where it has some.
    pub columns: Option<usize>,
    /// `NO_COLOR` (see no-color.org): any value but the empty one turns colours off.
    pub no_color: Option<&'a str>,
    /// `CLICOLOR_FORCE`: colours also into a pipe.
    pub force_color: Option<&'a str>,
    /// `TERM`.
    pub term: Option<&'a str>,
    /// The first that is set and not empty of `LC_ALL`, `LC_CTYPE`, `LANG`.
    pub locale: Option<&'a str>,
    /// `COLUMNS`: decides the width where the output is no terminal.
    pub columns_variable: Option<&'a str>,
}

impl Style {
    /// The style of a stream. Into a pipe: no colours, 100 columns.
    #[must_use]
    pub fn of_terminal(t: &Terminal<'_>) -> Self {
        let set = |v: Option<&str>| v.is_some_and(|v| !v.is_empty());
        let asked = t.columns_variable.and_then(|c| c.parse().ok());
        let width = t.columns.or(asked).unwrap_or(100);
        let forced = set(t.force_color) && t.force_color != Some("0");
        Self {
            width: Self::fitting(width),
            colour: !set(t.no_color)
                && (forced || (t.is_terminal && t.term.is_some_and(|t| t != "dumb"))),
            unicode: t.locale.is_some_and(|l| {
                let l = l.to_ascii_lowercase();
                l.contains("utf-8") || l.contains("utf8")
            }),
        }
    }

    /// The width that text has in a terminal of so many columns.
    #[must_use]
    pub fn fitting(columns: usize) -> usize {
        columns.clamp(NARROWEST, WIDEST)
    }

    /// `text` in the colours of `ink`.
    #[must_use]
    pub fn paint(&self, ink: Ink, text: &str) -> String {
        if !self.colour || ink == Ink::Plain || text.trim().is_empty() {
            return text.to_owned();
        }
        format!("\x1b[{}m{text}\x1b[0m", ink.code())
    }

    /// The character, or what stands for it in ASCII.
    #[must_use]
    pub fn glyph(&self, unicode: &'static str, ascii: &'static str) -> &'static str {
        if self.unicode { unicode } else { ascii }
    }

    /// A heading with a rule up to the right margin; the note beside it, or below where there is no room.
    #[must_use]
    pub fn heading(&self, title: &str, note: &str) -> String {
        let title = fit(title, self.width, self);
        let mut used = title.chars().count();
        let mut out = self.paint(Ink::Strong, &title);
        let wanted = note.chars().count() + 2;
        let beside = used + wanted <= self.width;
        if !note.is_empty() && beside {
            let _ = write!(out, "  {}", self.paint(Ink::Faint, note));
            used += wanted;
        }
        if used + 2 <= self.width {
            let rule = self.glyph("─", "-").repeat(self.width - used - 1);
            let _ = write!(out, " {}", self.paint(Ink::Faint, &rule));
        }
        out.push('\n');
        if !beside {
            // It may say of which cache all below is.
            let lines = wrap(note, self.width, 0);
            for line in lines.lines() {
                let _ = writeln!(out, "{}", self.paint(Ink::Faint, line));
            }
        }
        out
    }
}

/// Cut to `width` characters. Control characters (a symbol or a source line may hold any) are
/// made harmless.
#[must_use]
pub fn fit(text: &str, width: usize, style: &Style) -> String {
    let safe = |c: char| match c {
        '\t' => ' ',
        c if c.is_control() => '?',
        c => c,
    };
    if text.chars().count() <= width {
        return text.chars().map(safe).collect();
    }
    let head: String = text
        .chars()
        .take(width.saturating_sub(1))
        .map(safe)
        .collect();
    format!("{head}{}", style.glyph("…", "~"))
}

/// Like [`fit`], but cut at its beginning: of `file:line` the line must stay.
#[must_use]
pub fn fit_end(text: &str, width: usize, style: &Style) -> String {
    let n = text.chars().count();
    if n <= width {
        return fit(text, width, style);
    }
    let tail: String = text.chars().skip(n + 1 - width.max(1)).collect();
    format!("{}{}", style.glyph("…", "~"), fit(&tail, width, style))
}

/// Notes beside each other in lines of at most `width` characters, broken between notes and behind
/// their commas: in a figure or a name no break would be understood.
#[must_use]
pub fn notes(parts: &[String], width: usize, style: &Style) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    // A comma may follow.
    let room = width.saturating_sub(1);
    for part in parts {
        for (i, piece) in part.split(", ").enumerate() {
            let piece = fit(piece, room, style);
            let joint = if i > 0 {
                ", "
            } else {
                style.glyph(" · ", ", ")
            };
            let n = joint.chars().count() + piece.chars().count();
            match lines.last_mut() {
                Some(line) if line.chars().count() + n <= room => {
                    line.push_str(joint);
                    line.push_str(&piece);
                    continue;
                }
                Some(line) if i > 0 => line.push(','),
                _ => {}
            }
            lines.push(piece);
        }
    }
    lines
}

/// Lines of at most `width` characters, each behind `indent` spaces, broken between words.
#[must_use]
pub fn wrap(text: &str, width: usize, indent: usize) -> String {
    let room = width.saturating_sub(indent).max(20);
    let mut out = String::new();
    let mut column = 0;
    let text = text.replace(|c: char| c.is_control() && !c.is_whitespace(), "?");
    for word in text.split_whitespace() {
        let n = word.chars().count();
        if column > 0 && column + 1 + n > room {
            out.push('\n');
            column = 0;
        }
        if column == 0 {
            out.push_str(&" ".repeat(indent));
        } else {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += n;
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_only_where_they_are_welcome() {
        let tty = Terminal {
            is_terminal: true,
            term: Some("xterm"),
            ..Terminal::default()
        };
        let colour = |t: Terminal<'_>| Style::of_terminal(&t).colour;
        assert!(colour(tty));
        assert!(!colour(Terminal {
            no_color: Some("1"),
            ..tty
        }));
        assert!(colour(Terminal {
            no_color: Some(""),
            ..tty
        }));
        assert!(!colour(Terminal {
            term: Some("dumb"),
            ..tty
        }));
        assert!(!colour(Terminal {
            is_terminal: false,
            ..tty
        }));
        assert!(colour(Terminal {
            is_terminal: false,
            force_color: Some("1"),
            ..tty
        }));
        assert!(!colour(Terminal {
            force_color: Some("1"),
            no_color: Some("1"),
            ..tty
        }));
    }

    #[test]
    fn width_and_characters_follow_the_terminal() {
        let style = |t: Terminal<'_>| Style::of_terminal(&t);
        assert_eq!(style(Terminal::default()).width, 100);
        assert_eq!(
            style(Terminal {
                columns: Some(12),
                ..Terminal::default()
            })
            .width,
            NARROWEST
        );
        assert_eq!(
            style(Terminal {
                columns_variable: Some("80"),
                ..Terminal::default()
            })
            .width,
            80
        );
        assert!(
            style(Terminal {
                locale: Some("de_DE.UTF-8"),
                ..Terminal::default()
            })
            .unicode
        );
        assert!(
            style(Terminal {
                locale: Some("C.utf8"),
                ..Terminal::default()
            })
            .unicode
        );
        assert!(
            !style(Terminal {
                locale: Some("C"),
                ..Terminal::default()
            })
            .unicode
        );
    }

    #[test]
    fn text_is_wrapped_and_cut() {
        assert_eq!(
            wrap("aaa bbb ccc ddd eee fff", 24, 2),
            "  aaa bbb ccc ddd eee\n  fff\n"
        );
        assert_eq!(wrap("a\u{1b}[2Jb c\td", 24, 0), "a?[2Jb c d\n");
        let ascii = Style {
            width: 80,
            colour: false,
            unicode: false,
        };
        assert_eq!(fit("abcdef", 4, &ascii), "abc~");
        assert_eq!(fit("abc", 4, &ascii), "abc");
        assert_eq!(fit("a\u{1b}[31mb", 20, &ascii), "a?[31mb");
        assert_eq!(fit_end("long-name.S:236", 9, &ascii), "~me.S:236");
        assert_eq!(fit_end("a.S:236", 9, &ascii), "a.S:236");
    }

    #[test]
    fn notes_break_between_each_other_and_behind_commas() {
        let parts = ["heap".to_owned(), "by line 7 93 %, itself 3 %".to_owned()];
        let style = Style {
            width: 80,
            colour: false,
            unicode: true,
        };
        let broken = |width| notes(&parts, width, &style);
        assert_eq!(broken(34), ["heap · by line 7 93 %, itself 3 %"]);
        assert_eq!(broken(33), ["heap · by line 7 93 %,", "itself 3 %"]);
        assert_eq!(broken(16), ["heap", "by line 7 93 %,", "itself 3 %"]);
    }
}
