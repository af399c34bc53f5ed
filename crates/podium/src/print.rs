//! Printing. A reader that has gone away is no reason to stop, or to die.

use std::{
    fmt::Arguments,
    io::{Write, stderr, stdout},
};

/// Prints a line.
macro_rules! say {
    ($($text:tt)*) => { $crate::print::line(format_args!($($text)*)) };
}

pub(crate) use say;

pub(crate) fn line(text: Arguments<'_>) {
    let _ = writeln!(stdout(), "{text}");
}

/// Prints a line to the standard error.
pub(crate) fn error(text: Arguments<'_>) {
    let _ = writeln!(stderr(), "{text}");
}
