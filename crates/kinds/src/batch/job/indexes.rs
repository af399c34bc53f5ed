//! Parsing of completion indexes, for example `1,3-5,7`.

/// Invalid completion indexes, with upstream's message.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ParseIndexesError {
    #[error("non-increasing order, previous: {previous}, current: {current}")]
    Order { previous: i64, current: i64 },
    #[error("cannot convert string to integer for index: {0:?}")]
    NotAnInteger(String),
    #[error("too large index: {0:?}")]
    TooLarge(String),
    #[error(
        "the fragment {0:?} violates the requirement that an index interval can have at most two parts separated by '-'"
    )]
    TooManyParts(String),
}

/// Counts the indexes, which must be less than `completions` (`validateIndexesFormat`).
pub(super) fn count_indexes(text: &str, completions: i64) -> Result<i64, ParseIndexesError> {
    Ok(parse_intervals(text, completions)?.iter().map(|(first, last)| last - first + 1).sum())
}

/// Parses the intervals: first and last index of each, in ascending order.
pub(super) fn parse_intervals(text: &str, completions: i64) -> Result<Vec<(i64, i64)>, ParseIndexesError> {
    let mut all: Vec<(i64, i64)> = Vec::new();
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let (first, last) = parse_interval(part, completions)?;
        if let Some((_, before)) = all.last().filter(|(_, before)| *before >= first) {
            return Err(ParseIndexesError::Order { previous: *before, current: first });
        }
        all.push((first, last));
    }
    Ok(all)
}

fn parse_interval(part: &str, completions: i64) -> Result<(i64, i64), ParseIndexesError> {
    let index = |text: &str| {
        let parsed = text.parse::<i64>();
        let index = parsed.map_err(|_| ParseIndexesError::NotAnInteger(text.to_owned()))?;
        if index >= completions { Err(ParseIndexesError::TooLarge(text.to_owned())) } else { Ok(index) }
    };
    let mut ends = part.split('-');
    let (first, last) = (ends.next().unwrap_or(""), ends.next());
    if ends.next().is_some() {
        return Err(ParseIndexesError::TooManyParts(part.to_owned()));
    }
    let first = index(first)?;
    match last.map(index).transpose()? {
        None => Ok((first, first)),
        Some(last) if first < last => Ok((first, last)),
        Some(last) => Err(ParseIndexesError::Order { previous: first, current: last }),
    }
}

#[cfg(test)]
mod tests {
    use super::count_indexes;

    #[test]
    fn index_format_is_validated() {
        let check = |text: &str, expected: Result<i64, &str>| {
            let count = count_indexes(text, 10).map_err(|error| error.to_string());
            assert_eq!(count, expected.map_err(str::to_owned), "{text}");
        };
        check("", Ok(0));
        check("0,2-4,9", Ok(5));
        check("x", Err("cannot convert string to integer for index: \"x\""));
        check("1,", Err("cannot convert string to integer for index: \"\""));
        check("10", Err("too large index: \"10\""));
        check("1-10", Err("too large index: \"10\""));
        check("3-3", Err("non-increasing order, previous: 3, current: 3"));
        check("3,1", Err("non-increasing order, previous: 3, current: 1"));
        let detail = "violates the requirement that an index interval can have at most two parts separated by '-'";
        check("1-2-3", Err(&format!("the fragment \"1-2-3\" {detail}")));
    }
}
