//! `/containerLogs`: serves the log of a container, with `follow`, `tailLines`, `sinceTime` and the other options.

use super::{HttpError, find_pod, log_readers::LogReader};
use crate::{
    Shared, container_exits,
    logs::{self, LogFile, LogOptions, LogWatch},
};
use api::text::parse_query_bool;
use axum::{
    body::Body,
    extract::{Path, Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use futures::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use lifecycle::Pod;
use std::{collections::HashMap, io, sync::Arc};

pub(super) async fn container_logs(
    State(shared): State<Arc<Shared>>,
    Path((namespace, name, container)): Path<(String, String, String)>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Response, HttpError> {
    let bad = |parameter: &str| (StatusCode::BAD_REQUEST, format!("{parameter} is not valid"));
    let flag = |key: &str| query.get(key).is_some_and(|v| parse_query_bool(v));
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
    let pod = find_pod(&shared, &namespace, &name)?;
    let previous = flag("previous");
    let Some((id, attempt)) = pod.container_id(&container, previous) else {
        let which = format!("container {container:?} in pod {name:?}");
        return Err((
            StatusCode::BAD_REQUEST,
            match previous {
                true => format!("previous terminated {which} not found"),
                false => format!("{which} {}", missing_log_reason(&shared, &pod, &container)),
            },
        ));
    };
    let permit = shared.log_readers.begin(&namespace).ok_or_else(|| {
        (
            StatusCode::TOO_MANY_REQUESTS,
            format!("too many logs of namespace {namespace:?} are being read, please try again later"),
        )
    })?;
    let follow = flag("follow") && !previous;
    if !follow {
        container_exits::wait_log_complete(&shared, pod.uid(), &id).await;
    }
    let unreadable = |e: io::Error| (StatusCode::INTERNAL_SERVER_ERROR, format!("the log cannot be read: {e}"));
    let path = logs::log_path(&shared, &pod, &container, attempt);
    let log = LogFile::open(path.clone(), tail, follow).await.map_err(unreadable)?;
    // Before the first read, so that no change is missed.
    let watch = if follow { Some(shared.log_watcher.watch(&path).await) } else { None };
    let remaining_bytes = options.limit_bytes.unwrap_or(usize::MAX);
    let mut reader =
        Reader { shared, uid: pod.uid().to_owned(), id, log, options, remaining_bytes, watch, _permit: permit };
    if follow {
        return Ok(Body::from_stream(stream::unfold(reader, Reader::stream)).into_response());
    }
    // A read error can become an HTTP error only before the response has started.
    let first = reader.next().await.map_err(unreadable)?.unwrap_or_default();
    let first = stream::once(async move { Ok::<_, io::Error>(first) });
    Ok(Body::from_stream(first.chain(stream::unfold(reader, Reader::stream))).into_response())
}

/// Returns upstream's reason why a container has no log (`validateContainerLogStatus`).
fn missing_log_reason(shared: &Shared, pod: &Pod, container: &str) -> String {
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
    let message = match reason.as_str() {
        "ErrImagePull" => "image can't be pulled",
        "ImagePullBackOff" => "trying and failing to pull image",
        other => other,
    };
    format!("is waiting to start: {message}")
}

/// Reads a log block by block, as fast as the client consumes it. A followed log ends when its container has exited and
/// the last line was read.
struct Reader {
    shared: Arc<Shared>,
    uid: String,
    id: String,
    log: LogFile,
    options: LogOptions,
    /// Bytes left of `limitBytes`.
    remaining_bytes: usize,
    /// Watch of the log, if it is followed.
    watch: Option<LogWatch>,
    _permit: LogReader,
}

impl Reader {
    async fn stream(mut self) -> Option<(io::Result<Vec<u8>>, Self)> {
        self.next().await.transpose().map(|part| (part, self))
    }

    /// Returns the next rendered part of the log; `None` at the end.
    async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        while self.remaining_bytes > 0 {
            // Checked before the read, so that the output of an exited container is read to its end.
            let is_growing = self.watch.is_some() && self.is_growing();
            let raw = self.log.next_lines().await?;
            if !raw.is_empty() {
                let mut text = logs::render(&raw, &self.options);
                text.truncate(self.remaining_bytes);
                self.remaining_bytes -= text.len();
                if !text.is_empty() {
                    return Ok(Some(text));
                }
                continue;
            }
            let Some(watch) = self.watch.as_mut().filter(|_| is_growing) else { break };
            tokio::select! {
                () = watch.changed() => {}
                () = wait_complete(&self.shared, &self.uid, &self.id) => {}
            }
        }
        Ok(None)
    }

    fn is_growing(&self) -> bool {
        let handle = self.shared.pods.by_uid(&self.uid);
        handle.is_some_and(|handle| may_write(&handle.state.borrow(), &self.id))
    }
}

/// Waits until the container with this ID writes no more to its log.
async fn wait_complete(shared: &Shared, uid: &str, id: &str) {
    let Some(mut state) = shared.pods.by_uid(uid).map(|handle| handle.state) else { return };
    if state.wait_for(|pod| !may_write(pod, id)).await.is_err() {
        // The worker was stopped with the kubelet.
        std::future::pending::<()>().await;
    }
}

/// Whether the container with this ID may still write to its log.
fn may_write(pod: &Pod, id: &str) -> bool {
    pod.running_since(id).is_some() || pod.is_cleaning_up(id)
}
