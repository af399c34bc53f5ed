//! Log output: level filter and format.

use anyhow::Context;
use std::io::IsTerminal;
use tracing_subscriber::{EnvFilter, filter::LevelFilter, layer::SubscriberExt, util::SubscriberInitExt};

/// Directives of the level filter, for example `info` or `warn,kubelet=debug`.
const FILTER_VARIABLE: &str = "RUST_LOG";

/// Default of `RUST_LOG`.
const DEFAULT_FILTER: &str = "warn";

/// Directives for libraries of the store, which log each table that they write at `info`.
const LIBRARY_FILTER: &str = "fjall=warn,lsm_tree=warn";

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Human-readable lines.
    Text,
    /// One JSON object per line.
    Json,
}

/// Starts logging to standard error.
///
/// # Errors
/// When `RUST_LOG` is not a valid filter.
pub(crate) fn init(format: LogFormat) -> anyhow::Result<()> {
    let filter = parse_filter(std::env::var_os(FILTER_VARIABLE).as_deref())?;
    let registry = tracing_subscriber::registry().with(filter);
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    match format {
        LogFormat::Text => registry.with(layer.with_ansi(std::io::stderr().is_terminal())).init(),
        LogFormat::Json => registry.with(layer.json().with_current_span(false)).init(),
    }
    Ok(())
}

fn parse_filter(value: Option<&std::ffi::OsStr>) -> anyhow::Result<EnvFilter> {
    let text = value.map(|value| value.to_str().context("RUST_LOG: must be UTF-8")).transpose()?;
    let text = text.filter(|text| !text.trim().is_empty()).unwrap_or(DEFAULT_FILTER);
    let parse = |filter: &str| EnvFilter::try_new(filter).with_context(|| format!("RUST_LOG: invalid filter {text:?}"));
    let filter = parse(text)?;
    if filter.max_level_hint() <= Some(LevelFilter::WARN) {
        return Ok(filter);
    }
    // Later directives replace earlier ones of the same target.
    parse(&format!("{LIBRARY_FILTER},{text}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

    #[test]
    fn filter_defaults_to_warn_quiets_libraries_and_rejects_invalid() {
        let filter = |bytes: Option<&[u8]>| {
            parse_filter(bytes.map(OsStr::from_bytes)).map(|f| f.to_string()).map_err(|e| e.to_string())
        };
        let invalid = "RUST_LOG: invalid filter \"kubelet=loud\"".to_owned();
        for (value, expected) in [
            (None, Ok("warn".to_owned())),
            (Some(b" ".as_slice()), Ok("warn".to_owned())),
            (Some(b"error"), Ok("error".to_owned())),
            (Some(b"info"), Ok("lsm_tree=warn,fjall=warn,info".to_owned())),
            (Some(b"warn,fjall=debug"), Ok("lsm_tree=warn,fjall=debug,warn".to_owned())),
            (Some(b"kubelet=loud"), Err(invalid)),
            (Some(b"\xff"), Err("RUST_LOG: must be UTF-8".to_owned())),
        ] {
            assert_eq!(filter(value), expected, "{value:?}");
        }
    }
}
