//! `/livez`, `/readyz` and `/healthz`: one word, or every check with `?verbose`, and each check at a path of its own.

use crate::{
    ApiServer,
    reply::{self, Reply},
    request::Query,
    status::ApiError,
};
use http::{HeaderValue, header};
use std::fmt::Write;

/// A server that answers at all passes this check: it does not serve before its store is open.
const PING: &str = "ping";
/// Whether the store takes writes of clients.
const STORE_QUOTA: &str = "store-quota";

/// The checks of an endpoint. A full store is no reason to restart a server.
fn checks(endpoint: &str) -> &'static [&'static str] {
    if endpoint == "readyz" { &[PING, STORE_QUOTA] } else { &[PING] }
}

/// What is wrong, if something is.
fn failure(server: &ApiServer, check: &str) -> Option<String> {
    let is_full = check == STORE_QUOTA && *server.quota_alarm().borrow();
    is_full.then(|| {
        let usage = server.store.usage();
        format!("{} of {} bytes are used", usage.bytes, usage.quota)
    })
}

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
pub(crate) fn answer(server: &ApiServer, path: &str, query: &str) -> Reply {
    let mut answer = checked(server, path, query)?;
    answer.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(answer)
}

fn checked(server: &ApiServer, path: &str, query: &str) -> Reply {
    let (name, check) = endpoint(path).ok_or_else(ApiError::no_such_path)?;
    if let Some(check) = check {
        if !checks(name).contains(&check) {
            return Err(ApiError::no_such_path());
        }
        return Ok(match failure(server, check) {
            None => reply::text(200, "ok"),
            Some(why) => reply::text(500, &format!("internal server error: {why}\n")),
        });
    }
    // Present is enough, as upstream has it; `exclude` may come more than once, so it is read from the whole text.
    let is_verbose = query.split('&').any(|p| p == "verbose" || p.starts_with("verbose="));
    let excluded: Vec<Query> = query.split('&').map(Query::parse).collect();
    let (mut text, mut has_failed) = (String::new(), false);
    for check in checks(name) {
        let _ = if excluded.iter().any(|q| q.get("exclude") == Some(*check)) {
            writeln!(text, "[+]{check} excluded: ok")
        } else if failure(server, check).is_some() {
            has_failed = true;
            // Anybody may ask.
            writeln!(text, "[-]{check} failed: reason withheld")
        } else {
            writeln!(text, "[+]{check} ok")
        };
    }
    if has_failed {
        return Ok(reply::text(500, &format!("{text}{name} check failed\n")));
    }
    if !is_verbose {
        return Ok(reply::text(200, "ok"));
    }
    Ok(reply::text(200, &format!("{text}{name} check passed\n")))
}

#[cfg(test)]
mod tests {
    use crate::test_server::{send, server};

    #[tokio::test]
    async fn health_is_told_in_upstreams_words() {
        let server = server().await;
        for (path, code, text) in [
            ("/livez", 200, "ok"),
            ("/readyz?verbose", 200, "[+]ping ok\n[+]store-quota ok\nreadyz check passed\n"),
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
