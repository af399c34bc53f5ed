//! Sets of completion indexes, as a Job's status writes them: `1,3-5,7`.

use std::collections::BTreeSet;
use std::fmt;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Indexes(BTreeSet<i32>);

impl Indexes {
    /// Those below `completions`; what makes no sense is left out.
    pub(super) fn parse(text: &str, completions: i32) -> Self {
        let mut all = BTreeSet::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            if let (Ok(first), Ok(last)) = (first.parse::<i32>(), last.parse::<i32>()) {
                all.extend(first.max(0)..=last.min(completions - 1));
            }
        }
        Self(all)
    }

    pub(super) fn has(&self, index: i32) -> bool {
        self.0.contains(&index)
    }

    pub(super) fn add(&mut self, index: i32) {
        self.0.insert(index);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn total(&self) -> i32 {
        i32::try_from(self.0.len()).unwrap_or(i32::MAX)
    }

    /// How many are in both.
    pub(super) fn common(&self, other: &Self) -> i32 {
        i32::try_from(self.0.intersection(&other.0).count()).unwrap_or(i32::MAX)
    }
}

impl FromIterator<i32> for Indexes {
    fn from_iter<I: IntoIterator<Item = i32>>(indexes: I) -> Self {
        Self(indexes.into_iter().collect())
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut runs: Vec<(i32, i32)> = Vec::new();
        for index in &self.0 {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == *index => *last = *index,
                _ => runs.push((*index, *index)),
            }
        }
        let run = |(first, last): &(i32, i32)| match last - first {
            0 => first.to_string(),
            1 => format!("{first},{last}"),
            _ => format!("{first}-{last}"),
        };
        f.write_str(&runs.iter().map(run).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_written_in_runs() {
        let all: Indexes = [7, 1, 3, 4, 5, 9, 10].into_iter().collect();
        assert_eq!(all.to_string(), "1,3-5,7,9,10");
        assert_eq!(Indexes::parse("1,3-5,7,9,10", 20), all);
        assert_eq!(Indexes::default().to_string(), "");
    }

    #[test]
    fn indexes_beyond_the_completions_and_what_makes_no_sense_are_left_out() {
        assert_eq!(Indexes::parse("0,3-9,x,12", 5).to_string(), "0,3,4");
        assert!(Indexes::parse("", 5).is_empty());
    }
}
