//! The `AlwaysPullImages` admission, which is off unless it is asked for: who may use an image is asked each time.

use serde_json::{Value, json};

/// Makes every image of a Pod one that is pulled each time; `old` is there for an update.
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

/// Whether a container has an image that none had (`isUpdateWithNoNewImages`).
fn has_new_images(pod: &Value, old: &Value) -> bool {
    let images = |pod: &Value| -> Vec<Value> {
        let lists = ["initContainers", "containers", "ephemeralContainers"].map(|list| pod["spec"][list].clone());
        lists.iter().filter_map(Value::as_array).flatten().map(|c| c["image"].clone()).collect()
    };
    let known = images(old);
    images(pod).iter().any(|image| !known.contains(image))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_with_no_new_image_changes_nothing() {
        let pod = |image: &str| {
            json!({"spec": {"containers": [{"image": image, "imagePullPolicy": "Never"}],
            "volumes": [{"name": "v", "image": {"pullPolicy": "Never"}}, {"name": "e", "emptyDir": {}}]}})
        };
        let pulled = |image: &str| {
            json!({"spec": {"containers": [{"image": image, "imagePullPolicy": "Always"}],
            "volumes": [{"name": "v", "image": {"pullPolicy": "Always"}}, {"name": "e", "emptyDir": {}}]}})
        };
        for (old, expected) in [(None, pulled("a")), (Some(pod("a")), pod("a")), (Some(pod("b")), pulled("a"))] {
            let mut new = pod("a");
            admit(&mut new, old.as_ref());
            assert_eq!(new, expected, "{old:?}");
        }
    }
}
