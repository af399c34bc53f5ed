//! Parsing of webhook responses, with the errors of upstream's client (`errors.NewGenericServerResponse`).

use serde_json::Value;

/// Maximum length of a server's text in an error.
const MAX_ERROR_TEXT: usize = 2048;

/// Error of a webhook response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResponseError {
    /// Upstream's text for the status code.
    #[error("{0}")]
    Status(String),
    #[error("couldn't get version/kind; json parse error: {0}")]
    Json(#[from] serde_json::Error),
    #[error("couldn't get version/kind; it is no JSON object")]
    NotAnObject,
}

/// Parses the object of a response.
pub(super) fn parse(status: u16, body: &[u8]) -> Result<Value, ResponseError> {
    if !(200..=206).contains(&status) {
        return Err(ResponseError::Status(error_text(status, body)));
    }
    let response: Value = serde_json::from_slice(body)?;
    if response.is_object() { Ok(response) } else { Err(ResponseError::NotAnObject) }
}

/// Returns the text of an error status.
fn error_text(status: u16, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(MAX_ERROR_TEXT)]);
    let text = text.trim();
    let fixed = match status {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        403 if text.is_empty() => "forbidden",
        403 => return text.to_owned(),
        404 => "the server could not find the requested resource",
        405 => "the server does not allow this method on the requested resource",
        409 => "the server reported a conflict",
        422 => "the server rejected our request due to an error in our request",
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
        }
        500.. => return format!("an error on the server ({text:?}) has prevented the request from succeeding"),
        _ => return format!("the server responded with the status code {status} but did not return more information"),
    };
    fixed.to_owned()
}
