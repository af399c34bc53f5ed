//! The `AlwaysPullImages` admission plugin, which is off by default: the registry authorizes each use of an image.

use super::plugin::{AdmittedWrite, DefaultState, Plugin};
use errors::ApiError;
use serde_json::{Value, json};

/// Sets the pull policy of new Pods and images to `Always`.
pub(super) struct AlwaysPullImages;

impl Plugin for AlwaysPullImages {
    fn name(&self) -> &'static str {
        "AlwaysPullImages"
    }

    fn default_state(&self) -> DefaultState {
        DefaultState::Off
    }

    fn admit(&self, write: &AdmittedWrite<'_>, object: &mut Value) -> Result<(), ApiError> {
        if write.is_of("", "Pod") && write.is_main() {
            admit(object, write.old);
        }
        Ok(())
    }
}

/// Sets the pull policy of all images of a Pod to `Always`; `old` is `None` for a new Pod.
pub(super) fn admit(pod: &mut Value, old: Option<&Value>) {
    if old.is_some_and(|old| !has_new_images(pod, old)) {
        return;
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in pod["spec"].get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            container["imagePullPolicy"] = json!("Always");
        }
    }
    for volume in pod["spec"].get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
        if volume["image"].is_object() {
            volume["image"]["pullPolicy"] = json!("Always");
        }
    }
}

/// Whether a container has an image that no container of `old` has (`isUpdateWithNoNewImages`).
fn has_new_images(pod: &Value, old: &Value) -> bool {
    let images = |pod: &Value| -> Vec<Value> {
        let lists = ["initContainers", "containers", "ephemeralContainers"].map(|list| pod["spec"][list].clone());
        lists.iter().filter_map(Value::as_array).flatten().map(|c| c["image"].clone()).collect()
    };
    let old_images = images(old);
    images(pod).iter().any(|image| !old_images.contains(image))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn update_without_new_images_keeps_pull_policies() {
        let pod = |image: &str| {
            json!({"spec": {"containers": [{"image": image, "imagePullPolicy": "Never"}],
            "volumes": [{"name": "v", "image": {"pullPolicy": "Never"}}, {"name": "e", "emptyDir": {}}]}})
        };
        let always = |image: &str| {
            json!({"spec": {"containers": [{"image": image, "imagePullPolicy": "Always"}],
            "volumes": [{"name": "v", "image": {"pullPolicy": "Always"}}, {"name": "e", "emptyDir": {}}]}})
        };
        for (old, expected) in [(None, always("a")), (Some(pod("a")), pod("a")), (Some(pod("b")), always("a"))] {
            let mut new = pod("a");
            admit(&mut new, old.as_ref());
            assert_eq!(new, expected, "{old:?}");
        }
    }
}
