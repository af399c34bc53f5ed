//! Who may do what: members of `system:masters` everything, all others what roles and bindings allow.

mod attributes;
mod cover;
pub(crate) mod defaults;
mod escalation;
mod follow;
mod impersonate;
pub(crate) mod node;
mod params;
mod policy;
mod rule;
mod signers;

pub(crate) use attributes::{About, Attributes, ResourceAbout, selected};
pub(crate) use cover::quoted;
pub(crate) use follow::Follower;
pub(crate) use impersonate::impersonate;
pub(crate) use params::check_params;
pub(crate) use policy::Decision;
pub(crate) use rule::{Rule, url_covers};
pub(crate) use signers::{note_requestor, restrict_subject};

use crate::{ApiServer, UserInfo, audit::Trail, request::RequestInfo, reverse_proxy, service::Call, status::ApiError};
use http::HeaderMap;
use serde_json::Value;

/// Whether the user may do this, and why or why not.
pub(crate) fn decide(server: &ApiServer, user: &UserInfo, wanted: &Attributes) -> Decision {
    if user.is_master() {
        return Decision::Allowed(String::new());
    }
    let refused = match node(server, user, wanted) {
        Ok(()) => return Decision::Allowed(String::new()),
        Err(why) => why,
    };
    match server.authorizer.ask(|policy| policy.decide(user, wanted)) {
        // Whoever refuses says why, one after the other.
        Decision::NoOpinion(why) if !refused.is_empty() && !why.is_empty() => {
            Decision::NoOpinion(format!("{refused}\n{why}"))
        }
        Decision::NoOpinion(why) if why.is_empty() => Decision::NoOpinion(refused),
        decision => decision,
    }
}

/// Whether somebody may do this because they are a node.
fn node(server: &ApiServer, user: &UserInfo, wanted: &Attributes) -> Result<(), String> {
    match node::name(user) {
        None => Err(String::new()),
        Some("") => Err(format!("unknown node for user {:?}", user.name)),
        Some(name) => node::decide(name, wanted, defaults::of_nodes(), &|resource, namespace, object| {
            node::is_related(server, name, resource, namespace, object)
        }),
    }
}

/// Refuses what the user may not do.
pub(crate) fn require(server: &ApiServer, user: &UserInfo, wanted: &Attributes) -> Result<(), ApiError> {
    match decide(server, user, wanted) {
        Decision::Allowed(_) => Ok(()),
        Decision::NoOpinion(why) => Err(forbidden(user, wanted, &why)),
    }
}

/// Refuses a request that the user may not make. Masters may make any: what they want need not be known.
pub(crate) async fn check(
    server: &ApiServer,
    user: &UserInfo,
    wanted: Option<&Attributes>,
    headers: &HeaderMap,
    trail: &Trail,
) -> Result<(), ApiError> {
    let Some(wanted) = wanted.filter(|_| !user.is_master()) else {
        trail.decided(&Decision::Allowed(String::new()));
        return Ok(());
    };
    // What a node may do is known from the first moment on.
    let decision = if node(server, user, wanted).is_ok() {
        Decision::Allowed(String::new())
    } else {
        server.authorizer.settled().await;
        decide(server, user, wanted)
    };
    trail.decided(&decision);
    if let Decision::NoOpinion(why) = decision {
        return Err(forbidden(user, wanted, &why));
    }
    // Who opens a stream acts, also where it is opened with a GET (`AuthorizePodWebsocketUpgradeCreatePermission`).
    if wanted.verb != "create" && opens_stream(wanted, headers) {
        return require(server, user, &Attributes { verb: "create".to_owned(), ..wanted.clone() });
    }
    Ok(())
}

/// Whether a request opens a stream into a Pod. A kubelet only upgrades connections to `exec`, `attach` and
/// `portForward`, by any method, so the path behind `nodes/proxy`, which could be written in several ways, need not be read.
fn opens_stream(wanted: &Attributes, headers: &HeaderMap) -> bool {
    let About::Resource(about) = &wanted.about else { return false };
    about.group.is_empty()
        && match &*about.combined() {
            "pods/attach" | "pods/exec" | "pods/portforward" => wanted.verb == "get",
            "nodes/proxy" => reverse_proxy::is_upgrade(headers),
            _ => false,
        }
}

/// Refuses what the user may not write, though they may write such objects; `old` is there for a change.
pub(crate) fn check_write(
    server: &ApiServer,
    user: &UserInfo,
    resource: &RequestInfo,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    if user.is_master() {
        return Ok(());
    }
    let operation = old.map_or(node::Operation::Create(new), |old| node::Operation::Update(new, old));
    node::restrict(server, user, resource, operation)?;
    escalation::check(server, user, resource, new, old)?;
    old.map_or(Ok(()), |old| signers::check(server, user, resource, new, old))
}

/// Refuses to make what is not there yet of whoever may only change what is.
pub(crate) fn may_create(server: &ApiServer, resource: &RequestInfo, call: &Call) -> Result<(), ApiError> {
    let info = resource.kind.info();
    let (group, plural) = (info.group.to_owned(), info.plural.to_owned());
    let name = resource.name.clone().unwrap_or_default();
    // A namespace is in itself.
    let namespace = if plural == "namespaces" { name.clone() } else { resource.namespace.clone() };
    let about = ResourceAbout { group, resource: plural, namespace, name, ..ResourceAbout::default() };
    require(server, &call.user, &Attributes::to("create", about))
}

/// Upstream's words (`responsewriters.ForbiddenStatusError`), which name what was asked for whether it is there or not.
pub(crate) fn forbidden(user: &UserInfo, wanted: &Attributes, why: &str) -> ApiError {
    let verb = &wanted.verb;
    let why = if why.is_empty() { String::new() } else { format!(": {why}") };
    match &wanted.about {
        About::Path(path) => {
            let message = sanitized(&format!("User {:?} cannot {verb} path {path:?}", user.name));
            ApiError::new(403, "Forbidden", format!("forbidden: {message}{why}"))
        }
        About::Resource(about) => {
            let place = match about.namespace.as_str() {
                "" => "at the cluster scope".to_owned(),
                namespace => format!("in the namespace {namespace:?}"),
            };
            let message = format!(
                "User {:?} cannot {verb} resource {:?} in API group {:?} {place}",
                user.name,
                about.combined(),
                about.group
            );
            let message = format!("{}{why}", sanitized(&message));
            ApiError::forbidden_resource(&about.group, &about.resource, &about.name, &message)
        }
    }
}

/// So that no browser takes an error for a page.
fn sanitized(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
