//! JSON patch (RFC 6902), as upstream's library implements it (`gopkg.in/evanphx/json-patch.v4`), with limits on the size
//! and depth of the result.
//!
//! Clients rely on where that library is more lenient than the RFC: a negative index counts from the end, an absent field
//! is null (so it can be replaced, tested for null, and copied), and so is an absent value.

mod budget;
mod target;

use crate::objects::decode::{self, DecodedBody};
use budget::{Budget, BudgetExceeded};
use errors::ApiError;
use serde_json::{Map, Value};
use target::{Target, TargetError};

/// Maximum operations of one patch, as upstream.
const MAX_OPERATIONS: usize = 10_000;
/// Maximum nesting of the object during a patch; bodies are limited to 128.
const MAX_DEPTH: usize = 256;

/// Failed operation, with upstream's message.
#[derive(Debug, thiserror::Error)]
enum OperationError {
    /// A `test` operation failed.
    #[error("testing value {0} failed: test failed")]
    Test(String),
    #[error("Unexpected kind: {0}")]
    UnexpectedKind(String),
    #[error("{operation} operation failed to decode {field}: missing value")]
    MissingField { operation: &'static str, field: &'static str },
    #[error("{operation} operation does not apply: {missing}: {path}: missing value")]
    MissingPath { operation: &'static str, missing: &'static str, path: String },
    #[error("replace operation value must be object or array")]
    ReplacedDocument,
    #[error("error in {operation} for {field}: '{path}': {source}")]
    Target { operation: &'static str, field: &'static str, path: String, source: TargetError },
    #[error("error while adding value during copy: {0}")]
    AddCopy(TargetError),
    #[error("the object would be nested deeper than {MAX_DEPTH}")]
    TooDeep,
    #[error(transparent)]
    Budget(#[from] BudgetExceeded),
}

/// Error of a patch.
#[derive(Debug)]
pub(crate) enum PatchError {
    /// A `test` operation failed.
    Test(ApiError),
    /// The patch is invalid.
    Other(ApiError),
}

impl From<ApiError> for PatchError {
    fn from(error: ApiError) -> Self {
        Self::Other(error)
    }
}

impl From<PatchError> for ApiError {
    fn from(message: PatchError) -> Self {
        match message {
            PatchError::Test(error) | PatchError::Other(error) => error,
        }
    }
}

pub(crate) fn apply(mut value: Value, patch: &[u8]) -> Result<DecodedBody, PatchError> {
    let bad = |e: serde_json::Error| ApiError::bad_request(format!("error decoding patch: {e}"));
    let DecodedBody { value: patch, duplicates } = decode::json(patch).map_err(bad)?;
    let patch: Vec<Map<String, Value>> = serde_json::from_value(patch).map_err(bad)?;
    if patch.len() > MAX_OPERATIONS {
        let text = format!(
            "Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            patch.len()
        );
        return Err(ApiError::new(413, "RequestEntityTooLarge", text).into());
    }
    let mut budget = Budget::default();
    for operation in &patch {
        Operation(operation).apply(&mut value, &mut budget).map_err(|error| match error {
            OperationError::Test(_) => PatchError::Test(rejected(&error)),
            error => PatchError::Other(rejected(&error)),
        })?;
    }
    // Upstream decodes `jsonPatchOp` strictly.
    let unknown = patch.iter().enumerate().flat_map(|(i, operation)| {
        let unknown_keys = operation.keys().filter(|field| !["op", "path", "from", "value"].contains(&field.as_str()));
        unknown_keys.map(move |field| format!("unknown field \"[{i}].{field}\""))
    });
    let found = duplicates.into_iter().chain(unknown);
    Ok(DecodedBody { value, duplicates: found.map(|message| format!("json patch {message}")).collect() })
}

fn rejected(error: &OperationError) -> ApiError {
    ApiError::new(422, "Invalid", "the server rejected our request due to an error in our request").with_cause(
        "UnexpectedServerResponse",
        &error.to_string(),
        "",
    )
}

/// One operation of a patch.
struct Operation<'a>(&'a Map<String, Value>);

