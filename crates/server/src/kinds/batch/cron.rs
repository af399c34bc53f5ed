//! Whether text is a schedule, in the words of the parser that upstream uses (`robfig/cron`).

/// Name, least and greatest number of each field.
const FIELDS: [(u32, u32, &[&str]); 5] = [
    (0, 59, &[]),
    (0, 23, &[]),
    (1, 31, &[]),
    (1, 12, &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]),
    (0, 6, &["sun", "mon", "tue", "wed", "thu", "fri", "sat"]),
];
const NAMED: [&str; 7] = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

/// Checks a schedule.
pub(super) fn check(schedule: &str) -> Result<(), String> {
    // A zone in the schedule was never supported, and is refused where it would be new.
    if schedule.contains("TZ") {
        return Err("cannot use TZ or CRON_TZ in schedule, use timeZone field instead".to_owned());
    }
    if schedule.starts_with('@') {
        return if NAMED.contains(&schedule) { Ok(()) } else { every(schedule) };
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!(
            "expected exactly {} fields, found {}: [{}]",
            FIELDS.len(),
            fields.len(),
            fields.join(" ")
        ));
    }
    fields.iter().zip(FIELDS).try_for_each(|(field, bounds)| field.split(',').try_for_each(|part| range(part, bounds)))
}

/// `@every 1h30m`
fn every(schedule: &str) -> Result<(), String> {
    let unknown = || format!("unrecognized descriptor: {schedule}");
    let text = schedule.strip_prefix("@every ").ok_or_else(unknown)?;
    let failed = || format!("failed to parse duration {schedule}: time: invalid duration {text:?}");
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(failed)?;
        let unit = ["ms", "us", "ns", "h", "m", "s"].into_iter().find(|u| rest[digits..].starts_with(u));
        let unit = unit.filter(|_| digits > 0).ok_or_else(failed)?;
        rest = &rest[digits + unit.len()..];
    }
    if text.is_empty() { Err(failed()) } else { Ok(()) }
}

/// `*`, `?`, `5`, `1-5`, `*/2`, `1-10/3`, `mon-fri`.
fn range(text: &str, (least, greatest, names): (u32, u32, &[&str])) -> Result<(), String> {
    let number = |part: &str| {
        let named = names.iter().position(|n| n.eq_ignore_ascii_case(part)).and_then(|at| u32::try_from(at).ok());
        let parsed = named.map(|at| at + least).or_else(|| part.parse().ok());
        parsed.ok_or_else(|| format!("failed to parse int from {part}: strconv.Atoi: parsing {part:?}: invalid syntax"))
    };
    let mut parts = text.split('/');
    let (base, step) = (parts.next().unwrap_or(""), parts.next());
    if parts.next().is_some() {
        return Err(format!("too many slashes: {text}"));
    }
    let mut ends = base.split('-');
    let (from, to) = (ends.next().unwrap_or(""), ends.next());
    if ends.next().is_some() {
        return Err(format!("too many hyphens: {text}"));
    }
    let (start, end) = match (from, to) {
        ("*" | "?", _) => (least, greatest),
        (from, Some(to)) => (number(from)?, number(to)?),
        (from, None) if step.is_some() => (number(from)?, greatest),
        (from, None) => (number(from)?, number(from)?),
    };
    if let Some(step) = step
        && number(step)? == 0
    {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    if start < least {
        return Err(format!("beginning of range ({start}) below minimum ({least}): {text}"));
    }
    if end > greatest {
        return Err(format!("end of range ({end}) above maximum ({greatest}): {text}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_schedule_is_read_as_upstream_reads_it() {
        let check = |schedule: &str, expected: &str| {
            assert_eq!(super::check(schedule).err().unwrap_or_default(), expected, "{schedule}");
        };
        for good in ["* * * * *", "*/5 0-3,5 1 JAN mon-fri", "? 1/2 * * 0", "@hourly", "@every 1h30m", "0 0 31 12 6"] {
            check(good, "");
        }
        check("hourly", "expected exactly 5 fields, found 1: [hourly]");
        check("60 * * * *", "end of range (60) above maximum (59): 60");
        check("* * 0 * *", "beginning of range (0) below minimum (1): 0");
        check("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1");
        check("*/0 * * * *", "step of range should be a positive number: */0");
        check("1-2-3 * * * *", "too many hyphens: 1-2-3");
        check("1/2/3 * * * *", "too many slashes: 1/2/3");
        check("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax");
        check("@often", "unrecognized descriptor: @often");
        check("@every soon", "failed to parse duration @every soon: time: invalid duration \"soon\"");
        check("TZ=UTC * * * * *", "cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
    }
}
