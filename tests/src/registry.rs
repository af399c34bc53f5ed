//! A container image registry for tests: Debian's `docker-registry` on loopback, with one user.

use crate::wait_for;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request, Response, body::Incoming, header};
use std::{
    fs::File,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};
use test_images::{OciImage, oci};

/// The user of each registry.
pub const USER: &str = "robot";
/// The user's password.
pub const PASSWORD: &str = "open sesame";
/// User and password in the format of `htpasswd -B`.
const HTPASSWD: &str = "robot:$2b$04$abcdefghijklmnopqrstuu/LVz6MZlItEy42I2juLihZ66HnQx/cy\n";

/// A running registry, which is stopped on drop.
#[derive(Debug)]
pub struct Registry {
    child: Child,
    host: String,
    _dir: tempfile::TempDir,
}

/// Returns the registry's binary: the one that `cargo xtask setup` fetched, else that of Debian's package.
fn binary() -> PathBuf {
    crate::tools::fetched_tool("docker-registry").unwrap_or_else(|| PathBuf::from("/usr/bin/docker-registry"))
}

impl Registry {
    /// Starts an empty registry that authenticates [`USER`] only.
    ///
    /// # Panics
    /// When the registry does not start.
    #[must_use]
    pub fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("podium-registry-").tempdir().expect("a temporary directory");
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("htpasswd"), HTPASSWD).expect("a file");
        let config = format!(
            "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: \"127.0.0.1:0\"}}\nauth: {{htpasswd: {{realm: test, path: {}}}}}\n",
            path("data").display(),
            path("htpasswd").display()
        );
        std::fs::write(path("config.yml"), config).expect("a file");
        let log = File::create(path("log")).expect("a log file");
        let mut command = Command::new(binary());
        command.arg("serve").arg(path("config.yml")).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a log file")).stderr(log);
        let child = command.spawn().expect("docker-registry starts: `cargo xtask setup` fetches it");
        let host = wait_for("the registry to listen", Duration::from_secs(30), || {
            let log = std::fs::read_to_string(path("log")).unwrap_or_default();
            let after = log.split_once("listening on ").map(|(_, after)| after);
            let host = after.and_then(|a| a.split(['"', ' ', '\n']).next()).filter(|_| log.ends_with('\n'));
            host.map(str::to_owned).ok_or(log)
        });
        Self { child, host, _dir: dir }
    }

    /// Returns address and port, the prefix of image names.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Pushes an image and returns its name.
    ///
    /// # Panics
    /// When the registry refuses the image.
    pub fn push(&self, repository: &str, tag: &str, image: &OciImage) -> String {
        self.upload(repository, image);
        self.manifest(repository, tag, oci::MANIFEST, &image.manifest)
    }

    /// Pushes an index of images for several platforms and returns its name.
    ///
    /// # Panics
    /// When the registry refuses the image.
    pub fn push_index(&self, repository: &str, tag: &str, images: &[OciImage]) -> String {
        for image in images {
            self.upload(repository, image);
            self.manifest(repository, &oci::digest(&image.manifest), oci::MANIFEST, &image.manifest);
        }
        self.manifest(repository, tag, oci::INDEX, &OciImage::index(images))
    }

    fn upload(&self, repository: &str, image: &OciImage) {
        for blob in [&image.config, &image.layer] {
            let upload = self.request(Method::POST, &format!("/v2/{repository}/blobs/uploads/"), "", &[]);
            let location = upload.headers()[header::LOCATION].to_str().expect("an address").to_owned();
            let path = location.strip_prefix(&format!("http://{}", self.host)).unwrap_or(&location);
            let path = format!("{path}&digest={}", oci::digest(blob));
            self.request(Method::PUT, &path, "application/octet-stream", blob);
        }
    }

    fn manifest(&self, repository: &str, reference: &str, media_type: &str, manifest: &[u8]) -> String {
        self.request(Method::PUT, &format!("/v2/{repository}/manifests/{reference}"), media_type, manifest);
        format!("{}/{repository}:{reference}", self.host)
    }

    /// Sends a request over a new connection.
    fn request(&self, method: Method, path: &str, content_type: &str, body: &[u8]) -> Response<Incoming> {
        let login = format!("Basic {}", STANDARD.encode(format!("{USER}:{PASSWORD}")));
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.host)
            .header(header::AUTHORIZATION, login)
            .header(header::CONTENT_TYPE, content_type)
            .body(Full::new(Bytes::copy_from_slice(body)))
            .expect("a request");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let response = runtime.block_on(async {
            let stream = tokio::net::TcpStream::connect(&self.host).await.expect("the registry listens");
            let io = hyper_util::rt::TokioIo::new(stream);
            let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.expect("HTTP");
            tokio::spawn(connection);
            sender.send_request(request).await.expect("the registry answers")
        });
        assert!(response.status().is_success(), "{path}: {}", response.status());
        response
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
