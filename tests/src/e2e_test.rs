//! Registered end-to-end tests.

use crate::Cluster;

/// An end-to-end test, which the attribute [`e2e_test`](macro@crate::e2e_test) registers. It fails by panicking.
#[derive(Debug)]
pub struct E2eTest {
    /// Name, a sentence.
    pub name: &'static str,
    /// Source file.
    pub file: &'static str,
    /// Line of the attribute.
    pub line: u32,
    /// The test's function.
    pub body: TestBody,
}

/// The function of a test, by the clusters that it uses.
#[derive(Debug, Clone, Copy)]
pub enum TestBody {
    /// Runs on the shared cluster.
    SharedCluster(fn(&Cluster)),
    /// Starts its own clusters.
    OwnCluster(fn()),
}

inventory::collect!(E2eTest);

impl E2eTest {
    /// Returns all tests in the order in which they run: first those on the shared cluster, then by file and line.
    #[must_use]
    pub fn all() -> Vec<&'static Self> {
        let mut tests: Vec<&Self> = inventory::iter::<Self>().collect();
        tests.sort_by_key(|test| (matches!(test.body, TestBody::OwnCluster(_)), test.file, test.line));
        tests
    }
}
