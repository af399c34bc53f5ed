//! Runs a case: creates its namespace, runs its steps in order, and cleans up.

use crate::{
    case::{Case, Identity, Step},
    client::{ApiRequest, ApiResponse, Client},
    events::Watch,
    matching::differences,
    variables::Variables,
};
use anyhow::{Context, Result, bail};
use base64::Engine;
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::{Instant, sleep};

/// Interval between repeated requests.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// Timeout for the deletion of all namespaces.
const DELETION_TIMEOUT: Duration = Duration::from_secs(120);
/// Shown length of a response.
const MAX_SHOWN: usize = 4000;

/// Runs a case with a unique name `prefix`. No wait takes longer than `patience`.
pub(crate) async fn case(client: &Client, case: &Case, prefix: &str, patience: Duration) -> Result<()> {
    let mut run = Run {
        client,
        variables: Variables::of_namespace(prefix),
        watches: BTreeMap::new(),
        finalized: Vec::new(),
        patience,
    };
    if case.namespace {
        run.make_namespace(prefix).await?;
    }
    let mut outcome = Ok(());
    for (i, step) in case.steps.iter().enumerate() {
        outcome = run.step(step).await.with_context(|| format!("step {} ({})", i + 1, case.source));
        if outcome.is_err() {
            break;
        }
    }
    run.clean_up(case, prefix).await;
    outcome
}

/// Waits until the namespaces of a run are deleted. A namespace that is not deleted in time is an error of the server or of a
/// case.
pub(crate) async fn wait_until_deleted(client: &Client, run: &str) -> Result<()> {
    let deadline = Instant::now() + DELETION_TIMEOUT;
    loop {
        let response = client.send(ApiRequest::plain("GET", "/api/v1/namespaces".to_owned())).await?.value();
        let names =
            response["items"].as_array().into_iter().flatten().filter_map(|item| item["metadata"]["name"].as_str());
        let left: Vec<_> = names.filter(|name| name.starts_with(run)).collect();
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("namespaces are not deleted: {}", left.join(" "));
        }
        sleep(RETRY_INTERVAL * 4).await;
    }
}

struct Run<'a> {
    client: &'a Client,
    variables: Variables,
    watches: BTreeMap<String, Watch>,
    /// Objects that the case created with finalizers.
    finalized: Vec<String>,
    patience: Duration,
}

