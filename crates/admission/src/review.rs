//! AdmissionReview requests and responses
//! (`apiserver/pkg/admission/plugin/webhook/{request,errors}`).

use base64::{DecodeError, Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

/// A field of a response has a wrong type, with the message of Go's decoder (`json.UnmarshalTypeError`).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("json: cannot unmarshal {value} into Go struct field AdmissionReview.response{field} of type {expected}")]
pub struct UnmarshalTypeError {
    value: &'static str,
    field: String,
    expected: &'static str,
}

/// The response is invalid, with upstream's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResponseError {
    /// There is no response.
    #[error("webhook response was absent")]
    Absent,
    /// The response is for another request.
    #[error("expected response.uid={expected:?}, got {got:?}")]
    Uid {
        /// UID of the request.
        expected: String,
        /// UID of the response.
        got: String,
    },
    /// The review has another version or kind.
    #[error("expected webhook response of {expected}, got {got}")]
    Kind {
        /// Version and kind of the request.
        expected: String,
        /// Version and kind of the response.
        got: String,
    },
    /// A patch without a type.
    #[error("webhook returned response.patch but not response.patchType")]
    PatchWithoutType,
    /// A patch type without a patch.
    #[error("webhook returned response.patchType but not response.patch")]
    TypeWithoutPatch,
    /// A patch of a validating webhook.
    #[error("validating webhook may not return response.patch")]
    ValidatingPatch,
    /// A patch type of a validating webhook.
    #[error("validating webhook may not return response.patchType")]
    ValidatingPatchType,
    /// Unknown patch type.
    #[error("webhook returned invalid response.patchType of {0:?}")]
    PatchType(String),
    /// The patch is not encoded in base64.
    #[error("response.patch: {0}")]
    PatchEncoding(#[from] DecodeError),
}

/// Response of a webhook (`AdmissionResponse`).
#[derive(Debug, Clone, PartialEq)]
pub struct AdmissionResponse {
    /// Whether the request is allowed.
    pub allowed: bool,
    /// JSON patch of the object.
    pub patch: Option<Vec<u8>>,
    /// Warnings for the client.
    pub warnings: Vec<String>,
    /// Audit annotations.
    pub annotations: Vec<(String, String)>,
    /// `Status` of a denied request.
    pub status: Value,
}

/// Returns the AdmissionReview of an AdmissionRequest, to which it adds UID and objects.
#[must_use]
pub fn admission_review(version: &str, uid: &str, mut request: Value, object: &Value, old: &Value) -> Value {
    request["uid"] = json!(uid);
    request["object"] = object.clone();
    request["oldObject"] = old.clone();
    json!({"kind": "AdmissionReview", "apiVersion": format!("admission.k8s.io/{version}"), "request": request})
}

/// Fields of a response and their types.
const TYPES: [(&str, &str); 11] = [
    ("/uid", "types.UID"),
    ("/allowed", "bool"),
    ("/status", "v1.Status"),
    ("/status/code", "int32"),
    ("/status/message", "string"),
    ("/status/reason", "v1.StatusReason"),
    ("/status/details", "v1.StatusDetails"),
    ("/patch", "[]uint8"),
    ("/patchType", "v1.PatchType"),
    ("/auditAnnotations", "map[string]string"),
    ("/warnings", "[]string"),
];

/// Checks the types of the fields of a response, as upstream's decoder does.
///
/// # Errors
/// If a field has a wrong type.
pub fn check_types(answer: &Value) -> Result<(), UnmarshalTypeError> {
    let response = &answer["response"];
    let wrong = |at: &str, value: &Value, expected: &'static str| {
        Err(UnmarshalTypeError { value: type_of(value), field: at.replace('/', "."), expected })
    };
    if !response.is_null() && !response.is_object() {
        return wrong("", response, "v1.AdmissionResponse");
    }
    for (at, kind) in TYPES {
        let value = response.pointer(at).unwrap_or(&Value::Null);
        let fits = match kind {
            _ if value.is_null() => true,
            "bool" => value.is_boolean(),
            "int32" => value.as_i64().is_some_and(|code| i32::try_from(code).is_ok()),
            "v1.Status" | "v1.StatusDetails" => value.is_object(),
            "map[string]string" => value.as_object().is_some_and(|all| all.values().all(is_text)),
            "[]string" => value.as_array().is_some_and(|all| all.iter().all(is_text)),
            _ => value.is_string(),
        };
        if !fits {
            return wrong(at, value, kind);
        }
    }
    Ok(())
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or("").to_owned()
}

