//! Cache of plugin responses.

use super::{CacheKeyType, DockerConfig};
use jiff::Timestamp;
use std::collections::HashMap;

/// Cached responses by key.
#[derive(Debug, Default)]
pub(super) struct ResponseCache {
    entries: HashMap<(CacheKeyType, String), (Timestamp, DockerConfig)>,
}

fn key(kind: CacheKeyType, image: &str) -> (CacheKeyType, String) {
    let scope = match kind {
        CacheKeyType::Image => image,
        CacheKeyType::Registry => image.split('/').next().unwrap_or(""),
        CacheKeyType::Global => "",
    };
    (kind, scope.to_owned())
}

impl ResponseCache {
    /// Returns the most specific valid response for this image.
    pub(super) fn get(&self, image: &str, now: Timestamp) -> Option<DockerConfig> {
        let kinds = [CacheKeyType::Image, CacheKeyType::Registry, CacheKeyType::Global];
        let entries = kinds.into_iter().filter_map(|kind| self.entries.get(&key(kind, image)));
        entries.into_iter().find(|(until, _)| now <= *until).map(|(_, auth)| auth.clone())
    }

    /// Adds a response, and removes expired ones.
    pub(super) fn put(
        &mut self,
        kind: CacheKeyType,
        image: &str,
        auth: DockerConfig,
        now: Timestamp,
        until: Timestamp,
    ) {
        self.entries.retain(|_, (until, _)| now <= *until);
        self.entries.insert(key(kind, image), (until, auth));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::keyring::DockerConfigEntry;

    #[test]
    fn cached_response_applies_to_its_scope_until_it_expires() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let auth = |user: &str| {
            DockerConfig::from([(
                "r.io".to_owned(),
                DockerConfigEntry { username: user.to_owned(), ..DockerConfigEntry::default() },
            )])
        };
        let mut cache = ResponseCache::default();
        let look = |cache: &ResponseCache, image: &str, second| {
            cache.get(image, at(second)).map(|a| a["r.io"].username.clone())
        };
        cache.put(CacheKeyType::Image, "r.io/a", auth("image"), at(0), at(10));
        cache.put(CacheKeyType::Registry, "r.io/b", auth("registry"), at(0), at(20));
        cache.put(CacheKeyType::Global, "q.io/c", auth("global"), at(0), at(30));
        for (image, second, expected) in [
            ("r.io/a", 10, Some("image")),
            ("r.io/a", 11, Some("registry")),
            ("r.io/x", 20, Some("registry")),
            ("r.io/x", 21, Some("global")),
            ("other.io/x", 30, Some("global")),
            ("other.io/x", 31, None),
        ] {
            assert_eq!(look(&cache, image, second).as_deref(), expected, "{image} {second}");
        }
        cache.put(CacheKeyType::Image, "r.io/y", auth("image"), at(25), at(40));
        assert_eq!(cache.entries.len(), 2);
    }
}
