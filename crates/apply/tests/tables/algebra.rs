//! Sets of fields are sets of paths, however they are kept.

use apply::{Element, Path, Set};
use proptest::{collection::vec, prelude::*};
use serde_json::json;
use std::collections::BTreeSet;

fn element() -> impl Strategy<Value = Element> {
    prop_oneof![
        prop::sample::select(vec!["a", "b", "c"]).prop_map(Element::field),
        (0..3_i32).prop_map(|n| Element::key([("n", json!(n))])),
        (8..11_i32).prop_map(|n| Element::Value(json!(n))),
        (0..2_i64).prop_map(Element::Index),
    ]
}

fn paths() -> impl Strategy<Value = BTreeSet<Path>> {
    vec(vec(element(), 1..4).prop_map(Path), 0..10).prop_map(|paths| paths.into_iter().collect())
}

fn in_set(set: &Set) -> BTreeSet<Path> {
    set.paths().into_iter().collect()
}

fn is_in_or_below(all: &BTreeSet<Path>, path: &Path) -> bool {
    (1..=path.len()).any(|end| all.contains(&Path(path[..end].to_vec())))
}

proptest! {
    #[test]
    fn algebra_of_sets_is_that_of_their_paths(left in paths(), right in paths()) {
        let (l, r) = (Set::of(&left), Set::of(&right));
        prop_assert_eq!(in_set(&l), left.clone());
        prop_assert_eq!(in_set(&l.union(&r)), &left | &right);
        prop_assert_eq!(in_set(&l.intersection(&r)), &left & &right);
        prop_assert_eq!(in_set(&l.difference(&r)), &left - &right);
        let rest: BTreeSet<Path> = left.iter().filter(|p| !is_in_or_below(&right, p)).cloned().collect();
        prop_assert_eq!(in_set(&l.recursive_difference(&r)), rest);
        for made in [l.union(&r), l.intersection(&r), l.difference(&r), l.recursive_difference(&r)] {
            // What is equal has one form.
            let again = Set::of(&made.paths());
            prop_assert_eq!(&again, &made);
            prop_assert_eq!(made.is_empty(), made.paths().is_empty());
        }
    }

    #[test]
    fn sets_that_share_what_they_hold_are_as_any_others(paths in paths(), more in paths()) {
        let set = Set::of(&paths);
        let (shared, own) = (set.clone(), Set::of(&paths));
        for same in [shared, own] {
            prop_assert_eq!(&set.union(&same), &set);
            prop_assert_eq!(&set.intersection(&same), &set);
            prop_assert!(set.difference(&same).is_empty() && set.recursive_difference(&same).is_empty());
        }
        // Whoever changes one changes no other.
        let mut other = set.clone();
        more.iter().for_each(|path| other.insert(path));
        prop_assert_eq!(in_set(&other), &paths | &more);
        prop_assert_eq!(in_set(&set), paths);
    }

    #[test]
    fn sets_have_one_text(paths in paths()) {
        let set = Set::of(&paths);
        let text = serde_json::to_string(&set).unwrap();
        prop_assert_eq!(&text, &set.to_json().to_string());
        let read: Set = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(read, set);
    }
}
