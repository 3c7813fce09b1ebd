//! Every call to the API server has a time limit of its own, and errors are sorted by what can be done about them.

use std::time::Duration;

/// Longest wait for an answer of the API server.
pub const CALL: Duration = Duration::from_secs(15);

/// A call that did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No answer in time.
    #[error("the API server gave no answer within {} s", CALL.as_secs())]
    Timeout,
    /// An error, or no connection.
    #[error("{}", words(.0))]
    Kube(#[from] kube::Error),
}

/// kube prints the whole status document; people want the message.
fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

impl CallError {
    /// The HTTP status code, where the API server answered.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Kube(kube::Error::Api(status)) => Some(status.code),
            _ => None,
        }
    }

    /// How long the API server asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        let Self::Kube(kube::Error::Api(status)) = self else { return None };
        let seconds =
            status.details.as_ref().map(|details| details.retry_after_seconds).filter(|seconds| *seconds > 0)?;
        Some(Duration::from_secs(seconds.into()))
    }

    /// Whether the API server refused what was sent, so that sending it again changes nothing.
    pub fn is_refusal(&self) -> bool {
        matches!(self.code(), Some(400 | 403 | 413 | 422))
    }
}

/// Waits for a call, but not for ever.
pub async fn call<T>(call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, CallError> {
    match tokio::time::timeout(CALL, call).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(CallError::Timeout),
    }
}
