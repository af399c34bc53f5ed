//! The default ServiceCIDR, and the IPAddresses of the Services that exist at the start.

use crate::{ApiServer, ip_allocator::ip_addresses};

impl ApiServer {
    /// Creates the default ServiceCIDR, and the IPAddresses of existing Services.
    pub async fn bootstrap_addresses(&self) {
        ip_addresses::ensure_default_range(&self.registry.store, &self.loopback()).await;
        self.reconcile_addresses().await;
    }
}
