//! Values of the enum fields of Kubernetes objects (`+enum`), from the generated table in `enums.txt`.

use std::{collections::HashMap, sync::LazyLock};

/// Names and values of fields.
type Fields = Vec<(&'static str, Vec<&'static str>)>;

/// By `core/v1.Container`.
static ENUMS: LazyLock<HashMap<String, Fields>> = LazyLock::new(|| {
    let (mut all, mut package) = (HashMap::<String, Fields>::new(), "");
    for line in include_str!("enums.txt").lines().filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            package = name;
        } else if let Some((object, (field, values))) =
            line.split_once(' ').and_then(|(object, rest)| Some((object, rest.split_once(' ')?)))
        {
            all.entry(format!("{package}.{object}")).or_default().push((field, values.split('|').collect()));
        }
    }
    all
});

/// Returns the enum fields of a message such as `core/v1.Container`, each with its values in alphabetical order.
#[must_use]
pub fn fields(message: &str) -> &'static [(&'static str, Vec<&'static str>)] {
    ENUMS.get(message).map_or(&[], Vec::as_slice)
}

/// Returns the values of all enum fields, for tests of other crates.
pub fn all() -> impl Iterator<Item = &'static [&'static str]> {
    ENUMS.values().flatten().map(|(_, values)| values.as_slice())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::message_table::TABLE;

    #[test]
    fn enum_fields_are_fields_of_messages() {
        let mut count = 0;
        for (name, fields) in ENUMS.iter() {
            // Versions of which not all kinds are served have fewer messages.
            let Some(message) = TABLE.message(name) else { continue };
            for (field, values) in fields {
                assert!(message.field_named(field).is_some(), "{name}.{field}");
                assert!(values.is_sorted() && values.len() > 1, "{name}.{field}: {values:?}");
                count += 1;
            }
        }
        assert!(count > 100, "{count} fields");
    }

    #[test]
    fn values_are_found_by_message_and_field() {
        let (field, values) = &fields("core/v1.PodSpec")[0];
        assert_eq!((*field, values.as_slice()), ("restartPolicy", ["Always", "Never", "OnFailure"].as_slice()));
        assert!(fields("core/v1.Nothing").is_empty());
    }
}
