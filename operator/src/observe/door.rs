//! Asks the front door of a pod what it has in force. It is reached at the pod's own address, with the token that the
//! server's front doors share; what it answers is kept in a book that `observe` reads.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use mooring_contract::port;
use mooring_plan::observed::Door;

/// Longest wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Largest answer that is read.
const LARGEST: usize = 1 << 20;

/// Asks front doors.
#[derive(Clone, Debug)]
pub struct DoorClient {
    http: Client<HttpConnector, Empty<bytes::Bytes>>,
}

impl Default for DoorClient {
    fn default() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(TIMEOUT));
        // A door is asked seldom, so a kept connection would only be stale.
        Self { http: Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector) }
    }
}

impl DoorClient {
    /// What the front door at `ip` says. The words of a failure are fixed, because they reach the status.
    pub async fn ask(&self, ip: &str, token: &str) -> Door {
        match tokio::time::timeout(TIMEOUT, self.get(ip, token)).await {
            Ok(Ok(door)) => door,
            Ok(Err(reason)) => Door::Unreachable(reason.to_owned()),
            Err(_) => Door::Unreachable("no answer within 2 s".to_owned()),
        }
    }

    async fn get(&self, ip: &str, token: &str) -> Result<Door, &'static str> {
        let host = if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
        let request = http::Request::get(format!("http://{host}:{}/status", port::MANAGEMENT))
            .header(http::header::AUTHORIZATION, format!("Bearer {token}"))
            .body(Empty::new())
            .map_err(|_| "the pod's address is not understood")?;
        let response = self.http.request(request).await.map_err(|_| "the connection was refused or broken")?;
        match response.status() {
            http::StatusCode::OK => {}
            http::StatusCode::UNAUTHORIZED => return Ok(Door::Unauthorized),
            _ => return Err("it answered with an error"),
        }
        let body = Limited::new(response.into_body(), LARGEST).collect().await.map_err(|_| "the answer broke off")?;
        let status = serde_json::from_slice(&body.to_bytes()).map_err(|_| "the answer is not understood")?;
        Ok(Door::Answered(Box::new(status)))
    }
}

/// What each pod's front door said last, by the pod's UID.
#[derive(Debug, Default)]
pub struct DoorBook {
    doors: Mutex<HashMap<String, Door>>,
}

impl DoorBook {
    /// What the front door of a pod said last.
    pub fn get(&self, pod_uid: &str) -> Door {
        self.lock().get(pod_uid).cloned().unwrap_or_default()
    }

    /// Keeps an answer; tells whether anything in it is news. When keys were used and how many sessions there are is none:
    /// these are gauges, not states.
    pub fn put(&self, pod_uid: &str, mut door: Door) -> bool {
        if let Door::Answered(status) = &mut door {
            status.keys_last_used.clear();
            status.sessions = 0;
        }
        let mut doors = self.lock();
        if doors.get(pod_uid) == Some(&door) {
            return false;
        }
        doors.insert(pod_uid.to_owned(), door);
        true
    }

    /// The pod is gone.
    pub fn forget(&self, pod_uid: &str) {
        self.lock().remove(pod_uid);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Door>> {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use mooring_contract::DoorStatus;

    use super::*;

    #[test]
    fn gauges_are_no_news_and_readiness_is() {
        let book = DoorBook::default();
        let mut status = DoorStatus::default();
        assert!(book.put("u", Door::Answered(Box::new(status.clone()))));
        status.keys_last_used.insert("id".into(), jiff::Timestamp::UNIX_EPOCH);
        status.sessions = 7;
        assert!(!book.put("u", Door::Answered(Box::new(status.clone()))));
        status.ready = true;
        assert!(book.put("u", Door::Answered(Box::new(status))));
        book.forget("u");
        assert_eq!(book.get("u"), Door::Unasked);
    }

    #[tokio::test]
    async fn a_pod_that_nobody_serves_is_unreachable_in_words() {
        let door = DoorClient::default().ask("127.0.0.1", "token").await;
        assert_eq!(door, Door::Unreachable("the connection was refused or broken".into()));
    }
}
