//! Sources of volumes: the fields of Pods and PersistentVolumes that have one.

/// Sources of Pods in upstream's order: the first one that is set counts.
pub const POD_SOURCES: [&str; 30] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

/// Sources of PersistentVolumes in upstream's order.
pub const PERSISTENT_VOLUME_SOURCES: [&str; 22] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::persistent_volume_claim::NON_SOURCE_FIELDS;
    use k8s_openapi::api::core::v1::{PersistentVolumeSpec, Volume};
    use serde::{
        Deserialize, Deserializer,
        de::{Visitor, value::Error},
    };
    use std::collections::BTreeSet;

    /// Collects the names of a type's fields.
    struct FieldNames<'a>(&'a mut BTreeSet<&'static str>);

    impl<'de> Deserializer<'de> for FieldNames<'_> {
        type Error = Error;

        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _name: &'static str,
            fields: &'static [&'static str],
            _visitor: V,
        ) -> Result<V::Value, Error> {
            self.0.extend(fields);
            Err(serde::de::Error::custom("no value"))
        }

        fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Error> {
            Err(serde::de::Error::custom("not a struct"))
        }

        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
            newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }

    #[track_caller]
    fn check<T: for<'de> Deserialize<'de>>(sources: &[&'static str], others: &[&'static str]) {
        let mut fields = BTreeSet::new();
        assert!(T::deserialize(FieldNames(&mut fields)).is_err());
        assert_eq!(sources.iter().chain(others).copied().collect::<BTreeSet<_>>(), fields);
    }

    #[test]
    fn sources_are_all_fields_of_volumes_but_the_common_ones() {
        check::<Volume>(&POD_SOURCES, &["name"]);
        check::<PersistentVolumeSpec>(&PERSISTENT_VOLUME_SOURCES, &NON_SOURCE_FIELDS);
    }
}
