//! Schedules of CronJobs, with the grammar, the words and the meaning of the parser that upstream uses (`robfig/cron`,
//! `ParseStandard`): five fields, names, `?`, `@hourly` and its like, `@every 1h30m`.
//!
//! No crate has this grammar: those that are well kept refuse `@every`, take 7 for Sunday, or read seconds first.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// Least and greatest number of each field, and what they may be called.
const FIELDS: [Bounds; 5] = [
    (0, 59, &[]),
    (0, 23, &[]),
    (1, 31, &[]),
    (1, 12, &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]),
    (0, 6, &["sun", "mon", "tue", "wed", "thu", "fri", "sat"]),
];
/// Those that have a name.
const NAMED: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];
const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];
/// What does not come within so many years never comes: the 31st of February.
const YEARS: i16 = 5;

type Bounds = (u32, u32, &'static [&'static str]);

/// Why text is no schedule, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unparseable(String);

/// When something is to happen again and again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Schedule {
    /// At the minutes that fit.
    Times(Times),
    /// Each time so long after the last, in whole seconds.
    Every(SignedDuration),
}

/// The minutes that fit: of each field, a bit for each number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Times {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether one of the fields for days says nothing (`*`): else a day fits that one of both names.
    both: bool,
}

/// The numbers of a field, and whether it says nothing of them.
struct Numbers {
    bits: u64,
    star: bool,
}

impl Schedule {
    /// Reads a schedule.
    ///
    /// # Errors
    /// In upstream's words, when it is none.
    pub fn parse(text: &str) -> Result<Self, Unparseable> {
        if text.starts_with('@') {
            return match NAMED.iter().find(|(name, _)| *name == text) {
                Some((_, fields)) => Self::parse(fields),
                None => every(text),
            };
        }
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields.as_slice() else {
            let (count, found, shown) = (FIELDS.len(), fields.len(), fields.join(" "));
            return Err(Unparseable(format!("expected exactly {count} fields, found {found}: [{shown}]")));
        };
        let [m, h, d, mo, w] = FIELDS;
        let (minutes, hours) = (field(minutes, m)?.bits, field(hours, h)?.bits);
        let (days, months, weekdays) = (field(days, d)?, field(months, mo)?.bits, field(weekdays, w)?);
        let both = days.star || weekdays.star;
        Ok(Self::Times(Times { minutes, hours, days: days.bits, months, weekdays: weekdays.bits, both }))
    }

    /// The first moment after `after` that fits, as clocks of `zone` show it; `None` if there is none within five years.
    ///
    /// A time that clocks skip in spring does not come on that day; one that they show twice in autumn comes twice.
    #[must_use]
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let second = Timestamp::from_second(after.as_second()).ok()?;
        match self {
            Self::Every(pause) => second.checked_add(*pause).ok(),
            Self::Times(times) => times.next(second.checked_add(SignedDuration::from_secs(1)).ok()?, zone),
        }
    }
}

impl Times {
    fn next(&self, mut at: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let last = at.to_zoned(zone.clone()).year().saturating_add(YEARS);
        loop {
            let local = at.to_zoned(zone.clone());
            if local.year() > last {
                return None;
            }
            if !self.has_day(local.date()) {
                at = local.date().tomorrow().ok()?.to_zoned(zone.clone()).ok()?.timestamp();
                continue;
            }
            let fits = local.second() == 0 && has(self.hours, local.hour()) && has(self.minutes, local.minute());
            if fits {
                return Some(at);
            }
            at = at.checked_add(SignedDuration::from_secs(60 - i64::from(local.second()))).ok()?;
        }
    }

    fn has_day(&self, date: Date) -> bool {
        let (day, weekday) = (has(self.days, date.day()), has(self.weekdays, date.weekday().to_sunday_zero_offset()));
        has(self.months, date.month()) && if self.both { day && weekday } else { day || weekday }
    }
}

fn has(bits: u64, number: i8) -> bool {
    u32::try_from(number).is_ok_and(|number| bits & (1 << number) != 0)
}

