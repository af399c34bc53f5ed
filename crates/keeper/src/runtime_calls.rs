//! Calls that run the OCI runtime.

use crate::{
    config::{CONTAINER_OPTIONS, CONTAINERS, ContainerOptions, KeeperConfig, read_json},
    connection::ReplyTo,
    container::{Container, Output, Read, read_some},
    cri_log::{LineSplitter, Stream},
    exit_file,
    exits::ExecProcess,
    io_source::{Interest, Kind, Source, Token},
    keeper::Keeper,
    operation::{EndedRun, Operation, Purpose, RunContext, RunResult, RuntimeCall, in_memory},
    process,
    protocol::{Answer, CallError, ErrorCode, ExecCall, Status},
    requests::{CallResult, assign, check_id, system},
};
use nix::fcntl::OFlag;
use rustix::{
    fs::{FileType, Gid, Uid},
    pty::OpenptFlags,
};
use std::{io, os::fd::OwnedFd, path::Path};

/// Maximum number of containers. Their list fits in one message.
const MAX_CONTAINERS: usize = 128;
/// Maximum number of processes of `exec`.
const MAX_EXECS: usize = 256;
/// Maximum number of concurrent runs of the OCI runtime.
const MAX_OPERATIONS: usize = 64;

impl Keeper {
    pub(crate) fn run_runtime(
        &mut self,
        container: u32,
        purpose: Purpose,
        reply: Option<ReplyTo>,
        call: RuntimeCall,
    ) -> Result<(), CallError> {
        // The keeper's own runs are bounded by the number of containers.
        let is_short = |operation: &&Operation| operation.purpose != Purpose::Wait;
        if reply.is_some() && self.operations.values().filter(is_short).count() >= MAX_OPERATIONS {
            return Err(CallError::new(ErrorCode::Limit, "too many concurrent calls of the OCI runtime"));
        }
        let serial = self.next_serial();
        let Some(target) = self.containers.get(&container) else { return Ok(()) };
        let context = RunContext { container, container_id: &target.id, dir: &target.dir, purpose, reply, serial };
        let started = Operation::start(&self.config.runtime, call, context);
        self.must_reap = true;
        let operation = started.map_err(|error| {
            let program = self.config.runtime.program.display();
            CallError::new(ErrorCode::System, format!("failed to run {program}: {error}"))
        })?;
        self.operations.insert(serial, operation);
        Ok(())
    }

