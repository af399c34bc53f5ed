//! Cron schedules of CronJobs, with the grammar, semantics and error messages of upstream's parser (`robfig/cron`,
//! `ParseStandard`): five fields, names, `?`, descriptors such as `@hourly`, and `@every 1h30m`.
//!
//! No maintained crate has this grammar: they reject `@every`, accept 7 for Sunday, or expect a field for seconds.

use crate::duration::{ParseDurationError, parse_duration};
use jiff::{SignedDuration, Timestamp, civil::Date, tz::TimeZone};

/// Minimum, maximum and names of the values of each field.
const FIELDS: [Bounds; 5] = [
    (0, 59, &[]),
    (0, 23, &[]),
    (1, 31, &[]),
    (1, 12, &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]),
    (0, 6, &["sun", "mon", "tue", "wed", "thu", "fri", "sat"]),
];
/// Descriptors and their schedules.
const DESCRIPTORS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];
/// Years after which the search for the next time ends, for example for February 31.
const MAX_YEARS: i16 = 5;

type Bounds = (u32, u32, &'static [&'static str]);

/// Error for an invalid schedule, with upstream's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The schedule has too few or too many fields.
    #[error("expected exactly {} fields, found {found}: [{fields}]", FIELDS.len())]
    FieldCount {
        /// Number of fields.
        found: usize,
        /// The fields.
        fields: String,
    },
    /// Unknown descriptor.
    #[error("unrecognized descriptor: {0}")]
    Descriptor(String),
    /// Invalid duration of `@every`.
    #[error("failed to parse duration {schedule}: {source} {duration:?}")]
    Duration {
        /// The whole schedule.
        schedule: String,
        /// The duration.
        duration: String,
        /// The cause.
        source: ParseDurationError,
    },
    /// A value is neither a number nor a name.
    #[error("failed to parse int from {0}: strconv.Atoi: parsing {0:?}: invalid syntax")]
    Number(String),
    /// Invalid range of a field.
    #[error("{source}: {range}")]
    Range {
        /// The range.
        range: String,
        /// The cause.
        source: RangeError,
    },
}

/// Error for an invalid range of a field, with upstream's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// More than one hyphen.
    #[error("too many hyphens")]
    Hyphens,
    /// More than one slash.
    #[error("too many slashes")]
    Slashes,
    /// Start (first) below the field's minimum (second).
    #[error("beginning of range ({0}) below minimum ({1})")]
    BelowMinimum(u32, u32),
    /// End (first) above the field's maximum (second).
    #[error("end of range ({0}) above maximum ({1})")]
    AboveMaximum(u32, u32),
    /// Start (first) beyond the end (second).
    #[error("beginning of range ({0}) beyond end of range ({1})")]
    StartBeyondEnd(u32, u32),
    /// Step 0.
    #[error("step of range should be a positive number")]
    ZeroStep,
}

/// A cron schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Schedule {
    /// At the minutes that match five fields.
    Spec(SpecSchedule),
    /// At a fixed delay after the last time, in whole seconds.
    ConstantDelay(SignedDuration),
}

/// Matching values of each field as bit sets (`SpecSchedule`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecSchedule {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether one of the two day fields is `*`, so that both must match; otherwise one match is enough.
    match_both_days: bool,
}

/// Matching values of a field, and whether the field is unrestricted (`*`).
struct FieldBits {
    bits: u64,
    star: bool,
}

impl Schedule {
    /// Parses a schedule (`ParseStandard`).
    ///
    /// # Errors
    /// When the text is not a schedule, with upstream's message.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        if text.starts_with('@') {
            return match DESCRIPTORS.iter().find(|(name, _)| *name == text) {
                Some((_, fields)) => Self::parse(fields),
                None => parse_every(text),
            };
        }
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields.as_slice() else {
            return Err(ParseError::FieldCount { found: fields.len(), fields: fields.join(" ") });
        };
        let [m, h, d, mo, w] = FIELDS;
        let (minutes, hours) = (parse_field(minutes, m)?.bits, parse_field(hours, h)?.bits);
        let (days, months, weekdays) =
            (parse_field(days, d)?, parse_field(months, mo)?.bits, parse_field(weekdays, w)?);
        let match_both_days = days.star || weekdays.star;
        Ok(Self::Spec(SpecSchedule {
            minutes,
            hours,
            days: days.bits,
            months,
            weekdays: weekdays.bits,
            match_both_days,
        }))
    }

    /// Returns the first matching time after `after` in the local time of `zone`; `None` if there is none within five years.
    ///
    /// A local time that is skipped by daylight saving time does not match on that day; a repeated one matches twice.
    #[must_use]
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let second = Timestamp::from_second(after.as_second()).ok()?;
        match self {
            Self::ConstantDelay(delay) => second.checked_add(*delay).ok(),
            Self::Spec(times) => times.next(second.checked_add(SignedDuration::from_secs(1)).ok()?, zone),
        }
    }
}