impl Operation<'_> {
    fn apply(&self, document: &mut Value, budget: &mut Budget) -> Result<(), OperationError> {
        match self.0.get("op").and_then(Value::as_str) {
            Some("add") => self.add(document, budget),
            Some("remove") => self.remove(document, budget),
            Some("replace") => self.replace(document),
            Some("move") => self.move_(document, budget),
            Some("test") => self.test(document),
            Some("copy") => self.copy(document, budget),
            other => Err(OperationError::UnexpectedKind(other.unwrap_or("unknown").to_owned())),
        }
    }

    /// Returns the path in a field of an operation.
    fn path(&self, field: &'static str, operation: &'static str) -> Result<&str, OperationError> {
        self.0.get(field).and_then(Value::as_str).ok_or(OperationError::MissingField { operation, field })
    }

    fn value(&self) -> &Value {
        self.0.get("value").unwrap_or(&Value::Null)
    }

    fn add(&self, document: &mut Value, budget: &mut Budget) -> Result<(), OperationError> {
        let path = self.path("path", "add")?;
        check_depth(path, self.value())?;
        let target =
            Target::find(document, path).ok_or_else(|| missing("add", "doc is missing path", format!("\"{path}\"")))?;
        target.add(self.value().clone(), budget).map_err(target_error("add", "path", path))
    }

    fn remove(&self, document: &mut Value, budget: &mut Budget) -> Result<(), OperationError> {
        let path = self.path("path", "remove")?;
        let target = Target::find(document, path)
            .ok_or_else(|| missing("remove", "doc is missing path", format!("\"{path}\"")))?;
        target.remove(budget).map(drop).map_err(target_error("remove", "path", path))
    }

    fn replace(&self, document: &mut Value) -> Result<(), OperationError> {
        let path = self.path("path", "replace")?;
        check_depth(path, self.value())?;
        if path.is_empty() {
            if !self.value().is_object() && !self.value().is_array() {
                return Err(OperationError::ReplacedDocument);
            }
            *document = self.value().clone();
            return Ok(());
        }
        let target = Target::find(document, path).ok_or_else(|| missing("replace", "doc is missing path", path))?;
        target.set(self.value().clone()).map_err(|_| missing("replace", "doc is missing key", path))
    }

    fn move_(&self, document: &mut Value, budget: &mut Budget) -> Result<(), OperationError> {
        let from = self.path("from", "move")?;
        let target = Target::find(document, from).ok_or_else(|| missing("move", "doc is missing from path", from))?;
        let key = target.key().to_owned();
        let value = target.remove(budget).map_err(target_error("move", "path", &key))?;
        let path = self.path("path", "move")?;
        // A move costs as much as a copy, although it does not grow the object.
        let mut nodes = 0;
        check_depth_of(path, measure(&value, MAX_DEPTH, &mut nodes))?;
        budget.copy(nodes)?;
        let target =
            Target::find(document, path).ok_or_else(|| missing("move", "doc is missing destination path", path))?;
        target.add(value, budget).map_err(target_error("move", "path", path))
    }

    fn test(&self, document: &mut Value) -> Result<(), OperationError> {
        let path = self.path("path", "test")?;
        let failed = || OperationError::Test(path.to_owned());
        if path.is_empty() {
            return if document == self.value() { Ok(()) } else { Err(failed()) };
        }
        let target = Target::find(document, path).ok_or_else(|| missing("test", "is missing path", path))?;
        let value = target.get().map_err(target_error("test", "path", path))?;
        if value == self.value() { Ok(()) } else { Err(failed()) }
    }

    fn copy(&self, document: &mut Value, budget: &mut Budget) -> Result<(), OperationError> {
        let from = self.path("from", "copy")?;
        let target = Target::find(document, from).ok_or_else(|| missing("copy", "doc is missing from path", from))?;
        let value = target.get().map_err(target_error("copy", "from", from))?;
        let path = self.path("path", "copy")?;
        check_depth(path, value)?;
        budget.copy(value.to_string().len())?;
        let value = value.clone();
        let target =
            Target::find(document, path).ok_or_else(|| missing("copy", "doc is missing destination path", path))?;
        target.add(value, budget).map_err(OperationError::AddCopy)
    }
}

fn missing(operation: &'static str, missing: &'static str, path: impl Into<String>) -> OperationError {
    OperationError::MissingPath { operation, missing, path: path.into() }
}

/// Returns the conversion of errors of an operation's target.
fn target_error(operation: &'static str, field: &'static str, path: &str) -> impl Fn(TargetError) -> OperationError {
    move |source| OperationError::Target { operation, field, path: path.to_owned(), source }
}

fn check_depth(path: &str, value: &Value) -> Result<(), OperationError> {
    check_depth_of(path, measure(value, MAX_DEPTH, &mut 0))
}

fn check_depth_of(path: &str, depth: usize) -> Result<(), OperationError> {
    if path.matches('/').count() + depth <= MAX_DEPTH {
        return Ok(());
    }
    Err(OperationError::TooDeep)
}

