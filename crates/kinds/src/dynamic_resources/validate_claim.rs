//! Validation of DeviceClasses, ResourceClaims and their templates (`pkg/apis/resource/validation`).

use super::field_validation::{
    validate_configs, validate_fully_qualified_name, validate_list, validate_selectors, validate_set,
    validate_toleration,
};
use crate::{FieldErrors, enums, field_cursor::FieldCursor};
use serde_json::{Value, json};

const MAX_REQUESTS: usize = 32;
const MAX_CONSTRAINTS: usize = 32;
/// Maximum number of subrequests in `firstAvailable`.
const MAX_SUBREQUESTS: usize = 8;
const MAX_TOLERATIONS: usize = 16;

/// Validates a DeviceClass (`validateDeviceClassSpec`).
pub(super) fn validate_device_class(object: &Value, errors: &mut FieldErrors) {
    let object = FieldCursor::object(object);
    let spec = object.at("spec");
    validate_selectors(&spec.at("selectors"), errors);
    validate_configs(&spec.at("config"), errors, |_, _| {});
    let resource = spec.at("extendedResourceName");
    if resource.is_set() && !api::resources::is_extended(resource.text()) {
        resource.invalid("must be a valid extended resource name", errors);
    }
}

/// Validates the spec of a claim (`validateResourceClaimSpec`).
pub(super) fn validate_claim_spec(spec: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let devices = spec.at("devices");
    let requests = devices.at("requests");
    validate_set(&requests, MAX_REQUESTS, name, errors, validate_request);
    let validate_references = |holder: &FieldCursor<'_, '_>, errors: &mut FieldErrors| {
        let check = |name: &FieldCursor<'_, '_>, errors: &mut FieldErrors| {
            validate_request_reference(&requests, name, errors);
        };
        validate_set(&holder.at("requests"), MAX_REQUESTS, |name| name.value(), errors, check);
    };
    validate_list(&devices.at("constraints"), MAX_CONSTRAINTS, errors, |constraint, errors| {
        validate_references(constraint, errors);
        let (same, distinct) = (constraint.at("matchAttribute"), constraint.at("distinctAttribute"));
        match [same, distinct].iter().find(|attribute| attribute.is_set()) {
            None => same.required("", errors),
            Some(attribute) => validate_fully_qualified_name(attribute, errors),
        }
    });
    validate_configs(&devices.at("config"), errors, validate_references);
}

fn name<'v>(object: &FieldCursor<'v, '_>) -> &'v Value {
    object.at("name").value()
}

/// Validates a request (`validateDeviceRequest`).
fn validate_request(request: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    request.at("name").validate_text(api::names::dns1123_label, errors);
    let (exactly, several) = (request.at("exactly"), request.at("firstAvailable"));
    match (exactly.is_set(), several.count() > 0) {
        (false, false) => request.required("exactly one of `exactly` or `firstAvailable` is required", errors),
        (true, true) => {
            let detail = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            errors.invalid(&request.path(), &json!(null), detail);
        }
        (true, false) => validate_exact_request(&exactly, errors),
        (false, true) => {
            validate_set(&several, MAX_SUBREQUESTS, name, errors, |subrequest, errors| {
                subrequest.at("name").validate_text(api::names::dns1123_label, errors);
                validate_exact_request(subrequest, errors);
            });
        }
    }
}

/// Validates an exact request or subrequest (`validateExactDeviceRequest`).
fn validate_exact_request(request: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    request.at("deviceClassName").validate_required_text(api::names::dns1123_subdomain, errors);
    validate_selectors(&request.at("selectors"), errors);
    let (mode, count) = (request.at("allocationMode"), request.at("count"));
    let number = count.integer().unwrap_or(0);
    match mode.text() {
        "All" if number != 0 => count.invalid("must not be specified when allocationMode is 'All'", errors),
        "ExactCount" if number <= 0 => {
            errors.invalid(&count.path(), &json!(number), "must be greater than zero");
        }
        _ => mode.supported(enums::ALLOCATION_MODES, errors),
    }
    validate_list(&request.at("tolerations"), MAX_TOLERATIONS, errors, validate_toleration);
}

