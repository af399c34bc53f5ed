//! Serves the API on a socket.

use crate::{
    ApiServer,
    http::listener::{ListenOptions, accept},
};
use auth::pki::ServerTls;
use futures::{FutureExt, future::BoxFuture};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Serves until `stop` is cancelled, and deletes expired Events. Then open connections are closed.
pub fn serve(
    server: ApiServer,
    listener: TcpListener,
    tls: ServerTls,
    options: ListenOptions,
    stop: CancellationToken,
) -> BoxFuture<'static, ()> {
    let serve = async move {
        tokio::select! {
            () = accept(Arc::new(server.clone()), listener, tls, options, stop) => {}
            () = server.clone().aggregate() => {}
            () = server.sweep_events() => {}
        }
    };
    serve.boxed()
}
