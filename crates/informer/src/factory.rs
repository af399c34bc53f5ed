//! Informers that the components of a process share (client-go's `SharedInformerFactory`).

use crate::{Cached, SharedInformer};
use decode::Decode;
use k8s_openapi::{Metadata, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, Client};
use parking_lot::Mutex;
use std::{
    any::{Any, TypeId},
    collections::HashMap,
    fmt::{self, Debug},
    sync::Arc,
};
use tokio_util::sync::{CancellationToken, DropGuard};

/// What an informer caches of a kind. Components that need the same view of the same kind share the informer.
pub trait View: Cached {
    /// The kind.
    type Kind: k8s_openapi::Resource + Metadata<Ty = ObjectMeta> + Clone + Decode + Debug + Send + 'static;

    /// Returns the view of an object.
    fn of(object: Self::Kind) -> Self;
}

/// The whole object, without `managedFields`.
impl<K> View for K
where
    K: k8s_openapi::Resource + Metadata<Ty = ObjectMeta> + Clone + Decode + Debug + PartialEq + Send + Sync + 'static,
{
    type Kind = K;

    fn of(object: K) -> K {
        object
    }
}

/// Informers of all objects of their kinds, one for each view. Clones share them; they stop when the last is dropped.
#[derive(Clone)]
pub struct SharedInformerFactory(Arc<Informers>);

struct Informers {
    client: Client,
    by_view: Mutex<HashMap<TypeId, Box<dyn Any + Send>>>,
    stop: CancellationToken,
    _stop_on_drop: DropGuard,
}

impl SharedInformerFactory {
    /// Creates a factory of informers that use `client`.
    #[must_use]
    pub fn new(client: Client) -> Self {
        let stop = CancellationToken::new();
        let _stop_on_drop = stop.clone().drop_guard();
        Self(Arc::new(Informers { client, by_view: Mutex::default(), stop, _stop_on_drop }))
    }

    /// Returns the informer of a view. The first call starts it, in the async runtime of the caller.
    #[must_use]
    pub fn informer<T: View>(&self) -> SharedInformer<T> {
        let mut by_view = self.0.by_view.lock();
        let known = by_view.get(&TypeId::of::<T>()).and_then(|known| known.downcast_ref::<SharedInformer<T>>());
        if let Some(known) = known {
            return known.clone();
        }
        let informer = SharedInformer::new();
        by_view.insert(TypeId::of::<T>(), Box::new(informer.clone()));
        let run = informer.clone().run(Api::all(self.0.client.clone()), T::of, self.0.stop.clone());
        tokio::spawn(run);
        informer
    }
}

impl Debug for SharedInformerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedInformerFactory").field("informers", &self.0.by_view.lock().len()).finish_non_exhaustive()
    }
}
