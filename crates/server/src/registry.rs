//! Resources with a storage of their own: Pod subresources, reviews, tokens, metrics (`pkg/registry`).

pub(crate) mod component_statuses;
pub(crate) mod eviction;
pub(crate) mod kubelet_client;
pub(crate) mod node_proxy;
pub(crate) mod node_stream;
pub(crate) mod pod_binding;
pub(crate) mod proxy;
pub(crate) mod resource_metrics;
pub(crate) mod reviews;
pub(crate) mod token_request;
