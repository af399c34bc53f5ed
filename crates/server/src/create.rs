//! Create: decode, default, admit, prepare, validate, store.

use crate::{
    admit::{self, review::Review},
    authorization, decode,
    existing_object::Live,
    identity,
    kinds::{FieldErrors, WriteContext, WriteTarget},
    managed_fields::{self, Asked},
    object, object_meta,
    partial_json::Outline,
    request::Resource,
    response::Reply,
    service::{ApiServer, Call},
    services,
    status::ApiError,
    store_quota::Purpose,
    strict::{self, Validation},
    write::{dry_run, now, show, show_value, with_warnings},
};
use admission::about::Operation;
use apply::Managers;
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};
use store::{Expect, Key, Write, WriteError};

/// Letters of generated names: no vowels, so no words (upstream's `rand.SafeEncodeString`).
const SAFE: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// Metadata that no client sets.
const SYSTEM: [&str; 8] = [
    "uid",
    "creationTimestamp",
    "generation",
    "resourceVersion",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "managedFields",
];
/// How often another name is generated when one is taken, as upstream does.
const NAMES: usize = 8;

/// An object that is not there yet.
pub(crate) struct New {
    /// In the form of its kind, without defaults.
    pub(crate) value: Value,
    pub(crate) warnings: Vec<String>,
    /// Who owns what; where that is not said, the one who creates it owns everything.
    pub(crate) managers: Option<Managers>,
}

pub(crate) async fn create(server: &ApiServer, resource: &Resource, call: &Call) -> Reply {
    managed_fields::require(call, "CreateOptions", false)?;
    let (dry, validation) = (dry_run(&call.query, "CreateOptions")?, Validation::parse(&call.query, "CreateOptions")?);
    object::view(&call.accept, resource.kind.info())?;
    let (value, warnings) = strict::check(&*resource.kind, decode::parse(call, &*resource.kind)?, validation)?;
    write(server, resource, call, New { value, warnings, managers: None }, dry).await
}

