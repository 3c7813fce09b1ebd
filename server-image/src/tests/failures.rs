//! What the backend fails to do is counted and logged, whether its answer has begun or not.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request};
use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::Notify;

use super::front::{Front, http_config, next, text};
use super::{Log, pass};
use crate::body::Body;

const CALL: &str = r#"{"jsonrpc":"2.0","id":"q-1","method":"tools/call","params":{"name":"t"}}"#;
/// Longer than a call may be silent before it is committed to an event stream.
const LATE: Duration = Duration::from_secs(16);
/// Shorter than that.
const SOON: Duration = Duration::from_secs(5);

/// A front door before a server that takes one request, and does this with it once it is told to.
async fn before(fault: &'static str, call_timeout: Duration) -> (Front, Arc<Notify>, Arc<Notify>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = http_config(listener.local_addr().unwrap().port());
    config["limits"]["callTimeoutMs"] = u64::try_from(call_timeout.as_millis()).unwrap().into();
    let front = Front::new(&config);
    let (arrived, goes_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (arriving, going_on) = (Arc::clone(&arrived), Arc::clone(&goes_on));
    front.run(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
        arriving.notify_one();
        going_on.notified().await;
        let answer = match fault {
            "backend_broken" => return,
            "backend_away" => {
                drop(listener); // there is nobody where it leads to
                "HTTP/1.1 307 Temporary Redirect\r\nLocation: /gone\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            }
            "half of an object" => "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{",
            "half of a stream" => "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n",
            _ => "",
        };
        stream.write_all(answer.as_bytes()).await.unwrap();
        std::future::pending::<()>().await;
    });
    (front, arrived, goes_on)
}

/// The line in the log of a request whose answer failed after it had begun.
fn assert_logged(log: &Log, front: &Front, reason: &str) {
    let lines = log.lines("a request failed after its answer had begun");
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(
        (&line["level"], &line["refusal"], &line["request_id"]),
        (&"INFO".into(), &reason.into(), &"r-1".into())
    );
    assert_eq!((&line["caller"], line["milliseconds"].is_u64()), (&front.key.id().into(), true));
}

fn call(front: &Front) -> Request<Body> {
    let mut request = front.post(CALL);
    request.headers_mut().insert("x-request-id", HeaderValue::from_static("r-1"));
    request
}

#[tokio::test]
async fn a_failure_is_counted_and_logged_before_and_after_the_answer_has_begun() {
    for (fault, status) in [("backend_slow", 504), ("backend_away", 503), ("backend_broken", 502)] {
        for is_late in [false, true] {
            let (log, timeout) = (Log::new(), if is_late { LATE * 2 } else { SOON });
            let (front, arrived, goes_on) = before(fault, timeout).await;
            let fails = async {
                goes_on.notify_one();
                if fault == "backend_slow" {
                    pass(timeout).await;
                }
            };
            let (answered, said) = if is_late {
                let (answer, ()) = tokio::join!(front.ask(call(&front)), async {
                    arrived.notified().await;
                    pass(LATE).await;
                });
                tokio::join!(text(answer), fails).0
            } else {
                let fails = async {
                    arrived.notified().await;
                    fails.await;
                };
                text(tokio::join!(front.ask(call(&front)), fails).0).await
            };
            assert_eq!(answered, if is_late { 200 } else { status }, "{fault} {is_late}: {said}");
            assert!(said.contains(&format!("\"code\":{status}")) && said.contains("q-1"), "{said}");
            assert_eq!(front.backend_errors(), [format!("{{reason=\"{fault}\"}} 1")], "{is_late}");
            if is_late {
                assert_logged(&log, &front, fault);
            } else {
                let lines = log.lines("request");
                assert_eq!((lines.len(), &lines[0]["refusal"]), (1, &fault.into()), "{lines:?}");
            }
        }
    }
}

#[tokio::test]
async fn an_answer_that_the_call_timeout_cuts_off_is_counted_and_logged() {
    for (fault, begin) in [("half of an object", "{"), ("half of a stream", "data: 1\n\n")] {
        for is_late in [false, true] {
            let (log, timeout) = (Log::new(), if is_late { LATE * 2 } else { SOON });
            let (front, arrived, goes_on) = before(fault, timeout).await;
            let answers = async {
                arrived.notified().await;
                if is_late {
                    pass(LATE).await;
                }
                goes_on.notify_one();
            };
            let (mut answer, ()) = tokio::join!(front.ask(call(&front)), answers);
            let mut said = String::new();
            // Late, it is to be one event, which begins when there is all of it.
            let is_held = is_late && fault == "half of an object";
            while !is_held && !said.ends_with(begin) {
                said += &next(&mut answer).await.unwrap();
            }
            assert_eq!(front.backend_errors(), [""; 0], "{fault} {is_late}");
            let (rest, ()) = tokio::join!(answer.into_body().collect(), pass(timeout));
            assert_eq!(rest.is_err(), fault == "half of an object" && !is_late, "{fault}: {rest:?}");
            if is_held {
                let rest = rest.unwrap().to_bytes();
                let rest = std::str::from_utf8(&rest).unwrap();
                assert!(rest.contains("\"code\":504") && rest.contains("q-1"), "{rest}");
            }
            assert_eq!(front.backend_errors(), ["{reason=\"backend_slow\"} 1"], "{fault} {is_late}");
            assert_logged(&log, &front, "backend_slow");
        }
    }
}
