//! Answers that hold for a while.

use super::{CacheKeyType, DockerConfig};
use jiff::Timestamp;
use std::collections::HashMap;

/// Answers, by what they hold for.
#[derive(Debug, Default)]
pub(super) struct Cache {
    answers: HashMap<(CacheKeyType, String), (Timestamp, DockerConfig)>,
}

fn key(kind: CacheKeyType, image: &str) -> (CacheKeyType, String) {
    let what = match kind {
        CacheKeyType::Image => image,
        CacheKeyType::Registry => image.split('/').next().unwrap_or(""),
        CacheKeyType::Global => "",
    };
    (kind, what.to_owned())
}

impl Cache {
    /// The narrowest answer that holds for this image.
    pub(super) fn get(&self, image: &str, now: Timestamp) -> Option<DockerConfig> {
        let kinds = [CacheKeyType::Image, CacheKeyType::Registry, CacheKeyType::Global];
        let answers = kinds.into_iter().filter_map(|kind| self.answers.get(&key(kind, image)));
        answers.into_iter().find(|(until, _)| now <= *until).map(|(_, auth)| auth.clone())
    }

    /// Keeps an answer, and no longer those whose time is over.
    pub(super) fn put(
        &mut self,
        kind: CacheKeyType,
        image: &str,
        auth: DockerConfig,
        now: Timestamp,
        until: Timestamp,
    ) {
        self.answers.retain(|_, (until, _)| now <= *until);
        self.answers.insert(key(kind, image), (until, auth));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::keyring::Login;

    #[test]
    fn an_answer_holds_for_its_image_its_registry_or_all_and_for_its_time() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let auth = |user: &str| {
            DockerConfig::from([("r.io".to_owned(), Login { username: user.to_owned(), ..Login::default() })])
        };
        let mut cache = Cache::default();
        let look =
            |cache: &Cache, image: &str, second| cache.get(image, at(second)).map(|a| a["r.io"].username.clone());
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
        assert_eq!(cache.answers.len(), 2);
    }
}
