//! Job.

mod indexes;
mod policies;
mod status;

use super::GROUP;
use crate::kinds::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME, WriteContext,
    checks::{domain_prefixed_path, immutable, items, not_negative, text as text_of},
    duration, fill,
    plain::Plain,
    selector,
    template::{self, CONTAINERS, IMAGES, SELECTOR},
    text,
};
use jiff::Timestamp;
use serde_json::{Value, json};

pub(in crate::kinds) static JOB: Plain = Plain {
    columns: &[
        NAME,
        text("Status", Cell::Of(|job, _| json!(status(job)))),
        text("Completions", Cell::Of(|job, _| json!(completions(job)))),
        text("Duration", Cell::Of(|job, now| json!(took(job, now)))),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    fields: &["status.successful"],
    default,
    prepare,
    name: api::names::dns1123_subdomain,
    validate: |job, errors| validate(&job["spec"], &FieldPath::new("spec"), errors),
    validate_new,
    validate_change,
    warnings: |job, old| {
        let of_template = template::warnings_with_name(job, old, template::SPEC_PATH);
        too_many_indexes(&job["spec"], "spec").into_iter().chain(of_template).collect()
    },
    validate_status: status::validate,
    ..Plain::of(&KindInfo {
        categories: &["all"],
        status: true,
        generation: true,
        orphans: true,
        orphan_warning: Some(
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning",
        ),
        ..KindInfo::of(GROUP, "Job", "jobs", "job")
    })
};

/// Above both of these an indexed Job may lose track of its indexes.
const MANY_COMPLETIONS: i64 = 100_000;
const MUCH_PARALLELISM: i64 = 10_000;

/// Warns of a Job with very many indexes (`WarningsForJobSpec`).
pub(super) fn too_many_indexes(spec: &Value, path: &str) -> Option<String> {
    let more = |field: &str, limit: i64| spec[field].as_i64().is_some_and(|n| n > limit);
    let too_many = spec["completionMode"] == "Indexed"
        && more("completions", MANY_COMPLETIONS)
        && more("parallelism", MUCH_PARALLELISM);
    let why = "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail";
    too_many.then(|| format!("{path}: {why}"))
}

/// How many Pods of an indexed Job may run at once, and how many indexes may fail.
const MOST_INDEXES: i64 = 100_000;
/// The same where there are more completions than that, each with a limit of its own.
const MANY: i64 = 10_000;
/// How long the name of who looks after a Job may be, in bytes.
const LONGEST_MANAGER: usize = 63;
const UID: &str = "batch.kubernetes.io/controller-uid";

/// As `printJob` has it: the first condition that holds, in this order.
fn status(job: &Value) -> &str {
    let holds = |kind: &str| items(&job["status"], "conditions").any(|c| c["type"] == kind && c["status"] == "True");
    let ending = !job["metadata"]["deletionTimestamp"].is_null();
    match ["Complete", "Failed"].into_iter().find(|c| holds(c)) {
        Some(end) => end,
        None if ending => "Terminating",
        None => {
            let next = ["Suspended", "FailureTarget", "SuccessCriteriaMet"].into_iter().find(|c| holds(c));
            next.unwrap_or("Running")
        }
    }
}

fn completions(job: &Value) -> String {
    let done = job["status"]["succeeded"].as_i64().unwrap_or(0);
    match (job["spec"]["completions"].as_i64(), job["spec"]["parallelism"].as_i64().unwrap_or(0)) {
        (Some(wanted), _) => format!("{done}/{wanted}"),
        (None, parallel) if parallel > 1 => format!("{done}/1 of {parallel}"),
        (None, _) => format!("{done}/1"),
    }
}

fn took(job: &Value, now: Timestamp) -> String {
    let time = |field: &str| job["status"][field].as_str().and_then(|t| t.parse::<Timestamp>().ok());
    let Some(start) = time("startTime") else { return String::new() };
    duration(time("completionTime").unwrap_or(now).duration_since(start).as_secs())
}

/// `SetDefaults_Job`.
fn default(object: &mut Value) {
    fill::at(object, "/spec", &[("manualSelector", json!(false))]);
    template::default(object, template::SPEC);
    default_labels(object);
    default_spec(object, "/spec");
}

/// A Job without labels has those of its Pods.
fn default_labels(object: &mut Value) {
    let labels = object["spec"]["template"]["metadata"]["labels"].clone();
    let own = object["metadata"]["labels"].as_object().is_some_and(|l| !l.is_empty());
    if labels.is_object() && !own {
        object["metadata"]["labels"] = labels;
    }
}

/// Defaults of a Job's spec, without those of its template.
pub(super) fn default_spec(object: &mut Value, at: &str) {
    let Some(spec) = object.pointer_mut(at) else { return };
    if spec["completions"].is_null() && spec["parallelism"].is_null() {
        spec["completions"] = json!(1);
    }
    let indexed = !spec["backoffLimitPerIndex"].is_null();
    let failed = !spec["podFailurePolicy"].is_null();
    let values = [
        ("parallelism", json!(1)),
        ("backoffLimit", json!(if indexed { i32::MAX } else { 6 })),
        ("completionMode", json!("NonIndexed")),
        ("suspend", json!(false)),
        ("podReplacementPolicy", json!(if failed { "Failed" } else { "TerminatingOrFailed" })),
    ];
    fill::at(object, at, &values);
    for i in 0..items(&object.pointer(at).cloned().unwrap_or_default()["podFailurePolicy"], "rules").count() {
        let rule = format!("{at}/podFailurePolicy/rules/{i}");
        let count = object.pointer(&rule).map_or(0, |rule| items(rule, "onPodConditions").count());
        (0..count).for_each(|j| fill::at(object, &format!("{rule}/onPodConditions/{j}"), &[("status", json!("True"))]));
    }
}

/// What tells the Pods of a Job from others, by its name or its UID; first the label of old, which counts for both.
const BY_NAME: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
const BY_UID: [&str; 2] = ["controller-uid", UID];

/// Pods of a Job carry its UID and its name, and are selected by the former (`generateSelector`).
fn prepare(object: &mut Value, old: Option<&Value>, _ctx: &WriteContext) {
    if old.is_some() || is_manual(object) {
        return;
    }
    let (uid, name) = (object["metadata"]["uid"].clone(), object["metadata"]["name"].clone());
    for (keys, value) in [(BY_NAME, &name), (BY_UID, &uid)] {
        // Those that were given stay, and are refused if they are others.
        let labels = &mut object["spec"]["template"]["metadata"]["labels"];
        if labels.get(keys[0]).is_none() {
            keys.iter().for_each(|key| labels[*key] = value.clone());
        }
    }
    let selected = &mut object["spec"]["selector"]["matchLabels"];
    if selected.get(UID).is_none() {
        selected[UID] = uid;
    }
    default_labels(object);
}

fn is_manual(job: &Value) -> bool {
    job["spec"]["manualSelector"] == json!(true)
}

/// What holds for a Job when it is made.
fn validate_new(job: &Value, errors: &mut FieldErrors) {
    validate_generated(job, errors);
    last_host(job, errors);
}

/// The labels and the selector of a Job that has others chosen for it are those (`validateGeneratedSelector`).
fn validate_generated(job: &Value, errors: &mut FieldErrors) {
    if is_manual(job) || job["spec"]["selector"].is_null() {
        return;
    }
    let labels = &job["spec"]["template"]["metadata"]["labels"];
    let at = FieldPath::new("spec").child("template").child("metadata").child("labels");
    let mut expected = json!({});
    for place in [0, 1] {
        for (keys, value) in [(BY_UID, &job["metadata"]["uid"]), (BY_NAME, &job["metadata"]["name"])] {
            let (key, why) = (keys[place], format!("must be '{}'", value.as_str().unwrap_or("")));
            expected[key] = value.clone();
            match labels.get(key) {
                None => errors.required(&at.key(key), &why),
                Some(found) if found != value => errors.invalid(&at.key(key), labels, &why),
                Some(_) => {}
            }
        }
    }
    if selector::selects(&job["spec"]["selector"], &expected) == Some(false) {
        let at = FieldPath::new("spec").child("selector");
        errors.invalid(&at, &job["spec"]["selector"], "`selector` not auto-generated");
    }
}

/// The Pods of an indexed Job have its name and their index for a host name, which must be one up to the last. As
/// upstream, one that grows later is not looked at.
fn last_host(job: &Value, errors: &mut FieldErrors) {
    let completions = job["spec"]["completions"].as_i64().filter(|n| *n > 0);
    let Some(last) = completions.filter(|_| job["spec"]["completionMode"] == "Indexed").map(|n| n - 1) else { return };
    let name = &job["metadata"]["name"];
    let host = format!("{}-{last}", name.as_str().unwrap_or(""));
    if !api::names::dns1123_label(&host).is_empty() {
        let why = format!("will not able to create pod with invalid DNS label: {host}");
        errors.invalid(&FieldPath::new("metadata").child("name"), name, &why);
    }
}

/// `ValidateJobSpec`.
pub(super) fn validate(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    validate_shape(spec, path, errors);
    let (at, template_path) = (path.child("selector"), path.child("template"));
    if spec["selector"].is_null() {
        errors.required(&at, "");
    } else {
        selector::validate(&spec["selector"], &at, errors);
    }
    if let Some(selected) = selector::selects(&spec["selector"], &spec["template"]["metadata"]["labels"]) {
        template::validate_selected(&spec["template"], selected, &template_path, errors);
    }
}

/// What holds for a Job's spec, whether its selector is there already or not.
pub(super) fn validate_shape(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let numbers = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    numbers.iter().for_each(|field| not_negative(spec, field, path, errors));
    if !spec["maxFailedIndexes"].is_null() && spec["backoffLimitPerIndex"].is_null() {
        errors.required(&path.child("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    if !spec["managedBy"].is_null() {
        let at = path.child("managedBy");
        domain_prefixed_path(&spec["managedBy"], &at, errors);
        if text_of(spec, "managedBy").len() > LONGEST_MANAGER {
            errors.too_long(&at, LONGEST_MANAGER);
        }
    }
    match text_of(spec, "completionMode") {
        "NonIndexed" => {
            for field in ["backoffLimitPerIndex", "maxFailedIndexes"].into_iter().filter(|f| !spec[*f].is_null()) {
                errors.invalid(&path.child(field), &spec[field], "requires indexed completion mode");
            }
        }
        "Indexed" => indexed(spec, path, errors),
        _ => errors.not_supported(&path.child("completionMode"), &spec["completionMode"], &["NonIndexed", "Indexed"]),
    }
    policies::validate(spec, path, errors);
    let at = path.child("template");
    template::validate(&spec["template"], &at, errors);
    let (pods, at) = (&spec["template"]["spec"], at.child("spec").child("restartPolicy"));
    match text_of(pods, "restartPolicy") {
        "Always" => errors.required(&at, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if !spec["podFailurePolicy"].is_null() => {
            let why = "only \"Never\" is supported when podFailurePolicy is specified";
            errors.invalid(&at, &pods["restartPolicy"], why);
        }
        "OnFailure" | "Never" => {}
        _ => errors.not_supported(&at, &pods["restartPolicy"], &["OnFailure", "Never"]),
    }
}

/// How many Pods and indexes an indexed Job may have: its status names them all.
fn indexed(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let number = |field: &str| spec[field].as_i64();
    let at_most = |field: &str, most: i64, why: &str, errors: &mut FieldErrors| {
        if number(field).is_some_and(|n| n > most) {
            errors.invalid(&path.child(field), &spec[field], &format!("must be less than or equal to {why}"));
        }
    };
    let (completions, failed) = (number("completions"), "maxFailedIndexes");
    if completions.is_none() {
        errors.required(&path.child("completions"), "when completion mode is Indexed");
    }
    let why = format!("{MOST_INDEXES} when completion mode is Indexed");
    at_most("parallelism", MOST_INDEXES, &why, errors);
    at_most(failed, completions.unwrap_or(i64::MAX), "completions", errors);
    at_most(failed, MOST_INDEXES, &MOST_INDEXES.to_string(), errors);
    if completions.is_some_and(|n| n > MOST_INDEXES) && !spec["backoffLimitPerIndex"].is_null() {
        if spec[failed].is_null() {
            let why = format!("must be specified when completions is above {MOST_INDEXES}");
            errors.required(&path.child(failed), &why);
        }
        let why = format!("{MANY} when completions are above {MOST_INDEXES} and used with backoff limit per index");
        at_most("parallelism", MANY, &why, errors);
        at_most(failed, MANY, &why, errors);
    }
}

/// `ValidateJobSpecUpdate`.
fn validate_change(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let (path, spec, before) = (FieldPath::new("spec"), &object["spec"], &old["spec"]);
    let same = |field: &str, errors: &mut FieldErrors| {
        immutable(&spec[field], &before[field], &path.child(field), errors);
    };
    // An indexed Job grows and shrinks as a whole.
    if spec["completionMode"] != "Indexed" {
        same("completions", errors);
    } else if ![&before["completions"], &spec["parallelism"], &Value::Null].contains(&&spec["completions"]) {
        let why = "can only be modified in tandem with spec.parallelism";
        errors.invalid(&path.child("completions"), &spec["completions"], why);
    }
    same("selector", errors);
    // One that waits may still be told where its Pods go.
    let waits = before["suspend"] == json!(true) && old["status"]["startTime"].is_null();
    let (mut template, was) = (spec["template"].clone(), &before["template"]);
    if waits {
        for field in ["nodeSelector", "affinity", "tolerations", "schedulingGates"] {
            keep(&mut template["spec"], &was["spec"], field);
        }
        for field in ["labels", "annotations"] {
            keep(&mut template["metadata"], &was["metadata"], field);
        }
    }
    if &template != was {
        errors.invalid(&path.child("template"), &spec["template"], "field is immutable");
    }
    for field in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"] {
        same(field, errors);
    }
}

/// Takes a field as it was.
fn keep(new: &mut Value, old: &Value, field: &str) {
    let Some(map) = new.as_object_mut() else { return };
    match old.get(field) {
        Some(value) => drop(map.insert(field.to_owned(), value.clone())),
        None => drop(map.remove(field)),
    }
}
