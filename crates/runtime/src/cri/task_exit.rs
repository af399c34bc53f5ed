//! What containerd's own events say of the end of a container.
//!
//! An event comes as soon as the process is gone. containerd's CRI shows the end some 40 ms later, when the task is
//! deleted (`runc delete`), all output is in the log, and the new state is on disk. Code and time are the same in both.
//! The reason is not in the event; the CRI makes it of the code, but for a few cases in which it knows more.

use super::proto::events::{Envelope, TaskExit, TaskOom};
use crate::{ContainerId, Exit, RuntimeEvent, SandboxId};
use jiff::Timestamp;
use prost::Message;
use std::collections::HashSet;

const EXIT: &str = "/tasks/exit";
const OUT_OF_MEMORY: &str = "/tasks/oom";

/// Codes that may stand for more than themselves: a start that failed (`StartError`), and an end that nobody saw
/// (`Unknown`).
const AMBIGUOUS: [i32; 2] = [128, 255];

/// What is to be subscribed to.
pub(super) fn filters() -> Vec<String> {
    [EXIT, OUT_OF_MEMORY].map(|topic| format!(r#"namespace=="k8s.io",topic=="{topic}""#)).into()
}

/// What one subscription has told so far.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Containers that lacked memory and have not ended: the CRI says `OOMKilled` of them, whatever their code.
    lacked_memory: HashSet<String>,
}

/// What an event says.
#[derive(Debug, PartialEq)]
pub(super) enum News {
    /// Of a container, or of a sandbox: containerd runs both alike, and the kubelet knows which of its ids this one is.
    Ended([RuntimeEvent; 2]),
    /// A command in this container ended: the container's id and the command's.
    CommandEnded(String, String),
    /// Nothing to be told.
    Nothing,
}

impl Told {
    pub(super) fn hear(&mut self, envelope: Envelope) -> News {
        let Some(body) = envelope.event else { return News::Nothing };
        match envelope.topic.as_str() {
            OUT_OF_MEMORY => {
                let lacked = TaskOom::decode(body.value.as_slice()).ok();
                self.lacked_memory.extend(lacked.map(|event| event.container_id));
                News::Nothing
            }
            EXIT => TaskExit::decode(body.value.as_slice()).map_or(News::Nothing, |exit| self.exited(exit)),
            _ => News::Nothing,
        }
    }

    fn exited(&mut self, event: TaskExit) -> News {
        if event.id != event.container_id {
            return News::CommandEnded(event.container_id, event.id);
        }
        let lacked_memory = self.lacked_memory.remove(&event.container_id);
        let exit = exit(&event).filter(|_| !lacked_memory);
        let container = RuntimeEvent::ContainerExited(ContainerId(event.container_id.clone()), exit);
        News::Ended([container, RuntimeEvent::SandboxExited(SandboxId(event.container_id))])
    }
}

/// The end as the CRI will show it; `None` where it may say more. Whether SIGKILL (137) came for lack of memory is told
/// by an event of its own, which may be late: who needs to know at once asks the kernel.
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

    /// The end of the container `c`, as it is told.
    #[track_caller]
    fn told(told: &mut Told, event: &TaskExit) -> Option<Exit> {
        let News::Ended([RuntimeEvent::ContainerExited(id, exit), sandbox]) = told.hear(envelope(EXIT, event)) else {
            panic!("it has ended");
        };
        assert_eq!((id.0.as_str(), sandbox), ("c", RuntimeEvent::SandboxExited(SandboxId("c".to_owned()))));
        exit
    }

    #[test]
    fn an_event_tells_what_the_cri_will_and_no_more() {
        let check = |code, expected: Option<&str>| {
            let exit = told(&mut Told::default(), &task_exit("c", code));
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
        // A start that failed, perhaps; an end that nobody saw.
        check(128, None);
        check(255, None);
        check(u32::MAX, None);
    }

    #[test]
    fn an_end_without_a_time_is_asked_for() {
        for exited_at in [None, Some(prost_types::Timestamp::default())] {
            assert_eq!(told(&mut Told::default(), &TaskExit { exited_at, ..task_exit("c", 0) }), None);
        }
    }

    #[test]
    fn of_one_that_lacked_memory_only_the_cri_knows_the_reason() {
        let mut heard = Told::default();
        let lacked = TaskOom { container_id: "c".to_owned() };
        assert_eq!(heard.hear(envelope(OUT_OF_MEMORY, &lacked)), News::Nothing);
        assert_eq!(told(&mut heard, &task_exit("c", 1)), None);
        // It ends once; what is told twice is asked for, if at all, by who knows of the first.
        assert!(heard.lacked_memory.is_empty());
    }

    #[test]
    fn a_command_is_not_its_container() {
        let news = Told::default().hear(envelope(EXIT, &task_exit("e", 0)));
        assert_eq!(news, News::CommandEnded("c".to_owned(), "e".to_owned()));
    }

    #[test]
    fn what_cannot_be_read_is_passed_over() {
        let mut heard = Told::default();
        let broken =
            Envelope { event: Some(Any { type_url: String::new(), value: vec![0xff] }), ..envelope(EXIT, &()) };
        assert_eq!(heard.hear(broken), News::Nothing);
        assert_eq!(heard.hear(Envelope { event: None, ..envelope(EXIT, &()) }), News::Nothing);
        assert_eq!(heard.hear(envelope("/tasks/start", &task_exit("c", 0))), News::Nothing);
    }
}
