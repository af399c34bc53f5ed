//! Kinds of `batch/v1`.

mod cron_job;
mod job;

pub(super) use cron_job::CRON_JOB;
pub(super) use job::JOB;

const GROUP: &str = "batch";
