//! `/containerLogs`: the log of one container, from a moment on, in part, or as it grows.

use super::{Refused, known, log_readers::LogReader};
use crate::{
    Shared, exits,
    logs::{self, LogFile, LogOptions},
};
use api::text::is_yes;
use axum::{
    body::Body,
    extract::{Path, Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use futures::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use lifecycle::Pod;
use std::{collections::HashMap, io, sync::Arc, time::Duration};

/// How often a followed log is looked at for new lines.
const FOLLOW: Duration = Duration::from_millis(100);

pub(super) async fn container_logs(
    State(shared): State<Arc<Shared>>,
    Path((namespace, name, container)): Path<(String, String, String)>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Response, Refused> {
    let bad = |what: &str| (StatusCode::BAD_REQUEST, format!("{what} is not valid"));
    let flag = |key: &str| query.get(key).is_some_and(|v| is_yes(v));
    let number = |key: &str| query.get(key).map(|v| v.parse::<u64>().map_err(|_| bad(key))).transpose();
    let since_time =
        query.get("sinceTime").map(|t| t.parse::<Timestamp>().map_err(|_| bad("sinceTime"))).transpose()?;
    let since_seconds = number("sinceSeconds")?.and_then(|s| i64::try_from(s).ok());
    let tail = number("tailLines")?.and_then(|n| usize::try_from(n).ok());
    let options = LogOptions {
        since: since_time.or(since_seconds.and_then(|s| shared.now().checked_sub(SignedDuration::from_secs(s)).ok())),
        timestamps: flag("timestamps"),
        limit_bytes: number("limitBytes")?.and_then(|n| usize::try_from(n).ok()),
    };
    let pod = known(&shared, &namespace, &name)?;
    let previous = flag("previous");
    let Some((id, attempt)) = pod.container_id(&container, previous) else {
        let which = format!("container {container:?} in pod {name:?}");
        return Err((
            StatusCode::BAD_REQUEST,
            match previous {
                true => format!("previous terminated {which} not found"),
                false => format!("{which} {}", without_log(&shared, &pod, &container)),
            },
        ));
    };
    let place = shared.log_readers.begin(&namespace).ok_or_else(|| {
        (
            StatusCode::TOO_MANY_REQUESTS,
            format!("too many logs of namespace {namespace:?} are being read, please try again later"),
        )
    })?;
    let follow = flag("follow") && !previous;
    if !follow {
        exits::log_is_complete(&shared, pod.uid(), &id).await;
    }
    let unreadable = |e: io::Error| (StatusCode::INTERNAL_SERVER_ERROR, format!("the log cannot be read: {e}"));
    let log = LogFile::open(logs::path(&shared, &pod, &container, attempt), tail, follow).await.map_err(unreadable)?;
    let left = options.limit_bytes.unwrap_or(usize::MAX);
    let mut reader = Reader { shared, uid: pod.uid().to_owned(), id, log, options, left, follow, _place: place };
    if follow {
        return Ok(Body::from_stream(stream::unfold(reader, Reader::stream)).into_response());
    }
    // What cannot be read is an error only before the answer has begun.
    let first = reader.next().await.map_err(unreadable)?.unwrap_or_default();
    let first = stream::once(async move { Ok::<_, io::Error>(first) });
    Ok(Body::from_stream(first.chain(stream::unfold(reader, Reader::stream))).into_response())
}

/// Why there is no log, in upstream's words (`validateContainerLogStatus`).
fn without_log(shared: &Shared, pod: &Pod, container: &str) -> String {
    let status = lifecycle::status(pod, &shared.options.policy, shared.now());
    let lists = [status.init_container_statuses, status.container_statuses, status.ephemeral_container_statuses];
    let Some(status) = lists.into_iter().flatten().flatten().find(|c| c.name == container) else {
        return "is not available".to_owned();
    };
    let state = status.state.unwrap_or_default();
    if state.terminated.is_some() {
        return "is terminated".to_owned();
    }
    let reason = state.waiting.and_then(|w| w.reason).unwrap_or_else(|| "ContainerCreating".to_owned());
    let why = match reason.as_str() {
        "ErrImagePull" => "image can't be pulled",
        "ImagePullBackOff" => "trying and failing to pull image",
        other => other,
    };
    format!("is waiting to start: {why}")
}

/// A log that is read block by block, as fast as its client takes it. One that is followed is read as it grows, until its
/// container has ended and its last line is there.
struct Reader {
    shared: Arc<Shared>,
    uid: String,
    id: String,
    log: LogFile,
    options: LogOptions,
    /// How many bytes the client still wants.
    left: usize,
    follow: bool,
    _place: LogReader,
}

impl Reader {
    async fn stream(mut self) -> Option<(io::Result<Vec<u8>>, Self)> {
        self.next().await.transpose().map(|part| (part, self))
    }

    /// The next part of the log as the client wants it; none at the end.
    async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        while self.left > 0 {
            // Asked before the read: what an ended container wrote is read to its end.
            let grows = self.follow && self.grows();
            let raw = self.log.lines().await?;
            if !raw.is_empty() {
                let mut text = logs::render(&raw, &self.options);
                text.truncate(self.left);
                self.left -= text.len();
                if !text.is_empty() {
                    return Ok(Some(text));
                }
                continue;
            }
            if !grows {
                break;
            }
            // New lines are looked for; of the end somebody tells.
            let _ = tokio::time::timeout(FOLLOW, self.is_complete()).await;
        }
        Ok(None)
    }

    fn grows(&self) -> bool {
        let handle = self.shared.pods.by_uid(&self.uid);
        handle.is_some_and(|handle| writes(&handle.state.borrow(), &self.id))
    }

    async fn is_complete(&self) {
        let Some(mut known) = self.shared.pods.by_uid(&self.uid).map(|handle| handle.state) else { return };
        if known.wait_for(|pod| !writes(pod, &self.id)).await.is_err() {
            // Its task was told to stop.
            std::future::pending::<()>().await;
        }
    }
}

/// Whether the container with this id may have more to say.
fn writes(pod: &Pod, id: &str) -> bool {
    pod.running_since(id).is_some() || pod.is_clearing(id)
}