/// Validates a reference to a request or subrequest (`validateRequestNameRef`).
fn validate_request_reference(requests: &FieldCursor<'_, '_>, name: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    const EXACTLY_ONE_REQUIRED: &str =
        "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
    let parts: Vec<&str> = name.text().split('/').collect();
    if parts.len() > 2 {
        return name.invalid(EXACTLY_ONE_REQUIRED, errors);
    }
    for part in &parts {
        let wrong = api::names::dns1123_label(part);
        wrong.iter().for_each(|detail| errors.invalid(&name.path(), &json!(part), detail));
    }
    let exists = requests.items().find(|request| request.at("name").text() == parts[0]).is_some_and(|request| {
        let subrequests = request.at("firstAvailable");
        parts.get(1).is_none_or(|part| subrequests.items().any(|one| one.at("name").text() == *part))
    });
    if !exists {
        name.invalid(EXACTLY_ONE_REQUIRED, errors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FieldPath;

    #[track_caller]
    fn check(devices: Value, expected: &[&str]) {
        let mut errors = FieldErrors::default();
        let gpu =
            json!({"name": "gpu", "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}});
        let mut spec = json!({"devices": {"requests": [gpu]}});
        for (key, value) in devices.as_object().unwrap() {
            spec["devices"][key] = value.clone();
        }
        super::validate_claim_spec(&FieldCursor::new(&spec, &FieldPath::new("spec")), &mut errors);
        let shown =
            |e: &crate::FieldError| e.to_string().split(": a lowercase RFC 1123").next().unwrap_or("").to_owned();
        let expected: Vec<String> = expected.iter().map(|e| format!("spec.devices.{e}")).collect();
        assert_eq!(errors.0.iter().map(shown).collect::<Vec<_>>(), expected);
    }

    fn with_exact_request(fields: Value) -> Value {
        let mut exactly = json!({"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1});
        for (key, value) in fields.as_object().unwrap() {
            exactly[key] = value.clone();
        }
        json!({"requests": [{"name": "gpu", "exactly": exactly}]})
    }

    #[test]
    fn request_names_are_unique() {
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
    fn exact_request_has_class_and_count() {
        let at = "requests[0].exactly";
        check(with_exact_request(json!({"deviceClassName": ""})), &[&format!("{at}.deviceClassName: Required value")]);
        check(
            with_exact_request(json!({"count": -1})),
            &[&format!("{at}.count: Invalid value: -1: must be greater than zero")],
        );
        let all = "must not be specified when allocationMode is 'All'";
        check(with_exact_request(json!({"allocationMode": "All"})), &[&format!("{at}.count: Invalid value: 1: {all}")]);
        check(
            with_exact_request(json!({"allocationMode": "Foo"})),
            &[&format!("{at}.allocationMode: Unsupported value: \"Foo\": supported values: \"All\", \"ExactCount\"")],
        );
        let long = "x".repeat(10_241);
        check(
            with_exact_request(json!({"selectors": [{}, {"cel": {"expression": ""}}, {"cel": {"expression": long}}]})),
            &[
                &format!("{at}.selectors[0].cel: Required value"),
                &format!("{at}.selectors[1].cel.expression: Required value"),
                &format!("{at}.selectors[2].cel.expression: Too long: may not be more than 10240 bytes"),
            ],
        );
    }

    #[test]
    fn device_tolerations_are_validated() {
        let at = "requests[0].exactly.tolerations[0]";
        let with_toleration = |toleration: Value| with_exact_request(json!({"tolerations": [toleration]}));
        check(with_toleration(json!({"operator": "Exists"})), &[]);
        check(with_toleration(json!({"key": "a.b/c", "operator": "Equal", "value": "d", "effect": "None"})), &[]);
        let operators = "supported values: \"Equal\", \"Exists\"";
        check(
            with_toleration(json!({"operator": "X"})),
            &[&format!("{at}.operator: Unsupported value: \"X\": {operators}")],
        );
        check(
            with_toleration(json!({"operator": "Exists", "value": "v", "effect": "Never"})),
            &[
                &format!("{at}.value: Invalid value: \"v\": must be empty for operator `Exists`"),
                &format!(
                    "{at}.effect: Unsupported value: \"Never\": supported values: \"NoExecute\", \"NoSchedule\", \"None\""
                ),
            ],
        );
        check(with_toleration(json!({})), &[&format!("{at}.operator: Required value")]);
    }

    #[test]
    fn constraints_reference_requests_of_claim() {
        let with_constraint = |constraint: Value| json!({"constraints": [constraint]});
        let reference =
            "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
        check(with_constraint(json!({"requests": ["gpu"], "matchAttribute": "a.b/c"})), &[]);
        check(
            with_constraint(json!({"requests": ["zz"], "matchAttribute": "a.b/c"})),
            &[&format!("constraints[0].requests[0]: Invalid value: \"zz\": {reference}")],
        );
        check(
            with_constraint(json!({"requests": ["gpu", "gpu", "a/b/c", "gpu/x"], "matchAttribute": "a.b/c"})),
            &[
                &format!("constraints[0].requests[2]: Invalid value: \"a/b/c\": {reference}"),
                &format!("constraints[0].requests[3]: Invalid value: \"gpu/x\": {reference}"),
                "constraints[0].requests[1]: Duplicate value: \"gpu\"",
            ],
        );
        let slash = "a fully qualified name must be a domain and a name separated by a slash";
        check(
            with_constraint(json!({"matchAttribute": "nope"})),
            &[&format!("constraints[0].matchAttribute: Invalid value: \"nope\": {slash}")],
        );
        check(
            with_constraint(json!({"matchAttribute": "/"})),
            &[
                "constraints[0].matchAttribute: Invalid value: \"\": the domain must not be empty",
                "constraints[0].matchAttribute: Invalid value: \"\": the name must not be empty",
            ],
        );
        check(with_constraint(json!({"requests": ["gpu"]})), &["constraints[0].matchAttribute: Required value"]);
    }

    #[test]
    fn opaque_parameters_are_json_objects() {
        let with_config = |config: Value| json!({"config": [config]});
        check(with_config(json!({"requests": ["gpu"], "opaque": {"driver": "D.io", "parameters": {}}})), &[]);
        check(with_config(json!({})), &["config[0].opaque: Required value"]);
        check(
            with_config(json!({"opaque": {"driver": "A_", "parameters": "x"}})),
            &[
                "config[0].opaque.driver: Invalid value: \"A_\"",
                "config[0].opaque.parameters: Invalid value: \"<value omitted>\": must be a valid JSON object",
            ],
        );
        let much = "x".repeat(10_240);
        check(
            with_config(json!({"opaque": {"driver": "", "parameters": {"a": much}}})),
            &[
                "config[0].opaque.driver: Required value",
                "config[0].opaque.parameters: Too long: may not be more than 10240 bytes",
            ],
        );
    }

    #[test]
    fn extended_resource_name_of_class_is_validated() {
        let found = |spec: Value| {
            let mut errors = FieldErrors::default();
            validate_device_class(&json!({"spec": spec}), &mut errors);
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
