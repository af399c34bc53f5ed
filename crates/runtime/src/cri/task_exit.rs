//! Container exits in containerd's events.
//!
//! containerd publishes an event as soon as the process has exited. Its CRI plugin reports the exit about 40 ms later, when
//! the task is deleted (`runc delete`), all output is logged and the state is stored. Exit code and time are the same. The
//! event has no reason; except for a few cases, the CRI plugin derives the reason from the exit code.

use super::proto::events::{Envelope, TaskExit, TaskOom};
use crate::{ContainerId, Exit, RuntimeEvent, SandboxId};
use jiff::Timestamp;
use prost::Message;
use std::collections::HashSet;

const EXIT: &str = "/tasks/exit";
const OUT_OF_MEMORY: &str = "/tasks/oom";

/// Exit codes for which the CRI may report another reason: a failed start (`StartError`), and an unobserved exit
/// (`Unknown`).
const AMBIGUOUS: [i32; 2] = [128, 255];

/// Returns the filters of the event subscription.
pub(super) fn filters() -> Vec<String> {
    [EXIT, OUT_OF_MEMORY].map(|topic| format!(r#"namespace=="k8s.io",topic=="{topic}""#)).into()
}

/// Decoder of the events of a subscription.
#[derive(Debug, Default)]
pub(super) struct EventDecoder {
    /// Running containers with an OOM event: the CRI reports `OOMKilled` for them, whatever their exit code.
    oom_containers: HashSet<String>,
}

/// Decoded event.
#[derive(Debug, PartialEq)]
pub(super) enum TaskEvent {
    /// Exit of a container or a sandbox: containerd does not distinguish them, so the kubelet looks up the ID.
    Exited([RuntimeEvent; 2]),
    /// Exit of an exec command: container ID and exec ID.
    CommandExited(String, String),
    /// Ignored event.
    Ignored,
}

impl EventDecoder {
    pub(super) fn decode(&mut self, envelope: Envelope) -> TaskEvent {
        let Some(body) = envelope.event else { return TaskEvent::Ignored };
        match envelope.topic.as_str() {
            OUT_OF_MEMORY => {
                let lacked = TaskOom::decode(body.value.as_slice()).ok();
                self.oom_containers.extend(lacked.map(|event| event.container_id));
                TaskEvent::Ignored
            }
            EXIT => TaskExit::decode(body.value.as_slice()).map_or(TaskEvent::Ignored, |exit| self.exited(exit)),
            _ => TaskEvent::Ignored,
        }
    }

    fn exited(&mut self, event: TaskExit) -> TaskEvent {
        if event.id != event.container_id {
            return TaskEvent::CommandExited(event.container_id, event.id);
        }
        let was_oom_killed = self.oom_containers.remove(&event.container_id);
        let exit = exit(&event).filter(|_| !was_oom_killed);
        let container = RuntimeEvent::ContainerExited(ContainerId(event.container_id.clone()), exit);
        TaskEvent::Exited([container, RuntimeEvent::SandboxExited(SandboxId(event.container_id))])
    }
}

/// Returns the exit that the CRI will report, or `None` if the CRI may report another reason. An OOM kill (exit code 137)
/// has a separate event, which may arrive later; the cgroup's `memory.events` is up to date.
fn exit(event: &TaskExit) -> Option<Exit> {
    let code = i32::try_from(event.exit_status).ok().filter(|code| !AMBIGUOUS.contains(code))?;
    let at = event.exited_at.as_ref().filter(|at| at.seconds > 0)?;
    let finished_at = Timestamp::new(at.seconds, at.nanos).ok()?;
    let reason = if code == 0 { "Completed" } else { "Error" }.to_owned();
    Some(Exit { code, reason, message: String::new(), finished_at })
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost_types::Any;

    fn envelope(topic: &str, event: &impl Message) -> Envelope {
        let value = event.encode_to_vec();
        let event = Some(Any { type_url: String::new(), value });
        Envelope { namespace: "k8s.io".to_owned(), topic: topic.to_owned(), event }
    }

    fn task_exit(id: &str, exit_status: u32) -> TaskExit {
        let exited_at = Some(prost_types::Timestamp { seconds: 1_800_000_000, nanos: 5 });
        TaskExit { container_id: "c".to_owned(), id: id.to_owned(), pid: 7, exit_status, exited_at }
    }

    /// Decodes an exit event of the container `c`.
    #[track_caller]
    fn decode_exit(decoder: &mut EventDecoder, event: &TaskExit) -> Option<Exit> {
        let TaskEvent::Exited([RuntimeEvent::ContainerExited(id, exit), sandbox]) =
            decoder.decode(envelope(EXIT, event))
        else {
            panic!("expected an exit");
        };
        assert_eq!((id.0.as_str(), sandbox), ("c", RuntimeEvent::SandboxExited(SandboxId("c".to_owned()))));
        exit
    }

    #[test]
    fn exit_event_matches_the_later_cri_status() {
        let check = |code, expected: Option<&str>| {
            let exit = decode_exit(&mut EventDecoder::default(), &task_exit("c", code));
            assert_eq!(exit.as_ref().map(|e| e.reason.as_str()), expected, "{code}");
            if let Some(exit) = exit {
                assert_eq!((exit.code.cast_unsigned(), exit.message.as_str()), (code, ""));
                assert_eq!(exit.finished_at.as_nanosecond(), 1_800_000_000_000_000_005);
            }
        };
        check(0, Some("Completed"));
        check(1, Some("Error"));
        check(130, Some("Error"));
        check(137, Some("Error"));
        check(143, Some("Error"));
        // Possibly a failed start, or an unobserved exit.
        check(128, None);
        check(255, None);
        check(u32::MAX, None);
    }

    #[test]
    fn exit_event_without_time_requires_the_cri_status() {
        for exited_at in [None, Some(prost_types::Timestamp::default())] {
            assert_eq!(decode_exit(&mut EventDecoder::default(), &TaskExit { exited_at, ..task_exit("c", 0) }), None);
        }
    }

    #[test]
    fn exit_after_oom_event_requires_the_cri_status() {
        let mut decoder = EventDecoder::default();
        let lacked = TaskOom { container_id: "c".to_owned() };
        assert_eq!(decoder.decode(envelope(OUT_OF_MEMORY, &lacked)), TaskEvent::Ignored);
        assert_eq!(decode_exit(&mut decoder, &task_exit("c", 1)), None);
        // The OOM event is consumed by the exit.
        assert!(decoder.oom_containers.is_empty());
    }

    #[test]
    fn exec_exit_is_not_the_exit_of_its_container() {
        let news = EventDecoder::default().decode(envelope(EXIT, &task_exit("e", 0)));
        assert_eq!(news, TaskEvent::CommandExited("c".to_owned(), "e".to_owned()));
    }

    #[test]
    fn undecodable_event_is_ignored() {
        let mut decoder = EventDecoder::default();
        let invalid =
            Envelope { event: Some(Any { type_url: String::new(), value: vec![0xff] }), ..envelope(EXIT, &()) };
        assert_eq!(decoder.decode(invalid), TaskEvent::Ignored);
        assert_eq!(decoder.decode(Envelope { event: None, ..envelope(EXIT, &()) }), TaskEvent::Ignored);
        assert_eq!(decoder.decode(envelope("/tasks/start", &task_exit("c", 0))), TaskEvent::Ignored);
    }
}
