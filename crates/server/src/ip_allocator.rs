//! Addresses and ports of Services: ranges, allocation, and IPAddress objects (`pkg/registry/core/service`).

pub(crate) mod ip_addresses;
pub(crate) mod service_allocation;
pub(crate) mod service_ranges;
