//! GET and LIST: from memory, from bytes that were encoded when they were written.

use crate::{
    conversion, list_body,
    list_options::{self, ListOptions, Match, Token},
    object::{self, Include, View},
    request::Resource,
    response::{self, Reply},
    selectors::Selection,
    service::{ApiServer, Call},
    status::ApiError,
    write,
};
use serde_json::{Value, json};
use store::{Key, Listing, Object, Revision, Scope};

const CONTINUE_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

pub(crate) async fn get(server: &ApiServer, resource: &Resource, call: &Call) -> Reply {
    let kind = &*resource.kind;
    let name = resource.name.as_deref().unwrap_or("");
    not_older_than(server, list_options::revision(&call.query)?)?;
    let object = server
        .store
        .get(&object::key(kind, &resource.namespace, name))
        .ok_or_else(|| ApiError::not_found(kind.info(), name))?;
    write::show(server, kind, 200, &object, call).await
}

/// The objects that a request may be about: what the path says, narrowed by what the selector says of names.
pub(crate) fn scope(resource: &Resource, selection: &Selection) -> Scope {
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

/// A revision that this server has not reached yet cannot be served.
pub(crate) fn not_older_than(server: &ApiServer, revision: Option<u64>) -> Result<(), ApiError> {
    let current = server.store.revision();
    match revision {
        Some(revision) if revision > current => Err(ApiError::too_large_revision(revision, current)),
        _ => Ok(()),
    }
}

pub(crate) async fn list(server: &ApiServer, resource: &Resource, call: &Call) -> Reply {
    let kind = &*resource.kind;
    let view = object::list_view(&call.accept, kind.info())?;
    let include = Include::parse(&call.query)?;
    let selection = Selection::parse(&resource.kind, &call.query)?;
    let options = ListOptions::parse(&call.query, false)?;
    let Page { objects, metadata } = page(server, resource, &selection, &options).await?;
    Ok(match view {
        View::Whole if kind.conversion().is_none() => list_body::whole(&resource.kind, &metadata, objects),
        View::Metadata if kind.conversion().is_none() => list_body::metadata_only(kind, &metadata, &objects),
        View::Whole => {
            list_body::converted(kind, &metadata, conversion::bytes_all(&server.webhooks, kind, &objects).await?)
        }
        View::Table | View::Metadata => {
            let values = conversion::decode_all(&server.webhooks, kind, &objects).await?;
            let all = match view {
                View::Table => object::table(kind, &values, &metadata, true, include),
                _ => object::metadata_list(&values, &metadata),
            };
            response::json(200, &all)
        }
    })
}

/// What a list gives at once.
pub(crate) struct Page {
    pub(crate) objects: Vec<Object>,
    /// The metadata of the list: its revision, and where it goes on.
    pub(crate) metadata: Value,
}

/// The objects that are asked for, as many as are asked for.
pub(crate) async fn page(
    server: &ApiServer,
    resource: &Resource,
    selection: &Selection,
    options: &ListOptions,
) -> Result<Page, ApiError> {
    let limit = options.page_size();
    let Listing { mut objects, revision, mut remaining } =
        take(server, resource, selection, options, if selection.is_all() { limit } else { None })?;
    if !selection.is_all() {
        conversion::retain(&server.webhooks, &*resource.kind, &mut objects, selection).await?;
        if let Some(limit) = limit.filter(|l| *l < objects.len()) {
            remaining = objects.len() - limit;
            objects.truncate(limit);
        }
    }
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if let Some(last) = objects.last().filter(|_| remaining > 0) {
        // What goes on from an inconsistent token stays inconsistent no longer than this page.
        metadata["continue"] = json!(Token::after(Some(revision), &last.key).encode());
        if selection.is_all() {
            metadata["remainingItemCount"] = json!(remaining);
        }
    }
    Ok(Page { objects, metadata })
}

fn take(
    server: &ApiServer,
    resource: &Resource,
    selection: &Selection,
    options: &ListOptions,
    limit: Option<usize>,
) -> Result<Listing, ApiError> {
    let (scope, store) = (scope(resource, selection), &server.store);
    let oldest = server.compaction.oldest(store.revision());
    let list_at = |revision: Revision, after: Option<&Key>| {
        let kept = (revision >= oldest).then(|| store.list_at(&scope, revision, after, limit).ok());
        kept.flatten()
    };
    if let Some(token) = &options.resume {
        let after = token.key(&*resource.kind);
        let Some(revision) = token.revision else { return Ok(store.list(&scope, Some(&after), limit)) };
        if revision > store.revision() {
            return Err(ApiError::bad_request("continue key is not valid"));
        }
        return list_at(revision, Some(&after)).ok_or_else(|| {
            let inconsistent = Token { revision: None, ..token.clone() };
            ApiError::expired(CONTINUE_EXPIRED).with_continue(inconsistent.encode())
        });
    }
    not_older_than(server, options.revision)?;
    // Without a match, a page of a given revision is exact, as it always was upstream.
    let exact = match options.revision_match {
        Some(Match::Exact) => options.revision,
        Some(Match::NotOlderThan) => None,
        None => options.revision.filter(|r| *r > 0 && options.limit.is_some()),
    };
    match exact {
        Some(revision) => list_at(revision, None)
            .ok_or_else(|| ApiError::expired("The resourceVersion for the provided list is too old.")),
        None => Ok(store.list(&scope, None, limit)),
    }
}
