//! Objects that the server creates and maintains, and tasks that run beside the requests (upstream's `PostStartHook`).

mod addresses;
pub(crate) mod apf_controller;
pub(crate) mod bootstrap;
pub(crate) mod event_ttl;
pub(crate) mod legacy_token_tracking;
pub(crate) mod system_objects;
pub(crate) mod system_services;
