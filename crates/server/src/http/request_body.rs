//! The body of a request.

use bytes::Bytes;
use errors::ApiError;
use futures::{FutureExt, future::BoxFuture};
use http_body_util::{BodyExt, Limited};
use response::BoxError;

/// Maximal size of a request body, in bytes (upstream's `MaxRequestBodyBytes`).
const MAX_REQUEST_BODY_BYTES: usize = 3 << 20;

/// Reads a whole body of at most [`MAX_REQUEST_BODY_BYTES`].
pub(crate) fn read_body<B>(body: B) -> BoxFuture<'static, Result<Bytes, ApiError>>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let collected = async move {
        match Limited::new(body, MAX_REQUEST_BODY_BYTES).collect().await {
            Ok(all) => Ok(all.to_bytes()),
            Err(e) if e.is::<http_body_util::LengthLimitError>() => {
                let message = format!("Request entity too large: limit is {MAX_REQUEST_BODY_BYTES}");
                Err(ApiError::new(413, "RequestEntityTooLarge", message))
            }
            Err(e) => Err(ApiError::bad_request(format!("failed to read the request body: {e}"))),
        }
    };
    collected.boxed()
}