fn is_text(value: &Value) -> bool {
    value.is_string() || value.is_null()
}

/// Returns the name of a JSON type in Go's decoding errors.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Parses and verifies the response (`VerifyAdmissionResponse`).
///
/// # Errors
/// If it is not a valid response to the request.
pub fn parse_response(
    version: &str,
    uid: &str,
    mutating: bool,
    answer: &Value,
) -> Result<AdmissionResponse, ResponseError> {
    let response = &answer["response"];
    if response.is_null() {
        return Err(ResponseError::Absent);
    }
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or("").to_owned();
    let (patch, kind) = (text(response, "patch"), response["patchType"].as_str());
    if version == "v1" {
        let answered = text(response, "uid");
        if answered != uid {
            return Err(ResponseError::Uid { expected: uid.to_owned(), got: answered });
        }
        let expected = format!("admission.k8s.io/{version}, Kind=AdmissionReview");
        let got = format!("{}, Kind={}", text(answer, "apiVersion"), text(answer, "kind"));
        if got != expected {
            return Err(ResponseError::Kind { expected, got });
        }
        match (mutating, patch.is_empty(), kind) {
            (true, false, None) => return Err(ResponseError::PatchWithoutType),
            (true, true, Some(_)) => return Err(ResponseError::TypeWithoutPatch),
            (false, false, _) => return Err(ResponseError::ValidatingPatch),
            (false, _, Some(_)) => return Err(ResponseError::ValidatingPatchType),
            _ => {}
        }
    }
    if let Some(kind) = kind.filter(|kind| mutating && *kind != "JSONPatch") {
        return Err(ResponseError::PatchType(kind.to_owned()));
    }
    let patch = STANDARD.decode(patch)?;
    let warnings = response["warnings"].as_array().into_iter().flatten();
    let annotations = response["auditAnnotations"].as_object().into_iter().flatten();
    Ok(AdmissionResponse {
        allowed: response["allowed"] == true,
        patch: Some(patch).filter(|patch| mutating && !patch.is_empty()),
        warnings: warnings.filter_map(Value::as_str).map(str::to_owned).collect(),
        annotations: annotations.map(|(key, value)| (key.clone(), text_of(value))).collect(),
        status: response["status"].clone(),
    })
}

