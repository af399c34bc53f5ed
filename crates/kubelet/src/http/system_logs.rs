//! `/logs/`: serves the files below `/var/log` of the node like upstream's file server. Symbolic links that lead
//! outside
//! are not followed (docs/deviations/kubelet.md).

use super::HttpError;
use crate::{Shared, blocking, safe_open};
use axum::{
    body::Body,
    extract::{Path as UrlPath, State},
    http::{HeaderValue, StatusCode, header},
    response::{Html, IntoResponse, Response},
};
use nix::{errno::Errno, fcntl::OFlag};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use std::{
    fmt::Write,
    fs::{self, File},
    io,
    path::{Component, Path, PathBuf},
    sync::Arc,
};
use tokio_util::io::ReaderStream;

const ROOT: &str = "/var/log";
/// Characters that are percent-encoded in links.
const IN_LINK: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'%').add(b'<').add(b'>').add(b'?').add(b'`');

/// Result of a path lookup.
#[derive(Debug)]
enum PathLookup {
    File(File),
    /// Directory listing in HTML.
    Directory(String),
    /// Redirect to a directory whose trailing slash is missing.
    RedirectTo(String),
}

pub(super) async fn root(shared: State<Arc<Shared>>) -> Result<Response, HttpError> {
    below(shared, UrlPath(String::new())).await
}

pub(super) async fn below(
    State(shared): State<Arc<Shared>>,
    UrlPath(path): UrlPath<String>,
) -> Result<Response, HttpError> {
    if !shared.options.config.serving.enable_system_log_handler {
        return Err((StatusCode::METHOD_NOT_ALLOWED, "logs endpoint is disabled.".to_owned()));
    }
    match blocking::run(move || find(Path::new(ROOT), &path)).await {
        Ok(PathLookup::Directory(page)) => Ok(Html(page).into_response()),
        Ok(PathLookup::RedirectTo(to)) => Ok((StatusCode::MOVED_PERMANENTLY, [(header::LOCATION, to)]).into_response()),
        Ok(PathLookup::File(file)) => {
            let body = Body::from_stream(ReaderStream::new(tokio::fs::File::from_std(file)));
            let text = HeaderValue::from_static("text/plain; charset=utf-8");
            Ok(([(header::CONTENT_TYPE, text)], body).into_response())
        }
        Err(_) => Err((StatusCode::NOT_FOUND, "404 page not found".to_owned())),
    }
}

fn find(root: &Path, requested: &str) -> io::Result<PathLookup> {
    let inner = clean(requested);
    let (place, path) =
        (safe_open::open_path(root)?, if inner.as_os_str().is_empty() { Path::new(".") } else { &inner });
    // Opening a pipe or a device must not block.
    let file = File::from(safe_open::open_beneath(&place, path, OFlag::O_RDONLY | OFlag::O_NONBLOCK)?);
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        let name = inner.file_name().map(|name| name.to_string_lossy().into_owned());
        return match name.filter(|_| !requested.ends_with('/')) {
            Some(name) => Ok(PathLookup::RedirectTo(format!("{}/", utf8_percent_encode(&name, IN_LINK)))),
            None => list_directory(&safe_open::proc_fd_path(&file.into())).map(PathLookup::Directory),
        };
    }
    if !metadata.is_file() || requested.ends_with('/') {
        return Err(Errno::ENOENT.into());
    }
    Ok(PathLookup::File(file))
}

/// Normalizes a path below the root; `..` cannot leave the root.
fn clean(requested: &str) -> PathBuf {
    let mut path = PathBuf::new();
    for part in Path::new(requested).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::ParentDir => drop(path.pop()),
            _ => {}
        }
    }
    path
}

/// Renders a directory listing like Go's `http.FileServer`.
fn list_directory(dir: &Path) -> io::Result<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let slash = if entry.file_type()?.is_dir() { "/" } else { "" };
        names.push(format!("{}{slash}", entry.file_name().to_string_lossy()));
    }
    names.sort();
    let mut page = "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n".to_owned();
    for name in names {
        let shown = name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&#34;");
        // A colon in the first segment would be parsed as a URL scheme.
        let at = if name.contains(':') { "./" } else { "" };
        let _ = writeln!(page, "<a href=\"{at}{}\">{shown}</a>", utf8_percent_encode(&name, IN_LINK));
    }
    Ok(page + "</pre>\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[track_caller]
    fn check(root: &Path, requested: &str, expected: Option<&str>) {
        let found = find(root, requested).ok().map(|found| match found {
            PathLookup::File(file) => {
                String::from_utf8(crate::untrusted_file::read_beginning(&file, 100).unwrap()).unwrap()
            }
            PathLookup::Directory(page) => page.lines().filter(|l| l.starts_with("<a")).collect::<Vec<_>>().join(" "),
            PathLookup::RedirectTo(to) => format!("-> {to}"),
        });
        assert_eq!(found.as_deref(), expected, "{requested}");
    }

    #[test]
    fn system_logs_do_not_expose_files_outside_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("log");
        fs::create_dir_all(root.join("a b")).unwrap();
        fs::write(root.join("x<y"), "text").unwrap();
        fs::write(dir.path().join("secret"), "secret").unwrap();
        symlink("../secret", root.join("out")).unwrap();
        symlink("x<y", root.join("in")).unwrap();
        let all =
            "<a href=\"a%20b/\">a b/</a> <a href=\"in\">in</a> <a href=\"out\">out</a> <a href=\"x%3Cy\">x&lt;y</a>";
        for (requested, expected) in [
            ("", Some(all)),
            ("a b/", Some("")),
            ("a b", Some("-> a%20b/")),
            ("x<y", Some("text")),
            ("in", Some("text")),
            ("a b/../x<y", Some("text")),
            ("../../x<y", Some("text")),
            ("x<y/", None),
            ("out", None),
            ("none", None),
        ] {
            check(&root, requested, expected);
        }
    }
}