/// `@every 1h30m`: at least a second, and no parts of seconds.
fn every(text: &str) -> Result<Schedule, Unparseable> {
    let Some(duration) = text.strip_prefix("@every ") else {
        return Err(Unparseable(format!("unrecognized descriptor: {text}")));
    };
    let nanos = duration_of(duration)
        .map_err(|why| Unparseable(format!("failed to parse duration {text}: time: {why} {duration:?}")))?;
    let seconds = i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX);
    Ok(Schedule::Every(SignedDuration::from_secs(seconds.max(1))))
}

/// As Go's `time.ParseDuration`, in nanoseconds.
fn duration_of(text: &str) -> Result<i128, String> {
    const INVALID: &str = "invalid duration";
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(INVALID.to_owned());
    }
    let mut sum: i128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && part.is_empty()) || part.contains('.') {
            return Err(INVALID.to_owned());
        }
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        if unit.is_empty() {
            return Err("missing unit in duration".to_owned());
        }
        let Some((_, nanos)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(format!("unknown unit {unit:?} in duration"));
        };
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| INVALID.to_owned())? };
        // More digits than these are less than a nanosecond.
        let part: String = part.chars().chain(std::iter::repeat('0')).take(15).collect();
        let part: i128 = part.parse().map_err(|_| INVALID.to_owned())?;
        let all = whole.checked_mul(*nanos).and_then(|n| n.checked_add(part * nanos / 1_000_000_000_000_000));
        sum = all.and_then(|all| all.checked_add(sum)).ok_or(INVALID)?;
        if sum > i128::from(i64::MAX) {
            return Err(INVALID.to_owned());
        }
        rest = after;
    }
    Ok(sign * sum)
}

fn field(text: &str, bounds: Bounds) -> Result<Numbers, Unparseable> {
    let mut all = Numbers { bits: 0, star: false };
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let part = range(part, bounds)?;
        all = Numbers { bits: all.bits | part.bits, star: all.star || part.star };
    }
    Ok(all)
}

/// `*`, `?`, `5`, `1-5`, `*/2`, `1-10/3`, `mon-fri`.
fn range(text: &str, (least, greatest, names): Bounds) -> Result<Numbers, Unparseable> {
    let number = |part: &str| {
        let named = names.iter().position(|n| n.eq_ignore_ascii_case(part)).and_then(|at| u32::try_from(at).ok());
        let parsed = named.map(|at| at + least).or_else(|| part.parse().ok());
        parsed.ok_or_else(|| {
            Unparseable(format!("failed to parse int from {part}: strconv.Atoi: parsing {part:?}: invalid syntax"))
        })
    };
    let wrong = |why: String| Err(Unparseable(format!("{why}: {text}")));
    let mut parts = text.split('/');
    let (base, step) = (parts.next().unwrap_or(""), parts.next());
    let mut ends = base.split('-');
    let (from, to) = (ends.next().unwrap_or(""), ends.next());
    let star = matches!(from, "*" | "?");
    let (start, end) = match (star, to) {
        (true, _) => (least, greatest),
        (false, Some(_)) if ends.next().is_some() => return wrong("too many hyphens".to_owned()),
        (false, Some(to)) => (number(from)?, number(to)?),
        (false, None) if step.is_some() => (number(from)?, greatest),
        (false, None) => (number(from)?, number(from)?),
    };
    if parts.next().is_some() {
        return wrong("too many slashes".to_owned());
    }
    let step = step.map_or(Ok(1), number)?;
    if start < least {
        return wrong(format!("beginning of range ({start}) below minimum ({least})"));
    }
    if end > greatest {
        return wrong(format!("end of range ({end}) above maximum ({greatest})"));
    }
    if start > end {
        return wrong(format!("beginning of range ({start}) beyond end of range ({end})"));
    }
    if step == 0 {
        return wrong("step of range should be a positive number".to_owned());
    }
    let bits = (start..=end).step_by(usize::try_from(step).unwrap_or(usize::MAX)).fold(0, |bits, n| bits | (1 << n));
    // What leaves numbers out says something.
    Ok(Numbers { bits, star: star && step == 1 })
}

#[cfg(test)]
#[path = "cron_tests.rs"]
mod tests;