impl SpecSchedule {
    fn next(&self, mut at: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let last = at.to_zoned(zone.clone()).year().saturating_add(MAX_YEARS);
        loop {
            let local = at.to_zoned(zone.clone());
            if local.year() > last {
                return None;
            }
            if !self.matches_day(local.date()) {
                at = local.date().tomorrow().ok()?.to_zoned(zone.clone()).ok()?.timestamp();
                continue;
            }
            let matches =
                local.second() == 0 && has_bit(self.hours, local.hour()) && has_bit(self.minutes, local.minute());
            if matches {
                return Some(at);
            }
            at = at.checked_add(SignedDuration::from_secs(60 - i64::from(local.second()))).ok()?;
        }
    }

    fn matches_day(&self, date: Date) -> bool {
        let (day, weekday) =
            (has_bit(self.days, date.day()), has_bit(self.weekdays, date.weekday().to_sunday_zero_offset()));
        has_bit(self.months, date.month()) && if self.match_both_days { day && weekday } else { day || weekday }
    }
}

fn has_bit(bits: u64, number: i8) -> bool {
    u32::try_from(number).is_ok_and(|number| bits & (1 << number) != 0)
}

/// Parses `@every 1h30m`; the delay is at least one second, and fractions of a second are dropped.
fn parse_every(text: &str) -> Result<Schedule, ParseError> {
    let Some(duration) = text.strip_prefix("@every ") else {
        return Err(ParseError::Descriptor(text.to_owned()));
    };
    let delay = parse_duration(duration).map_err(|source| ParseError::Duration {
        schedule: text.to_owned(),
        duration: duration.to_owned(),
        source,
    })?;
    Ok(Schedule::ConstantDelay(SignedDuration::from_secs(delay.as_secs().max(1))))
}

fn parse_field(text: &str, bounds: Bounds) -> Result<FieldBits, ParseError> {
    let mut all = FieldBits { bits: 0, star: false };
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let part = parse_range(part, bounds)?;
        all = FieldBits { bits: all.bits | part.bits, star: all.star || part.star };
    }
    Ok(all)
}

/// Parses a range of a field: `*`, `?`, `5`, `1-5`, `*/2`, `1-10/3` or `mon-fri`.
fn parse_range(text: &str, (minimum, maximum, names): Bounds) -> Result<FieldBits, ParseError> {
    let number = |part: &str| {
        let named = names.iter().position(|n| n.eq_ignore_ascii_case(part)).and_then(|at| u32::try_from(at).ok());
        let parsed = named.map(|at| at + minimum).or_else(|| part.parse().ok());
        parsed.ok_or_else(|| ParseError::Number(part.to_owned()))
    };
    let invalid = |source| Err(ParseError::Range { range: text.to_owned(), source });
    let mut parts = text.split('/');
    let (base, step) = (parts.next().unwrap_or(""), parts.next());
    let mut ends = base.split('-');
    let (from, to) = (ends.next().unwrap_or(""), ends.next());
    let star = matches!(from, "*" | "?");
    let (start, end) = match (star, to) {
        (true, _) => (minimum, maximum),
        (false, Some(_)) if ends.next().is_some() => return invalid(RangeError::Hyphens),
        (false, Some(to)) => (number(from)?, number(to)?),
        (false, None) if step.is_some() => (number(from)?, maximum),
        (false, None) => (number(from)?, number(from)?),
    };
    if parts.next().is_some() {
        return invalid(RangeError::Slashes);
    }
    let step = step.map_or(Ok(1), number)?;
    if start < minimum {
        return invalid(RangeError::BelowMinimum(start, minimum));
    }
    if end > maximum {
        return invalid(RangeError::AboveMaximum(end, maximum));
    }
    if start > end {
        return invalid(RangeError::StartBeyondEnd(start, end));
    }
    if step == 0 {
        return invalid(RangeError::ZeroStep);
    }
    let bits = (start..=end).step_by(usize::try_from(step).unwrap_or(usize::MAX)).fold(0, |bits, n| bits | (1 << n));
    // A step leaves values out, so the field is restricted.
    Ok(FieldBits { bits, star: star && step == 1 })
}

#[cfg(test)]
mod tests;
