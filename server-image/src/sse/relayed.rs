//! A client on `/sse` before a backend that speaks the same transport: all bytes pass, but for the address of the first
//! event, which becomes our own.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, Response};
use http_body_util::BodyExt as _;
use tokio::time::timeout_at;

use super::event::Decoder;
use super::life::{Life, Running};
use super::upstream;
use super::view::{FromServer, Id, from_server, given_up};
use super::{Older, Said, begun, deadline, endpoint_event};
use crate::admit;
use crate::body::Body;
use crate::exchange::Exchange;
use crate::peek;
use crate::pipeline::Refused;
use crate::refusal::Refusal;
use crate::relay::{Outgoing, Relay};

/// One client's session.
#[derive(Debug)]
pub struct Session {
    relay: Arc<Relay>,
    target: String,
    life: Life,
    /// Requests whose answers have not passed yet: a stop waits for them. Clients may use one id for several.
    waiting: Mutex<Vec<(Id, Running)>>,
}

impl Session {
    fn waiting(&self) -> MutexGuard<'_, Vec<(Id, Running)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client's stream.
    pub async fn open(relay: &Arc<Relay>, exchange: Exchange, parts: &mut Parts) -> Result<Response<Body>, Refused> {
        let query = parts.uri.query().map(str::to_owned);
        let opening = upstream::open(relay, std::mem::take(&mut parts.headers), query, &exchange.seen);
        let upstream = timeout_at(deadline(&exchange), opening).await.unwrap_or(Err(Refusal::BackendSlow))?;
        let session = Arc::new(Self {
            relay: Arc::clone(relay),
            target: upstream.target,
            life: Life::default(),
            waiting: Mutex::default(),
        });
        let member = exchange.admit(Older::Relayed(Arc::clone(&session)))?;
        let first = endpoint_event(&exchange, member.token())?;
        let mut decoder = Decoder::default();
        let watcher = Arc::clone(&session);
        let rest = upstream.rest.map_frame(move |frame| {
            if let Some(mut data) = frame.data_ref().map(Bytes::as_ref) {
                while let Ok(Some(mut event)) = decoder.decode(&mut data) {
                    watcher.passes(event.message().as_deref());
                }
            }
            frame
        });
        let body = upstream::after(first, rest.boxed_unsync());
        let stopped = session.life.stopped(&exchange.door);
        Ok(begun(exchange, body, &session.life, member, stopped))
    }

    fn passes(&self, message: Option<&[u8]>) {
        if let Some(FromServer::Answer { id, .. }) = message.map(from_server) {
            self.answered(&id);
        }
    }

    /// One request with this id waits no longer.
    fn answered(&self, id: &Id) {
        let mut waiting = self.waiting();
        if let Some(at) = waiting.iter().position(|(waits, _)| waits == id) {
            waiting.swap_remove(at);
        }
    }

    /// A message of the client.
    pub async fn message(&self, exchange: Exchange, headers: HeaderMap, said: Said) -> Result<Response<Body>, Refused> {
        let admitted = admit::admit_older(&headers, &peek::peek(&said.bytes)?)?;
        exchange.door.metrics.messages(admitted.messages);
        let (id, given_up) = (said.id(), given_up(&said.bytes).and_then(Id::of));
        if let Some(id) = id.clone() {
            let running = self.life.begin()?;
            self.waiting().push((id, running));
        }
        let deadline = deadline(&exchange);
        let outgoing = Outgoing { method: Method::POST, query: None, headers, body: said.bytes };
        let sending = self.relay.exchange_at(&self.target, &outgoing, &exchange.seen);
        let answer = timeout_at(deadline, sending).await.unwrap_or(Err(Refusal::BackendSlow));
        if !answer.as_ref().is_ok_and(|response| response.status().is_success())
            && let Some(id) = &id
        {
            self.answered(id);
        }
        if let Some(id) = given_up {
            self.answered(&id);
        }
        let response = answer.map_err(|refusal| Refused { refusal, waiting: said.waiting, cors: None })?;
        Ok(exchange.stream_back(response, Some(deadline)))
    }
}
