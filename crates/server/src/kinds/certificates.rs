//! CertificateSigningRequest (`certificates.k8s.io/v1`). Controllers sign for Kubernetes' own signers.

pub(super) mod signer_name;
mod status;

use super::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME, Subresource, WriteContext, WriteTarget,
    checks::{items, text as text_of},
    duration, or_none,
    plain::Plain,
    text,
};
use api::certificate::{SubjectUser, subject_user};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use x509_parser::{
    certification_request::X509CertificationRequest, error::X509Error, pem::parse_x509_pem, prelude::FromDer,
    x509::X509Name,
};

const GROUP: &str = "certificates.k8s.io";
const APPROVAL: &str = "approval";

pub(super) static CERTIFICATE_SIGNING_REQUEST: Plain = Plain {
    columns: &[
        NAME,
        AGE,
        text("SignerName", Cell::At("/spec/signerName")),
        text("Requestor", Cell::At("/spec/username")),
        text(
            "RequestedDuration",
            Cell::Of(|r, _| or_none(&r["spec"]["expirationSeconds"].as_i64().map(duration).unwrap_or_default())),
        ),
        text("Condition", Cell::Of(|r, _| json!(condition(r)))),
    ],
    fields: &["spec.signerName"],
    prepare,
    validate,
    validate_change: status::keep_conditions,
    validate_status: |object, old, errors| {
        status::check_conditions(object, errors);
        status::keep_conditions(object, old, errors);
        status::keep_decisions(object, old, errors);
    },
    ..Plain::of(&KindInfo {
        short_names: &["csr"],
        status: true,
        subresources: &[Subresource {
            name: APPROVAL,
            group: GROUP,
            version: "v1",
            kind: "CertificateSigningRequest",
            verbs: &["get", "patch", "update"],
        }],
        ..KindInfo::of_cluster(
            GROUP,
            "CertificateSigningRequest",
            "certificatesigningrequests",
            "certificatesigningrequest",
        )
    })
};

/// `Approved,Issued`, as `printCertificateSigningRequest` has it.
fn condition(request: &Value) -> String {
    let conditions = || items(&request["status"], "conditions");
    let last = |kind: &str| conditions().any(|c| c["type"] == kind);
    let mut text = match (last("Denied"), last("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }
    .to_owned();
    if last("Failed") {
        text += ",Failed";
    }
    if !text_of(&request["status"], "certificate").is_empty() {
        text += ",Issued";
    }
    text
}

/// When conditions were told, and came to be, where a client does not say so (`populateConditionTimestamps`).
fn note_times(object: &mut Value, old: &Value, ctx: &WriteContext) {
    let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        let is_same = |c: &&Value| c["type"] == condition["type"] && c["status"] == condition["status"];
        let before = items(&old["status"], "conditions").find(is_same).map(|c| c["lastTransitionTime"].clone());
        let since = before.filter(|t| !t.is_null()).unwrap_or_else(|| json!(ctx.now));
        for (field, time) in [("lastUpdateTime", json!(ctx.now)), ("lastTransitionTime", since)] {
            if condition[field].is_null() {
                condition[field] = time;
            }
        }
    }
}

/// What is asked for stays; an approval changes conditions of any type, and nothing else (`csrApprovalStrategy`).
fn prepare(object: &mut Value, old: Option<&Value>, ctx: &WriteContext) {
    let Some(old) = old else { return };
    object["spec"] = old["spec"].clone();
    note_times(object, old, ctx);
    if ctx.target == WriteTarget::Sub(APPROVAL) {
        let conditions: Vec<Value> = items(&object["status"], "conditions").cloned().collect();
        object["status"] = old["status"].clone();
        if !conditions.is_empty() {
            object["status"]["conditions"] = json!(conditions);
        } else if let Some(status) = object["status"].as_object_mut() {
            status.remove("conditions");
        }
    }
}

/// What a certificate can be for (`KeyUsage`).
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

fn conditions_of(object: &Value, kind: &str) -> Vec<Value> {
    items(&object["status"], "conditions").filter(|c| c["type"] == kind).cloned().collect()
}

/// The user that a request for a certificate asks to be.
///
/// # Errors
/// When it is no request, or its subject does not identify a user.
pub(crate) fn requested_user(request: &str) -> Result<SubjectUser, String> {
    subject(request, subject_user)?
}

/// Whether it is no request for a certificate, or not signed with its key.
pub(crate) fn is_unreadable(request: &str) -> bool {
    subject(request, |_| ()).is_err()
}

/// Reads the subject of a request whose signature is that of its key.
fn subject<T>(request: &str, read: impl FnOnce(&X509Name<'_>) -> T) -> Result<T, String> {
    let bytes = STANDARD.decode(request).unwrap_or_default();
    let block = parse_x509_pem(&bytes).ok().filter(|(_, pem)| pem.label == "CERTIFICATE REQUEST");
    let (_, pem) = block.ok_or("PEM block type must be CERTIFICATE REQUEST")?;
    let parsed = X509CertificationRequest::from_der(&pem.contents);
    let (_, parsed) = parsed.map_err(|_| "asn1: structure error: malformed certificate request")?;
    parsed.verify_signature().map_err(|e| match e {
        X509Error::SignatureUnsupportedAlgorithm => "x509: cannot verify signature: algorithm unimplemented",
        _ => "x509: the signature of the request is not that of its key",
    })?;
    Ok(read(&parsed.certification_request_info.subject))
}

/// `validateCertificateSigningRequest`.
fn validate(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    if text_of(spec, "request").is_empty() {
        errors.required(&path.child("request"), "");
    } else if let Err(why) = subject(text_of(spec, "request"), |_| ()) {
        errors.invalid(&path.child("request"), &spec["request"], &why);
    }
    if items(spec, "usages").next().is_none() {
        errors.required(&path.child("usages"), "");
    }
    let mut seen = BTreeSet::new();
    for (i, usage) in items(spec, "usages").enumerate() {
        let at = path.child("usages").index(i);
        if !USAGES.iter().any(|known| usage == known) {
            errors.not_supported(&at, usage, &USAGES);
        }
        if !seen.insert(usage.as_str()) {
            errors.duplicate(&at, usage);
        }
    }
    let at = path.child("signerName");
    if text_of(spec, "signerName") == "kubernetes.io/legacy-unknown" {
        let why = "the legacy signerName is not allowed via this API version";
        errors.invalid(&at, &spec["signerName"], why);
    } else {
        signer_name::validate(&spec["signerName"], &at, errors);
    }
    status::check_conditions(object, errors);
    if spec["expirationSeconds"].as_i64().is_some_and(|s| s < 600) {
        let why = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.invalid(&path.child("expirationSeconds"), &spec["expirationSeconds"], why);
    }
}
