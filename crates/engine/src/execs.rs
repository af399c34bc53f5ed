//! Processes of exec that wait for their exit.

use parking_lot::Mutex;
use std::collections::HashMap;
use tokio::sync::oneshot;

type Key = (String, String);

/// Exits that callers wait for, by container ID and exec ID.
#[derive(Debug, Default)]
pub(crate) struct Execs(Mutex<HashMap<Key, oneshot::Sender<i32>>>);

/// A wait for an exit; forgotten when it is dropped.
pub(crate) struct ExecExit<'a> {
    execs: &'a Execs,
    key: Key,
    receiver: oneshot::Receiver<i32>,
}

impl Execs {
    /// Begins to wait. Called before the process starts: it may end at once.
    pub(crate) fn wait(&self, id: &str, exec_id: &str) -> ExecExit<'_> {
        let (sender, receiver) = oneshot::channel();
        let key = (id.to_owned(), exec_id.to_owned());
        self.0.lock().insert(key.clone(), sender);
        ExecExit { execs: self, key, receiver }
    }

    pub(crate) fn exited(&self, id: &str, exec_id: &str, code: i32) {
        if let Some(sender) = self.0.lock().remove(&(id.to_owned(), exec_id.to_owned())) {
            // The caller may have gone.
            let _ = sender.send(code);
        }
    }

    /// Ends all waits: the keeper has ended.
    pub(crate) fn end(&self) {
        self.0.lock().clear();
    }
}

impl ExecExit<'_> {
    /// Returns the exit code, or `None` if the keeper ended before it was known.
    pub(crate) async fn code(&mut self) -> Option<i32> {
        (&mut self.receiver).await.ok()
    }
}

impl Drop for ExecExit<'_> {
    fn drop(&mut self) {
        self.execs.0.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn exit_reaches_its_caller_even_before_the_wait() {
        let execs = Execs::default();
        let (mut a, mut b) = (execs.wait("c", "a"), execs.wait("c", "b"));
        execs.exited("c", "a", 3);
        execs.exited("c", "other", 4);
        assert_eq!(a.code().await, Some(3));
        execs.end();
        assert_eq!(b.code().await, None);
        drop((a, b));
        assert!(execs.0.lock().is_empty());
    }
}
