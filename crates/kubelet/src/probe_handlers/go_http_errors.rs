//! Go's error messages for responses that are not HTTP (`net/http`, `ReadResponse`).

use api::go_quote::quoted_bytes as quoted;

/// Returns Go's error for a malformed status line, or `None` if Go accepts the line.
pub(super) fn status_line_error(response: &[u8]) -> Option<String> {
    let line = response.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let error = parse_error(line)?;
    Some(format!("net/http: HTTP/1.x transport connection broken: {error}"))
}

fn parse_error(line: &[u8]) -> Option<String> {
    let Some(space) = line.iter().position(|byte| *byte == b' ') else {
        return Some(format!("malformed HTTP response {}", quoted(line)));
    };
    let (version, rest) = (&line[..space], line[space + 1..].trim_ascii_start());
    let code = rest.split(|byte| *byte == b' ').next().unwrap_or_default();
    if code.len() != 3 || !code.iter().all(u8::is_ascii_digit) {
        return Some(format!("malformed HTTP status code {}", quoted(code)));
    }
    let known = matches!(version, [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
        if major.is_ascii_digit() && minor.is_ascii_digit());
    (!known).then(|| format!("malformed HTTP version {}", quoted(version)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(response: &[u8], expected: Option<&str>) {
        let expected = expected.map(|error| format!("net/http: HTTP/1.x transport connection broken: {error}"));
        assert_eq!(status_line_error(response), expected, "{response:?}");
    }

    #[test]
    fn malformed_status_line_has_the_error_of_go() {
        check(b"garbage", Some(r#"malformed HTTP response "garbage""#));
        check(b"220-hello\r\nmore", Some(r#"malformed HTTP response "220-hello""#));
        check(b"-ERR unknown command\r\n", Some(r#"malformed HTTP status code "unknown""#));
        check(b"HTTP/1.1 20 OK\r\n", Some(r#"malformed HTTP status code "20""#));
        check(b"HTTP/x 200 OK\r\n", Some(r#"malformed HTTP version "HTTP/x""#));
        check(b"\x00\x00\x06\x04\xff\"\t\\", Some(r#"malformed HTTP response "\x00\x00\x06\x04\xff\"\t\\""#));
        check(b"HTTP/1.1 200 OK\r\n: odd\r\n", None);
    }
}
