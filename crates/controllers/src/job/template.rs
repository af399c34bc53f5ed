//! Pods of a Job's template.

use super::plan::NewPod;
use crate::{
    pod_control::pod_from_template,
    pod_summary::{
        JOB_COMPLETION_INDEX, JOB_INDEX_FAILURE_COUNT, JOB_INDEX_IGNORED_FAILURE_COUNT, JOB_TRACKING_FINALIZER,
    },
};
use k8s_openapi::api::{
    batch::v1::{Job, JobSpec},
    core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod},
};

const JOB_COMPLETION_INDEX_ENV: &str = "JOB_COMPLETION_INDEX";
/// Maximum length of `generateName`: the API server truncates longer ones to append its suffix.
const MAX_GENERATE_NAME_PREFIX: usize = 58;

pub(super) fn pod(job: &Job, spec: &JobSpec, new: &NewPod) -> Pod {
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let prefix = match new.index {
        Some(index) => generate_name_with_index(name, index),
        None => format!("{name}-"),
    };
    let mut pod = pod_from_template(job, &spec.template, prefix);
    let finalizers = pod.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|f| f == JOB_TRACKING_FINALIZER) {
        finalizers.push(JOB_TRACKING_FINALIZER.to_owned());
    }
    let Some(index) = new.index else { return pod };
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(JOB_COMPLETION_INDEX.to_owned(), index.to_string());
    if spec.backoff_limit_per_index.is_some() {
        annotations.insert(JOB_INDEX_FAILURE_COUNT.to_owned(), new.failures.to_string());
        if new.ignored > 0 {
            annotations.insert(JOB_INDEX_IGNORED_FAILURE_COUNT.to_owned(), new.ignored.to_string());
        }
    }
    pod.metadata.labels.get_or_insert_default().insert(JOB_COMPLETION_INDEX.to_owned(), index.to_string());
    let spec = pod.spec.get_or_insert_default();
    spec.hostname = Some(format!("{name}-{index}"));
    spec.init_containers.iter_mut().flatten().chain(&mut spec.containers).for_each(add_completion_index_env);
    pod
}

fn generate_name_with_index(name: &str, index: i32) -> String {
    let end = format!("-{index}-");
    let max_length = MAX_GENERATE_NAME_PREFIX.saturating_sub(end.len());
    let cut: String = name
        .chars()
        .take(if name.len() + end.len() > MAX_GENERATE_NAME_PREFIX { max_length } else { name.len() })
        .collect();
    cut + &end
}

fn add_completion_index_env(container: &mut Container) {
    let env = container.env.get_or_insert_default();
    if env.iter().any(|variable| variable.name == JOB_COMPLETION_INDEX_ENV) {
        return;
    }
    let field =
        ObjectFieldSelector { api_version: None, field_path: format!("metadata.labels['{JOB_COMPLETION_INDEX}']") };
    let source = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
    env.push(EnvVar { name: JOB_COMPLETION_INDEX_ENV.to_owned(), value: None, value_from: Some(source) });
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn job(name: &str) -> Job {
        let containers =
            json!([{"name": "c"}, {"name": "d", "env": [{"name": JOB_COMPLETION_INDEX_ENV, "value": "mine"}]}]);
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}});
        let spec =
            json!({"completions": 3, "completionMode": "Indexed", "backoffLimitPerIndex": 1, "template": template});
        serde_json::from_value(json!({"metadata": {"name": name, "uid": "j"}, "spec": spec})).unwrap()
    }

    #[test]
    fn indexed_pod_has_its_index_in_metadata_and_environment() {
        let job = job("sum");
        let pod = pod(&job, job.spec.as_ref().unwrap(), &NewPod { index: Some(2), failures: 1, ignored: 0 });
        assert_eq!(pod.metadata.generate_name.as_deref(), Some("sum-2-"));
        assert_eq!(pod.metadata.finalizers, Some(vec![JOB_TRACKING_FINALIZER.to_owned()]));
        let annotations = pod.metadata.annotations.unwrap();
        assert_eq!(
            (annotations[JOB_COMPLETION_INDEX].as_str(), annotations[JOB_INDEX_FAILURE_COUNT].as_str()),
            ("2", "1")
        );
        assert!(!annotations.contains_key(JOB_INDEX_IGNORED_FAILURE_COUNT));
        assert_eq!(pod.metadata.labels.unwrap()[JOB_COMPLETION_INDEX], "2");
        let spec = pod.spec.unwrap();
        assert_eq!(spec.hostname.as_deref(), Some("sum-2"));
        let path = |c: &Container| {
            c.env.as_ref().unwrap()[0].value_from.as_ref()?.field_ref.as_ref().map(|f| f.field_path.clone())
        };
        assert_eq!(
            path(&spec.containers[0]).as_deref(),
            Some("metadata.labels['batch.kubernetes.io/job-completion-index']")
        );
        assert_eq!(path(&spec.containers[1]), None);
    }

    #[test]
    fn pod_without_index_has_only_the_finalizer() {
        let job = job("sum");
        let pod = pod(&job, job.spec.as_ref().unwrap(), &NewPod { index: None, failures: 0, ignored: 0 });
        assert_eq!(pod.metadata.generate_name.as_deref(), Some("sum-"));
        assert_eq!((pod.metadata.annotations, pod.spec.unwrap().hostname), (None, None));
    }

    #[test]
    fn long_job_name_is_truncated_before_the_index() {
        let name = generate_name_with_index(&"x".repeat(63), 12);
        assert!(name.len() == MAX_GENERATE_NAME_PREFIX && name.ends_with("x-12-"), "{name}");
    }
}