/// Returns the nesting of a value up to `limit`, and counts its nodes.
fn measure(value: &Value, limit: usize, nodes: &mut usize) -> usize {
    *nodes += 1;
    if limit == 0 {
        return 1;
    }
    let inner = match value {
        Value::Array(items) => items.iter().map(|v| measure(v, limit - 1, nodes)).max(),
        Value::Object(fields) => fields.values().map(|v| measure(v, limit - 1, nodes)).max(),
        _ => None,
    };
    1 + inner.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Compares the patched object, or code and cause of the error.
    #[track_caller]
    fn check(patch: &Value, expected: Result<&Value, (u16, &str)>) {
        let object = json!({"a": [1, 2], "b": {"c": "x"}, "n": null});
        let got = apply(object, patch.to_string().as_bytes()).map(|p| p.value);
        let got = got.map_err(|e| {
            let e = ApiError::from(e);
            let status = e.to_json();
            (e.code, status["details"]["causes"][0]["message"].as_str().unwrap_or_default().to_owned())
        });
        match (&got, expected) {
            (Ok(got), Ok(expected)) => assert_eq!(got, expected, "{patch}"),
            (Err((code, found)), Err((expected_code, message))) => {
                assert!(*code == expected_code && (message.is_empty() || found == message), "{patch}: {code} {found}");
            }
            _ => panic!("{patch}: {got:?}"),
        }
    }

    /// Applies one operation, and expects the object with these changed fields.
    #[track_caller]
    fn check_patched(operation: Value, change: Value) {
        let mut object = json!({"a": [1, 2], "b": {"c": "x"}, "n": null});
        for (field, value) in change.as_object().unwrap() {
            object[field] = value.clone();
        }
        check(&json!([operation]), Ok(&object));
    }

    #[track_caller]
    fn check_rejected(operation: Value, message: &str) {
        check(&json!([operation]), Err((422, message)));
    }

    #[test]
    fn operations_follow_rfc_6902() {
        check_patched(json!({"op": "add", "path": "/a/1", "value": 9}), json!({"a": [1, 9, 2]}));
        check_patched(json!({"op": "add", "path": "/a/-", "value": 9}), json!({"a": [1, 2, 9]}));
        check_patched(json!({"op": "add", "path": "/b/d~1~0", "value": 9}), json!({"b": {"c": "x", "d/~": 9}}));
        check_patched(json!({"op": "remove", "path": "/b/c"}), json!({"b": {}}));
        check_patched(json!({"op": "replace", "path": "/b", "value": 1}), json!({"b": 1}));
        check_patched(json!({"op": "copy", "from": "/b/c", "path": "/d"}), json!({"d": "x"}));
        check_patched(json!({"op": "move", "from": "/b/c", "path": "/a/0"}), json!({"a": ["x", 1, 2], "b": {}}));
        check_patched(json!({"op": "test", "path": "/b", "value": {"c": "x"}}), json!({}));
        check(&json!([{"op": "replace", "path": "", "value": {"z": 1}}]), Ok(&json!({"z": 1})));
    }

    #[test]
    fn lenient_operations_of_upstream_are_accepted() {
        check_patched(json!({"op": "replace", "path": "/a/-1", "value": 9}), json!({"a": [1, 9]}));
        check_patched(json!({"op": "remove", "path": "/a/-2"}), json!({"a": [2]}));
        check_patched(json!({"op": "add", "path": "/a/-1", "value": 9}), json!({"a": [1, 2, 9]}));
        check_patched(json!({"op": "test", "path": "/a/-1", "value": 2}), json!({}));
        check_patched(json!({"op": "replace", "path": "/new", "value": 9}), json!({"new": 9}));
        check_patched(json!({"op": "add", "path": "/new"}), json!({"new": null}));
        check_patched(json!({"op": "copy", "from": "/nothing", "path": "/new"}), json!({"new": null}));
        for path in ["/nothing", "/b/c~1d", "/n"] {
            check_patched(json!({"op": "test", "path": path, "value": null}), json!({}));
        }
    }

    #[test]
    fn errors_have_the_texts_of_upstream() {
        let check = check_rejected;
        check(json!({"op": "add"}), "add operation failed to decode path: missing value");
        check(json!({"path": "/a"}), "Unexpected kind: unknown");
        check(json!({"op": "leap", "path": "/a"}), "Unexpected kind: leap");
        check(
            json!({"op": "add", "path": "/x/y", "value": 1}),
            "add operation does not apply: doc is missing path: \"/x/y\": missing value",
        );
        check(
            json!({"op": "add", "path": "/a/x", "value": 1}),
            "error in add for path: '/a/x': value was not a proper array index: 'x': strconv.Atoi: parsing \"x\": invalid syntax",
        );
        check(
            json!({"op": "add", "path": "/a/3", "value": 1}),
            "error in add for path: '/a/3': Unable to access invalid index: 3: invalid index referenced",
        );
        check(
            json!({"op": "add", "path": "/a/-4", "value": 1}),
            "error in add for path: '/a/-4': Unable to access invalid index: -4: invalid index referenced",
        );
        check(
            json!({"op": "remove", "path": "/nothing"}),
            "error in remove for path: '/nothing': Unable to remove nonexistent key: nothing: missing value",
        );
        check(
            json!({"op": "remove", "path": "/n/x"}),
            "remove operation does not apply: doc is missing path: \"/n/x\": missing value",
        );
        check(
            json!({"op": "replace", "path": "/a/7", "value": 1}),
            "replace operation does not apply: doc is missing key: /a/7: missing value",
        );
        check(
            json!({"op": "move", "from": "/nothing", "path": "/x"}),
            "error in move for path: 'nothing': Unable to remove nonexistent key: nothing: missing value",
        );
        check(json!({"op": "test", "path": "/b/c", "value": "z"}), "testing value /b/c failed: test failed");
        check(json!({"op": "test", "path": "/b/c", "value": null}), "testing value /b/c failed: test failed");
        check(
            json!({"op": "test", "path": "/nothing/below", "value": null}),
            "test operation does not apply: is missing path: /nothing/below: missing value",
        );
        check(
            json!({"op": "test", "path": "/a/7", "value": null}),
            "error in test for path: '/a/7': Unable to access invalid index: 7: invalid index referenced",
        );
    }

    #[test]
    fn invalid_patch_is_rejected_as_a_whole() {
        check(&json!({"op": "add"}), Err((400, "")));
        check(&json!(vec![json!({"op": "test", "path": "/a", "value": [1, 2]}); MAX_OPERATIONS + 1]), Err((413, "")));
        let all = json!([{"op": "test", "path": "/b/c", "value": "x"}, {"op": "remove", "path": "/x"}]);
        check(&all, Err((422, "")));
    }

    #[test]
    fn duplicate_field_of_operation_is_reported() {
        let patch = r#"[{"op": "test", "op": "add", "path": "/x", "value": 1}]"#;
        let parsed = apply(json!({}), patch.as_bytes()).unwrap();
        assert_eq!(
            (parsed.value, parsed.duplicates),
            (json!({"x": 1}), vec![r#"json patch duplicate field "[0].op""#.to_owned()])
        );
    }

    #[test]
    fn elements_shifted_by_insertions_and_removals_are_bounded() {
        let object = json!({"x": vec![0; 1_000_000]});
        let patches = [
            json!({"op": "add", "path": "/x/0", "value": 0}),
            json!({"op": "remove", "path": "/x/0"}),
            json!({"op": "move", "from": "/x/0", "path": "/x/-"}),
        ];
        for operation in patches {
            let patch = json!(vec![operation; 3_000]).to_string();
            let error = ApiError::from(apply(object.clone(), patch.as_bytes()).unwrap_err());
            assert!(error.code == 422 && error.to_json().to_string().contains("shifted elements"), "{error}");
        }
        // At the end nothing is shifted.
        let patch = json!(vec![json!({"op": "add", "path": "/x/-", "value": 0}); MAX_OPERATIONS]).to_string();
        assert!(apply(object, patch.as_bytes()).is_ok());
    }

    #[test]
    fn copies_of_copies_are_bounded() {
        let copies: Vec<Value> =
            (0..60).map(|i| json!({"op": "copy", "from": "/b", "path": format!("/b/x{i}")})).collect();
        check(&json!(copies), Err((422, "")));
        let deeper: Vec<Value> = (0..1000).map(|_| json!({"op": "copy", "from": "/b", "path": "/b/b"})).collect();
        check(&json!(deeper), Err((422, "")));
    }

    #[test]
    fn failed_test_is_distinguished_from_other_errors() {
        let error = |patch: Value| apply(json!({"a": 1}), patch.to_string().as_bytes()).err();
        let failed = json!([{"op": "test", "path": "/a", "value": 2}]);
        assert!(matches!(error(failed), Some(PatchError::Test(_))));
        for patch in [json!([{"op": "x: test failed"}]), json!([{"op": "test", "path": "/b/c", "value": 2}]), json!({})]
        {
            assert!(matches!(error(patch.clone()), Some(PatchError::Other(_))), "{patch}");
        }
    }
}
