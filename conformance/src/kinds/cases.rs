//! Generates the common cases of a built-in kind.

use super::{Invalid, Kind, merge};
use crate::case::Case;
use anyhow::Result;
use serde_json::{Value, json};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const PARTIAL: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const PARTIAL_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
/// Timeout in seconds for deletions and for writes to be visible.
const TIMEOUT_SECONDS: u64 = 60;
const CONCEPTS: &str = "https://kubernetes.io/docs/reference/using-api/api-concepts/";

impl Kind {
    /// Returns the common cases, and one for each invalid object.
    pub(super) fn cases(&self) -> Result<Vec<Case>> {
        let mut cases = vec![self.discovery_case()?];
        if self.object.is_some() {
            cases.push(self.create_and_delete_case()?);
            cases.push(self.table_and_metadata_case()?);
            cases.push(self.selector_case()?);
            cases.push(self.dry_run_case()?);
            cases.push(self.patch_case()?);
            cases.push(self.conflict_case()?);
            cases.push(self.watch_case()?);
        }
        for (i, invalid) in self.invalid.iter().enumerate() {
            cases.push(self.invalid_case(i, invalid)?);
        }
        Ok(cases)
    }

    fn discovery_case(&self) -> Result<Case> {
        let or_empty = |list: &[String]| if list.is_empty() { json!({"$one_of": [null, []]}) } else { json!(list) };
        let verbs = |verbs: &str| json!(verbs.split(',').collect::<Vec<_>>());
        let mut all = vec![json!({
            "name": self.plural, "kind": self.kind, "namespaced": self.namespaced,
            "singularName": self.kind.to_lowercase(), "shortNames": or_empty(&self.short),
            "categories": or_empty(&self.categories), "verbs": verbs(&self.verbs),
        })];
        for (subresource, with) in &self.subresources {
            let name = format!("{}/{subresource}", self.plural);
            all.push(json!({"name": name, "namespaced": self.namespaced, "singularName": "", "verbs": verbs(with)}));
        }
        let steps = json!([{"get": self.root(), "expect": {"kind": "APIResourceList", "groupVersion": self.version,
            "resources": {"$contains": all}}}]);
        let mut case = self.case(0, "is discovered with its names, scope and verbs", "api/discovery", steps)?;
        case.namespace = false;
        case.cleanup.clear();
        Ok(case)
    }

