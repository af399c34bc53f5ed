//! A keeper without Podium, for the tests of this crate.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    keeper::run_if_named().unwrap_or(ExitCode::from(2))
}
