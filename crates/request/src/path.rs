//! Segments of a path, and the rewriting of deprecated watch paths.

use http::Uri;
use percent_encoding::percent_decode_str;
use std::borrow::Cow;

/// Returns the segments of a path without decoding them. Empty segments are skipped.
fn raw_segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|segment| !segment.is_empty())
}

/// Returns the length of a path's first segments, with the slashes before them.
pub(crate) fn length_of_segments(path: &str, segments: usize) -> usize {
    let (mut seen, mut inside) = (0, false);
    for (i, c) in path.char_indices() {
        match (c, inside) {
            ('/', true) if seen == segments => return i,
            ('/', _) => inside = false,
            (_, false) => {
                seen += 1;
                inside = true;
            }
            _ => {}
        }
    }
    path.len()
}

/// Returns the decoded segments of a path. Bytes that are not UTF-8 become the replacement character.
pub(crate) fn segments(path: &str) -> Vec<Cow<'_, str>> {
    raw_segments(path).map(|segment| percent_decode_str(segment).decode_utf8_lossy()).collect()
}

/// Rewrites a deprecated watch path: `/api/v1/watch/pods` becomes `/api/v1/pods?watch=true`, and the watch of a single
/// object gets a field selector of its name.
pub(crate) fn rewrite_deprecated_watch(uri: &mut Uri) {
    let parts = segments(uri.path());
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    let (watch_index, rest) = match parts.as_slice() {
        ["api", _, "watch", rest @ ..] => (2, rest),
        ["apis", _, _, "watch", rest @ ..] => (3, rest),
        _ => return,
    };
    let name = match rest {
        [resource] | ["namespaces", _, resource] if matches!(*resource, "status" | "finalize") => return,
        [_] | ["namespaces", _, _] => None,
        [_, name] | ["namespaces", _, _, name] => Some(*name),
        _ => return,
    };
    let mut raw: Vec<&str> = raw_segments(uri.path()).collect();
    raw.remove(watch_index);
    let mut query = "watch=true".to_owned();
    if let Some(name) = name {
        raw.pop();
        let escaped = name.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
        let selector =
            form_urlencoded::byte_serialize(format!("metadata.name={escaped}").as_bytes()).collect::<String>();
        query = format!("{query}&fieldSelector={selector}");
    }
    if let Some(rest_of_query) = uri.query().filter(|query| !query.is_empty()) {
        query = format!("{query}&{rest_of_query}");
    }
    if let Ok(rewritten) = format!("/{}?{query}", raw.join("/")).parse() {
        *uri = rewritten;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deprecated_watch_path_is_rewritten() {
        for (old, new) in [
            ("/api/v1/watch/pods", "/api/v1/pods?watch=true"),
            (
                "/api/v1/watch/namespaces/a/pods/b?timeoutSeconds=1",
                "/api/v1/namespaces/a/pods?watch=true&fieldSelector=metadata.name%3Db&timeoutSeconds=1",
            ),
            ("/api/v1/watch/nodes/n", "/api/v1/nodes?watch=true&fieldSelector=metadata.name%3Dn"),
            ("/api/v1/watch/namespaces/a", "/api/v1/namespaces?watch=true&fieldSelector=metadata.name%3Da"),
            ("/api/v1/watch/nodes/a%2C", "/api/v1/nodes?watch=true&fieldSelector=metadata.name%3Da%5C%2C"),
            ("/api/v1/watch/namespaces/a/pods/b/log", "/api/v1/watch/namespaces/a/pods/b/log"),
            ("/api/v1/watch/namespaces/a/status", "/api/v1/watch/namespaces/a/status"),
            ("/apis/apps/v1/watch/deployments", "/apis/apps/v1/deployments?watch=true"),
            ("//api/v1/watch//pods/", "/api/v1/pods?watch=true"),
            ("/api/v1/%77atch/namespaces/a/pods", "/api/v1/namespaces/a/pods?watch=true"),
            ("/%61pi/v1/watch/%6eamespaces/a%2Fb/pods", "/%61pi/v1/%6eamespaces/a%2Fb/pods?watch=true"),
            ("/api/v1/watch", "/api/v1/watch"),
            ("/api/v1/namespaces/watch/pods", "/api/v1/namespaces/watch/pods"),
            ("/metrics", "/metrics"),
        ] {
            let mut uri: Uri = old.parse().unwrap();
            rewrite_deprecated_watch(&mut uri);
            assert_eq!(uri.to_string(), new);
        }
    }
}
