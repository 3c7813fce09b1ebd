//! A fence around the API server: while it is closed, nothing is written. It is open as long as the Lease lasts, so a
//! process that was stopped for a while and woke up as leader of old writes nothing before it notices.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures::future::{Either, Ready, ready};
use http::{Method, Request};
use kube::client::Body;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

use crate::clock;

/// The Lease has ended; nothing is written any more.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("this operator does not lead any more, so it writes nothing")]
struct Closed;

/// The fence. A new one is open for ever, for operators that run without leader election.
#[derive(Clone, Debug, Default)]
pub struct Fence {
    until: Arc<Mutex<Option<Instant>>>,
}

impl Fence {
    /// Opens the fence until then.
    pub fn open_until(&self, until: Instant) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }

    /// Closes the fence: another may work from now on.
    pub fn close(&self) {
        self.open_until(clock::instant());
    }

    fn is_open(&self) -> bool {
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_none_or(|until| clock::instant() < until)
    }
}

impl<S> Layer<S> for Fence {
    type Service = Fenced<S>;

    fn layer(&self, inner: S) -> Fenced<S> {
        Fenced { fence: self.clone(), inner }
    }
}

/// A service behind the fence.
#[derive(Clone, Debug)]
pub struct Fenced<S> {
    fence: Fence,
    inner: S,
}

impl<S> Service<Request<Body>> for Fenced<S>
where
    S: Service<Request<Body>>,
    S::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future =
        Either<Ready<Result<S::Response, BoxError>>, futures::future::MapErr<S::Future, fn(S::Error) -> BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        use futures::TryFutureExt as _;
        if request.method() != Method::GET && !self.fence.is_open() {
            return Either::Left(ready(Err(Closed.into())));
        }
        Either::Right(self.inner.call(request).map_err(Into::into as fn(S::Error) -> BoxError))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use tower::ServiceExt as _;

    use super::*;

    async fn passes(fence: &Fence, method: Method) -> bool {
        let inner = tower::service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(()) });
        let request = Request::builder().method(method).body(Body::empty()).unwrap();
        fence.layer(inner).oneshot(request).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn writes_end_with_the_lease_and_reads_do_not() {
        let fence = Fence::default();
        assert!(passes(&fence, Method::PATCH).await, "without a Lease there is no fence");
        fence.open_until(clock::instant() + Duration::from_secs(1));
        assert!(passes(&fence, Method::POST).await);
        tokio::time::advance(Duration::from_secs(1)).await;
        for (method, expected) in
            [(Method::POST, false), (Method::PATCH, false), (Method::DELETE, false), (Method::GET, true)]
        {
            assert_eq!(passes(&fence, method.clone()).await, expected, "{method}");
        }
    }
}