/// Makes an object of a request that may be one for something else.
pub(crate) async fn write(server: &ApiServer, resource: &Resource, call: &Call, new: New, dry: bool) -> Reply {
    let kind = &*resource.kind;
    let New { mut value, mut warnings, managers } = new;
    // An apply may name a version of what is not there.
    let versioned = managers.is_none() && identity::is_versioned(&value);
    let namespace = namespace_of(server, resource, &value)?;
    if kind.info().namespaced {
        value["metadata"]["namespace"] = json!(namespace);
    }
    if kind.is_terminating() {
        // `forbidCreateAdmission`: objects would go with their definition at once.
        let (name, why) = (
            value["metadata"]["name"].as_str().unwrap_or(""),
            "create not allowed while custom resource definition is terminating",
        );
        return Err(ApiError::forbidden(kind.info(), name, why));
    }
    let options = || admit::review::options(call, "CreateOptions", dry);
    let mut review = Review::of(server, resource, call, Operation::Create, options);
    if let Some(review) = &mut review {
        review.named(value["metadata"]["name"].as_str().unwrap_or(""));
        review.generates(value["metadata"]["generateName"].as_str().unwrap_or(""));
    }
    let Live { object: mut value, managers } =
        admitted(server, resource, call, value, managers, review.as_ref()).await?;
    let prefix = value["metadata"]["generateName"].as_str().unwrap_or("").to_owned();
    // Webhooks may have named it, too.
    let generated = value["metadata"]["name"].as_str().unwrap_or("").is_empty() && !prefix.is_empty();
    for left in (0..NAMES).rev() {
        // What is named by its client is tried once.
        let mut object = if generated && left > 0 { value.clone() } else { value.take() };
        if generated {
            object["metadata"]["name"] = json!(generate(&prefix));
        }
        prepare(server, resource, call, &mut object)?;
        authorization::restrict_subject(resource, &object)?;
        warnings.extend(admit::check(server, resource, &object, None, &call.trail)?);
        let addresses = services::take(server, resource, &mut object).await?;
        let name = object["metadata"]["name"].as_str().unwrap_or("").to_owned();
        warnings.extend(object_meta::warnings(&object, None).into_iter().chain(kind.warnings(&object, None)));
        let mut new = Live { object, managers: managers.clone() };
        let key = object::key(kind, &namespace, &name);
        // Nobody waits while others are asked; what was chosen is asked for again.
        let _held = match &mut review {
            None => addresses,
            Some(review) => {
                drop(addresses);
                review.named(&name);
                admit::outside::validate(review, Some(&new.whole()), None).await?;
                services::take(server, resource, &mut new.object).await?
            }
        };
        let turn = admit::quota::turn(server, resource).await;
        turn.as_ref().map_or(Ok(()), |turn| turn.check(server, resource, &new.object, None))?;
        if dry {
            if server.store.get(&key).is_some() {
                return Err(ApiError::already_exists(kind.info(), &name));
            }
            let mut shown = new.whole();
            if kind.is_custom() {
                // What is read has the defaults of its status, too.
                kind.default(&mut shown);
            }
            return Ok(with_warnings(show_value(kind, 201, shown, call)?, &warnings));
        }
        if versioned {
            // Upstream's store says so, when all others have spoken, and nobody makes more of it.
            return Err(ApiError::new(500, "", "resourceVersion should not be set on objects to be created"));
        }
        let new = new.stored(&server.webhooks, kind).await?;
        let write = Write::put(key, Expect::Absent, new.encode()?);
        match server.store_object(&call.user, kind, Purpose::Create, write).await {
            Ok(object) => {
                server.recent.wrote(kind, &object, new);
                return Ok(with_warnings(show(server, kind, 201, &object, call).await?, &warnings));
            }
            Err(WriteError::AlreadyExists { .. }) if generated => {}
            Err(e) => return Err(ApiError::from_write(&e, kind.info(), &name)),
        }
    }
    Err(ApiError::name_not_generated(kind.info(), &prefix))
}

/// The object as others make it, and who owns what of it.
async fn admitted(
    server: &ApiServer,
    resource: &Resource,
    call: &Call,
    mut value: Value,
    managers: Option<Managers>,
    review: Option<&Review<'_>>,
) -> Result<Live, ApiError> {
    let kind = &*resource.kind;
    let is_reset = managed_fields::is_reset(&value);
    let asked = Asked::take(&mut value, is_reset);
    let metadata = &mut value["metadata"];
    for field in SYSTEM {
        metadata.as_object_mut().map(|m| m.remove(field));
    }
    call.told.lock().extend(object_meta::drop_duplicate_owners(metadata, ""));
    kind.default(&mut value);
    // What admission and the server set has no owner.
    let new = || managed_fields::Write::new(resource, call, now()).update(None, &value, asked);
    let managers = managers.unwrap_or_else(new);
    let complete = |value: &mut Value| {
        kind.complete(value);
        admit::complete(server, resource, value)
    };
    complete(&mut value)?;
    let made = Live { object: value, managers };
    let Some(review) = review else { return Ok(made) };
    let mut object = made.whole();
    if !admit::outside::mutate(review, &mut object, None, &complete).await? {
        return Ok(made);
    }
    let managers = managed_fields::after_admission(&mut object, made.managers, call);
    if kind.info().namespaced && object["metadata"]["namespace"] != json!(resource.namespace) {
        return Err(other_namespace());
    }
    call.told.lock().extend(object_meta::drop_duplicate_owners(&mut object["metadata"], object_meta::AFTER_ADMISSION));
    Ok(Live { object, managers })
}

