//! GET and LIST, served from memory with the bytes that the writer encoded.

use crate::{
    objects::{
        call::Call,
        conversion,
        list_options::{self, ContinueToken, ListOptions, ResourceVersionMatch},
        object::{self, IncludeObjectPolicy, Representation},
        request_scope::RequestScope,
        selectors::Selection,
        write,
    },
    rest::{generic_registry::GenericRegistry, list_body},
};
use errors::ApiError;
use response::HandlerResult;
use serde_json::{Value, json};
use store::{Key, List, Object, Revision, Scope};

const CONTINUE_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

pub(crate) async fn get(registry: &GenericRegistry, resource: &RequestScope, call: &Call) -> HandlerResult {
    let kind = &*resource.kind;
    let name = resource.name.as_deref().unwrap_or("");
    require_reached_revision(registry, list_options::parse_resource_version(&call.query)?)?;
    let object = registry
        .store
        .get(&object::key(kind, &resource.namespace, name))
        .ok_or_else(|| ApiError::not_found(kind.info(), name))?;
    write::respond_with_object(&registry.webhooks, kind, 200, &object, call).await
}

/// Returns the scope of a request: the path, narrowed by a field selector on name or namespace.
pub(crate) fn scope(resource: &RequestScope, selection: &Selection) -> Scope {
    let mut scope = Scope::resource(resource.kind.info().storage);
    if !resource.kind.info().namespaced {
        scope = scope.in_namespace("");
    } else if let Some(namespace) =
        Some(resource.namespace.as_str()).filter(|n| !n.is_empty()).or(selection.namespace())
    {
        scope = scope.in_namespace(namespace);
    }
    match resource.name.as_deref().or(selection.name()) {
        Some(name) => scope.named(name),
        None => scope,
    }
}

/// Refuses a `resourceVersion` that the store has not reached yet.
pub(crate) fn require_reached_revision(registry: &GenericRegistry, revision: Option<u64>) -> Result<(), ApiError> {
    let current = registry.store.revision();
    match revision {
        Some(revision) if revision > current => Err(ApiError::too_large_resource_version(revision, current)),
        _ => Ok(()),
    }
}

pub(crate) async fn list(registry: &GenericRegistry, resource: &RequestScope, call: &Call) -> HandlerResult {
    let kind = &*resource.kind;
    let representation = object::negotiate_list(&call.accept, kind.info())?;
    let include = IncludeObjectPolicy::parse(&call.query)?;
    let selection = Selection::parse(&resource.kind, &call.query)?;
    let options = ListOptions::parse(&call.query, false)?;
    let Page { objects, metadata } = list_page(registry, resource, &selection, &options).await?;
    Ok(match representation {
        Representation::Object if kind.conversion().is_none() => list_body::objects(&resource.kind, &metadata, objects),
        Representation::Metadata if kind.conversion().is_none() => list_body::metadata_only(kind, &metadata, &objects),
        Representation::Object => {
            list_body::converted(kind, &metadata, conversion::encode_all(&registry.webhooks, kind, &objects).await?)
        }
        Representation::Table | Representation::Metadata => {
            let values = conversion::decode_all(&registry.webhooks, kind, &objects).await?;
            let all = match representation {
                Representation::Table => object::table(kind, &values, &metadata, true, include),
                _ => object::metadata_list(&values, &metadata),
            };
            response::json(200, &all)
        }
    })
}

/// One page of a list.
pub(crate) struct Page {
    pub(crate) objects: Vec<Object>,
    /// `ListMeta`: `resourceVersion`, and `continue` unless this is the last page.
    pub(crate) metadata: Value,
}

/// Lists one page of the selected objects.
pub(crate) async fn list_page(
    registry: &GenericRegistry,
    resource: &RequestScope,
    selection: &Selection,
    options: &ListOptions,
) -> Result<Page, ApiError> {
    let limit = options.page_size();
    let List { mut objects, revision, mut remaining } =
        list_store(registry, resource, selection, options, if selection.is_all() { limit } else { None })?;
    if !selection.is_all() {
        conversion::retain_selected(&registry.webhooks, &*resource.kind, &mut objects, selection).await?;
        if let Some(limit) = limit.filter(|l| *l < objects.len()) {
            remaining = objects.len() - limit;
            objects.truncate(limit);
        }
    }
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if let Some(last) = objects.last().filter(|_| remaining > 0) {
        // The pages behind an inconsistent token are consistent again, at this page's revision.
        metadata["continue"] = json!(ContinueToken::after(Some(revision), &last.key).encode());
        if selection.is_all() {
            metadata["remainingItemCount"] = json!(remaining);
        }
    }
    Ok(Page { objects, metadata })
}

/// Lists objects of the store at the requested revision.
fn list_store(
    registry: &GenericRegistry,
    resource: &RequestScope,
    selection: &Selection,
    options: &ListOptions,
    limit: Option<usize>,
) -> Result<List, ApiError> {
    let (scope, store) = (scope(resource, selection), &registry.store);
    let oldest = registry.compaction.oldest(store.revision());
    let list_at = |revision: Revision, after: Option<&Key>| {
        let snapshot = (revision >= oldest).then(|| store.list_at(&scope, revision, after, limit).ok());
        snapshot.flatten()
    };
    if let Some(token) = &options.continue_token {
        let after = token.key(&*resource.kind);
        let Some(revision) = token.revision else { return Ok(store.list(&scope, Some(&after), limit)) };
        if revision > store.revision() {
            return Err(ApiError::bad_request("continue key is not valid"));
        }
        return list_at(revision, Some(&after)).ok_or_else(|| {
            let inconsistent = ContinueToken { revision: None, ..token.clone() };
            ApiError::expired(CONTINUE_EXPIRED).with_continue(inconsistent.encode())
        });
    }
    require_reached_revision(registry, options.revision)?;
    // As upstream, `resourceVersionMatch` defaults to `Exact` for a paginated list at a revision.
    let exact = match options.revision_match {
        Some(ResourceVersionMatch::Exact) => options.revision,
        Some(ResourceVersionMatch::NotOlderThan) => None,
        None => options.revision.filter(|r| *r > 0 && options.limit.is_some()),
    };
    match exact {
        Some(revision) => list_at(revision, None)
            .ok_or_else(|| ApiError::expired("The resourceVersion for the provided list is too old.")),
        None => Ok(store.list(&scope, None, limit)),
    }
}
