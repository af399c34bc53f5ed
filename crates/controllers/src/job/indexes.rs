//! Sets of completion indexes in the notation of a Job's status: `1,3-5,7`. They are stored as ranges, because
//! clients may write ranges of any length.

use std::fmt;

/// Inclusive ranges of indexes, sorted, disjoint and not adjacent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Indexes(Vec<(i32, i32)>);

impl Indexes {
    /// Parses the indexes below `completions`. Invalid parts are skipped.
    pub(super) fn parse(text: &str, completions: i32) -> Self {
        let run = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.parse::<i32>().ok()?.max(0), last.parse::<i32>().ok()?);
            Some((first, last.min(completions.saturating_sub(1)))).filter(|(first, last)| first <= last)
        };
        Self::of(text.split(',').filter_map(run).collect())
    }

    /// Returns the union of sets.
    pub(super) fn any_of<'a>(sets: impl IntoIterator<Item = &'a Self>) -> Self {
        Self::of(sets.into_iter().flat_map(|set| set.0.iter().copied()).collect())
    }

    fn of(mut runs: Vec<(i32, i32)>) -> Self {
        runs.sort_unstable();
        let mut joined: Vec<(i32, i32)> = Vec::with_capacity(runs.len());
        for (first, last) in runs {
            match joined.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => joined.push((first, last)),
            }
        }
        Self(joined)
    }

    /// Iterates over the indexes below `completions` that the set does not contain.
    pub(super) fn missing(&self, completions: i32) -> impl Iterator<Item = i32> {
        let begins = std::iter::once(0).chain(self.0.iter().map(|(_, last)| last.saturating_add(1)));
        let ends = self.0.iter().map(|(first, _)| *first).chain([completions]);
        begins.zip(ends).flat_map(move |(begin, end)| begin..end.min(completions))
    }

    pub(super) fn has(&self, index: i32) -> bool {
        self.0[..self.behind(index)].last().is_some_and(|(_, last)| *last >= index)
    }

    pub(super) fn add(&mut self, index: i32) {
        if self.has(index) {
            return;
        }
        let at = self.behind(index);
        let follows = at > 0 && self.0[at - 1].1 + 1 == index;
        let leads = self.0.get(at).is_some_and(|(first, _)| *first - 1 == index);
        match (follows, leads) {
            (true, true) => self.0[at - 1].1 = self.0.remove(at).1,
            (true, false) => self.0[at - 1].1 = index,
            (false, true) => self.0[at].0 = index,
            (false, false) => self.0.insert(at, (index, index)),
        }
    }

    /// Returns the position of the first range that begins after the index.
    fn behind(&self, index: i32) -> usize {
        self.0.partition_point(|(first, _)| *first <= index)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn total(&self) -> i32 {
        self.0.iter().fold(0, |sum, run| sum.saturating_add(length(*run)))
    }

    /// Returns the number of indexes in both sets.
    pub(super) fn common(&self, other: &Self) -> i32 {
        let (mut left, mut right) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut sum = 0_i32;
        while let (Some(l), Some(r)) = (left.peek(), right.peek()) {
            sum = sum.saturating_add(length((l.0.max(r.0), l.1.min(r.1))));
            // The range that ends first overlaps no further range.
            if l.1 < r.1 {
                left.next()
            } else {
                right.next()
            };
        }
        sum
    }
}

/// Returns the number of indexes of a range; 0 if it is empty.
fn length((first, last): (i32, i32)) -> i32 {
    last.saturating_sub(first).saturating_add(1).max(0)
}

impl FromIterator<i32> for Indexes {
    fn from_iter<I: IntoIterator<Item = i32>>(indexes: I) -> Self {
        Self::of(indexes.into_iter().map(|index| (index, index)).collect())
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let run = |(first, last): &(i32, i32)| match length((*first, *last)) {
            1 => first.to_string(),
            2 => format!("{first},{last}"),
            _ => format!("{first}-{last}"),
        };
        f.write_str(&self.0.iter().map(run).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_formatted_as_ranges() {
        let all: Indexes = [7, 1, 3, 4, 5, 9, 10].into_iter().collect();
        assert_eq!(all.to_string(), "1,3-5,7,9,10");
        assert_eq!(Indexes::parse("1,3-5,7,9,10", 20), all);
        assert_eq!(Indexes::default().to_string(), "");
    }

    #[test]
    fn invalid_indexes_are_skipped_when_parsed() {
        assert_eq!(Indexes::parse("0,3-9,x,12,4-2,-1-1", 5).to_string(), "0,3,4");
        assert!(Indexes::parse("", 5).is_empty() && Indexes::parse("0-9", 0).is_empty());
    }

    #[track_caller]
    fn check(left: &str, right: &str, any: &str, common: i32, missing: &[i32]) {
        let (left, right) = (Indexes::parse(left, 12), Indexes::parse(right, 12));
        let both = Indexes::any_of([&left, &right]);
        assert_eq!((both.to_string().as_str(), left.common(&right), right.common(&left)), (any, common, common));
        assert_eq!(both.missing(12).collect::<Vec<_>>(), missing);
        assert_eq!(both.total() + common, left.total() + right.total());
    }

    #[test]
    fn index_sets_have_union_intersection_and_complement() {
        check("", "", "", 0, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
        check("0-4", "5-11", "0-11", 0, &[]);
        check("1-3,7", "2-8", "1-8", 3, &[0, 9, 10, 11]);
        check("0,2,4-9", "1,6,11", "0-2,4-9,11", 1, &[3, 10]);
        check("0-11", "3,5", "0-11", 2, &[]);
    }

    #[test]
    fn added_index_is_merged_with_adjacent_ranges() {
        let mut all = Indexes::default();
        for (index, expected) in
            [(5, "5"), (7, "5,7"), (6, "5-7"), (6, "5-7"), (9, "5-7,9"), (8, "5-9"), (4, "4-9"), (0, "0,4-9")]
        {
            all.add(index);
            assert_eq!(all.to_string(), expected);
        }
        let has: Vec<i32> = (0..12).filter(|index| all.has(*index)).collect();
        assert_eq!(has, [0, 4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn long_ranges_are_handled_without_expansion() {
        let highest = i32::MAX;
        let all = Indexes::parse("0-2147483647", highest);
        let some = Indexes::parse("5-2147483646", highest);
        assert_eq!((all.total(), some.total(), all.common(&some)), (highest, highest - 5, highest - 5));
        assert_eq!(some.missing(highest).take(9).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    }
}
