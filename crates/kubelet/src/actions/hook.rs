//! Lifecycle hooks (upstream's `pkg/kubelet/lifecycle/handlers.go`).

use super::{ActionError, container_spec, while_running};
use crate::{
    Shared,
    probe_handlers::http::{Get, GetError, InvalidGetError},
};
use k8s_openapi::api::core::v1::{Container, HTTPGetAction, LifecycleHandler};
use lifecycle::{EventKind, Hook, HookOutcome, Pod, PodEvent, PodLifecycleEvent};
use runtime::{ContainerId, Runtime};
use std::{net::IpAddr, sync::Arc, time::Duration};
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

/// Timeout of hooks without limit: the CRI requires one.
const NO_TIMEOUT: Duration = Duration::from_secs(10 * 365 * 86_400);

pub(super) async fn run(
    shared: &Shared,
    pod: &Pod,
    name: &str,
    id: String,
    hook: Hook,
    limit: Option<Duration>,
) -> Result<Vec<PodLifecycleEvent>, ActionError> {
    let container = container_spec(pod, name)?;
    let handler = container.lifecycle.as_ref().and_then(|l| match hook {
        Hook::PostStart => l.post_start.as_ref(),
        Hook::PreStop => l.pre_stop.as_ref(),
    });
    let handler = handler.ok_or_else(|| ActionError::NoHook { container: name.to_owned(), hook })?;
    let runtime_id = ContainerId(id.clone());
    let record_message = |message: String| {
        let event = PodEvent::new(EventKind::Warning, "LifecycleHTTPFallback", message);
        shared.recorder.record(pod.object(), event);
    };
    let ip = pod.ips().first().copied();
    let work = run_handler(&shared.runtime, &runtime_id, container, handler, ip, limit, &record_message);
    let ended = || HookOutcome::Failed("the container ended before its hook".to_owned());
    let outcome = while_running(shared, pod, name, &id, work).await.unwrap_or_else(ended);
    if let HookOutcome::Failed(error) = &outcome {
        tracing::warn!(pod = pod.name(), container = name, ?hook, error, "lifecycle hook failed");
    }
    Ok(vec![PodLifecycleEvent::HookDone { id, hook, outcome }])
}

/// Runs a handler; `record_message` records an Event message.
async fn run_handler(
    runtime: &Arc<dyn Runtime>,
    id: &ContainerId,
    container: &Container,
    handler: &LifecycleHandler,
    ip: Option<IpAddr>,
    limit: Option<Duration>,
    record_message: &(dyn Fn(String) + Sync),
) -> HookOutcome {
    if let Some(action) = &handler.exec {
        return run_command(runtime, id, action.command.as_deref().unwrap_or_default(), limit).await;
    }
    let work = run_other_handler(container, handler, ip, record_message);
    match limit {
        None => work.await,
        Some(limit) => timeout(limit, work).await.unwrap_or(HookOutcome::TimedOut),
    }
}

async fn run_other_handler(
    container: &Container,
    handler: &LifecycleHandler,
    ip: Option<IpAddr>,
    record_message: &(dyn Fn(String) + Sync),
) -> HookOutcome {
    if let Some(action) = &handler.http_get {
        return match request(action, container, ip, record_message).await {
            Ok(()) => HookOutcome::Done,
            Err(error) => HookOutcome::Failed(error.to_string()),
        };
    }
    if let Some(action) = &handler.sleep {
        sleep(Duration::from_secs(u64::try_from(action.seconds).unwrap_or_default())).await;
        return HookOutcome::Done;
    }
    // `tcpSocket` is deprecated and fails, as upstream.
    HookOutcome::Failed("invalid handler: neither exec, httpGet nor sleep".to_owned())
}

