//! Printing to standard output and standard error. Write errors, such as a closed pipe, are ignored.

use std::{
    fmt::Arguments,
    io::{Write, stderr, stdout},
};

/// Prints a line to standard output.
macro_rules! print_line {
    ($($text:tt)*) => { $crate::print::line(format_args!($($text)*)) };
}

pub(crate) use print_line;

pub(crate) fn line(text: Arguments<'_>) {
    let _ = writeln!(stdout(), "{text}");
}

/// Prints a line to standard error.
pub(crate) fn error(text: Arguments<'_>) {
    let _ = writeln!(stderr(), "{text}");
}
