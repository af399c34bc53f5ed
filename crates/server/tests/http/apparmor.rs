//! AppArmor profiles: fields and deprecated annotations.

use crate::{common::*, validation::check_spec};
use serde_json::{Value, json};

const ANNOTATION_PREFIX: &str = "container.apparmor.security.beta.kubernetes.io";

fn pod_with_apparmor(annotations: Value, profile: Value) -> Value {
    let mut object = pod("p");
    object["metadata"]["annotations"] = annotations;
    if !profile.is_null() {
        object["spec"]["containers"][0]["securityContext"] = json!({"appArmorProfile": profile});
    }
    object
}

#[tokio::test]
async fn apparmor_profile_type_and_localhost_are_validated() {
    let path = "spec.securityContext.appArmorProfile";
    for (profile, field, reason, message) in [
        (json!({}), "type", "Required", "Required value: type is required when appArmorProfile is set"),
        (
            json!({"type": "Mine"}),
            "type",
            "NotSupported",
            "Unsupported value: \"Mine\": supported values: \"Localhost\", \"RuntimeDefault\", \"Unconfined\"",
        ),
        (
            json!({"type": "Localhost"}),
            "localhostProfile",
            "Required",
            "Required value: must be set when AppArmor type is Localhost",
        ),
        (
            json!({"type": "Localhost", "localhostProfile": " x"}),
            "localhostProfile",
            "Invalid",
            "Invalid value: \" x\": must not be padded with whitespace",
        ),
        (
            json!({"type": "Unconfined", "localhostProfile": "x"}),
            "localhostProfile",
            "Invalid",
            "Invalid value: \"x\": can only be set when AppArmor type is Localhost",
        ),
    ] {
        let spec = json!({"securityContext": {"appArmorProfile": profile}});
        check_spec(spec, &[(&format!("{path}.{field}"), reason, message)]).await;
    }
    check_spec(json!({"securityContext": {"appArmorProfile": {"type": "Localhost", "localhostProfile": "x"}}}), &[])
        .await;
}

#[tokio::test]
async fn apparmor_annotation_sets_the_field() {
    let api = TestApi::new().await;
    let dry = format!("{PODS}?dryRun=All");
    for (annotation, expected) in [
        ("unconfined", json!({"type": "Unconfined"})),
        ("runtime/default", json!({"type": "RuntimeDefault"})),
        ("localhost/mine", json!({"type": "Localhost", "localhostProfile": "mine"})),
    ] {
        let annotations = json!({format!("{ANNOTATION_PREFIX}/c"): annotation});
        let returned = json!({"metadata": {"annotations": annotations},
            "spec": {"containers": [{"securityContext": {"appArmorProfile": expected}}]}});
        api.check(post(&dry, &pod_with_apparmor(annotations, Value::Null)), 201, returned).await;
    }
}

#[tokio::test]
async fn invalid_or_conflicting_apparmor_annotation_is_rejected() {
    let api = TestApi::new().await;
    for (annotations, profile, message) in [
        (
            json!({format!("{ANNOTATION_PREFIX}/x"): "unconfined"}),
            Value::Null,
            format!("metadata.annotations[{ANNOTATION_PREFIX}/x]: Invalid value: \"x\": container not found"),
        ),
        (
            json!({format!("{ANNOTATION_PREFIX}/c"): "mine"}),
            Value::Null,
            format!(
                "metadata.annotations[{ANNOTATION_PREFIX}/c]: Invalid value: \"mine\": invalid AppArmor profile name: \"mine\""
            ),
        ),
        (
            json!({format!("{ANNOTATION_PREFIX}/c"): "unconfined"}),
            json!({"type": "RuntimeDefault"}),
            "spec.containers[0].securityContext.appArmorProfile.type: Forbidden: apparmor type in annotation and field must match".to_owned(),
        ),
        (
            json!({format!("{ANNOTATION_PREFIX}/c"): "localhost/a"}),
            json!({"type": "Localhost", "localhostProfile": "b"}),
            "spec.containers[0].securityContext.appArmorProfile.localhostProfile: Forbidden: apparmor profile in annotation and field must match".to_owned(),
        ),
    ] {
        let expected = json!({"message": format!("Pod \"p\" is invalid: {message}")});
        api.check(post(PODS, &pod_with_apparmor(annotations, profile)), 422, expected).await;
    }
}

#[tokio::test]
async fn apparmor_annotations_are_immutable() {
    let api = TestApi::new().await;
    api.check(
        post(PODS, &pod_with_apparmor(json!({format!("{ANNOTATION_PREFIX}/c"): "unconfined"}), Value::Null)),
        201,
        json!({}),
    )
    .await;
    api.create_pod("q").await;
    let annotate = |name: &str, value: Value| {
        merge_patch(
            format!("{PODS}/{name}"),
            &json!({"metadata": {"annotations": {format!("{ANNOTATION_PREFIX}/c"): value}}}),
        )
    };
    let expected = |name: &str, profile: &str| {
        let field = format!("metadata.annotations[{ANNOTATION_PREFIX}/c]");
        json!({"message": format!("Pod \"{name}\" is invalid: {field}: Forbidden: may not {profile} AppArmor annotations")})
    };
    api.check(annotate("p", json!("runtime/default")), 422, expected("p", "remove or update")).await;
    api.check(annotate("p", Value::Null), 422, expected("p", "remove or update")).await;
    api.check(annotate("q", json!("unconfined")), 422, expected("q", "add")).await;
}