/// Runs a command. After a timeout the command is left running, until the container is killed (`executePreStopHook`).
async fn run_command(
    runtime: &Arc<dyn Runtime>,
    id: &ContainerId,
    command: &[String],
    limit: Option<Duration>,
) -> HookOutcome {
    let (runtime, id, command) = (Arc::clone(runtime), id.clone(), command.to_vec());
    let work = async move { runtime.exec_sync(&id, &command, NO_TIMEOUT).await };
    let mut task = AbortOnDropHandle::new(tokio::spawn(work));
    let ended = match limit {
        None => (&mut task).await,
        Some(limit) => match timeout(limit, &mut task).await {
            Ok(ended) => ended,
            Err(_) => {
                task.detach();
                return HookOutcome::TimedOut;
            }
        },
    };
    match ended {
        Ok(Ok(output)) if output.code == 0 => HookOutcome::Done,
        Ok(Ok(output)) => {
            let output_text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            HookOutcome::Failed(format!("command exited with {}: {output_text}", output.code))
        }
        Ok(Err(error)) => HookOutcome::Failed(error.to_string()),
        Err(error) => HookOutcome::Failed(error.to_string()),
    }
}

/// Failure of an `httpGet` hook.
#[derive(Debug, thiserror::Error)]
enum HttpHookError {
    #[error(transparent)]
    Invalid(#[from] InvalidGetError),
    #[error(transparent)]
    Get(#[from] GetError),
}

/// Sends an HTTP request. Every response is a success, even an error. If a server does not speak TLS, the request is retried
/// over plain HTTP.
async fn request(
    action: &HTTPGetAction,
    container: &Container,
    ip: Option<IpAddr>,
    record_message: &(dyn Fn(String) + Sync),
) -> Result<(), HttpHookError> {
    let get = Get::new(action, container, ip, "kube-lifecycle")?;
    let Err(error) = get.send(None).await else { return Ok(()) };
    if matches!(error, GetError::PlainHttp { .. }) && get.over_plain_http().send(None).await.is_ok() {
        let host = get.authority();
        record_message(format!("request to HTTPS lifecycle hook {host} got HTTP response, retry with HTTP succeeded"));
        return Ok(());
    }
    Err(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Clock,
        fake_runtime::{FakeRuntime, commands::Command},
    };
    use jiff::Timestamp;
    use parking_lot::Mutex;
    use serde_json::{Value, json};
    use std::net::Ipv4Addr;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
        time::Instant,
    };

    /// Checks result and duration in seconds of a hook, on a paused clock.
    async fn check(hook: &Value, command: Command, limit: Option<u64>, expected: (HookOutcome, u64)) {
        let began = Instant::now();
        let (found, _) = run(hook, command, limit).await;
        assert_eq!((found, began.elapsed().as_secs()), expected, "{hook}");
    }

    /// Runs a hook, and returns its result and the recorded messages.
    async fn run(hook: &Value, command: Command, limit: Option<u64>) -> (HookOutcome, Vec<String>) {
        let runtime = FakeRuntime::new(Clock::starting_at(Timestamp::UNIX_EPOCH));
        runtime.command("tidy $(UP)", command);
        let runtime: Arc<dyn Runtime> = Arc::new(runtime);
        let container = serde_json::from_value(json!({"name": "c", "env": [{"name": "UP", "value": "x"}]}));
        let handler = serde_json::from_value(hook.clone()).expect("a hook");
        let messages = Mutex::new(Vec::new());
        let (id, ip) = (ContainerId("1".to_owned()), Some(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        let record_message = |message| messages.lock().push(message);
        let limit = limit.map(Duration::from_secs);
        let found =
            run_handler(&runtime, &id, &container.expect("a container"), &handler, ip, limit, &record_message).await;
        (found, messages.into_inner())
    }

    fn failed(message: &str) -> HookOutcome {
        HookOutcome::Failed(message.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn exec_hook_succeeds_with_exit_code_0_in_time() {
        let exec = json!({"exec": {"command": ["tidy", "$(UP)"]}});
        for (command, limit, expected) in [
            (Command::Ends(0, String::new()), None, (HookOutcome::Done, 0)),
            (Command::Ends(3, "oh".to_owned()), None, (failed("command exited with 3: oh"), 0)),
            (Command::Fails("no such file".to_owned()), Some(5), (failed("no such file"), 0)),
            (Command::Takes(40), None, (HookOutcome::Done, 40)),
            (Command::Takes(40), Some(41), (HookOutcome::Done, 40)),
            (Command::Takes(40), Some(5), (HookOutcome::TimedOut, 5)),
            (Command::Hangs, Some(5), (HookOutcome::TimedOut, 5)),
        ] {
            check(&exec, command, limit, expected).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn timed_out_exec_hook_keeps_running() {
        let fake = FakeRuntime::new(Clock::starting_at(Timestamp::UNIX_EPOCH));
        fake.command("tidy", Command::Takes(40));
        let (runtime, id): (Arc<dyn Runtime>, _) = (Arc::new(fake.clone()), ContainerId("1".to_owned()));
        let command = ["tidy".to_owned()];
        let limit = Some(Duration::from_secs(30));
        assert_eq!(run_command(&runtime, &id, &command, limit).await, HookOutcome::TimedOut);
        assert_eq!(fake.ended_commands(), 0);
        sleep(Duration::from_secs(11)).await;
        assert_eq!(fake.ended_commands(), 1);
        // An aborted hook aborts its command.
        let _ = timeout(Duration::from_secs(5), run_command(&runtime, &id, &command, limit)).await;
        sleep(Duration::from_secs(60)).await;
        assert_eq!(fake.ended_commands(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn sleep_hook_is_limited_by_the_timeout() {
        let sleep = |seconds: u64| json!({"sleep": {"seconds": seconds}});
        check(&sleep(7), Command::Hangs, None, (HookOutcome::Done, 7)).await;
        check(&sleep(0), Command::Hangs, Some(5), (HookOutcome::Done, 0)).await;
        check(&sleep(7), Command::Hangs, Some(5), (HookOutcome::TimedOut, 5)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn tcp_socket_and_empty_hooks_fail() {
        let message = "invalid handler: neither exec, httpGet nor sleep";
        for hook in [json!({"tcpSocket": {"port": 80}}), json!({})] {
            check(&hook, Command::Hangs, None, (failed(message), 0)).await;
        }
    }

    /// Starts a server that sends the same response to every request; returns the requests.
    async fn serve(message: &'static str) -> (u16, Arc<Mutex<Vec<String>>>, AbortOnDropHandle<()>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a listener");
        let port = listener.local_addr().expect("an address").port();
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let read = Arc::clone(&heads);
        let task = AbortOnDropHandle::new(tokio::spawn(async move {
            while let Ok((mut tcp, _)) = listener.accept().await {
                let mut head = vec![0; 4096];
                let length = tcp.read(&mut head).await.unwrap_or_default();
                read.lock().push(String::from_utf8_lossy(&head[..length]).into_owned());
                let _ = tcp.write_all(message.as_bytes()).await;
            }
        }));
        (port, heads, task)
    }

    #[tokio::test]
    async fn http_hook_succeeds_with_any_response() {
        let (port, heads, task) = serve("HTTP/1.1 500 No\r\nContent-Length: 9\r\n\r\n").await;
        let hook = json!({"httpGet": {"port": port, "path": "/bye"}});
        assert_eq!(run(&hook, Command::Hangs, Some(20)).await, (HookOutcome::Done, vec![]));
        let head = heads.lock().remove(0);
        assert!(head.starts_with("GET /bye HTTP/1.1\r\nUser-Agent: kube-lifecycle/1.35\r\n"), "{head}");
        task.abort();
        let _ = task.await;
        let message =
            format!("Get \"http://127.0.0.1:{port}/bye\": dial tcp 127.0.0.1:{port}: connect: connection refused");
        assert_eq!(run(&hook, Command::Hangs, None).await, (failed(&message), vec![]));
    }

    #[tokio::test]
    async fn https_hook_falls_back_to_http_without_credentials() {
        let (port, heads, _task) = serve("HTTP/1.1 400 Bad Request\r\n\r\n").await;
        let headers = json!([{"name": "Authorization", "value": "secret"}, {"name": "X", "value": "kept"}]);
        let hook = json!({"httpGet": {"port": port, "path": "/bye", "scheme": "HTTPS", "httpHeaders": headers}});
        let found = run(&hook, Command::Hangs, Some(20)).await;
        let message =
            format!("request to HTTPS lifecycle hook 127.0.0.1:{port} got HTTP response, retry with HTTP succeeded");
        assert_eq!(found, (HookOutcome::Done, vec![message]));
        let head = heads.lock().pop().unwrap_or_default();
        assert!(head.starts_with("GET /bye HTTP/1.1\r\n") && head.contains("\r\nX: kept\r\n"), "{head}");
        assert!(!head.contains("secret"), "{head}");
    }
}
