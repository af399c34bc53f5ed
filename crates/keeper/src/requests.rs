//! Requests of clients.

use crate::{
    config::is_valid_id,
    connection::ReplyTo,
    container::Container,
    exits::ExecProcess,
    keeper::Keeper,
    process,
    protocol::{Answer, Call, CallError, ErrorCode, Hello, OLDEST_VERSION, PROTOCOL_VERSION, Request, Status},
};
use std::{fmt::Display, io, os::fd::OwnedFd};

/// The answer, or `None` if the OCI runtime runs, and the answer follows.
pub(crate) type CallResult = Result<Option<Answer>, CallError>;

/// The answer of calls without a result.
const DONE: CallResult = Ok(Some(Answer::Done));

impl Keeper {
    /// Executes a request.
    pub(crate) fn handle(&mut self, client: u32, request: Request, descriptors: Vec<OwnedFd>) {
        let to = ReplyTo { client, request: request.id };
        let is_greeted = self.clients.get(&client).is_some_and(|client| client.is_greeted);
        let result = match request.call {
            Call::Hello { version } => self.greet(client, version),
            _ if !is_greeted => Err(CallError::new(ErrorCode::Invalid, "the first request must be hello")),
            call => self.call(to, call, descriptors),
        };
        if let Some(result) = result.transpose() {
            self.reply(Some(to), result, None);
        }
    }

    fn greet(&mut self, client: u32, version: u32) -> CallResult {
        if version < OLDEST_VERSION {
            let text =
                format!("the client speaks version {version}, the keeper {OLDEST_VERSION} to {PROTOCOL_VERSION}");
            return Err(CallError::new(ErrorCode::Version, text));
        }
        if let Some(client) = self.clients.get_mut(&client) {
            client.is_greeted = true;
        }
        // A newer client decides whether it speaks this version.
        Ok(Some(Answer::Hello(Hello { version: version.min(PROTOCOL_VERSION), ..self.hello.clone() })))
    }

    fn call(&mut self, to: ReplyTo, call: Call, descriptors: Vec<OwnedFd>) -> CallResult {
        match call {
            Call::Hello { .. } => DONE,
            Call::CreateContainer { id, start } => self.create_container(to, &id, start),
            Call::StartContainer { id } => self.start_container(to, &id),
            Call::KillContainer { id, signal, all } => self.kill_container(to, &id, signal, all),
            Call::DeleteContainer { id, force } => self.delete_container(to, &id, force),
            Call::Exec(exec) => self.exec(to, &exec, descriptors),
            Call::KillExec { id, exec_id, signal } => self.kill_exec(to, &id, &exec_id, signal),
            Call::Attach { id, stdin, stdout, stderr } => {
                let streams = assign(descriptors, [stdin, stdout, stderr])?;
                let container = self.living_container(&id)?;
                self.attach(container, streams)?;
                DONE
            }
            Call::ResizeTerminal { id, width, height } => {
                let container = self.living_container(&id)?;
                let result = self.containers.get(&container).map(|container| container.resize(width, height));
                system("failed to resize the terminal", result.unwrap_or(Ok(())))
            }
            Call::CloseStdin { id } => {
                let container = self.living_container(&id)?;
                if let Some(container) = self.containers.get_mut(&container) {
                    container.close_stdin();
                }
                self.resume_attached_stdin();
                DONE
            }
            Call::ReopenLog { id } => {
                // The log of an ended container is complete: a new file would hide its end.
                let container = self.living_container(&id)?;
                let result = self.containers.get_mut(&container).map(|container| container.log.reopen());
                system("failed to reopen the log", result.unwrap_or(Ok(())))
            }
            Call::UpdateResources { id, resources } => self.update_resources(to, &id, resources.get()),
            Call::Subscribe => {
                if let Some(client) = self.clients.get_mut(&to.client) {
                    client.is_subscribed = true;
                }
                DONE
            }
            Call::ListContainers => {
                let states = self.containers.values().map(Container::state).collect();
                Ok(Some(Answer::Containers(states)))
            }
            Call::Shutdown => self.shutdown(),
        }
    }

    fn shutdown(&mut self) -> CallResult {
        // An exit that cannot be stored is no reason to exist longer than the Pod.
        if self.containers.values().any(|container| !container.is_deleted) || !self.operations.is_empty() {
            return Err(CallError::new(ErrorCode::WrongState, "the keeper has containers"));
        }
        self.is_stopping = true;
        DONE
    }

    fn kill_exec(&mut self, to: ReplyTo, id: &str, exec_id: &str, signal: i32) -> CallResult {
        let is_it = |(_, exec): &(&i32, &ExecProcess)| exec.container == id && exec.id == exec_id;
        let Some((pid, exec)) = self.execs.iter().find(is_it) else {
            return Err(CallError::new(ErrorCode::NotFound, format!("process {exec_id} does not run")));
        };
        if let Some(sandbox_pid) = exec.sandbox_pid {
            return self.kill_in_sandbox(to, id, sandbox_pid, signal);
        }
        system("failed to send the signal", process::send_signal(*pid, signal))
    }

    /// Returns the serial number of a container.
    pub(crate) fn known_container(&self, id: &str) -> Result<u32, CallError> {
        self.find_container(id)
            .ok_or_else(|| CallError::new(ErrorCode::NotFound, format!("container {id} does not exist")))
    }

    /// Returns the serial number of a container that is created or running.
    pub(crate) fn living_container(&self, id: &str) -> Result<u32, CallError> {
        self.container_with_status(id, &[Status::Created, Status::Running])
    }

    /// Returns the serial number of a container with one of these statuses.
    pub(crate) fn container_with_status(&self, id: &str, allowed: &[Status]) -> Result<u32, CallError> {
        let serial = self.known_container(id)?;
        match self.containers.get(&serial) {
            // The first process may have ended, and its output is not written yet.
            Some(container) if allowed.contains(&container.status) && container.process_exit.is_none() => Ok(serial),
            Some(container) if container.process_exit.is_some() => Err(wrong_state(id, "Stopped")),
            Some(container) => Err(wrong_state(id, &format!("{:?}", container.status))),
            None => Err(wrong_state(id, "unknown")),
        }
    }
}

fn wrong_state(id: &str, state: &str) -> CallError {
    CallError::new(ErrorCode::WrongState, format!("container {id} is {}", state.to_lowercase()))
}

/// Returns the answer after a system call.
pub(crate) fn system(problem: impl Display, result: io::Result<()>) -> CallResult {
    match result {
        Ok(()) => DONE,
        Err(error) => Err(CallError::new(ErrorCode::System, format!("{problem}: {error}"))),
    }
}

/// Checks an ID of a new object.
pub(crate) fn check_id(id: &str) -> Result<(), CallError> {
    if is_valid_id(id) {
        return Ok(());
    }
    Err(CallError::new(ErrorCode::Invalid, "invalid ID: up to 96 letters, digits, dots, hyphens and underscores"))
}

/// Assigns descriptors to the streams that a request has.
pub(crate) fn assign<const N: usize>(
    descriptors: Vec<OwnedFd>,
    present: [bool; N],
) -> Result<[Option<OwnedFd>; N], CallError> {
    if descriptors.len() != present.iter().filter(|present| **present).count() {
        return Err(CallError::new(ErrorCode::Invalid, "wrong number of descriptors"));
    }
    let mut descriptors = descriptors.into_iter();
    Ok(present.map(|is_present| if is_present { descriptors.next() } else { None }))
}
