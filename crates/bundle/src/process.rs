//! Process of a container: command, environment, working directory, and what its user may do.

use crate::{
    CapabilitySet, ContainerContext, Error, HostInfo, ImageConfig, apparmor,
    capabilities::process_capabilities,
    users::{self, ResolvedUser},
};
use oci_spec::runtime::{Capability, Process, Spec, User};
use runtime::ContainerConfig;
use std::{collections::HashMap, path::PathBuf};

/// Search path of images without one.
const DEFAULT_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Terminal type of processes with a terminal.
const TERM: &str = "TERM=xterm";

/// Returns the first process of a container. The OCI runtime adds `HOME`, from the `/etc/passwd` that the container has
/// then.
pub(crate) fn container_process(
    context: &ContainerContext<'_>,
    host: &HostInfo,
    capabilities: CapabilitySet,
) -> Result<Process, Error> {
    let config = context.config;
    let user = users::resolve(&config.security, context.image, context.users)?;
    let mut process = Process::default();
    process
        .set_terminal(Some(config.tty))
        .set_user(oci_user(user))
        .set_args(Some(args(config, context.image)?))
        .set_env(Some(env(context, host)?))
        .set_cwd(working_dir(config, context.image)?)
        .set_capabilities(Some(process_capabilities(capabilities)))
        // The OCI runtime's own limits are inherited.
        .set_rlimits(None)
        .set_no_new_privileges(Some(config.security.no_new_privs))
        .set_apparmor_profile(apparmor::container_profile(&config.security, context.apparmor)?)
        .set_oom_score_adj(Some(oom_score_adj(config.resources.oom_score_adj, host)));
    Ok(process)
}

/// Returns a further process in a container: the first one's environment, user and rights, with another command.
///
/// # Errors
/// When the command is empty or contains a NUL byte.
pub fn exec_process(spec: &Spec, command: &[String], terminal: bool) -> Result<Process, Error> {
    check_command(command)?;
    let mut process = spec.process().clone().unwrap_or_default();
    if terminal {
        let mut env = Environment::default();
        process.env().iter().flatten().for_each(|variable| env.set(variable));
        env.set(TERM);
        process.set_env(Some(env.into_list()));
    }
    process.set_terminal(Some(terminal)).set_args(Some(command.to_vec()));
    Ok(process)
}

fn oci_user(user: ResolvedUser) -> User {
    let mut found = User::default();
    found.set_uid(user.uid).set_gid(user.gid).set_additional_gids(Some(user.groups));
    found
}

/// Returns the command: `command` replaces the image's entry point and its arguments, `args` the arguments only.
fn args(config: &ContainerConfig, image: &ImageConfig) -> Result<Vec<String>, Error> {
    let (mut command, mut args) = (config.command.as_slice(), config.args.as_slice());
    if command.is_empty() {
        if args.is_empty() {
            args = &image.cmd;
        }
        // An entry point of one empty string is how an image removes that of its base image.
        if !matches!(image.entrypoint.as_slice(), [only] if only.is_empty()) {
            command = &image.entrypoint;
        }
    }
    let all = [command, args].concat();
    check_command(&all)?;
    Ok(all)
}

fn check_command(command: &[String]) -> Result<(), Error> {
    match command {
        [] => Err(Error::NoCommand),
        _ if command.iter().any(|argument| argument.contains('\0')) => Err(Error::Nul("command")),
        _ => Ok(()),
    }
}

/// Returns the environment: defaults, the image's, the container's; a later value replaces an earlier one in its place.
fn env(context: &ContainerContext<'_>, host: &HostInfo) -> Result<Vec<String>, Error> {
    let mut env = Environment::default();
    env.set(DEFAULT_PATH);
    if context.config.tty {
        env.set(TERM);
    }
    let hostname = &context.sandbox.hostname;
    env.set(&format!("HOSTNAME={}", if hostname.is_empty() { &host.hostname } else { hostname }));
    context.image.env.iter().for_each(|variable| env.set(variable));
    context.config.env.iter().for_each(|(name, value)| env.set(&format!("{name}={value}")));
    let list = env.into_list();
    if list.iter().any(|variable| variable.contains('\0')) {
        return Err(Error::Nul("environment"));
    }
    Ok(list)
}

/// Environment variables, each name once.
#[derive(Debug, Default)]
struct Environment {
    variables: Vec<Option<String>>,
    places: HashMap<String, usize>,
}

impl Environment {
    /// Sets a variable, or removes it if there is no `=` (containerd's `replaceOrAppendEnvValues`).
    fn set(&mut self, variable: &str) {
        let (name, value) = match variable.split_once('=') {
            Some((name, _)) => (name, Some(variable.to_owned())),
            None => (variable, None),
        };
        match self.places.get(name).and_then(|place| self.variables.get_mut(*place)) {
            Some(place) => *place = value,
            None if value.is_none() => {}
            None => {
                self.places.insert(name.to_owned(), self.variables.len());
                self.variables.push(value);
            }
        }
    }

    fn into_list(self) -> Vec<String> {
        self.variables.into_iter().flatten().collect()
    }
}

fn working_dir(config: &ContainerConfig, image: &ImageConfig) -> Result<PathBuf, Error> {
    let dirs = [config.working_dir.as_str(), image.working_dir.as_str(), "/"];
    let dir = dirs.into_iter().find(|dir| !dir.is_empty()).unwrap_or("/");
    if dir.contains('\0') {
        return Err(Error::Nul("working directory"));
    }
    if !dir.starts_with('/') {
        return Err(Error::RelativeWorkingDir(dir.to_owned()));
    }
    Ok(dir.into())
}

/// Returns the OOM score adjustment in the range that the kernel allows: the OCI runtime would fail.
fn oom_score_adj(adjustment: i64, host: &HostInfo) -> i32 {
    let may_lower = host.capabilities.contains(Capability::SysResource);
    let lowest = if may_lower { -1000 } else { host.oom_score_adj.clamp(-1000, 1000) };
    i32::try_from(adjustment.clamp(lowest.into(), 1000)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
