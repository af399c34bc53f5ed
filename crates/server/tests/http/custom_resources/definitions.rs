//! CustomResourceDefinitions.

use super::*;

const CRONTAB: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/crontabs.stable.example.com";

fn condition<'a>(definition: &'a Value, kind: &str) -> &'a Value {
    let all = definition["status"]["conditions"].as_array().unwrap();
    all.iter().find(|c| c["type"] == kind).unwrap_or(&Value::Null)
}

#[tokio::test]
async fn crd_is_defaulted_and_established() {
    let api = api_with_crontabs(&crontab_properties()).await;
    let names = json!({"plural": "crontabs", "singular": "crontab", "kind": "CronTab", "listKind": "CronTabList",
        "shortNames": ["ct"], "categories": ["all"]});
    let created = api
        .check(
            get(CRONTAB),
            200,
            json!({
                "spec": {"names": names, "conversion": {"strategy": "None"}},
                "status": {"acceptedNames": names, "storedVersions": ["v1"], "conditions": [
                    {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found"},
                    {"type": "Established", "status": "True", "reason": "InitialNamesAccepted",
                        "message": "the initial names have been accepted"},
                ]},
            }),
        )
        .await
        .body;
    assert_eq!(managers(&created), ["kube-apiserver Update status", "unknown Update"]);
    assert_eq!(created["metadata"]["generation"], 1);
    api.check(get_table(CRONTAB), 200, json!({"columnDefinitions": [{"name": "Name"}, {"name": "Created At"}]})).await;
}

#[tokio::test]
async fn crd_kind_is_in_discovery_until_deleted() {
    let api = api_with_crontabs(&crontab_properties()).await;
    let list =
        api.check(get("/apis/stable.example.com/v1"), 200, json!({"groupVersion": "stable.example.com/v1"})).await;
    let expected = json!([
        {"name": "crontabs", "singularName": "crontab", "namespaced": true, "kind": "CronTab", "shortNames": ["ct"],
            "categories": ["all"]},
        {"name": "crontabs/status", "kind": "CronTab", "verbs": ["get", "patch", "update"]},
        {"name": "crontabs/scale", "kind": "Scale", "group": "autoscaling", "version": "v1"},
    ]);
    let mut mismatches = Vec::new();
    compare(&expected, &list.body["resources"], "", &mut mismatches);
    assert!(mismatches.is_empty(), "{mismatches:?}");
    let aggregated =
        get("/apis").header("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
    let has =
        |body: &Value| body["items"].as_array().unwrap().iter().any(|g| g["metadata"]["name"] == "stable.example.com");
    let returned = api.send(&aggregated).await;
    assert!(has(&returned.body));
    // An unchanged document is answered with 304.
    let tag = returned.headers["etag"].to_str().unwrap().to_owned();
    let again = aggregated.clone().header("if-none-match", &tag);
    assert_eq!(api.send(&again).await.status, 304);
    api.check(get("/apis/stable.example.com"), 200, json!({"preferredVersion": {"version": "v1"}})).await;
    api.check(
        delete(CRONTAB),
        200,
        json!({"metadata": {"finalizers": ["customresourcecleanup.apiextensions.k8s.io"]}}),
    )
    .await;
    wait_for_status(&api, CRONTAB, 404).await;
    wait_for_status(&api, "/apis/stable.example.com", 404).await;
    api.check(get(CRONTABS), 404, json!({"reason": "NotFound"})).await;
    assert!(!has(&api.send(&again).await.body));
}

#[tokio::test]
async fn invalid_crd_is_rejected() {
    let api = TestApi::new().await;
    for (pointer, value, expected_message) in [
        (
            "/metadata/name",
            json!("x.stable.example.com"),
            "metadata.name: Invalid value: \"x.stable.example.com\": must be spec.names.plural+\".\"+spec.group",
        ),
        (
            "/spec/scope",
            json!("Both"),
            "spec.scope: Unsupported value: \"Both\": supported values: \"Cluster\", \"Namespaced\"",
        ),
        (
            "/spec/names/kind",
            json!("Cron-Tab-"),
            "spec.names.kind: Invalid value: \"Cron-Tab-\": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
        ),
        (
            "/spec/names/listKind",
            json!("CronTab"),
            "spec.names.listKind: Invalid value: \"CronTab\": kind and listKind may not be the same",
        ),
        ("/spec/versions/0/storage", json!(false), "must have exactly one version marked as storage version"),
        (
            "/spec/versions/0/schema",
            json!(null),
            "spec.versions[0].schema.openAPIV3Schema: Required value: schemas are required",
        ),
        (
            "/spec/versions/0/schema/openAPIV3Schema/properties/spec/type",
            json!(""),
            "spec.validation.openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified object fields",
        ),
        (
            "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/image/type",
            json!("text"),
            "spec.validation.openAPIV3Schema.properties[spec].properties[image].type: Unsupported value: \"text\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
        ),
        (
            "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/image/default",
            json!(1),
            "spec.validation.openAPIV3Schema.properties[spec].properties[image].default: Invalid value: \"integer\": spec.validation.openAPIV3Schema.properties[spec].properties[image].default in body must be of type string: \"integer\"",
        ),
        (
            "/spec/versions/0/subresources/scale/specReplicasPath",
            json!(".status.replicas"),
            "spec.subresources.scale.specReplicasPath: Invalid value: \".status.replicas\": should be a json path under .spec",
        ),
        (
            "/spec/versions/0/additionalPrinterColumns/0/type",
            json!("text"),
            "spec.additionalPrinterColumns[0].type: Invalid value: \"text\": must be one of boolean,date,integer,number,string",
        ),
        (
            "/spec/conversion",
            json!({"strategy": "Webhook"}),
            "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
        ),
        (
            "/spec/preserveUnknownFields",
            json!(true),
            "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ),
    ] {
        let mut definition = crontab_definition(&crontab_properties());
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let parent = definition.pointer_mut(parent).unwrap();
        match parent {
            Value::Array(items) => items[key.parse::<usize>().unwrap()] = value,
            parent => parent[key] = value,
        }
        let response = api.send(&post(DEFINITIONS, &definition)).await;
        let message = response.body["message"].as_str().unwrap();
        assert_eq!(response.status, 422, "{pointer}: {message}");
        assert!(message.contains(expected_message), "{pointer}:\n{message}\n{expected_message}");
    }
    let misspelt = r#"{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "a.b.c"},
        "spec": {"group": "b.c", "versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"typ": "object"}}}]}}"#;
    let strict = api
        .send(&post(format!("{DEFINITIONS}?fieldValidation=Strict"), &serde_json::from_str(misspelt).unwrap()))
        .await;
    assert!(
        strict.body["message"]
            .as_str()
            .unwrap()
            .contains("unknown field \"spec.versions[0].schema.openAPIV3Schema.typ\"")
    );
}

#[tokio::test]
async fn crd_name_conflict_is_resolved_after_deletion() {
    let api = api_with_crontabs(&crontab_properties()).await;
    let mut other = crontab_definition(&crontab_properties());
    other["metadata"]["name"] = json!("tabs.stable.example.com");
    other["spec"]["names"] = json!({"plural": "tabs", "kind": "CronTab"});
    api.check(post(DEFINITIONS, &other), 201, json!({})).await;
    let path = format!("{DEFINITIONS}/tabs.stable.example.com");
    let got = api.send(&get(&path)).await.body;
    let accepted = condition(&got, "NamesAccepted");
    assert_eq!((&accepted["status"], &accepted["reason"]), (&json!("False"), &json!("ListKindConflict")));
    assert_eq!(condition(&got, "Established")["reason"], "NotAccepted");
    api.check(get("/apis/stable.example.com/v1/tabs"), 404, json!({})).await;
    api.check(delete(CRONTAB), 200, json!({})).await;
    wait_for_status(&api, "/apis/stable.example.com/v1/tabs", 200).await;
    let got = api.send(&get(&path)).await.body;
    assert_eq!(condition(&got, "Established")["status"], "True");
}

#[tokio::test]
async fn crd_deletion_deletes_objects_and_waits_for_finalizers() {
    let api = api_with_crontabs(&crontab_properties()).await;
    for i in 0..3 {
        let mut object = crontab(&format!("c{i}"), &json!({}));
        if i == 0 {
            object["metadata"]["finalizers"] = json!(["example.com/keep"]);
        }
        api.check(post(CRONTABS, &object), 201, json!({})).await;
    }
    let mut watch = api.watch(&format!("{CRONTABS}?watch=1")).await;
    for _ in 0..3 {
        watch.check("ADDED", json!({})).await;
    }
    api.check(delete(CRONTAB), 200, json!({})).await;
    // A watch sends the deletions of the objects.
    let (mut gone, mut seen) = (0, 0);
    while seen < 3 {
        gone += usize::from(watch.next().await["type"] == "DELETED");
        seen += 1;
    }
    assert_eq!(gone, 2);
    let response = api.send(&post(CRONTABS, &crontab("late", &json!({})))).await;
    let message = response.body["message"].as_str().unwrap_or("");
    assert_eq!((response.status, response.body["reason"].as_str()), (403, Some("Forbidden")), "{message}");
    assert!(
        message.ends_with("is forbidden: create not allowed while custom resource definition is terminating"),
        "{message}"
    );
    let late = api.send(&apply(format!("{CRONTABS}/late"), "a", &crontab("late", &json!({})))).await;
    assert_eq!((late.status, late.body["reason"].as_str()), (403, Some("Forbidden")), "{}", late.body);
    let kept = format!("{CRONTABS}/c0");
    api.check(merge_patch(&kept, &json!({"metadata": {"finalizers": null}})), 200, json!({})).await;
    wait_for_status(&api, CRONTAB, 404).await;
    // The watch ends when the kind is removed.
    while watch.try_next().await.is_some() {}
    // A recreated definition has no objects.
    api.check(post(DEFINITIONS, &crontab_definition(&crontab_properties())), 201, json!({})).await;
    api.check(get(CRONTABS), 200, json!({"kind": "CronTabList", "items": []})).await;
}

#[tokio::test]
async fn custom_resources_are_served_after_restart() {
    let api = api_with_crontabs(&crontab_properties()).await;
    api.check(post(CRONTABS, &crontab("a", &json!({"replicas": 2}))), 201, json!({})).await;
    let again = TestApi::reopen(api.engine.clone()).await;
    again.check(get(format!("{CRONTABS}/a")), 200, json!({"spec": {"replicas": 2, "image": "busybox"}})).await;
}

#[tokio::test]
async fn crd_storage_fields_are_immutable() {
    let api = api_with_crontabs(&crontab_properties()).await;
    for (change, expected_message) in [
        (json!({"spec": {"scope": "Cluster"}}), "spec.scope: Invalid value: \"Cluster\": field is immutable"),
        (json!({"spec": {"names": {"kind": "Tab"}}}), "spec.names.kind: Invalid value: \"Tab\": field is immutable"),
        (
            json!({"spec": {"versions": [{"name": "v2", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]}}),
            "status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; v1 was previously a storage version",
        ),
    ] {
        let response = api.send(&merge_patch(CRONTAB, &change)).await;
        let message = response.body["message"].as_str().unwrap();
        assert!(response.status == 422 && message.contains(expected_message), "{change}: {message}");
    }
}

#[tokio::test]
async fn protected_groups_require_the_approval_annotation() {
    let api = TestApi::new().await;
    let mut definition = crontab_definition(&crontab_properties());
    definition["metadata"]["name"] = json!("crontabs.stable.k8s.io");
    definition["spec"]["group"] = json!("stable.k8s.io");
    let response = api.send(&post(DEFINITIONS, &definition)).await;
    let expected_message = "metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111";
    assert!(response.body["message"].as_str().unwrap().contains(expected_message), "{}", response.body);
    definition["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": "unapproved, for a test"});
    api.check(post(DEFINITIONS, &definition), 201, json!({})).await;
    let path = format!("{DEFINITIONS}/crontabs.stable.k8s.io");
    let reported = |body: &Value| {
        let reported = condition(body, "KubernetesAPIApprovalPolicyConformant");
        ["status", "reason", "message"].map(|field| reported[field].as_str().unwrap_or("").to_owned())
    };
    let bypassed = ["False", "UnapprovedAnnotation", "not approved: \"unapproved, for a test\""];
    assert_eq!(reported(&api.send(&get(&path)).await.body), bypassed);
    let location = "https://github.com/kubernetes/kubernetes/pull/78458";
    let annotated = |expected: &str| json!({"metadata": {"annotations": {"api-approved.kubernetes.io": expected}}});
    api.check(merge_patch(&path, &annotated(location)), 200, json!({})).await;
    let message = format!("approved in {location}");
    assert_eq!(reported(&api.send(&get(&path)).await.body), ["True", "ApprovedAnnotation", message.as_str()]);
}

#[tokio::test]
async fn invalid_conversion_ca_bundle_prevents_established() {
    let api = TestApi::new().await;
    let webhook = |bundle: &str| {
        json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": "n", "name": "s"}, "caBundle": bundle}}})
    };
    let mut definition = crontab_definition(&crontab_properties());
    definition["spec"]["conversion"] = webhook("Zm9v");
    api.check(post(DEFINITIONS, &definition), 201, json!({})).await;
    let established = |body: &Value| condition(body, "Established")["reason"].clone();
    let crontab = format!("{DEFINITIONS}/crontabs.stable.example.com");
    assert_eq!(established(&api.send(&get(&crontab)).await.body), "InvalidCABundle");
    api.check(merge_patch(&crontab, &json!({"spec": {"conversion": webhook("")}})), 200, json!({})).await;
    assert_eq!(established(&api.send(&get(&crontab)).await.body), "InitialNamesAccepted");
    let message = "spec.conversion.webhookClientConfig.caBundle: Invalid value: \"Zm9v\": unable to load root certificates: data does not contain any valid RSA or ECDSA certificates";
    let response = api.send(&merge_patch(&crontab, &json!({"spec": {"conversion": webhook("Zm9v")}}))).await;
    assert_eq!(response.status, 422);
    assert!(response.body["message"].as_str().unwrap().ends_with(message), "{}", response.body);
}

#[tokio::test]
async fn unrecognized_format_causes_a_warning() {
    let api = TestApi::new().await;
    let definition = crontab_definition(
        &json!({"a": {"type": "string", "format": "foo"}, "b": {"type": "string", "format": "uri"}}),
    );
    let created = api.check(post(DEFINITIONS, &definition), 201, json!({})).await;
    assert_eq!(created.warnings(), ["299 - \"unrecognized format \\\"foo\\\"\""]);
}
