//! The least that a front door on hyper could do: the Host is compared, the key hashed, the message's method and id are read
//! where they lie, and bytes pass. It has no limits, times, sessions, metrics or logs, and trusts its server.
//!
//! `cargo xtask bench front-door` holds mooring-server against it: what lies between them is ours, what lies below is the
//! price of the library, the runtime and the kernel. Runtime and allocator are those of mooring-server.
//!
//! `bare-relay LISTEN SERVER KEY`: two addresses, and the one key that is accepted.

use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use dlmalloc::GlobalDlmalloc;
use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, HOST, HeaderMap};
use hyper::rt::Executor as _;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

#[global_allocator]
static ALLOCATOR: GlobalDlmalloc = GlobalDlmalloc;

/// What is read of a message.
#[derive(serde::Deserialize)]
struct Peek<'a> {
    #[serde(borrow)]
    method: Option<&'a str>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
}

/// What is compared.
struct Rules {
    host: String,
    key_hash: [u8; 32],
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().context("bare-relay LISTEN SERVER KEY");
    let (listen, server, key) = (next()?, next()?, next()?);
    let listener = TcpListener::bind(&listen).await?;
    let host = format!("localhost:{}", listener.local_addr()?.port());
    let rules = Arc::new(Rules { host, key_hash: Sha256::digest(&key).into() });
    loop {
        let (client, _) = listener.accept().await?;
        let (rules, server) = (Arc::clone(&rules), server.clone());
        TokioExecutor::new().execute(async move {
            let _ = serve(client, &server, &rules).await; // either side may leave at any time
        });
    }
}

/// One connection of a client, with one of its own to the server.
async fn serve(client: TcpStream, server: &str, rules: &Rules) -> anyhow::Result<()> {
    client.set_nodelay(true)?;
    let server = TcpStream::connect(server).await?;
    server.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(server)).await?;
    TokioExecutor::new().execute(async move { drop(connection.await) });
    let sender = Mutex::new(sender); // never contended: requests of one connection come one after the other
    let service = service_fn(async |request| answer(rules, &mut *sender.lock().await, request).await);
    Ok(http1::Builder::new().serve_connection(TokioIo::new(client), service).await?)
}

type Answer = Response<Either<Incoming, Full<Bytes>>>;

async fn answer(
    rules: &Rules,
    server: &mut SendRequest<Full<Bytes>>,
    request: Request<Incoming>,
) -> anyhow::Result<Answer> {
    let (mut head, body) = request.into_parts();
    if head.headers.get(HOST).is_none_or(|host| host.as_bytes() != rules.host.as_bytes()) {
        return Ok(refusal(StatusCode::MISDIRECTED_REQUEST));
    }
    if !is_known(rules, &head.headers) {
        return Ok(refusal(StatusCode::UNAUTHORIZED));
    }
    head.headers.remove(AUTHORIZATION);
    let body = body.collect().await?.to_bytes();
    let peeked = serde_json::from_slice::<Peek<'_>>(&body);
    if !body.is_empty() && !peeked.is_ok_and(|peek| peek.method.is_some() || peek.id.is_some()) {
        return Ok(refusal(StatusCode::BAD_REQUEST));
    }
    server.ready().await?;
    Ok(server.send_request(Request::from_parts(head, Full::new(body))).await?.map(Either::Left))
}

fn is_known(rules: &Rules, headers: &HeaderMap) -> bool {
    let key = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    key.is_some_and(|key| Sha256::digest(key).as_slice().ct_eq(&rules.key_hash).into())
}

fn refusal(status: StatusCode) -> Answer {
    let mut answer = Response::new(Either::Right(Full::default()));
    *answer.status_mut() = status;
    answer
}