    /// Creates a container, and starts it in the same run of the OCI runtime if requested.
    pub(crate) fn create_container(&mut self, to: ReplyTo, id: &str, start: bool) -> CallResult {
        check_id(id)?;
        if self.find_container(id).is_some() {
            return Err(CallError::new(ErrorCode::AlreadyExists, format!("container {id} exists")));
        }
        if self.containers.len() >= MAX_CONTAINERS {
            return Err(CallError::new(ErrorCode::Limit, "too many containers"));
        }
        let dir = self.dir.join(CONTAINERS).join(id);
        let invalid = |error: io::Error| CallError::new(ErrorCode::Invalid, error.to_string());
        let options: ContainerOptions = read_json(&dir.join(CONTAINER_OPTIONS)).map_err(invalid)?;
        let failed = |problem: &'static str| {
            move |error: io::Error| CallError::new(ErrorCode::System, format!("{problem}: {error}"))
        };
        let container = Container::new(id, &dir, options).map_err(failed("failed to open the log"))?;
        if start {
            mark_run(&dir)?;
        }
        exit_file::reserve(&dir).map_err(failed("failed to reserve the space of the container's exit"))?;
        let (purpose, mut call) = match start {
            true => (Purpose::Run, RuntimeCall::new("run", &["--detach"], &[id])),
            false => (Purpose::Create, RuntimeCall::new("create", &[], &[id])),
        };
        call.flags.extend(["--bundle".into(), container.bundle().into()]);
        call.starts_process = true;
        call.has_terminal = container.options.terminal;
        let serial = self.next_serial();
        self.containers.insert(serial, container);
        let result = self.create_pipes(serial, &mut call).map_err(failed("failed to create pipes"));
        let result = result.and_then(|()| self.run_runtime(serial, purpose, Some(to), call));
        if result.is_err() {
            self.containers.remove(&serial);
        }
        result.map(|()| None)
    }

    /// Creates the pipes of a container. They are read when the runtime has ended: until then, the runtime may write an error.
    fn create_pipes(&mut self, serial: u32, call: &mut RuntimeCall) -> io::Result<()> {
        let Some(container) = self.containers.get_mut(&serial) else { return Ok(()) };
        if container.options.terminal {
            return Ok(());
        }
        for (stream, kind) in [(Stream::Stdout, Kind::Stdout), (Stream::Stderr, Kind::Stderr)] {
            let (reader, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
            give_to_pod(&self.config, &writer)?;
            let source = Source::new(&self.epoll, reader, Token(kind, serial), Interest::Paused)?;
            *container.output(stream) = Some(Output { source, lines: LineSplitter::new(stream) });
            *(if stream == Stream::Stdout { &mut call.stdout } else { &mut call.stderr }) = Some(writer);
        }
        if container.options.stdin {
            let (reader, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
            give_to_pod(&self.config, &reader)?;
            container.stdin = Some(Source::new(&self.epoll, writer, Token(Kind::Stdin, serial), Interest::Paused)?);
            call.stdin = Some(reader);
        }
        Ok(())
    }

    pub(crate) fn start_container(&mut self, to: ReplyTo, id: &str) -> CallResult {
        let container = self.container_with_status(id, &[Status::Created])?;
        if self.containers.get(&container).is_some_and(|container| container.is_starting) {
            return Err(CallError::new(ErrorCode::WrongState, format!("container {id} is being started")));
        }
        self.run_runtime(container, Purpose::Start, Some(to), RuntimeCall::new("start", &[], &[id]))?;
        if let Some(container) = self.containers.get_mut(&container) {
            container.is_starting = true;
        }
        Ok(None)
    }

    pub(crate) fn kill_container(&mut self, to: ReplyTo, id: &str, signal: i32, all: bool) -> CallResult {
        if !(1..=64).contains(&signal) {
            return Err(CallError::new(ErrorCode::Invalid, "invalid signal"));
        }
        let serial = self.living_container(id)?;
        let pid = self.containers.get(&serial).and_then(|container| container.pid);
        // Signals of the real-time range have no names, and are sent by the runtime.
        let is_direct = self.config.runtime.direct_kill && !all && nix::sys::signal::Signal::try_from(signal).is_ok();
        if let Some(pid) = pid.filter(|_| is_direct) {
            return system("failed to send the signal", process::send_signal(pid, signal));
        }
        let flags: &[&str] = if all { &["--all"] } else { &[] };
        let call = RuntimeCall::new("kill", flags, &[id, &signal.to_string()]);
        self.run_runtime(serial, Purpose::Kill, Some(to), call)?;
        Ok(None)
    }

    pub(crate) fn delete_container(&mut self, to: ReplyTo, id: &str, force: bool) -> CallResult {
        let serial = self.known_container(id)?;
        if self.containers.get(&serial).is_some_and(|container| container.is_deleted) {
            return Ok(Some(Answer::Done));
        }
        let is_deleted = |operation: &Operation| {
            operation.container == serial
                && matches!(operation.purpose, Purpose::Delete | Purpose::Create | Purpose::Run)
        };
        let is_used = |container: &Container| container.is_starting || container.status == Status::Running;
        let is_used = !force && self.containers.get(&serial).is_some_and(is_used);
        if is_used || self.operations.values().any(is_deleted) {
            return Err(CallError::new(ErrorCode::WrongState, format!("container {id} is in use")));
        }
        // With this flag, a container that the runtime does not know any more is no error.
        self.run_runtime(serial, Purpose::Delete, Some(to), RuntimeCall::new("delete", &["--force"], &[id]))?;
        Ok(None)
    }

    pub(crate) fn exec(&mut self, to: ReplyTo, exec: &ExecCall, descriptors: Vec<OwnedFd>) -> CallResult {
        check_id(&exec.exec_id)?;
        let [stdin, stdout, stderr] = assign(descriptors, [exec.stdin, exec.stdout, exec.stderr])?;
        if exec.terminal && (stdin.is_some() || stdout.is_some() || stderr.is_some()) {
            return Err(CallError::new(ErrorCode::Invalid, "a terminal excludes other streams"));
        }
        let serial = self.container_with_status(&exec.id, &[Status::Running])?;
        let is_running = self.execs.values().any(|running| running.container == exec.id && running.id == exec.exec_id);
        let purpose = Purpose::Exec { exec_id: exec.exec_id.clone() };
        if is_running || self.operations.values().any(|op| op.container == serial && op.purpose == purpose) {
            return Err(CallError::new(ErrorCode::AlreadyExists, format!("process {} exists", exec.exec_id)));
        }
        if self.execs.len() >= MAX_EXECS {
            return Err(CallError::new(ErrorCode::Limit, "too many processes"));
        }
        for stream in [&stdin, &stdout, &stderr].into_iter().flatten() {
            let given = give_to_pod(&self.config, stream);
            given.map_err(|error| CallError::new(ErrorCode::System, format!("failed to give a stream: {error}")))?;
        }
        let mut call = RuntimeCall::new("exec", &["--detach"], &[&exec.id]);
        call.flags.extend(["--process".into(), exec.process.clone().into()]);
        (call.starts_process, call.has_terminal) = (true, exec.terminal);
        (call.stdin, call.stdout, call.stderr) = (stdin, stdout, stderr);
        self.run_runtime(serial, purpose, Some(to), call)?;
        Ok(None)
    }

    pub(crate) fn update_resources(&mut self, to: ReplyTo, id: &str, resources: &str) -> CallResult {
        let serial = self.living_container(id)?;
        // For "-", `crun` opens /dev/stdin, which a node may lack.
        let mut call = RuntimeCall::new("update", &["--resources", "/proc/self/fd/0"], &[id]);
        let file = in_memory("resources", resources.as_bytes());
        call.stdin = Some(file.map_err(|error| CallError::new(ErrorCode::System, error.to_string()))?.into());
        self.run_runtime(serial, Purpose::Update, Some(to), call)?;
        Ok(None)
    }

    /// Kills the processes that outlived the first one of a container. Returns whether the runtime runs.
    pub(crate) fn kill_remaining(&mut self, serial: u32) -> bool {
        let Some(container) = self.containers.get(&serial) else { return false };
        let call = RuntimeCall::new("kill", &["--all"], &[&container.id, "KILL"]);
        self.run_runtime(serial, Purpose::KillRemaining, None, call).is_ok()
    }

    /// Handles the end of the OCI runtime.
    pub(crate) fn finish_operation(&mut self, serial: u32, code: i32) {
        let Some(operation) = self.operations.remove(&serial) else { return };
        let EndedRun { purpose, container, container_id, reply, outcome } = operation.finish(code);
        match purpose {
            Purpose::Create => self.finish_create(container, &container_id, reply, outcome, Status::Created),
            Purpose::Run => self.finish_create(container, &container_id, reply, outcome, Status::Running),
            Purpose::Exec { exec_id } => {
                let exec = ExecProcess { container: container_id, id: exec_id, sandbox_pid: None };
                self.finish_exec(exec, reply, outcome);
            }
            Purpose::Wait => self.finish_wait(container, outcome.map(|result| result.exit_code)),
            Purpose::Start => self.finish_start(container, reply, outcome.map(|_| ())),
            Purpose::Delete => self.finish_delete(container, reply, outcome.map(|_| ())),
            Purpose::Kill | Purpose::Update => self.reply(reply, outcome.map(|_| Answer::Done), None),
            Purpose::KillRemaining => self.complete_exit(container),
            Purpose::CleanUp => drop(self.containers.remove(&container)),
        }
        if !self.operations.values().any(Operation::starts_process) {
            self.early_exits.clear();
        }
    }

    fn finish_create(
        &mut self,
        serial: u32,
        id: &str,
        reply: Option<ReplyTo>,
        outcome: Result<RunResult, CallError>,
        status: Status,
    ) {
        let is_in_sandbox = self.is_in_sandbox(id);
        let opened = outcome.map_err(|error| self.with_stderr(serial, error)).and_then(|process| {
            let opened = self.open_streams(serial, process.terminal);
            opened.map_err(|error| CallError::new(ErrorCode::System, error.to_string()))?;
            Ok(process.pid)
        });
        match opened {
            Ok(pid) => {
                if let Some(container) = self.containers.get_mut(&serial) {
                    // That of the sandbox does not end with the container.
                    (container.pid, container.status) = (Some(pid).filter(|_| !is_in_sandbox), status);
                }
                let answer = if status == Status::Running { Answer::Started(pid) } else { Answer::Process(pid) };
                self.reply(reply, Ok(answer), None);
                if is_in_sandbox {
                    self.wait_for_container(serial);
                } else if let Some(exit) = self.early_exits.remove(&pid) {
                    self.on_container_exit(serial, exit);
                }
            }
            Err(error) => {
                if let Some(container) = self.containers.get(&serial) {
                    exit_file::release(&container.dir);
                }
                // A runtime that ends with an error has removed everything, unless it was killed.
                let is_removed = error.code == ErrorCode::Runtime;
                let call = RuntimeCall::new("delete", &["--force"], &[id]);
                if is_removed || self.run_runtime(serial, Purpose::CleanUp, None, call).is_err() {
                    self.containers.remove(&serial);
                }
                self.reply(reply, Err(error), None);
            }
        }
    }

    /// Adds what a runtime without a log wrote to stderr, which is that of the container.
    fn with_stderr(&mut self, serial: u32, error: CallError) -> CallError {
        let stderr = self.containers.get(&serial).and_then(|container| container.stderr.as_ref());
        let has_text = error.code != ErrorCode::Runtime || !error.message.starts_with("the OCI runtime failed");
        let Some(stderr) = stderr.filter(|_| !has_text) else { return error };
        let buffer = self.buffers.input.get_mut(..4096).unwrap_or_default();
        let Read::Data(count) = read_some(&stderr.source, buffer) else { return error };
        let text = String::from_utf8_lossy(self.buffers.input.get(..count).unwrap_or_default());
        CallError::new(ErrorCode::Runtime, format!("{}: {}", error.message, text.trim()))
    }

    /// Begins to read the streams of a created container.
    fn open_streams(&mut self, serial: u32, terminal: Option<OwnedFd>) -> io::Result<()> {
        let Some(container) = self.containers.get_mut(&serial) else { return Ok(()) };
        if let Some(master) = terminal {
            let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
            container.terminal = Some(rustix::pty::ioctl_tiocgptpeer(&master, flags)?);
            let source = Source::new(&self.epoll, master, Token(Kind::Stdout, serial), Interest::Read)?;
            container.stdout = Some(Output { source, lines: LineSplitter::new(Stream::Stdout) });
            return Ok(());
        }
        for stream in [Stream::Stdout, Stream::Stderr] {
            if let Some(output) = container.output(stream) {
                output.source.set_interest(Interest::Read)?;
            }
        }
        container.stdin.as_mut().map_or(Ok(()), |stdin| stdin.set_interest(Interest::Hangup))
    }

    fn finish_start(&mut self, serial: u32, reply: Option<ReplyTo>, outcome: Result<(), CallError>) {
        let mut has_ended = false;
        if let Some(container) = self.containers.get_mut(&serial) {
            container.is_starting = false;
            if outcome.is_ok() && container.status == Status::Created {
                container.status = Status::Running;
            }
            has_ended = container.process_exit.is_some();
        }
        self.reply(reply, outcome.map(|()| Answer::Done), None);
        self.wait_for_container(serial);
        if has_ended {
            self.begin_exit(serial);
        }
    }

    fn finish_delete(&mut self, serial: u32, reply: Option<ReplyTo>, outcome: Result<(), CallError>) {
        match (outcome, self.containers.get_mut(&serial)) {
            (Ok(()), Some(container)) if container.has_begun() => {
                // Its exit is reported first.
                if container.exit.is_none() {
                    container.deletion = Some(reply);
                    return;
                }
                self.remove_container(serial, reply);
            }
            (Ok(()), _) => self.remove_container(serial, reply),
            (Err(error), _) => self.reply(reply, Err(error), None),
        }
    }

    /// Forgets a deleted container, unless its exit is not stored yet.
    pub(crate) fn remove_container(&mut self, serial: u32, reply: Option<ReplyTo>) {
        match self.containers.get_mut(&serial) {
            Some(container) if container.unstored.is_some() => container.is_deleted = true,
            _ => drop(self.containers.remove(&serial)),
        }
        self.reply(reply, Ok(Answer::Done), None);
    }

    fn finish_exec(&mut self, exec: ExecProcess, reply: Option<ReplyTo>, outcome: Result<RunResult, CallError>) {
        let RunResult { pid, sandbox_pid, terminal, .. } = match outcome {
            Ok(started) => started,
            Err(error) => return self.reply(reply, Err(error), None),
        };
        let exec = ExecProcess { sandbox_pid, ..exec };
        self.reply(reply, Ok(Answer::Process(pid)), terminal);
        match self.early_exits.remove(&pid) {
            Some(exit) => self.publish_exec_exit(exec, exit.code),
            None => drop(self.execs.insert(pid, exec)),
        }
    }
}

/// Lets processes of a user namespace open a pipe of theirs by its path, for example `/dev/stdout`.
fn give_to_pod(config: &KeeperConfig, stream: &OwnedFd) -> io::Result<()> {
    let Some(mapping) = config.user_mapping else { return Ok(()) };
    let file_type = FileType::from_raw_mode(rustix::fs::fstat(stream)?.st_mode);
    if file_type == FileType::Fifo {
        rustix::fs::fchown(stream, Some(Uid::from_raw(mapping.host_id)), Some(Gid::from_raw(mapping.host_id)))?;
    }
    Ok(())
}

/// Records that a container is run. A run that fails may have executed the program already: it must not be executed again.
fn mark_run(dir: &Path) -> Result<(), CallError> {
    let path = dir.join("run-began");
    if path.exists() {
        return Err(CallError::new(ErrorCode::WrongState, "the container was run before, and its exit is not known"));
    }
    let created = files::create_private(&path).map(drop);
    created.map_err(|error| CallError::new(ErrorCode::System, format!("failed to record the run: {error}")))
}
