//! Timestamps and durations.

use crate::{EvalError, Value, eval::Outcome, operators::time_overflow};
use api::rfc3339::Precision;
use jiff::{Timestamp, tz::TimeZone};

/// Calls a function that creates a timestamp or duration.
pub(super) fn create(name: &str, args: &[Value]) -> Option<Outcome> {
    Some(match (name, args) {
        ("timestamp", [Value::Time(_)]) | ("duration", [Value::Duration(_)]) => Ok(args[0].clone()),
        ("timestamp", [Value::String(text)]) => api::rfc3339::parse(text, Precision::Seconds)
            .map(Value::Time)
            .map_err(|_| EvalError::new("type conversion error from 'string' to 'google.protobuf.Timestamp'")),
        ("timestamp", [Value::Int(seconds)]) => {
            Timestamp::from_second(*seconds).map(Value::Time).map_err(|_| time_overflow())
        }
        ("duration", [Value::String(text)]) => {
            let wrong = || EvalError::new("type conversion error from 'string' to 'google.protobuf.Duration'");
            api::duration::parse_duration(text).map(Value::Duration).map_err(|_| wrong())
        }
        _ => return None,
    })
}

/// Calls a method of a timestamp or duration.
pub(super) fn call_method(name: &str, target: &Value, args: &[Value]) -> Outcome {
    match target {
        Value::Duration(duration) if args.is_empty() => {
            let seconds = duration.as_secs();
            Ok(Value::Int(match name {
                "getHours" => seconds / 3600,
                "getMinutes" => seconds / 60,
                "getSeconds" => seconds,
                "getMilliseconds" => i64::from(duration.subsec_millis()),
                _ => return Err(EvalError::overload()),
            }))
        }
        Value::Time(time) => {
            let zone = match args {
                [] => TimeZone::UTC,
                [Value::String(zone)] => parse_zone(zone)?,
                _ => return Err(EvalError::overload()),
            };
            let at = time.to_zoned(zone);
            Ok(Value::Int(i64::from(match name {
                "getFullYear" => at.year(),
                "getMonth" => i16::from(at.month()) - 1,
                "getDate" => i16::from(at.day()),
                "getDayOfMonth" => i16::from(at.day()) - 1,
                "getDayOfWeek" => i16::from(at.weekday().to_sunday_zero_offset()),
                "getDayOfYear" => at.day_of_year() - 1,
                "getHours" => i16::from(at.hour()),
                "getMinutes" => i16::from(at.minute()),
                "getSeconds" => i16::from(at.second()),
                "getMilliseconds" => at.millisecond(),
                _ => return Err(EvalError::overload()),
            })))
        }
        _ => Err(EvalError::overload()),
    }
}

/// Parses a time zone by its UTC offset, for example `-08:00`. Named zones would need the system's time zone database.
fn parse_zone(text: &str) -> Result<TimeZone, EvalError> {
    let unknown = || EvalError::new(format!("unknown time zone {text}"));
    if text == "UTC" {
        return Ok(TimeZone::UTC);
    }
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (hours, minutes) = rest.split_once(':').ok_or_else(unknown)?;
    let number = |t: &str| t.parse::<i32>().ok().filter(|n| (0..60).contains(n)).ok_or_else(unknown);
    let seconds = sign * (number(hours)? * 3600 + number(minutes)? * 60);
    jiff::tz::Offset::from_seconds(seconds).map(TimeZone::fixed).map_err(|_| unknown())
}
