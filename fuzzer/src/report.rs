//! The report of a run.

use crate::{client::ApiRequest, document::Operation};
use anyhow::{Result, bail};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

/// Number of faults after which the run stops.
const MAX_FAULTS: usize = 200;
/// Number of shown faults of one kind.
const SHOWN_PER_KIND: usize = 1;
/// Minimum percentage of successful requests. Fewer would mean that only the decoding of bodies is tested.
const MIN_SUCCESS_PERCENT: usize = 10;

/// Counters of the run. All streams run on one thread.
pub(crate) struct Report {
    begun: Instant,
    counts: RefCell<Counts>,
}

#[derive(Default)]
struct Counts {
    codes: BTreeMap<u16, usize>,
    tried: BTreeSet<String>,
    welcome: BTreeSet<String>,
    /// Number of occurrences of faults, by operation and the beginning of the message.
    faults: BTreeMap<(String, String), usize>,
}

impl Default for Report {
    fn default() -> Self {
        Self { begun: Instant::now(), counts: RefCell::default() }
    }
}

impl Report {
    pub(crate) fn answered(&self, operation: &Operation, code: u16) {
        let mut counts = self.counts.borrow_mut();
        *counts.codes.entry(code).or_default() += 1;
        counts.tried.insert(operation.title());
        if code < 300 {
            counts.welcome.insert(operation.title());
        }
    }

    /// Records a fault, and prints it with its request when it is new.
    pub(crate) fn fault(&self, operation: &Operation, api_request: &ApiRequest, fault: &str) {
        let key = (operation.title(), fault.chars().take(60).collect());
        let mut counts = self.counts.borrow_mut();
        let seen = counts.faults.entry(key).or_default();
        *seen += 1;
        if *seen <= SHOWN_PER_KIND {
            println!("FAULT {}: {fault}\n  {}", operation.title(), api_request.curl());
        }
    }

    pub(crate) fn is_hopeless(&self) -> bool {
        self.counts.borrow().faults.values().sum::<usize>() >= MAX_FAULTS
    }

    pub(crate) fn print(&self) {
        let counts = self.counts.borrow();
        let sum: usize = counts.codes.values().sum();
        let seconds = self.begun.elapsed().as_secs_f64();
        println!("{sum} requests in {seconds:.0} s, {:.0} a second", sum as f64 / seconds);
        println!("{} operations tried, {} of them with success", counts.tried.len(), counts.welcome.len());
        let codes: Vec<String> = counts.codes.iter().map(|(code, n)| format!("{code}: {n}")).collect();
        println!("{}", codes.join(", "));
    }

    /// Returns the result of the run.
    ///
    /// # Errors
    /// When there was a fault, or when the run has too few requests to be meaningful.
    pub(crate) fn result(&self, operations: usize) -> Result<()> {
        let counts = self.counts.borrow();
        if !counts.faults.is_empty() {
            bail!("{} faults", counts.faults.len());
        }
        let sum: usize = counts.codes.values().sum();
        let welcome: usize = counts.codes.iter().filter(|(code, _)| **code < 300).map(|(_, n)| n).sum();
        if welcome * 100 < sum * MIN_SUCCESS_PERCENT || sum < operations {
            bail!("{sum} requests, {welcome} with success, for {operations} operations: too few for a result");
        }
        Ok(())
    }
}
