//! The API server: HTTP, authentication, authorization, admission, defaulting, validation, patches, watches, tables.
#![forbid(unsafe_code)]

pub mod kinds;
