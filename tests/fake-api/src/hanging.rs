//! Requests without a response.

use crate::FakeApi;

/// A hanging request, until the client drops it.
pub(crate) struct Hanging<'a> {
    api: &'a FakeApi,
    request: String,
}

impl<'a> Hanging<'a> {
    pub(crate) fn new(api: &'a FakeApi, request: String) -> Self {
        api.state.lock().hanging.push(request.clone());
        api.tick();
        Self { api, request }
    }
}

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        let mut state = self.api.state.lock();
        if let Some(at) = state.hanging.iter().position(|request| *request == self.request) {
            state.hanging.remove(at);
        }
        drop(state);
        self.api.tick();
    }
}