    fn create_and_delete_case(&self) -> Result<Case> {
        let (path, name) = (self.path(), self.name(1));
        let one = format!("{path}/{name}");
        let mut made = self.filled.clone();
        if !made.is_object() {
            made = json!({});
        }
        made["apiVersion"] = json!(self.version);
        made["kind"] = json!(self.kind);
        made["metadata"] = json!({"name": name, "uid": {"$len": 36}, "creationTimestamp": {"$matches": ".*Z"},
            "resourceVersion": {"$more": 0}, "namespace": if self.namespaced { json!("${ns}") } else { json!(null) }});
        if self.generation {
            made["metadata"]["generation"] = json!({"$more": 0});
        }
        let details = json!({"name": name, "kind": self.plural, "group": if self.group().is_empty() { json!(null) } else { json!(self.group()) }});
        // Namespaces and CustomResourceDefinitions have their own deletion strategy.
        let other_uid = match self.plural.as_str() {
            "namespaces" | "customresourcedefinitions" => {
                "Precondition failed: UID in precondition: other, UID in object meta: "
            }
            _ => "the UID in the precondition (other) does not match the UID in record",
        };
        let steps = json!([
            {"post": path, "body": self.object(1), "expect": made, "save": {"uid": "/metadata/uid"}},
            {"get": one, "expect": {"metadata": {"uid": "${uid}"}}},
            {"get": path, "query": {"fieldSelector": format!("metadata.name={name}")}, "expect": {
                "kind": format!("{}List", self.kind), "apiVersion": self.version, "metadata": {"resourceVersion": {"$more": 0}},
                "items": [{"metadata": {"uid": "${uid}"}}]}},
            {"post": path, "body": self.object(1), "status": 409, "expect": {"kind": "Status", "status": "Failure",
                "reason": "AlreadyExists", "message": format!("{} \"{name}\" already exists", self.resource()), "details": details}},
            {"delete": one, "body": {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "other"}},
                "status": 409, "expect": {"reason": "Conflict", "message": {"$has": other_uid}}},
            {"delete": one},
            {"get": one, "status": 404, "until": TIMEOUT_SECONDS, "expect": {"kind": "Status", "apiVersion": "v1", "metadata": {},
                "status": "Failure", "reason": "NotFound", "code": 404,
                "message": format!("{} \"{name}\" not found", self.resource()), "details": details}},
        ]);
        self.case(1, "is created, read, listed and deleted", "apimachinery/pkg/api/errors/errors.go", steps)
    }

    fn table_and_metadata_case(&self) -> Result<Case> {
        let (path, name) = (self.path(), self.name(2));
        let columns: Vec<Value> = self
            .columns
            .iter()
            .map(|column| match column.strip_suffix(" (wide)") {
                Some(wide) => {
                    json!({"name": wide, "priority": 1, "type": {"$any": true}, "description": {"$any": true}})
                }
                None => json!({"name": column, "priority": 0, "type": {"$any": true}, "description": {"$any": true}}),
            })
            .collect();
        let row = json!({"cells": self.cells.clone().unwrap_or_else(|| json!({"$len": self.columns.len()})),
            "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": name}, "spec": null}});
        let table =
            json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "columnDefinitions": columns, "rows": [row]});
        let partial = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
            "metadata": {"name": name, "uid": {"$any": true}}, "spec": null, "status": null});
        let query = json!({"labelSelector": "conformance=${ns}"});
        let steps = json!([
            {"post": path, "body": self.object(2)},
            {"get": path, "query": query, "headers": {"Accept": TABLE}, "expect": table},
            {"get": format!("{path}/{name}"), "headers": {"Accept": TABLE}, "expect": table},
            {"get": format!("{path}/{name}"), "headers": {"Accept": PARTIAL}, "expect": partial},
            {"get": path, "query": query, "headers": {"Accept": PARTIAL_LIST}, "expect": {"kind": "PartialObjectMetadataList",
                "apiVersion": "meta.k8s.io/v1", "items": [{"metadata": {"name": name}, "spec": null}]}},
        ]);
        self.case(2, "is shown as Table and PartialObjectMetadata", "pkg/printers/internalversion/printers.go", steps)
    }

    fn selector_case(&self) -> Result<Case> {
        let path = self.path();
        let uid = json!([{"metadata": {"uid": "${uid}"}}]);
        let mut steps = vec![
            json!({"post": path, "body": self.object(3), "save": {"uid": "/metadata/uid"}}),
            json!({"get": path, "query": {"labelSelector": "conformance in (${ns},x),!other"}, "expect": {"items": uid}}),
            json!({"get": path, "query": {"labelSelector": "conformance=${ns},other"}, "expect": {"items": []}}),
        ];
        if self.verbs.contains("deletecollection") {
            steps.push(json!({"delete": path, "query": {"labelSelector": "conformance=${ns}-not"}}));
            steps.push(json!({"get": path, "query": {"labelSelector": "conformance=${ns}"}, "expect": {"items": uid}}));
            steps.push(json!({"delete": path, "query": {"labelSelector": "conformance=${ns}"}}));
            let wait_for_deletion = json!({"get": path, "query": {"labelSelector": "conformance=${ns}"}, "until": TIMEOUT_SECONDS, "expect": {"items": []}});
            steps.push(wait_for_deletion);
        }
        self.case(3, "is selected and deleted by labels", CONCEPTS, Value::from(steps))
    }

    fn dry_run_case(&self) -> Result<Case> {
        let (path, name) = (self.path(), self.name(4));
        let one = format!("{path}/{name}");
        let label = json!({"metadata": {"labels": {"more": "yes"}}});
        let steps = json!([
            {"post": path, "query": {"dryRun": "All"}, "body": self.object(4), "expect": {"metadata": {"name": name, "uid": {"$any": true}}}},
            {"get": one, "status": 404},
            {"post": path, "body": self.object(4), "save": {"uid": "/metadata/uid"}},
            {"patch": one, "type": "merge", "query": {"dryRun": "All"}, "body": label, "expect": label},
            {"delete": one, "query": {"dryRun": "All"}},
            {"get": one, "expect": {"metadata": {"uid": "${uid}", "labels": {"more": null}, "deletionTimestamp": null}}},
        ]);
        self.case(4, "is not changed by dry runs", &format!("{CONCEPTS}#dry-run"), steps)
    }

    fn patch_case(&self) -> Result<Case> {
        let (path, name) = (self.path(), self.name(5));
        let one = format!("{path}/{name}");
        let applied = json!({"apiVersion": self.version, "kind": self.kind, "metadata": {"name": name, "annotations": {"d": "4"}}});
        let owned = json!({"manager": "conformance", "operation": "Apply", "apiVersion": self.version, "fieldsType": "FieldsV1",
            "fieldsV1": {"$exactly": {"f:metadata": {"f:annotations": {"f:d": {}}}}}});
        let steps = json!([
            {"post": path, "body": self.object(5)},
            {"patch": one, "type": "json", "body": [{"op": "add", "path": "/metadata/annotations", "value": {"a": "1"}}],
                "expect": {"metadata": {"annotations": {"a": "1"}}}},
            {"patch": one, "type": "merge", "body": {"metadata": {"annotations": {"a": null, "b": "2"}}},
                "expect": {"metadata": {"annotations": {"a": null, "b": "2"}}}},
            {"patch": one, "type": "strategic", "body": {"metadata": {"annotations": {"c": "3"}}},
                "expect": {"metadata": {"annotations": {"b": "2", "c": "3"}}}},
            {"patch": one, "type": "apply", "query": {"fieldManager": "conformance"}, "body": applied,
                "expect": {"metadata": {"annotations": {"b": "2", "c": "3", "d": "4"}, "managedFields": {"$contains": [owned]}}}},
        ]);
        self.case(
            5,
            "supports all four patch types",
            "https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/",
            steps,
        )
    }

    fn conflict_case(&self) -> Result<Case> {
        let (path, name) = (self.path(), self.name(6));
        let one = format!("{path}/{name}");
        let mut written = self.object(6);
        written["metadata"]["resourceVersion"] = json!("${rv}");
        let mut elsewhere = self.object(6);
        elsewhere["metadata"]["name"] = json!("${ns}.other");
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": the object has been modified; please apply your changes to the latest version and try again",
            self.resource()
        );
        let steps = json!([
            {"post": path, "body": self.object(6), "save": {"rv": "/metadata/resourceVersion"}},
            {"patch": one, "type": "merge", "body": {"metadata": {"annotations": {"a": "1"}}}},
            {"put": one, "body": written, "status": 409, "expect": {"reason": "Conflict", "code": 409, "message": message}},
            {"put": one, "body": elsewhere, "status": 400, "expect": {"reason": "BadRequest",
                "message": format!("the name of the object (${{ns}}.other) does not match the name on the URL ({name})")}},
            {"get": one, "expect": {"metadata": {"annotations": {"a": "1"}}}},
        ]);
        self.case(6, "refuses an update with an old resourceVersion", "https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md#concurrency-control-and-consistency", steps)
    }

    fn watch_case(&self) -> Result<Case> {
        let (path, name) = (self.path(), self.name(7));
        let one = format!("{path}/{name}");
        let object = |metadata: Value| json!({"kind": self.kind, "apiVersion": self.version, "metadata": metadata});
        let steps = json!([
            {"watch": path, "query": {"fieldSelector": format!("metadata.name={name}")}},
            {"post": path, "body": self.object(7)},
            {"events": [{"type": "ADDED", "object": object(json!({"name": name}))}]},
            {"delete": one},
            {"get": one, "status": 404, "until": TIMEOUT_SECONDS},
            {"events": [{"type": "DELETED", "object": object(json!({"name": name, "resourceVersion": {"$more": 0}}))}],
                "skip": ["MODIFIED"]},
        ]);
        self.case(
            7,
            "sends watch events from creation to deletion",
            &format!("{CONCEPTS}#efficient-detection-of-changes"),
            steps,
        )
    }

    fn invalid_case(&self, i: usize, invalid: &Invalid) -> Result<Case> {
        let n = 8 + i;
        let mut object = self.object(n);
        merge(&mut object, &invalid.with);
        let message = format!("{} \"{}\" is invalid: {}", self.qualified(), self.name(n), invalid.message);
        let steps = json!([{"post": self.path(), "body": object, "status": 422, "expect": {"kind": "Status",
            "status": "Failure", "reason": "Invalid", "code": 422, "message": message,
            "details": {"name": self.name(n), "kind": self.kind, "causes": {"$any": true}}}}]);
        let field = invalid.message.trim_start_matches('[').split(": ").next().unwrap_or_default();
        let behaviour = format!("is refused for its {field}");
        self.case(n, &behaviour, "pkg/apis/*/validation/validation.go", steps)
    }
}
