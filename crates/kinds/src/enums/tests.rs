use super::{ENUMS, Values};
use std::collections::BTreeSet;
use wire::protobuf::message_table::TABLE;

/// Returns the published values of `core/v1.PodSpec.restartPolicy`; `None` if it is not an enum.
fn published(field: &str) -> Option<BTreeSet<&'static str>> {
    let (message, name) = field.rsplit_once('.').unwrap();
    assert!(TABLE.message(message).is_some_and(|message| message.field_named(name).is_some()), "no field {field}");
    let fields = wire::enums::fields(message);
    fields.iter().find(|(field, _)| *field == name).map(|(_, values)| values.iter().copied().collect())
}

#[test]
fn values_are_those_of_the_published_enums() {
    for (relation, field, values) in ENUMS {
        let own: BTreeSet<&str> = values.iter().copied().collect();
        assert_eq!(own.len(), values.len(), "{field} has a value twice");
        match (relation, published(field)) {
            (Values::All, Some(published)) => assert_eq!(own, published, "{field}"),
            (Values::Some, Some(published)) => {
                assert!(own.is_subset(&published) && own != published, "{field}: {own:?}, published {published:?}");
            }
            (Values::Unpublished, None) => {}
            (_, published) => panic!("{field}: published {published:?}"),
        }
    }
}

#[test]
fn linux_signals_are_those_of_the_published_enum() {
    let own: BTreeSet<String> = api::signals::linux_signals().into_iter().collect();
    let published = published("core/v1.Lifecycle.stopSignal").unwrap();
    assert_eq!(own, published.into_iter().map(str::to_owned).collect());
}
