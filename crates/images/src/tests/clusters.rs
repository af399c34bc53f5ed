//! Images that several clusters share.

use super::{import, names_in, store, two_layers};
use crate::{Digest, Error, ImageStore};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// Makes the data directory of a cluster, and returns its view of the store.
fn cluster(store: &ImageStore, dir: &Path, name: &str) -> (PathBuf, ImageStore) {
    let data_dir = dir.join(name);
    fs::create_dir(&data_dir).unwrap();
    let view = store.of_cluster(&data_dir).unwrap();
    (data_dir, view)
}

fn ids(store: &ImageStore) -> Vec<Digest> {
    store.list().unwrap().into_iter().map(|image| image.id).collect()
}

#[test]
fn image_stays_while_another_cluster_needs_it() {
    let (dir, store) = store();
    let (_, one) = cluster(&store, dir.path(), "one");
    let (_, two) = cluster(&store, dir.path(), "two");
    let id = import(&two, &two_layers(), "a:1");
    import(&one, &two_layers(), "a:1");
    assert_eq!(one.remove_for_cluster(&id.to_string()).unwrap(), [""; 0]);
    // The first cluster has no such image any more, as after a removal without the second cluster.
    assert_eq!((ids(&one), ids(&two), ids(&store)), (vec![], vec![id], vec![id]));
    for reference in ["a:1", &id.to_string()] {
        assert!(matches!(one.image(reference), Err(Error::NotFound(_))));
        assert_eq!(two.image(reference).unwrap().id, id);
    }
    assert_eq!(store.collect(Duration::ZERO).unwrap().layers, 0);
    assert!(matches!(one.image("a:1"), Err(Error::NotFound(_))), "collection keeps the record");
    // The last one that needs it removes it.
    assert_eq!(two.remove_for_cluster("a:1").unwrap(), ["docker.io/library/a:1"]);
    assert_eq!(store.collect(Duration::ZERO).unwrap().layers, 2);
    import(&store, &two_layers(), "a:1");
    assert_eq!((ids(&one), ids(&two)), (vec![id], vec![id]), "no record is left");
}

#[test]
fn removed_image_is_visible_again_after_it_is_added() {
    let (dir, store) = store();
    let (_, one) = cluster(&store, dir.path(), "one");
    let (_, two) = cluster(&store, dir.path(), "two");
    let id = import(&two, &two_layers(), "a:1");
    for adds in [&store, &one] {
        one.remove_for_cluster("a:1").unwrap();
        assert_eq!(ids(&one), []);
        import(adds, &two_layers(), "a:1");
        assert_eq!(ids(&one), [id]);
    }
    // Nobody but the machine needs it.
    let other = import(&store, &two_layers()[..1], "b:1");
    assert_eq!(one.remove_for_cluster("b:1").unwrap().len(), 1);
    assert!(matches!(store.image(&other.to_string()), Err(Error::NotFound(_))));
}

#[test]
fn image_of_a_container_is_needed_by_its_cluster() {
    let (dir, store) = store();
    let id = import(&store, &two_layers(), "a:1");
    let (_, one) = cluster(&store, dir.path(), "one");
    let (two_dir, two) = cluster(&store, dir.path(), "two");
    two.acquire(&two_dir, "c", &id.to_string()).unwrap();
    assert_eq!(one.remove_for_cluster("a:1").unwrap(), [""; 0]);
    // Also after the container has ended: it may be started again.
    two.release(&two_dir, "c").unwrap();
    assert_eq!(one.remove_for_cluster("a:1").unwrap(), [""; 0]);
    assert_eq!(ids(&two), [id]);
    store.forget_cluster(&two_dir).unwrap();
    assert_eq!(one.remove_for_cluster("a:1").unwrap().len(), 1);
}

#[test]
fn removed_cluster_needs_no_image() {
    let (dir, store) = store();
    let (_, one) = cluster(&store, dir.path(), "one");
    let (two_dir, two) = cluster(&store, dir.path(), "two");
    import(&two, &two_layers(), "a:1");
    one.remove_for_cluster("a:1").unwrap();
    fs::remove_dir(&two_dir).unwrap();
    assert_eq!(store.remove("a:1").unwrap().len(), 1);
    import(&two, &two_layers(), "b:1");
    assert_eq!(one.remove_for_cluster("b:1").unwrap().len(), 1);
    store.collect(Duration::ZERO).unwrap();
    assert_eq!(names_in(&store.root().join("clusters")).len(), 1);
}

#[test]
fn use_that_is_not_understood_keeps_the_name() {
    let (dir, store) = store();
    let (_, one) = cluster(&store, dir.path(), "one");
    let (two_dir, _) = cluster(&store, dir.path(), "two");
    let id = import(&store, &two_layers(), "a:1");
    let other = import(&store, &two_layers()[..1], "b:1");
    store.acquire(&two_dir, "c", &id.to_string()).unwrap();
    let uses = store.root().join("uses");
    let path = uses.join(&names_in(&uses)[0]).join("c");
    fs::write(path, r#"{"version": 2}"#).unwrap();
    assert_eq!(one.remove_for_cluster(&other.to_string()).unwrap(), [""; 0]);
}

#[test]
fn administrator_removes_an_image_for_all_unless_it_is_used() {
    let (dir, store) = store();
    let (data_dir, one) = cluster(&store, dir.path(), "one");
    let id = import(&one, &two_layers(), "a:1");
    import(&store, &two_layers(), "a:2");
    store.acquire(&data_dir, "c", &id.to_string()).unwrap();
    // Another name is left.
    assert_eq!(store.remove("a:2").unwrap().len(), 1);
    for reference in ["a:1", &id.to_string()] {
        let error = store.remove(reference).unwrap_err();
        assert_eq!(error.to_string(), format!("image {reference:?} is in use by c of {data_dir:?}"));
    }
    store.release(&data_dir, "c").unwrap();
    assert_eq!(store.remove("a:1").unwrap(), ["docker.io/library/a:1"]);
    assert_eq!(ids(&one), []);
    // The cluster's own record is gone, too.
    assert_eq!(names_in(&store.root().join("clusters").join(&names_in(&store.root().join("clusters"))[0])), ["path"]);
}
