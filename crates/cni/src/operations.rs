//! ADD, DEL and STATUS of a network's plugins (libcni's `AddNetworkList`, `DelNetworkList` and `GetStatusNetworkList`).

use crate::{
    Error, Inner, PluginError, capabilities,
    config::{self, NetworkConfig, PluginConfig},
    leftovers, netns,
    plugin::{Invocation, find},
    record::{self, Record},
    result, stale,
};
use runtime::SandboxConfig;
use serde_json::Value;
use std::{
    io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// Runs blocking work.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined.map_err(|error| Error::Namespace { doing: "run a thread", source: io::Error::other(error) })?
}

fn namespace(doing: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Namespace { doing, source }
}

pub(crate) async fn attach(
    inner: &Arc<Inner>,
    sandbox: &str,
    netns: &Path,
    config: &SandboxConfig,
) -> Result<Vec<IpAddr>, Error> {
    if !config::is_valid_name(sandbox) {
        return Err(Error::InvalidSandbox(sandbox.to_owned()));
    }
    stale::check(inner)?;
    if let Some(earlier) = load(inner, sandbox).await? {
        match &earlier.result {
            Some(result) if netns::is_namespace(&earlier.netns) => return result::addresses(result),
            _ => undo(&inner.options.data_dir, earlier, inner.timeout).await?,
        }
    }
    let (options, pod) = (inner.options.clone(), config.clone());
    let (id, source) = (sandbox.to_owned(), netns.to_owned());
    let (mut record, programs) = blocking(move || {
        let network = config::load(&options.conf_dir)?;
        // Before anything has to be undone.
        let programs = find_all(&network, &options.bin_dirs)?;
        let arguments = capabilities::arguments(&id, &pod)?;
        let capabilities = capabilities::capabilities(&pod)?;
        let netns = netns::path(&options.netns_dir, &id);
        let record = Record::new(&id, netns, network, arguments, capabilities, options.bin_dirs);
        record.save(&options.data_dir)?;
        Ok((record, programs))
    })
    .await?;
    match complete(inner, &mut record, &source, &programs).await {
        Ok(addresses) => {
            // Whatever prevented an earlier removal may be gone.
            stale::retry(inner);
            Ok(addresses)
        }
        Err(error) => {
            if let Err(error) = undo(&inner.options.data_dir, record, inner.timeout).await {
                tracing::warn!(sandbox, %error, "failed to undo a failed CNI ADD, retrying in the background");
                stale::collect(inner, [sandbox.to_owned()]);
            }
            Err(error)
        }
    }
}

/// Does what a record announces.
async fn complete(
    inner: &Inner,
    record: &mut Record,
    source: &Path,
    programs: &[PathBuf],
) -> Result<Vec<IpAddr>, Error> {
    let (path, source) = (record.netns.clone(), source.to_owned());
    blocking(move || netns::pin(&path, &source).map_err(namespace("mount the network namespace"))).await?;
    netns::set_loopback_up(&record.netns).await.map_err(namespace("set lo up"))?;
    let result = add(record, programs, inner.timeout).await?;
    let addresses = result.as_ref().map(result::addresses).transpose()?.unwrap_or_default();
    record.result = result;
    if addresses.is_empty() {
        return Err(Error::NoAddress(record.sandbox.clone()));
    }
    let (saved, data_dir) = (record.clone(), inner.options.data_dir.clone());
    blocking(move || saved.save(&data_dir)).await?;
    Ok(addresses)
}

fn find_all(network: &NetworkConfig, bin_dirs: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    let programs = network
        .plugins
        .iter()
        .map(|plugin| find(plugin.type_name(), bin_dirs).map_err(|source| plugin_failed(plugin, "add", source)));
    programs.collect()
}

fn plugin_failed(plugin: &PluginConfig, command: &'static str, source: PluginError) -> Error {
    Error::Plugin { plugin: plugin.description(), command, source }
}

async fn add(record: &Record, programs: &[PathBuf], timeout: Duration) -> Result<Option<Value>, Error> {
    let mut previous = None;
    for (plugin, program) in record.network.plugins.iter().zip(programs) {
        let input = plugin.input(&record.network, previous.as_ref(), &record.capabilities);
        let output = invocation(record, program, "ADD", &input, timeout).run().await;
        let result = output.and_then(|output| result::parse(&output, &record.network.cni_version));
        previous = Some(result.map_err(|source| plugin_failed(plugin, "add", source))?);
    }
    Ok(previous)
}

