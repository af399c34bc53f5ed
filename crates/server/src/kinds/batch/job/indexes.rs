//! Parsing of completion indexes, for example `1,3-5,7`.

/// Counts the indexes, which must be less than `completions` (`validateIndexesFormat`).
pub(super) fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    Ok(parse_intervals(text, completions)?.iter().map(|(first, last)| last - first + 1).sum())
}

/// Parses the intervals: first and last index of each, in ascending order.
pub(super) fn parse_intervals(text: &str, completions: i64) -> Result<Vec<(i64, i64)>, String> {
    let mut all: Vec<(i64, i64)> = Vec::new();
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let (first, last) = parse_interval(part, completions)?;
        if let Some((_, before)) = all.last().filter(|(_, before)| *before >= first) {
            return Err(format!("non-increasing order, previous: {before}, current: {first}"));
        }
        all.push((first, last));
    }
    Ok(all)
}

fn parse_interval(part: &str, completions: i64) -> Result<(i64, i64), String> {
    let index = |text: &str| {
        let parsed = text.parse::<i64>();
        let index = parsed.map_err(|_| format!("cannot convert string to integer for index: {text:?}"))?;
        if index >= completions { Err(format!("too large index: {text:?}")) } else { Ok(index) }
    };
    let mut ends = part.split('-');
    let (first, last) = (ends.next().unwrap_or(""), ends.next());
    if ends.next().is_some() {
        let why = "violates the requirement that an index interval can have at most two parts separated by '-'";
        return Err(format!("the fragment {part:?} {why}"));
    }
    let first = index(first)?;
    match last.map(index).transpose()? {
        None => Ok((first, first)),
        Some(last) if first < last => Ok((first, last)),
        Some(last) => Err(format!("non-increasing order, previous: {first}, current: {last}")),
    }
}

#[cfg(test)]
mod tests {
    use super::count_indexes;

    #[test]
    fn index_format_is_validated() {
        let check = |text: &str, expected: Result<i64, &str>| {
            assert_eq!(count_indexes(text, 10), expected.map_err(str::to_owned), "{text}");
        };
        check("", Ok(0));
        check("0,2-4,9", Ok(5));
        check("x", Err("cannot convert string to integer for index: \"x\""));
        check("1,", Err("cannot convert string to integer for index: \"\""));
        check("10", Err("too large index: \"10\""));
        check("1-10", Err("too large index: \"10\""));
        check("3-3", Err("non-increasing order, previous: 3, current: 3"));
        check("3,1", Err("non-increasing order, previous: 3, current: 1"));
        let why = "violates the requirement that an index interval can have at most two parts separated by '-'";
        check("1-2-3", Err(&format!("the fragment \"1-2-3\" {why}")));
    }
}