/// Returns the `Status` of a request that a webhook denied (`ToStatusErr`).
#[must_use]
pub fn denied_status(webhook: &str, status: &Value) -> Value {
    let mut error_status =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 400});
    if let Some(code) = status["code"].as_u64().filter(|code| (400..600).contains(code)) {
        error_status["code"] = json!(code);
    }
    let text = |field: &str| status[field].as_str().filter(|text| !text.is_empty());
    let by = format!("admission webhook {webhook:?} denied the request");
    let message = match text("message").or(text("reason")) {
        Some(message) => format!("{by}: {message}"),
        None => format!("{by} without explanation"),
    };
    error_status["message"] = json!(message);
    if let Some(reason) = text("reason") {
        error_status["reason"] = json!(reason);
    }
    if status["details"].is_object() {
        error_status["details"] = status["details"].clone();
    }
    error_status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(response: &Value) -> Value {
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
    }

    #[test]
    fn response_must_match_the_request() {
        let check = |mutating: bool, answer: &Value, expected: &str| {
            let got = parse_response("v1", "u", mutating, answer).map(|answer| answer.allowed.to_string());
            assert_eq!(got.unwrap_or_else(|error| error.to_string()), expected, "{answer}");
        };
        let patch = STANDARD.encode("[]");
        check(true, &answer(&json!({"uid": "u", "allowed": true})), "true");
        check(true, &answer(&json!({"uid": "u"})), "false");
        check(true, &answer(&json!({"uid": "u", "allowed": true, "patch": patch, "patchType": "JSONPatch"})), "true");
        check(true, &answer(&Value::Null), "webhook response was absent");
        check(true, &answer(&json!({"uid": "x"})), "expected response.uid=\"u\", got \"x\"");
        check(
            true,
            &answer(&json!({"uid": "u", "patch": patch})),
            "webhook returned response.patch but not response.patchType",
        );
        check(
            true,
            &answer(&json!({"uid": "u", "patchType": "JSONPatch"})),
            "webhook returned response.patchType but not response.patch",
        );
        check(
            true,
            &answer(&json!({"uid": "u", "patch": patch, "patchType": "Merge"})),
            "webhook returned invalid response.patchType of \"Merge\"",
        );
        check(false, &answer(&json!({"uid": "u", "patch": patch})), "validating webhook may not return response.patch");
        check(
            false,
            &answer(&json!({"uid": "u", "patchType": "x"})),
            "validating webhook may not return response.patchType",
        );
        let other =
            json!({"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "response": {"uid": "u"}});
        check(
            true,
            &other,
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got admission.k8s.io/v1beta1, Kind=AdmissionReview",
        );
    }

    #[test]
    fn response_with_wrong_types_is_rejected() {
        let check = |response: Value, expected: Result<(), &str>| {
            let prefix = "json: cannot unmarshal ";
            let got = check_types(&answer(&response))
                .map_err(|error| error.to_string().trim_start_matches(prefix).to_owned());
            assert_eq!(got, expected.map_err(str::to_owned), "{response}");
        };
        let all = json!({"uid": "u", "allowed": true, "status": {"code": 403, "message": "m"}, "patch": "W10=",
            "patchType": "JSONPatch", "auditAnnotations": {"a": "b"}, "warnings": ["w"]});
        check(all, Ok(()));
        check(Value::Null, Ok(()));
        check(json!({"allowed": null, "status": null, "warnings": [null]}), Ok(()));
        let field = |is: &str, at: &str, kind: &str| {
            format!("{is} into Go struct field AdmissionReview.response{at} of type {kind}")
        };
        check(json!([]), Err(&field("array", "", "v1.AdmissionResponse")));
        check(json!({"allowed": "yes"}), Err(&field("string", ".allowed", "bool")));
        check(json!({"allowed": 1}), Err(&field("number", ".allowed", "bool")));
        check(json!({"uid": 5}), Err(&field("number", ".uid", "types.UID")));
        check(json!({"warnings": "x"}), Err(&field("string", ".warnings", "[]string")));
        check(json!({"warnings": [1]}), Err(&field("array", ".warnings", "[]string")));
        check(json!({"auditAnnotations": {"a": 1}}), Err(&field("object", ".auditAnnotations", "map[string]string")));
        check(json!({"status": "x"}), Err(&field("string", ".status", "v1.Status")));
        check(json!({"status": {"code": "x"}}), Err(&field("string", ".status.code", "int32")));
    }

    #[test]
    fn denial_names_the_webhook_and_the_reason() {
        let check = |status: Value, message: &str, code: u16| {
            let error_status = denied_status("x.y.z", &status);
            assert_eq!(
                (error_status["message"].as_str(), error_status["code"].as_u64()),
                (Some(message), Some(code.into())),
                "{status}"
            );
            assert_eq!(error_status["status"], "Failure");
        };
        check(Value::Null, "admission webhook \"x.y.z\" denied the request without explanation", 400);
        check(json!({"message": "no"}), "admission webhook \"x.y.z\" denied the request: no", 400);
        check(
            json!({"reason": "Forbidden", "code": 403}),
            "admission webhook \"x.y.z\" denied the request: Forbidden",
            403,
        );
        check(
            json!({"status": "Success", "code": 200}),
            "admission webhook \"x.y.z\" denied the request without explanation",
            400,
        );
    }
}