impl Run<'_> {
    async fn make_namespace(&self, name: &str) -> Result<()> {
        let mut api_request = ApiRequest::plain("POST", "/api/v1/namespaces".to_owned());
        api_request.body =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}).to_string().into();
        api_request.headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
        let response = self.client.send(api_request).await?;
        if response.status != 201 {
            bail!("failed to create namespace {name}: {} {}", response.status, response.value());
        }
        Ok(())
    }

    /// Deletes the objects of the case. A missing object is not an error.
    async fn clean_up(&mut self, case: &Case, prefix: &str) {
        self.watches.clear();
        for path in self.finalized.drain(..) {
            let mut api_request = ApiRequest::plain("PATCH", path);
            api_request.headers.push(("Content-Type".to_owned(), "application/merge-patch+json".to_owned()));
            api_request.body = json!({"metadata": {"finalizers": null}}).to_string().into();
            drop(self.client.send(api_request).await);
        }
        let paths = case.cleanup.iter().filter_map(|path| self.variables.text(path).ok());
        let namespace = case.namespace.then(|| format!("/api/v1/namespaces/{prefix}"));
        for path in paths.chain(namespace) {
            drop(self.client.send(ApiRequest::plain("DELETE", path)).await);
        }
    }

    async fn step(&mut self, step: &Step) -> Result<()> {
        if let Some(expected) = &step.events {
            return self.events(step, expected).await;
        }
        if let Some(path) = &step.watch {
            let mut api_request = self.api_request("GET", path, step)?;
            api_request.path.push_str(if api_request.path.contains('?') { "&watch=true" } else { "?watch=true" });
            let watch = Watch::open(self.client, api_request).await?;
            self.watches.insert(step.save_as.clone(), watch);
            return Ok(());
        }
        for i in 0..step.times.unwrap_or(1) {
            self.variables.set("i", Value::from(i.to_string()));
            self.request(step).await?;
        }
        Ok(())
    }

    /// Sends a request, repeatedly until the response is as expected or the step times out.
    async fn request(&mut self, step: &Step) -> Result<()> {
        let (method, path) = step.request().context("the step has no request")?;
        let deadline = Instant::now() + Duration::from_secs(step.until.unwrap_or(0)).min(self.patience);
        loop {
            let api_request = self.api_request(method, path, step)?;
            let (description, to) = (api_request.description(), api_request.path.clone());
            let response = self.client.send(api_request).await.with_context(|| description.clone())?;
            self.finalized.extend(finalized(&to, step, &response));
            let wrong = self.check(step, &response)?;
            if wrong.is_empty() {
                return self.save(step, &response);
            }
            if Instant::now() >= deadline {
                bail!("{}", report(&description, &response, &wrong));
            }
            sleep(RETRY_INTERVAL).await;
        }
    }

    fn api_request(&self, method: &'static str, path: &str, step: &Step) -> Result<ApiRequest> {
        let mut api_request = ApiRequest::plain(method, self.variables.text(path)?);
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (key, value) in &step.query {
            match self.variables.value(value)? {
                Value::String(text) => query.append_pair(key, &text),
                other => query.append_pair(key, &other.to_string()),
            };
        }
        let query = query.finish();
        if !query.is_empty() {
            api_request.path = format!("{}?{query}", api_request.path);
        }
        api_request.body = if let Some(body) = &step.body {
            self.variables.value(body)?.to_string().into_bytes()
        } else if let Some(bytes) = &step.bytes {
            base64::engine::general_purpose::STANDARD.decode(bytes)?
        } else {
            self.variables.text(step.text.as_deref().unwrap_or_default())?.into_bytes()
        };
        if !step.headers.contains_key("Content-Type") && !api_request.body.is_empty() {
            let content_type = step.patch_type.map_or("application/json", |p| p.content_type());
            api_request.headers.push(("Content-Type".to_owned(), content_type.to_owned()));
        }
        for (name, value) in &step.headers {
            api_request.headers.push((name.clone(), self.variables.text(value)?));
        }
        api_request.identity = match &step.identity {
            Some(Identity::Token(token)) => Some(Identity::Token(self.variables.text(token)?)),
            Some(Identity::User(user)) => Some(Identity::User(self.variables.text(user)?)),
            other => other.clone(),
        };
        Ok(api_request)
    }

    /// Returns the differences between the response and the expected one.
    fn check(&self, step: &Step, response: &ApiResponse) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        if response.status != step.expected_status() {
            wrong.push(format!("status: expected {}, got {}", step.expected_status(), response.status));
        }
        let value = response.value();
        if let Some(expected) = &step.expect {
            wrong.extend(differences(&self.variables.value(expected)?, Some(&value)));
        }
        if let Some(lines) = &step.lines {
            let text = String::from_utf8_lossy(&response.body);
            let given: Value =
                text.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|_| Value::from(l))).collect();
            wrong.extend(differences(&self.variables.value(lines)?, Some(&given)));
        }
        for pointer in &step.absent {
            if let Some(found) = value.pointer(pointer) {
                wrong.push(format!("{pointer}: expected nothing, got {found}"));
            }
        }
        for (name, expected) in &step.answers {
            let given = response.header(name).map(Value::from);
            let found = differences(&self.variables.value(expected)?, given.as_ref());
            wrong.extend(found.into_iter().map(|difference| format!("header {name}{difference}")));
        }
        Ok(wrong)
    }

    fn save(&mut self, step: &Step, response: &ApiResponse) -> Result<()> {
        let value = response.value();
        for (name, source) in &step.save {
            let found = match source.strip_prefix("header:") {
                Some(header) => response.header(header).map(Value::from),
                None => value.pointer(source).cloned(),
            };
            self.variables.set(name, found.with_context(|| format!("no value at {source} in {value}"))?);
        }
        Ok(())
    }

    async fn events(&mut self, step: &Step, expected: &[Value]) -> Result<()> {
        let watch = self.watches.get_mut(&step.save_as).context("unknown watch")?;
        for (i, expected) in expected.iter().enumerate() {
            let expected = self.variables.value(expected)?;
            let event = watch.next(&step.skip).await.with_context(|| format!("event {}: {expected}", i + 1))?;
            let wrong = differences(&expected, event.as_ref());
            if !wrong.is_empty() {
                bail!("event {}:\n  {}\nreceived: {}", i + 1, wrong.join("\n  "), event.unwrap_or_default());
            }
        }
        if step.ended
            && let Some(event) = watch.next(&step.skip).await.context("the end of the watch")?
        {
            bail!("expected the end of the watch, got {event}");
        }
        Ok(())
    }
}

impl ApiRequest {
    pub(crate) fn plain(method: &'static str, path: String) -> Self {
        Self { method, path, headers: Vec::new(), body: Vec::new(), identity: None }
    }

    fn description(&self) -> String {
        let headers: Vec<_> = self.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        let user = self.identity.as_ref().map(|user| format!(" as {user:?}")).unwrap_or_default();
        let body = String::from_utf8_lossy(&self.body);
        format!("sent: {} {}{user} [{}] {body}", self.method, self.path, headers.join(", "))
    }
}

/// Returns the path of an object that was created with finalizers.
fn finalized(to: &str, step: &Step, response: &ApiResponse) -> Option<String> {
    let finalizers = step.body.as_ref()?.pointer("/metadata/finalizers")?.as_array()?;
    let value = response.value();
    let name = value.pointer("/metadata/name")?.as_str()?;
    let path = to.split('?').next().unwrap_or_default();
    let path = path.strip_suffix(&format!("/{name}")).unwrap_or(path);
    (!finalizers.is_empty() && response.status == 201).then(|| format!("{path}/{name}"))
}

fn report(description: &str, response: &ApiResponse, wrong: &[String]) -> String {
    let body: String = String::from_utf8_lossy(&response.body).chars().take(MAX_SHOWN).collect();
    format!("{}\n{description}\nreceived: {} {body}", wrong.join("\n"), response.status)
}