fn invocation<'a>(
    record: &'a Record,
    program: &'a Path,
    command: &'static str,
    input: &Value,
    timeout: Duration,
) -> Invocation<'a> {
    Invocation {
        program,
        command,
        sandbox: &record.sandbox,
        netns: &record.netns,
        arguments: &record.arguments,
        bin_dirs: &record.bin_dirs,
        input: input.to_string().into_bytes(),
        timeout,
    }
}

async fn load(inner: &Inner, sandbox: &str) -> Result<Option<Record>, Error> {
    let (data_dir, sandbox) = (inner.options.data_dir.clone(), sandbox.to_owned());
    blocking(move || record::load(&data_dir, &sandbox)).await
}

pub(crate) async fn detach(inner: &Arc<Inner>, sandbox: &str) -> Result<(), Error> {
    if !config::is_valid_name(sandbox) {
        return Err(Error::InvalidSandbox(sandbox.to_owned()));
    }
    match load(inner, sandbox).await? {
        None => Ok(()),
        Some(record) if record.result.is_some() => undo(&inner.options.data_dir, record, inner.timeout).await,
        Some(_) => {
            stale::collect(inner, [sandbox.to_owned()]);
            Ok(())
        }
    }
}

/// Undoes what a record announces, and removes it.
///
/// # Errors
/// When a plugin fails, or one of an interrupted ADD does not end; then the record stays.
pub(crate) async fn undo(data_dir: &Path, record: Record, timeout: Duration) -> Result<(), Error> {
    if record.result.is_none() {
        leftovers::end(&record.sandbox).await?;
    }
    delete(&record, timeout).await?;
    let data_dir = data_dir.to_owned();
    blocking(move || {
        netns::unpin(&record.netns).map_err(namespace("unmount the network namespace"))?;
        record::remove(&data_dir, &record.sandbox)
    })
    .await
}

async fn delete(record: &Record, timeout: Duration) -> Result<(), Error> {
    let has_namespace = netns::is_namespace(&record.netns);
    // The result is an input of DEL from version 0.4.0 on. libcni converts one of another version, or sends none.
    let version = &record.network.cni_version;
    let is_input = |result: &&Value| record.network.is_at_least("0.4.0") && result["cniVersion"] == version.as_str();
    let previous = record.result.as_ref().filter(is_input);
    for plugin in record.network.plugins.iter().rev() {
        let run = async {
            let program = find(plugin.type_name(), &record.bin_dirs)?;
            let input = plugin.input(&record.network, previous, &record.capabilities);
            let mut invocation = invocation(record, &program, "DEL", &input, timeout);
            if !has_namespace {
                invocation.netns = Path::new("");
            }
            invocation.run().await
        };
        match run.await {
            Err(error) if is_gone(&error.message, has_namespace) => {
                tracing::debug!(sandbox = record.sandbox, %error, "CNI DEL found nothing to delete");
            }
            result => drop(result.map_err(|source| plugin_failed(plugin, "delete", source))?),
        }
    }
    Ok(())
}

/// Whether DEL failed because there is nothing to delete. The specification requires success then, but not all plugins
/// comply (go-cni's `Remove`).
fn is_gone(message: &str, has_namespace: bool) -> bool {
    (!has_namespace && message.contains("no such file or directory")) || message.contains("not found")
}

pub(crate) async fn status(inner: &Inner, timeout: Duration) -> Result<(), Error> {
    let options = inner.options.clone();
    let network = blocking(move || config::load(&options.conf_dir)).await?;
    if !network.is_at_least("1.1.0") {
        return Ok(());
    }
    for plugin in &network.plugins {
        let run = async {
            let program = find(plugin.type_name(), &inner.options.bin_dirs)?;
            let input = plugin.input(&network, None, &serde_json::Map::new());
            let invocation = Invocation {
                program: &program,
                command: "STATUS",
                sandbox: "",
                netns: Path::new(""),
                arguments: "",
                bin_dirs: &inner.options.bin_dirs,
                input: input.to_string().into_bytes(),
                timeout,
            };
            invocation.run().await
        };
        run.await.map_err(Error::Status)?;
    }
    Ok(())
}
