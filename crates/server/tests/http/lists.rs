//! Lists: resource versions, pages and selectors.

use crate::common::*;
use serde_json::{Value, json};
use store::Options;

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|o| o["metadata"]["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn resource_version_match_is_honored() {
    let api = TestApi::new().await;
    let first = api.create_config_map("a", json!({})).await;
    let second = api.create_config_map("b", json!({})).await;
    let (old, new) = (resource_version(&first), resource_version(&second).parse::<u64>().unwrap());
    let list = |query: String| get(format!("{CONFIG_MAPS}?{query}"));
    let both = json!({"items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}], "metadata": {"resourceVersion": new.to_string()}});
    let one = json!({"items": [{"metadata": {"name": "a"}}], "metadata": {"resourceVersion": old}});
    for (query, expected) in [
        (String::new(), &both),
        ("resourceVersion=0".to_owned(), &both),
        (format!("resourceVersion={old}"), &both),
        (format!("resourceVersion={old}&resourceVersionMatch=NotOlderThan"), &both),
        ("resourceVersion=0&resourceVersionMatch=NotOlderThan".to_owned(), &both),
        (format!("resourceVersion={old}&resourceVersionMatch=Exact"), &one),
        // Version 0 returns the whole list, whatever the limit.
        ("resourceVersion=0&limit=1".to_owned(), &both),
        // A page with a resource version is exact.
        (format!("resourceVersion={old}&limit=5"), &one),
    ] {
        api.check(list(query), 200, expected.clone()).await;
    }
    let ahead = new + 10;
    let too_large = json!({
        "reason": "Timeout", "code": 504, "message": format!("Timeout: Too large resource version: {ahead}, current: {new}"),
        "details": {"retryAfterSeconds": 1, "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]},
    });
    api.check(list(format!("resourceVersion={ahead}")), 504, too_large.clone()).await;
    api.check(list(format!("resourceVersion={ahead}&resourceVersionMatch=Exact")), 504, too_large.clone()).await;
    api.check(get(format!("{CONFIG_MAPS}/a?resourceVersion={ahead}")), 504, too_large).await;
    api.check(get(format!("{CONFIG_MAPS}/a?resourceVersion={new}")), 200, json!({"metadata": {"name": "a"}})).await;
    api.check(get(format!("{CONFIG_MAPS}/a?resourceVersion=x")), 400, json!({"reason": "BadRequest"})).await;
    api.check(
        list("resourceVersionMatch=Exact".to_owned()),
        422,
        json!({"message": "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"}),
    )
    .await;
}

#[tokio::test]
async fn compacted_resource_version_is_gone() {
    let api = TestApi::with_options(Options { watch_cache_events: 4, ..Options::default() }).await;
    let first = api.create_config_map("a", json!({})).await;
    for name in ["b", "c", "d"] {
        api.create_config_map(name, json!({})).await;
    }
    let page = api.check(get(format!("{CONFIG_MAPS}?limit=2")), 200, json!({})).await.body;
    let token = page["metadata"]["continue"].as_str().unwrap();
    for name in ["e", "f", "g", "h", "i", "j"] {
        api.create_config_map(name, json!({})).await;
    }
    let old = resource_version(&first);
    api.check(
        get(format!("{CONFIG_MAPS}?resourceVersion={old}&resourceVersionMatch=Exact")),
        410,
        json!({"reason": "Expired", "message": "The resourceVersion for the provided list is too old."}),
    )
    .await;
    let expired =
        api.check(get(format!("{CONFIG_MAPS}?limit=2&continue={token}")), 410, json!({"reason": "Expired"})).await.body;
    // The `continue` token of the error continues with the current state.
    let token = expired["metadata"]["continue"].as_str().unwrap();
    let rest = api.check(get(format!("{CONFIG_MAPS}?continue={token}")), 200, json!({})).await.body;
    assert_eq!(names(&rest), ["c", "d", "e", "f", "g", "h", "i", "j"]);
    let mut events = api.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={old}")).await;
    let error = events.check("ERROR", json!({"kind": "Status", "code": 410, "reason": "Expired"})).await;
    assert!(error["message"].as_str().unwrap().starts_with(&format!("too old resource version: {old} (")), "{error}");
    assert_eq!(events.try_next().await, None);
}

#[tokio::test]
async fn list_pages_share_one_revision() {
    let api = TestApi::new().await;
    for name in ["a", "b", "c", "d", "e"] {
        api.create_config_map(name, json!({"odd": if matches!(name, "a" | "c" | "e") { "1" } else { "0" }})).await;
    }
    let first = api
        .check(get(format!("{CONFIG_MAPS}?limit=2")), 200, json!({"metadata": {"remainingItemCount": 3}}))
        .await
        .body;
    assert_eq!(names(&first), ["a", "b"]);
    api.check(delete(format!("{CONFIG_MAPS}/d")), 200, json!({})).await;
    api.create_config_map("bb", json!({})).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = api
        .check(
            get(format!("{CONFIG_MAPS}?limit=2&continue={token}")),
            200,
            json!({"metadata": {"remainingItemCount": 1, "resourceVersion": resource_version(&first)}}),
        )
        .await
        .body;
    assert_eq!(names(&second), ["c", "d"]);
    let token = second["metadata"]["continue"].as_str().unwrap();
    let third = api
        .check(
            get(format!("{CONFIG_MAPS}?limit=2&continue={token}")),
            200,
            json!({"metadata": {"remainingItemCount": null, "continue": null}}),
        )
        .await
        .body;
    assert_eq!(names(&third), ["e"]);
    // A name is looked up before and after the position of the `continue` token.
    let token = first["metadata"]["continue"].as_str().unwrap();
    for (name, expected) in [("a", vec![]), ("b", vec![]), ("d", vec!["d"]), ("bb", vec![])] {
        let path = format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3D{name}&continue={token}");
        assert_eq!(names(&api.check(get(path), 200, json!({})).await.body), expected, "{name}");
    }
    // Lists with a selector have no remaining item count.
    let odd = api
        .check(
            get(format!("{CONFIG_MAPS}?limit=2&labelSelector=odd%3D1")),
            200,
            json!({"metadata": {"remainingItemCount": null}}),
        )
        .await
        .body;
    assert_eq!(names(&odd), ["a", "c"]);
    let token = odd["metadata"]["continue"].as_str().unwrap();
    let last = api
        .check(
            get(format!("{CONFIG_MAPS}?limit=2&labelSelector=odd%3D1&continue={token}")),
            200,
            json!({"metadata": {"continue": null}}),
        )
        .await
        .body;
    assert_eq!(names(&last), ["e"]);
    api.check(
        get(format!("{CONFIG_MAPS}?limit=2&continue={token}&resourceVersion=5")),
        400,
        json!({"message": "specifying resource version is not allowed when using continue"}),
    )
    .await;
    for (query, message) in [
        ("continue=junk", "invalid continue token: continue key is not valid: expected value at line 1 column 1"),
        ("limit=x", "strconv.ParseInt: parsing \"x\": invalid syntax"),
    ] {
        api.check(get(format!("{CONFIG_MAPS}?{query}")), 400, json!({"message": message})).await;
    }
}

#[tokio::test]
async fn label_and_field_selectors_filter_lists() {
    let api = TestApi::new().await;
    for (name, labels) in [("a", json!({"tier": "web", "x": "1"})), ("b", json!({"tier": "db"})), ("c", json!({}))] {
        api.create_config_map(name, labels).await;
    }
    for (query, expected) in [
        ("labelSelector=tier", vec!["a", "b"]),
        ("labelSelector=!tier", vec!["c"]),
        ("labelSelector=tier%3Dweb", vec!["a"]),
        ("labelSelector=tier!%3Dweb", vec!["b", "c"]),
        ("labelSelector=tier+in+(web,db),!x", vec!["b"]),
        ("labelSelector=tier+notin+(web)", vec!["b", "c"]),
        ("labelSelector=x%3E0", vec!["a"]),
        ("fieldSelector=metadata.name%3Db", vec!["b"]),
        ("fieldSelector=metadata.name!%3Db", vec!["a", "c"]),
        ("fieldSelector=metadata.name%3Db,metadata.name%3Da", vec![]),
        ("fieldSelector=metadata.name%3Da,metadata.namespace%3Ddefault", vec!["a"]),
        ("fieldSelector=metadata.namespace%3Dother", vec![]),
        ("fieldSelector=metadata.name%3Db&labelSelector=tier%3Dweb", vec![]),
    ] {
        for path in [CONFIG_MAPS, "/api/v1/configmaps"] {
            let list = api.check(get(format!("{path}?{query}")), 200, json!({"kind": "ConfigMapList"})).await.body;
            assert_eq!(names(&list), expected, "{path}?{query}");
        }
    }
    for (query, message) in [
        (
            "fieldSelector=data.k%3Dv",
            "\"data.k\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
        ("fieldSelector=metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
    ] {
        api.check(get(format!("{CONFIG_MAPS}?{query}")), 400, json!({"message": message})).await;
    }
    for query in ["labelSelector=a%3D%3D%3Db", "labelSelector=(", "labelSelector=a+in+b", "labelSelector=-"] {
        api.check(get(format!("{CONFIG_MAPS}?{query}")), 400, json!({"reason": "BadRequest"})).await;
    }
    api.bound_pod("p").await;
    api.create_pod("q").await;
    for (query, expected) in [
        ("spec.nodeName%3Dn", vec!["p"]),
        ("spec.nodeName%3D", vec!["q"]),
        ("status.phase%3DPending,spec.restartPolicy!%3DNever", vec!["p", "q"]),
    ] {
        let list = api.check(get(format!("/api/v1/pods?fieldSelector={query}")), 200, json!({})).await.body;
        assert_eq!(names(&list), expected, "{query}");
    }
    api.check(
        get(format!("{PODS}?fieldSelector=spec.color%3Dred")),
        400,
        json!({"message": "field label not supported: spec.color"}),
    )
    .await;
}

#[tokio::test]
async fn list_items_omit_type_meta() {
    let api = TestApi::new().await;
    api.check(post(CONFIG_MAPS, &json!({"metadata": {"name": "a"}})), 201, json!({})).await;
    let list = api.check(get(CONFIG_MAPS), 200, json!({"kind": "ConfigMapList"})).await.body;
    assert_eq!((list["items"][0].get("kind"), list["items"][0].get("apiVersion")), (None, None));
    assert_eq!(list["items"][0]["metadata"]["name"], "a");
}

#[tokio::test]
async fn unknown_group_is_a_not_found_status() {
    let api = TestApi::new().await;
    let expected = json!({"kind": "Status", "reason": "NotFound", "code": 404});
    api.check(get("/apis/nothing.example.com/v1/things"), 404, expected).await;
}

#[tokio::test]
async fn field_selectors_accept_upstream_fields() {
    let api = TestApi::new().await;
    api.create_pod("p").await;
    for (path, status, items) in [
        (format!("{PODS}?fieldSelector=spec.host%3D"), 200, json!([{}])),
        (format!("{PODS}?fieldSelector=spec.host%3Dn"), 200, json!([])),
        (format!("{PODS}?fieldSelector=status.podIPs%3Dx"), 200, json!([])),
        (format!("{PODS}?fieldSelector=spec.other%3Dx"), 400, json!(null)),
        ("/api/v1/nodes?fieldSelector=metadata.namespace%3Da".to_owned(), 400, json!(null)),
        ("/api/v1/namespaces?fieldSelector=metadata.namespace%3Da".to_owned(), 400, json!(null)),
        ("/api/v1/persistentvolumes?fieldSelector=metadata.namespace%3Da".to_owned(), 200, json!([])),
    ] {
        api.check(get(path), status, json!({"items": items})).await;
    }
    let message = r#"strconv.ParseInt: parsing "x": invalid syntax"#;
    api.check(get(format!("{PODS}?limit=x")), 400, json!({"reason": "BadRequest", "message": message})).await;
}
