//! Rewrites links of HTML pages and redirects, so that they lead through the proxy
//! (upstream's `k8s.io/apimachinery/pkg/util/proxy/transport.go`).

use bytes::Bytes;
use flate2::{
    Compression,
    write::{DeflateDecoder, DeflateEncoder, GzDecoder, GzEncoder},
};
use futures::{TryStreamExt, stream};
use http::{HeaderValue, Response, Uri, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use lol_html::{
    element,
    send::{HtmlRewriter, Settings},
};
use parking_lot::Mutex;
use response::{Body, BoxError};
use std::{
    io::{self, Write},
    sync::Arc,
};

/// Attributes that contain URLs (upstream's `atomsToAttrs`).
const LINKS: [(&str, &[&str]); 25] = [
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["src", "usemap", "formaction"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("video", &["poster", "src"]),
];

/// Path prefix of the proxy, and the hosts of the backend.
#[derive(Debug, Clone)]
pub(super) struct LinkRewriter {
    /// Path prefix without a trailing slash.
    pub(super) prefix: String,
    /// Hosts of the backend: its own, and the one of the client's request.
    pub(super) hosts: [String; 2],
}

impl LinkRewriter {
    /// Returns a rewritten link; `None` when it is unchanged.
    fn rewrite_link(&self, link: &str) -> Option<String> {
        let path = if link.starts_with('/') && !link.starts_with("//") {
            link.to_owned()
        } else {
            let (link, fragment) = link.split_at(link.find('#').unwrap_or(link.len()));
            let uri = link.parse::<Uri>().ok()?;
            uri.authority().filter(|authority| self.hosts.iter().any(|host| host == authority.as_str()))?;
            format!("{}{fragment}", uri.path_and_query()?)
        };
        Some(if path.starts_with(&self.prefix) { path } else { format!("{}{path}", self.prefix) })
    }

    /// Rewrites the links of a backend's response.
    pub(super) fn rewrite_response(self, mut response: Response<Body>) -> Response<Body> {
        let text = |name| response.headers().get(name).and_then(|v: &HeaderValue| v.to_str().ok());
        if let Some(to) = text(header::LOCATION) {
            if let Some(to) = self.rewrite_link(to).and_then(|to| HeaderValue::try_from(to).ok()) {
                response.headers_mut().insert(header::LOCATION, to);
            }
            return response;
        }
        let media = text(header::CONTENT_TYPE).and_then(|v| v.split(';').next()).unwrap_or_default();
        let output = match text(header::CONTENT_ENCODING).unwrap_or_default() {
            "" => Output::Plain(Vec::new()),
            "gzip" => Output::Gzip(GzEncoder::new(Vec::new(), Compression::default())),
            "deflate" => Output::Deflate(DeflateEncoder::new(Vec::new(), Compression::best())),
            _ => return response,
        };
        if media.trim() != "text/html" {
            return response;
        }
        let (mut head, body) = response.into_parts();
        head.headers.remove(header::CONTENT_LENGTH);
        let state = Some((Page::new(self, output), body));
        let pieces = stream::try_unfold(state, |state| async {
            let Some((page, body)) = state else { return Ok::<_, BoxError>(None) };
            next(page, body).await.map(Some)
        });
        Response::from_parts(head, StreamBody::new(pieces.map_ok(Frame::data)).boxed_unsync())
    }
}

/// Returns the next chunk of a page, and the rest of it.
async fn next(mut page: Page, mut body: Body) -> Result<(Bytes, Option<(Page, Body)>), BoxError> {
    while let Some(frame) = body.frame().await.transpose()? {
        let Ok(piece) = frame.into_data() else { continue };
        page.input.write_all(&piece)?;
        let written = page.output.lock().take();
        if !written.is_empty() {
            return Ok((written.into(), Some((page, body))));
        }
    }
    page.input.finish()?;
    let rest = page.output.lock().finish()?;
    Ok((rest.into(), None))
}

/// A page that is decompressed, rewritten, and compressed again.
struct Page {
    input: Input,
    output: Arc<Mutex<Output>>,
}

impl Page {
    fn new(rewriter: LinkRewriter, output: Output) -> Self {
        let output = Arc::new(Mutex::new(output));
        let rewriter = Rewriter::new(rewriter, Arc::clone(&output));
        let input = match &*output.lock() {
            Output::Plain(_) => Input::Plain(rewriter),
            Output::Gzip(_) => Input::Gzip(GzDecoder::new(rewriter)),
            Output::Deflate(_) => Input::Deflate(DeflateDecoder::new(rewriter)),
        };
        Self { input, output }
    }
}

enum Input {
    Plain(Rewriter),
    Gzip(GzDecoder<Rewriter>),
    Deflate(DeflateDecoder<Rewriter>),
}

impl Input {
    fn write_all(&mut self, piece: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(to) => to.write_all(piece),
            Self::Gzip(to) => to.write_all(piece),
            Self::Deflate(to) => to.write_all(piece),
        }
    }

    fn finish(self) -> io::Result<()> {
        let rewriter = match self {
            Self::Plain(to) => to,
            Self::Gzip(to) => to.finish()?,
            Self::Deflate(to) => to.finish()?,
        };
        rewriter.0.end().map_err(io::Error::other)
    }
}

enum Output {
    Plain(Vec<u8>),
    Gzip(GzEncoder<Vec<u8>>),
    Deflate(DeflateEncoder<Vec<u8>>),
}

impl Output {
    /// Writes to memory, which does not fail.
    fn write(&mut self, piece: &[u8]) {
        let _ = match self {
            Self::Plain(to) => to.write_all(piece),
            Self::Gzip(to) => to.write_all(piece),
            Self::Deflate(to) => to.write_all(piece),
        };
    }

    fn take(&mut self) -> Vec<u8> {
        std::mem::take(match self {
            Self::Plain(to) => to,
            Self::Gzip(to) => to.get_mut(),
            Self::Deflate(to) => to.get_mut(),
        })
    }

    fn finish(&mut self) -> io::Result<Vec<u8>> {
        match self {
            Self::Plain(_) => {}
            Self::Gzip(to) => to.try_finish()?,
            Self::Deflate(to) => to.try_finish()?,
        }
        Ok(self.take())
    }
}

type Sink = Box<dyn FnMut(&[u8]) + Send>;

struct Rewriter(HtmlRewriter<'static, Sink>);

impl Rewriter {
    fn new(rewriter: LinkRewriter, output: Arc<Mutex<Output>>) -> Self {
        let rewrite = element!("*", move |element| {
            let name = element.tag_name();
            let links = LINKS.iter().find(|(tag, _)| *tag == name).map_or(&[][..], |(_, attributes)| attributes);
            for attribute in links {
                if let Some(to) = element.get_attribute(attribute).and_then(|link| rewriter.rewrite_link(&link)) {
                    element.set_attribute(attribute, &to)?;
                }
            }
            Ok(())
        });
        // Invalid HTML is rewritten as far as possible.
        let settings = Settings::new_send().append_element_content_handler(rewrite).with_strict(false);
        Self(HtmlRewriter::new(settings, Box::new(move |piece: &[u8]| output.lock().write(piece))))
    }
}

impl Write for Rewriter {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.0.write(piece).map_err(io::Error::other)?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;

    fn rewriter() -> LinkRewriter {
        LinkRewriter { prefix: "/p/proxy".to_owned(), hosts: ["192.0.2.1:80".to_owned(), "api:6443".to_owned()] }
    }

    async fn passed(media: &str, encoding: &str, page: Vec<u8>) -> Response<Body> {
        let body = Full::new(Bytes::from(page)).map_err(|never| match never {}).boxed_unsync();
        let response = Response::builder().header(header::CONTENT_TYPE, media).header(header::CONTENT_LENGTH, 1);
        let response = match encoding {
            "" => response,
            _ => response.header(header::CONTENT_ENCODING, encoding),
        };
        rewriter().rewrite_response(response.body(body).unwrap())
    }

    async fn bytes(response: Response<Body>) -> Vec<u8> {
        response.into_body().collect().await.unwrap().to_bytes().to_vec()
    }

    #[tokio::test]
    async fn links_of_a_page_lead_through_the_proxy() {
        for (page, expected) in [
            ("<a href=\"/x\">/x</a>", "<a href=\"/p/proxy/x\">/x</a>"),
            ("<A title=/x HREF='/x?a=1&amp;b=2#c'>", "<A title=/x HREF=\"/p/proxy/x?a=1&amp;b=2#c\">"),
            ("<img src=/x usemap=\"#m\" alt>", "<img src=\"/p/proxy/x\" usemap=\"#m\" alt>"),
            ("<a href=\"x\"><a href=\"../x\"><a href=\"\">", "<a href=\"x\"><a href=\"../x\"><a href=\"\">"),
            ("<a href=\"/p/proxy/x\">", "<a href=\"/p/proxy/x\">"),
            ("<a href=\"http://192.0.2.1:80/x#y\">", "<a href=\"/p/proxy/x#y\">"),
            ("<a href=\"https://api:6443/x\">", "<a href=\"/p/proxy/x\">"),
            ("<a href=\"http://example.com/x\">", "<a href=\"http://example.com/x\">"),
            ("<a href=\"//example.com/x\">", "<a href=\"//example.com/x\">"),
            ("<a href=\"a b:c\"><a href=\"mailto:a@b\">", "<a href=\"a b:c\"><a href=\"mailto:a@b\">"),
            ("<p src=\"/x\">", "<p src=\"/x\">"),
            (
                "<script>'<a href=\"/x\">'</script><!-- <a href=\"/x\"> -->",
                "<script>'<a href=\"/x\">'</script><!-- <a href=\"/x\"> -->",
            ),
            ("<select><xmp><script></b href='/x'", "<select><xmp><script></b href='/x'"),
            ("<a href=\"/x", "<a href=\"/x"),
            ("", ""),
        ] {
            let response = passed("text/html; charset=utf-8", "", page.into()).await;
            assert!(!response.headers().contains_key(header::CONTENT_LENGTH), "{page}");
            assert_eq!(String::from_utf8(bytes(response).await).unwrap(), expected, "{page}");
        }
    }

    #[test]
    fn redirects_stay_within_the_proxy() {
        for (to, expected) in [
            ("/a?b", "/p/proxy/a?b"),
            ("/p/proxy/a", "/p/proxy/a"),
            ("http://192.0.2.1:80/a/", "/p/proxy/a/"),
            ("http://api:6443/a", "/p/proxy/a"),
            ("http://elsewhere/a", "http://elsewhere/a"),
            ("//elsewhere/a", "//elsewhere/a"),
            ("a", "a"),
        ] {
            let mut response = response::text(302, "");
            response.headers_mut().insert(header::LOCATION, to.parse().unwrap());
            let response = rewriter().rewrite_response(response);
            assert_eq!(response.headers()[header::LOCATION], expected, "{to}");
        }
    }

    #[tokio::test]
    async fn compressed_page_is_compressed_again() {
        let (page, expected) = (&b"<a href=\"/x\">"[..], &b"<a href=\"/p/proxy/x\">"[..]);
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(page).unwrap();
        let mut unpacked = GzDecoder::new(Vec::new());
        unpacked.write_all(&bytes(passed("text/html", "gzip", gzip.finish().unwrap()).await).await).unwrap();
        assert_eq!(unpacked.finish().unwrap(), expected);
        let mut deflate = DeflateEncoder::new(Vec::new(), Compression::default());
        deflate.write_all(page).unwrap();
        let mut unpacked = DeflateDecoder::new(Vec::new());
        unpacked.write_all(&bytes(passed("text/html", "deflate", deflate.finish().unwrap()).await).await).unwrap();
        assert_eq!(unpacked.finish().unwrap(), expected);
        let invalid = passed("text/html", "gzip", b"no gzip".to_vec()).await.into_body().collect().await;
        assert!(invalid.is_err());
    }

    #[tokio::test]
    async fn other_content_and_encodings_are_unchanged() {
        for (media, encoding) in [("text/plain", ""), ("application/json", ""), ("text/html", "br")] {
            let response = passed(media, encoding, b"<a href=\"/x\">".to_vec()).await;
            assert!(response.headers().contains_key(header::CONTENT_LENGTH), "{media} {encoding}");
            assert_eq!(bytes(response).await, b"<a href=\"/x\">", "{media} {encoding}");
        }
    }
}
