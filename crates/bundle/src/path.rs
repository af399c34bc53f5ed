//! Paths in a container, without access to its file system.

/// Returns the shortest equal absolute path, without looking at links (Go's `filepath.Clean`).
pub(crate) fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    format!("/{}", parts.join("/"))
}

/// Returns the path itself if it is absolute, else below `/`.
pub(crate) fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clean_path_is_shortest() {
        for (path, expected) in [
            ("/a/b", "/a/b"),
            ("/a//b/", "/a/b"),
            ("/a/./b/../c", "/a/c"),
            ("/../../a", "/a"),
            ("a/b", "/a/b"),
            ("", "/"),
            ("/", "/"),
        ] {
            assert_eq!(clean(path), expected, "{path}");
        }
        assert_eq!((absolute("a/"), absolute("/a/")), ("/a/".to_owned(), "/a/".to_owned()));
    }
}
