//! `/logs/`: the files below `/var/log` of the node, as upstream's file server shows them. Links that lead out of there
//! are not followed (docs/deviations.md).

use super::Refused;
use crate::{Shared, beneath, blocking};
use axum::{
    body::Body,
    extract::{Path as Asked, State},
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
/// What may not stand in a link as it is.
const IN_LINK: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'%').add(b'<').add(b'>').add(b'?').add(b'`');

/// What there is at a path.
#[derive(Debug)]
enum Found {
    File(File),
    /// The page that shows what is in a directory.
    Directory(String),
    /// A directory that was asked for without its slash: the way to it.
    Moved(String),
}

pub(super) async fn root(shared: State<Arc<Shared>>) -> Result<Response, Refused> {
    below(shared, Asked(String::new())).await
}

pub(super) async fn below(State(shared): State<Arc<Shared>>, Asked(path): Asked<String>) -> Result<Response, Refused> {
    if !shared.options.config.serving.enable_system_log_handler {
        return Err((StatusCode::METHOD_NOT_ALLOWED, "logs endpoint is disabled.".to_owned()));
    }
    match blocking::run(move || find(Path::new(ROOT), &path).map_err(|e| e.to_string())).await {
        Ok(Found::Directory(page)) => Ok(Html(page).into_response()),
        Ok(Found::Moved(to)) => Ok((StatusCode::MOVED_PERMANENTLY, [(header::LOCATION, to)]).into_response()),
        Ok(Found::File(file)) => {
            let body = Body::from_stream(ReaderStream::new(tokio::fs::File::from_std(file)));
            let text = HeaderValue::from_static("text/plain; charset=utf-8");
            Ok(([(header::CONTENT_TYPE, text)], body).into_response())
        }
        Err(_) => Err((StatusCode::NOT_FOUND, "404 page not found".to_owned())),
    }
}

fn find(root: &Path, asked: &str) -> io::Result<Found> {
    let inner = clean(asked);
    let (place, path) = (beneath::root(root)?, if inner.as_os_str().is_empty() { Path::new(".") } else { &inner });
    // A pipe or a device must not keep the one who opens it.
    let file = File::from(beneath::find(&place, path, OFlag::O_RDONLY | OFlag::O_NONBLOCK)?);
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        let name = inner.file_name().map(|name| name.to_string_lossy().into_owned());
        return match name.filter(|_| !asked.ends_with('/')) {
            Some(name) => Ok(Found::Moved(format!("{}/", utf8_percent_encode(&name, IN_LINK)))),
            None => page(&beneath::through(&file.into())).map(Found::Directory),
        };
    }
    if !metadata.is_file() || asked.ends_with('/') {
        return Err(Errno::ENOENT.into());
    }
    Ok(Found::File(file))
}

/// A path as it is below the root: `..` leads up to it at most.
fn clean(asked: &str) -> PathBuf {
    let mut path = PathBuf::new();
    for part in Path::new(asked).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::ParentDir => drop(path.pop()),
            _ => {}
        }
    }
    path
}

/// Go's `http.FileServer` lists directories like this.
fn page(dir: &Path) -> io::Result<String> {
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
        // A colon in a first part would make it another scheme.
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
    fn check(root: &Path, asked: &str, expected: Option<&str>) {
        let found = find(root, asked).ok().map(|found| match found {
            Found::File(file) => String::from_utf8(crate::untrusted_file::read_beginning(&file, 100).unwrap()).unwrap(),
            Found::Directory(page) => page.lines().filter(|l| l.starts_with("<a")).collect::<Vec<_>>().join(" "),
            Found::Moved(to) => format!("-> {to}"),
        });
        assert_eq!(found.as_deref(), expected, "{asked}");
    }

    #[test]
    fn system_logs_are_shown_and_nothing_beside_them() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("log");
        fs::create_dir_all(root.join("a b")).unwrap();
        fs::write(root.join("x<y"), "text").unwrap();
        fs::write(dir.path().join("secret"), "secret").unwrap();
        symlink("../secret", root.join("out")).unwrap();
        symlink("x<y", root.join("in")).unwrap();
        let all =
            "<a href=\"a%20b/\">a b/</a> <a href=\"in\">in</a> <a href=\"out\">out</a> <a href=\"x%3Cy\">x&lt;y</a>";
        for (asked, expected) in [
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
            check(&root, asked, expected);
        }
    }
}
