//! Property tests of set operations against `BTreeSet`s of paths.

use apply::{Path, PathElement, Set};
use proptest::{collection::vec, prelude::*};
use serde_json::json;
use std::collections::BTreeSet;

fn element() -> impl Strategy<Value = PathElement> {
    prop_oneof![
        prop::sample::select(vec!["a", "b", "c"]).prop_map(PathElement::field),
        (0..3_i32).prop_map(|n| PathElement::key([("n", json!(n))])),
        (8..11_i32).prop_map(|n| PathElement::Value(json!(n))),
        (0..2_i64).prop_map(PathElement::Index),
    ]
}

fn paths() -> impl Strategy<Value = BTreeSet<Path>> {
    vec(vec(element(), 1..4).prop_map(Path), 0..10).prop_map(|paths| paths.into_iter().collect())
}

fn paths_of(set: &Set) -> BTreeSet<Path> {
    set.paths().into_iter().collect()
}

fn is_member_or_nested(all: &BTreeSet<Path>, path: &Path) -> bool {
    (1..=path.len()).any(|end| all.contains(&Path(path[..end].to_vec())))
}

proptest! {
    #[test]
    fn set_operations_equal_those_of_path_sets(left in paths(), right in paths()) {
        let (l, r) = (Set::of(&left), Set::of(&right));
        prop_assert_eq!(paths_of(&l), left.clone());
        prop_assert_eq!(paths_of(&l.union(&r)), &left | &right);
        prop_assert_eq!(paths_of(&l.intersection(&r)), &left & &right);
        prop_assert_eq!(paths_of(&l.difference(&r)), &left - &right);
        let difference: BTreeSet<Path> = left.iter().filter(|p| !is_member_or_nested(&right, p)).cloned().collect();
        prop_assert_eq!(paths_of(&l.recursive_difference(&r)), difference);
        for result in [l.union(&r), l.intersection(&r), l.difference(&r), l.recursive_difference(&r)] {
            // Equal sets have the same representation.
            let rebuilt = Set::of(&result.paths());
            prop_assert_eq!(&rebuilt, &result);
            prop_assert_eq!(result.is_empty(), result.paths().is_empty());
        }
    }

    #[test]
    fn sets_with_shared_nodes_behave_like_others(paths in paths(), added in paths()) {
        let set = Set::of(&paths);
        let (shared, own) = (set.clone(), Set::of(&paths));
        for equal in [shared, own] {
            prop_assert_eq!(&set.union(&equal), &set);
            prop_assert_eq!(&set.intersection(&equal), &set);
            prop_assert!(set.difference(&equal).is_empty() && set.recursive_difference(&equal).is_empty());
        }
        // A modification does not affect sets that share nodes.
        let mut other = set.clone();
        added.iter().for_each(|path| other.insert(path));
        prop_assert_eq!(paths_of(&other), &paths | &added);
        prop_assert_eq!(paths_of(&set), paths);
    }

    #[test]
    fn set_has_one_serialized_form(paths in paths()) {
        let set = Set::of(&paths);
        let text = serde_json::to_string(&set).unwrap();
        prop_assert_eq!(&text, &set.to_json().to_string());
        let read: Set = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(read, set);
    }
}
