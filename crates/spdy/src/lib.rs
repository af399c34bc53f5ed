//! SPDY/3.1, as much of it as Kubernetes speaks: many byte streams over one connection.
//!
//! Container runtimes serve exec, attach and port-forward over it (the CRI's streaming protocol), and `kubectl
//! port-forward` tunnels it through a WebSocket. Both ends there are `moby/spdystream`, and its habits are followed:
//!
//! - A stream's opener sends data only after the reply, for data before it is dropped by the other end.
//! - There is no flow control by windows (`WINDOW_UPDATE` is ignored). A stream whose reader is slow holds back the
//!   whole connection once its buffer is full: memory stays bounded, and that is why a connection should serve one purpose.
//!   The end that connected paces itself by PINGs instead (`pace`).
//! - Sessions end with the transport; `GOAWAY` is only a hint.
#![forbid(unsafe_code)]

mod dictionary;
mod frame;
mod headers;
mod pace;
mod session;
mod stream;
mod writer;

pub use headers::{HeaderError, Headers};
pub use session::{Role, Session, SpdyError};
pub use stream::Stream;
