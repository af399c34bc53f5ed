//! What DeviceClasses, ResourceClaims and their templates may say (`pkg/apis/resource/validation`).

use super::parts::{configs, fully_qualified_name, label, list, selectors, set, toleration};
use crate::kinds::{
    FieldErrors, FieldPath,
    checks::{items, required_subdomain, text as text_of},
};
use serde_json::{Value, json};

const MOST_REQUESTS: usize = 32;
const MOST_CONSTRAINTS: usize = 32;
/// How many ways there may be to fulfil one request.
const MOST_CHOICES: usize = 8;
const MOST_TOLERATIONS: usize = 16;

/// `validateDeviceClassSpec`.
pub(super) fn class(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    selectors(spec, &path, errors);
    configs(spec, &path, errors, |_, _, _| {});
    let (resource, at) = (&spec["extendedResourceName"], path.child("extendedResourceName"));
    if resource.as_str().is_some_and(|name| !api::resources::is_extended(name)) {
        errors.invalid(&at, resource, "must be a valid extended resource name");
    }
}

/// `validateResourceClaimSpec`.
pub(super) fn spec(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (devices, path) = (&spec["devices"], path.child("devices"));
    set(devices, ("requests", MOST_REQUESTS), name, &path, errors, request);
    let named = |list: &Value, path: &FieldPath, errors: &mut FieldErrors| {
        set(
            list,
            ("requests", MOST_REQUESTS),
            |name| name,
            path,
            errors,
            |name, path, errors| {
                reference(devices, name, path, errors);
            },
        );
    };
    list(devices, "constraints", MOST_CONSTRAINTS, &path, errors, |constraint, path, errors| {
        named(constraint, path, errors);
        match ["matchAttribute", "distinctAttribute"].into_iter().find(|field| !constraint[*field].is_null()) {
            None => errors.required(&path.child("matchAttribute"), ""),
            Some(field) => fully_qualified_name(&constraint[field], &path.child(field), errors),
        }
    });
    configs(devices, &path, errors, named);
}

fn name(of: &Value) -> &Value {
    &of["name"]
}

/// `validateDeviceRequest`.
fn request(request: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    label(&request["name"], &path.child("name"), errors);
    let (exactly, several) = (&request["exactly"], items(request, "firstAvailable").count());
    match (exactly.is_null(), several) {
        (true, 0) => errors.required(path, "exactly one of `exactly` or `firstAvailable` is required"),
        (false, n) if n > 0 => {
            let why = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            errors.invalid(path, &json!(null), why);
        }
        (false, _) => device(exactly, &path.child("exactly"), errors),
        (true, _) => set(request, ("firstAvailable", MOST_CHOICES), name, path, errors, |one, path, errors| {
            label(&one["name"], &path.child("name"), errors);
            device(one, path, errors);
        }),
    }
}

/// `validateExactDeviceRequest`.
fn device(request: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    required_subdomain(&request["deviceClassName"], &path.child("deviceClassName"), errors);
    selectors(request, path, errors);
    let (mode, count) = (text_of(request, "allocationMode"), request["count"].as_i64().unwrap_or(0));
    match mode {
        "All" if count != 0 => {
            let why = "must not be specified when allocationMode is 'All'";
            errors.invalid(&path.child("count"), &json!(count), why);
        }
        "ExactCount" if count <= 0 => {
            errors.invalid(&path.child("count"), &json!(count), "must be greater than zero");
        }
        "All" | "ExactCount" => {}
        _ => errors.not_supported(&path.child("allocationMode"), &request["allocationMode"], &["All", "ExactCount"]),
    }
    list(request, "tolerations", MOST_TOLERATIONS, path, errors, toleration);
}

