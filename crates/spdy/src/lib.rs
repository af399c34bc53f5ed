//! SPDY/3.1: multiplexes byte streams over one connection. Implements the part that Kubernetes uses.
//!
//! Container runtimes serve exec, attach and port-forward over it (the CRI's streaming protocol), and `kubectl
//! port-forward` tunnels it through a WebSocket. Both ends there are `moby/spdystream`, and this crate is compatible with it:
//!
//! - The opener of a stream sends data only after SYN_REPLY: the peer drops earlier data.
//! - There is no window flow control (`WINDOW_UPDATE` is ignored). A stream with a slow reader blocks the whole
//!   connection once its buffer is full. This bounds memory, so a connection should serve one session.
//!   The client uses PINGs for flow control instead (`flow_control`).
//! - Sessions end with the transport; `GOAWAY` is only a hint.
#![forbid(unsafe_code)]

mod dictionary;
mod flow_control;
mod frame;
mod headers;
mod session;
mod stream;
mod writer;

pub use headers::{HeaderError, Headers};
pub use session::{Role, Session, SpdyError};
pub use stream::Stream;
