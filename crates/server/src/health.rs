//! `/livez`, `/readyz` and `/healthz`: one word, or every check with `?verbose`, and each check at a path of its own.

use crate::{
    reply::{self, Reply},
    request::Query,
    status::ApiError,
};
use http::{HeaderValue, header};
use std::fmt::Write;

/// The checks. A server that answers at all is alive, and it does not serve before its store is open.
const CHECKS: [&str; 1] = ["ping"];

fn endpoint(path: &str) -> Option<(&str, Option<&str>)> {
    let mut parts = path.trim_matches('/').splitn(2, '/');
    let name = parts.next().filter(|n| matches!(*n, "livez" | "readyz" | "healthz"))?;
    Some((name, parts.next()))
}

/// Whether a path is that of a health endpoint or of one of its checks.
pub(crate) fn is_check(path: &str) -> bool {
    endpoint(path).is_some()
}

/// Upstream's text for a health endpoint or one of its checks.
pub(crate) fn answer(path: &str, query: &str) -> Reply {
    let mut answer = checked(path, query)?;
    answer.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(answer)
}

fn checked(path: &str, query: &str) -> Reply {
    let (name, check) = endpoint(path).ok_or_else(ApiError::no_such_path)?;
    if let Some(check) = check {
        return if CHECKS.contains(&check) { Ok(reply::text(200, "ok")) } else { Err(ApiError::no_such_path()) };
    }
    // Present is enough, as upstream has it; `exclude` may come more than once, so it is read from the whole text.
    if !query.split('&').any(|p| p == "verbose" || p.starts_with("verbose=")) {
        return Ok(reply::text(200, "ok"));
    }
    let excluded: Vec<Query> = query.split('&').map(Query::parse).collect();
    let mut text = String::new();
    for check in CHECKS {
        let out = excluded.iter().any(|q| q.get("exclude") == Some(check));
        let _ = writeln!(text, "[+]{check} {}", if out { "excluded: ok" } else { "ok" });
    }
    let _ = writeln!(text, "{name} check passed");
    Ok(reply::text(200, &text))
}

#[cfg(test)]
mod tests {
    use crate::test_server::{send, server};

    #[tokio::test]
    async fn health_is_told_in_upstreams_words() {
        let server = server().await;
        for (path, code, text) in [
            ("/livez", 200, "ok"),
            ("/readyz?verbose", 200, "[+]ping ok\nreadyz check passed\n"),
            ("/livez?verbose=1&exclude=ping", 200, "[+]ping excluded: ok\nlivez check passed\n"),
            ("/livez/ping", 200, "ok"),
            ("/healthz/ping", 200, "ok"),
        ] {
            let answer = send(&server, "GET", path, &[], &[]).await;
            assert_eq!((answer.code, std::str::from_utf8(&answer.body).unwrap()), (code, text), "{path}");
        }
        assert_eq!(send(&server, "GET", "/livez/nothing", &[], &[]).await.code, 404);
    }
}