/// Makes of an object what is stored of it, or says what is wrong with it.
fn prepare(server: &ApiServer, resource: &Resource, call: &Call, value: &mut Value) -> Result<(), ApiError> {
    let kind = &*resource.kind;
    let ctx = WriteContext { now: now(), gates: Arc::clone(&server.gates), target: WriteTarget::Main };
    let metadata = &mut value["metadata"];
    // Whatever became of it meanwhile, this is the server's to say.
    for field in SYSTEM {
        metadata.as_object_mut().map(|m| m.remove(field));
    }
    metadata["uid"] = json!(uuid::Uuid::new_v4().to_string());
    metadata["creationTimestamp"] = json!(ctx.now);
    if kind.info().generation {
        metadata["generation"] = json!(1);
    }
    let name = metadata["name"].as_str().unwrap_or("").to_owned();
    authorization::note_requestor(&call.user, resource, value);
    authorization::check_write(server, &call.user, resource, value, None)?;
    kind.prepare_create(value, &ctx);
    kind.observe(value, &|group, version, name| resource.served.known(group, version, name));
    object::check_depth(value)?;
    let mut errors = FieldErrors::default();
    object_meta::validate(kind, value, &mut errors);
    kind.validate_create(value, &ctx, &mut errors);
    if errors.is_empty() {
        authorization::check_params(server, &call.user, resource, value, None, &mut errors);
    }
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid(kind.info(), &name, &errors)) }
}

/// A name that begins so, and is most probably nobody else's.
pub(crate) fn generate(prefix: &str) -> String {
    // Upstream cuts what would make the name longer than 63 bytes.
    let end = prefix.char_indices().map(|(i, c)| i + c.len_utf8()).take_while(|end| *end <= 58).last().unwrap_or(0);
    let suffix = uuid::Uuid::new_v4().into_bytes();
    let letters: String = suffix.iter().take(5).map(|b| char::from(SAFE[usize::from(*b) % SAFE.len()])).collect();
    format!("{}{letters}", &prefix[..end])
}

/// What an object that is not kept says of its namespace is what its path says.
pub(crate) fn in_its_namespace(resource: &Resource, object: &mut Value) -> Result<(), ApiError> {
    let metadata = &mut object["metadata"];
    if metadata.is_null() {
        *metadata = json!({});
    }
    let Some(metadata) = metadata.as_object_mut() else {
        return Err(ApiError::bad_request("metadata must be an object"));
    };
    match metadata.get("namespace").and_then(Value::as_str) {
        Some(given) if !given.is_empty() && given != resource.namespace => return Err(other_namespace()),
        _ if resource.namespace.is_empty() => {}
        _ => drop(metadata.insert("namespace".to_owned(), json!(resource.namespace))),
    }
    Ok(())
}

fn other_namespace() -> ApiError {
    let why = "the namespace of the provided object does not match the namespace sent on the request";
    ApiError::bad_request(why)
}

/// What says that an object is ending.
static DELETION: LazyLock<Outline> = LazyLock::new(|| {
    let mut outline = Outline::default();
    outline.add(["metadata", "deletionTimestamp"].into_iter());
    outline
});

/// The namespace of a new object: that of the path, which must exist and not be ending.
fn namespace_of(server: &ApiServer, resource: &Resource, value: &Value) -> Result<String, ApiError> {
    let info = resource.kind.info();
    if !info.namespaced {
        return Ok(String::new());
    }
    let given = value["metadata"]["namespace"].as_str().unwrap_or("");
    let namespace = &resource.namespace;
    if namespace.is_empty() {
        return Err(ApiError::method_not_allowed());
    }
    if !given.is_empty() && given != namespace {
        return Err(other_namespace());
    }
    let found = server.store.get(&Key::new("namespaces", "", namespace.as_str()));
    let object = found.ok_or_else(|| ApiError::namespace_not_found(namespace))?;
    if !DELETION.read(&object.data)["metadata"]["deletionTimestamp"].is_null() {
        let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
        let error = ApiError::forbidden(info, value["metadata"]["name"].as_str().unwrap_or(""), &why);
        let message = format!("namespace {namespace} is being terminated");
        return Err(error.with_cause("NamespaceTerminating", &message, "metadata.namespace"));
    }
    Ok(namespace.clone())
}
