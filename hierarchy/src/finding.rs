//! A measured value with what speaks for it, and how votes become one.

use serde::{Deserialize, Serialize};

/// How sure a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// No value: see the reason.
    Refused,
    /// One indication; may be wrong.
    Low,
    /// Repeated, not cross-checked.
    Medium,
    /// Repeated in spaced votes and cross-checked.
    High,
}

impl Confidence {
    /// The word printed in tables.
    pub fn word(self) -> &'static str {
        match self {
            Confidence::Refused => "refused",
            Confidence::Low => "low",
            Confidence::Medium => "medium",
            Confidence::High => "high",
        }
    }
}

/// A value, or the reason why there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding<T> {
    /// The value; `None` exactly when the confidence is [`Confidence::Refused`].
    pub value: Option<T>,
    /// How sure it is.
    pub confidence: Confidence,
    /// Votes taken.
    pub votes: u32,
    /// Votes for the value.
    pub agree: u32,
    /// The value with the second most votes.
    pub runner_up: Option<T>,
    /// Why it was refused, or what limits the confidence; empty when there is nothing to say.
    pub reason: String,
}

impl<T> Finding<T> {
    /// No value.
    pub fn refused(reason: impl Into<String>) -> Self {
        Finding {
            value: None,
            confidence: Confidence::Refused,
            votes: 0,
            agree: 0,
            runner_up: None,
            reason: reason.into(),
        }
    }

    /// A value from a single line of evidence.
    pub fn new(value: T, confidence: Confidence, reason: impl Into<String>) -> Self {
        Finding {
            value: Some(value),
            confidence,
            votes: 1,
            agree: 1,
            runner_up: None,
            reason: reason.into(),
        }
    }

    /// Lowers the confidence to at most `limit`, saying why.
    #[must_use]
    pub fn at_most(mut self, limit: Confidence, why: &str) -> Self {
        if self.confidence > limit {
            self.confidence = limit;
            if !self.reason.is_empty() {
                self.reason.push_str("; ");
            }
            self.reason.push_str(why);
        }
        self
    }

    /// The value turned into another.
    pub fn map<U>(self, f: impl Fn(T) -> U) -> Finding<U> {
        Finding {
            value: self.value.map(&f),
            confidence: self.confidence,
            votes: self.votes,
            agree: self.agree,
            runner_up: self.runner_up.map(&f),
            reason: self.reason,
        }
    }
}

/// Plurality of votes; undecided votes (`None`) count against.
///
/// High confidence needs 4 agreeing votes and four fifths of all, medium 2 and three fifths; below half
/// of the votes, or with a runner-up as strong as half the winner, the value is refused.
pub fn plurality<T: PartialEq + Clone>(votes: &[Option<T>]) -> Finding<T> {
    let mut counts: Vec<(T, u32)> = Vec::new();
    for v in votes.iter().flatten() {
        match counts.iter_mut().find(|(u, _)| u == v) {
            Some((_, n)) => *n += 1,
            None => counts.push((v.clone(), 1)),
        }
    }
    counts.sort_by_key(|c| std::cmp::Reverse(c.1));
    let total = votes.len() as u32;
    let Some((value, agree)) = counts.first().cloned() else {
        let mut f = Finding::refused(if total == 0 {
            "not measured"
        } else {
            "no vote came to a result"
        });
        f.votes = total;
        return f;
    };
    let second = counts.get(1).map_or(0, |c| c.1);
    let runner_up = counts.get(1).map(|c| c.0.clone());
    let share = f64::from(agree) / f64::from(total);
    let confidence = if agree >= 4 && share >= 0.8 {
        Confidence::High
    } else if agree >= 2 && share >= 0.6 {
        Confidence::Medium
    } else if share >= 0.5 && second * 2 <= agree {
        Confidence::Low
    } else {
        Confidence::Refused
    };
    let reason = match confidence {
        Confidence::Refused => {
            format!("votes disagree: {agree} of {total} for the most frequent value")
        }
        Confidence::High => String::new(),
        _ => format!("{agree} of {total} votes"),
    };
    let value = (confidence != Confidence::Refused).then_some(value);
    Finding {
        value,
        confidence,
        votes: total,
        agree,
        runner_up,
        reason,
    }
}

/// The `q` quantile of some numbers (nearest rank); `None` when there are none.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut v: Vec<f64> = values.iter().copied().filter(|x| x.is_finite()).collect();
    v.sort_by(f64::total_cmp);
    let at = (q * (v.len().max(1) - 1) as f64).round() as usize;
    v.get(at).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn votes_become_a_value_only_when_they_agree() {
        let f = plurality(&[Some(8), Some(8), Some(8), Some(8), Some(9)]);
        assert_eq!(
            (f.value, f.confidence, f.runner_up),
            (Some(8), Confidence::High, Some(9))
        );
        let f = plurality(&[Some(8), Some(9), Some(10), None]);
        assert_eq!((f.value, f.confidence), (None, Confidence::Refused));
        assert_eq!(plurality::<u32>(&[None]).value, None);
        assert_eq!(plurality(&[Some(1)]).confidence, Confidence::Low);
    }

    #[test]
    fn quantiles_are_ranks() {
        assert_eq!(quantile(&[3.0, 1.0, 2.0], 0.5), Some(2.0));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