/// The name of a request, or of one way to fulfil it (`validateRequestNameRef`).
fn reference(devices: &Value, name: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    const WHY: &str =
        "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
    let parts: Vec<&str> = name.as_str().unwrap_or("").split('/').collect();
    if parts.len() > 2 {
        return errors.invalid(path, name, WHY);
    }
    parts.iter().for_each(|part| label(&json!(part), path, errors));
    let request = items(devices, "requests").find(|request| request["name"] == parts[0]);
    let is_there = request.is_some_and(|request| {
        parts.get(1).is_none_or(|part| items(request, "firstAvailable").any(|one| one["name"] == *part))
    });
    if !is_there {
        errors.invalid(path, name, WHY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(devices: Value, expected: &[&str]) {
        let mut errors = FieldErrors::default();
        let gpu =
            json!({"name": "gpu", "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}});
        let mut spec = json!({"devices": {"requests": [gpu]}});
        for (key, value) in devices.as_object().unwrap() {
            spec["devices"][key] = value.clone();
        }
        super::spec(&spec, &FieldPath::new("spec"), &mut errors);
        let shown = |e: &crate::kinds::FieldError| {
            e.to_string().split(": a lowercase RFC 1123").next().unwrap_or("").to_owned()
        };
        let expected: Vec<String> = expected.iter().map(|e| format!("spec.devices.{e}")).collect();
        assert_eq!(errors.0.iter().map(shown).collect::<Vec<_>>(), expected);
    }

    fn asks(more: Value) -> Value {
        let mut exactly = json!({"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1});
        for (key, value) in more.as_object().unwrap() {
            exactly[key] = value.clone();
        }
        json!({"requests": [{"name": "gpu", "exactly": exactly}]})
    }

    #[test]
    fn requests_have_names_of_their_own() {
        let one = |name: &str| json!({"name": name, "exactly": {"deviceClassName": "c", "allocationMode": "All"}});
        check(json!({"requests": [one("a"), one("b")]}), &[]);
        check(json!({"requests": [one("a"), one("a")]}), &["requests[1]: Duplicate value: \"a\""]);
        check(json!({"requests": [one("A_")]}), &["requests[0].name: Invalid value: \"A_\""]);
        let many: Vec<Value> = (0..33).map(|i| one(&format!("r{i}"))).collect();
        check(json!({"requests": many}), &["requests: Too many: 33: must have at most 32 items"]);
        let choice = json!({"name": "x", "deviceClassName": "c", "allocationMode": "All"});
        check(
            json!({"requests": [{"name": "a", "firstAvailable": [choice, choice]}]}),
            &["requests[0].firstAvailable[1]: Duplicate value: \"x\""],
        );
        check(
            json!({"requests": [{"name": "a", "firstAvailable": [choice], "exactly": {}}]}),
            &[
                "requests[0]: Invalid value: null: exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
            ],
        );
    }

    #[test]
    fn a_request_says_how_many_devices_of_a_class() {
        let at = "requests[0].exactly";
        check(asks(json!({"deviceClassName": ""})), &[&format!("{at}.deviceClassName: Required value")]);
        check(asks(json!({"count": -1})), &[&format!("{at}.count: Invalid value: -1: must be greater than zero")]);
        let all = "must not be specified when allocationMode is 'All'";
        check(asks(json!({"allocationMode": "All"})), &[&format!("{at}.count: Invalid value: 1: {all}")]);
        check(
            asks(json!({"allocationMode": "Foo"})),
            &[&format!("{at}.allocationMode: Unsupported value: \"Foo\": supported values: \"All\", \"ExactCount\"")],
        );
        let long = "x".repeat(10_241);
        check(
            asks(json!({"selectors": [{}, {"cel": {"expression": ""}}, {"cel": {"expression": long}}]})),
            &[
                &format!("{at}.selectors[0].cel: Required value"),
                &format!("{at}.selectors[1].cel.expression: Required value"),
                &format!("{at}.selectors[2].cel.expression: Too long: may not be more than 10240 bytes"),
            ],
        );
    }

    #[test]
    fn tolerations_are_like_those_of_pods() {
        let at = "requests[0].exactly.tolerations[0]";
        let of = |toleration: Value| asks(json!({"tolerations": [toleration]}));
        check(of(json!({"operator": "Exists"})), &[]);
        check(of(json!({"key": "a.b/c", "operator": "Equal", "value": "d", "effect": "None"})), &[]);
        let operators = "supported values: \"Equal\", \"Exists\"";
        check(of(json!({"operator": "X"})), &[&format!("{at}.operator: Unsupported value: \"X\": {operators}")]);
        check(
            of(json!({"operator": "Exists", "value": "v", "effect": "Never"})),
            &[
                &format!("{at}.value: Invalid value: \"v\": must be empty for operator `Exists`"),
                &format!(
                    "{at}.effect: Unsupported value: \"Never\": supported values: \"NoExecute\", \"NoSchedule\", \"None\""
                ),
            ],
        );
        check(of(json!({})), &[&format!("{at}.operator: Required value")]);
    }

    #[test]
    fn constraints_are_about_requests_of_the_claim() {
        let of = |constraint: Value| json!({"constraints": [constraint]});
        let reference =
            "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
        check(of(json!({"requests": ["gpu"], "matchAttribute": "a.b/c"})), &[]);
        check(
            of(json!({"requests": ["zz"], "matchAttribute": "a.b/c"})),
            &[&format!("constraints[0].requests[0]: Invalid value: \"zz\": {reference}")],
        );
        check(
            of(json!({"requests": ["gpu", "gpu", "a/b/c", "gpu/x"], "matchAttribute": "a.b/c"})),
            &[
                &format!("constraints[0].requests[2]: Invalid value: \"a/b/c\": {reference}"),
                &format!("constraints[0].requests[3]: Invalid value: \"gpu/x\": {reference}"),
                "constraints[0].requests[1]: Duplicate value: \"gpu\"",
            ],
        );
        let slash = "a fully qualified name must be a domain and a name separated by a slash";
        check(
            of(json!({"matchAttribute": "nope"})),
            &[&format!("constraints[0].matchAttribute: Invalid value: \"nope\": {slash}")],
        );
        check(
            of(json!({"matchAttribute": "/"})),
            &[
                "constraints[0].matchAttribute: Invalid value: \"\": the domain must not be empty",
                "constraints[0].matchAttribute: Invalid value: \"\": the name must not be empty",
            ],
        );
        check(of(json!({"requests": ["gpu"]})), &["constraints[0].matchAttribute: Required value"]);
    }

    #[test]
    fn drivers_are_told_objects() {
        let of = |config: Value| json!({"config": [config]});
        check(of(json!({"requests": ["gpu"], "opaque": {"driver": "D.io", "parameters": {}}})), &[]);
        check(of(json!({})), &["config[0].opaque: Required value"]);
        check(
            of(json!({"opaque": {"driver": "A_", "parameters": "x"}})),
            &[
                "config[0].opaque.driver: Invalid value: \"A_\"",
                "config[0].opaque.parameters: Invalid value: \"<value omitted>\": must be a valid JSON object",
            ],
        );
        let much = "x".repeat(10_240);
        check(
            of(json!({"opaque": {"driver": "", "parameters": {"a": much}}})),
            &[
                "config[0].opaque.driver: Required value",
                "config[0].opaque.parameters: Too long: may not be more than 10240 bytes",
            ],
        );
    }

    #[test]
    fn a_class_stands_for_an_extended_resource() {
        let found = |spec: Value| {
            let mut errors = FieldErrors::default();
            class(&json!({"spec": spec}), &mut errors);
            errors.0.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(found(json!({"extendedResourceName": "example.com/gpu"})), Vec::<String>::new());
        let wrong = "spec.extendedResourceName: Invalid value: \"x\": must be a valid extended resource name";
        assert_eq!(
            found(json!({"extendedResourceName": "x", "config": [{}], "selectors": [{}]})),
            ["spec.selectors[0].cel: Required value", "spec.config[0].opaque: Required value", wrong],
        );
    }
}
