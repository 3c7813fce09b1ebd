//! The older HTTP+SSE transport, whose sessions the front door keeps itself.

use http::{HeaderValue, Request, Response};
use serde_json::Value;

use super::fleet::{CALL, Fleet, INITIALIZE, Memory, another_caller, answer, reconfigure, request, token};
use crate::body::Body;
use crate::sse::event::Events;
use crate::tests::front::{Front, collect, http_config, text};

/// What the first event of a stream names.
async fn endpoint(response: Response<Body>) -> (String, Events<Body>) {
    assert_eq!(response.status(), 200);
    let mut events = Events::new(response.into_body());
    let first = events.next().await.unwrap().unwrap();
    (String::from_utf8(first.data.unwrap()).unwrap(), events)
}

fn message(front: &Front, endpoint: &str, message: &str) -> Request<Body> {
    let mut request = front.post(message);
    *request.uri_mut() = endpoint.parse().unwrap();
    request
}

async fn say(front: &Front, endpoint: &str, message: &str) -> u16 {
    text(front.ask(self::message(front, endpoint, message)).await).await.0
}

#[tokio::test]
async fn an_older_client_reaches_its_pod_through_every_other() {
    let (one, two) = (Memory::default().serve().await, Memory::default().serve().await);
    let fleet = Fleet::of(&[&one, &two], |_| {}).await;
    let (endpoint, mut events) = endpoint(fleet.pods[0].ask(fleet.pods[0].bare("GET", "/weather/sse")).await).await;
    let sealed = endpoint.strip_prefix("/weather/messages?s=").unwrap();
    assert_eq!(sealed.len(), 115);
    for (pod, message, id) in [(1, INITIALIZE, Value::from(0)), (0, CALL, "c".into()), (1, CALL, "c".into())] {
        assert_eq!(say(&fleet.pods[pod], &endpoint, message).await, 202);
        let mut event = events.next().await.unwrap().unwrap();
        let answer: Value = serde_json::from_slice(&event.message().unwrap()).unwrap();
        assert_eq!(answer["id"], id, "{answer}");
    }
    assert_eq!((fleet.pods[0].door.status().sessions, two.calls()), (1, 0));
    // One place's token is none at the other.
    let header = HeaderValue::try_from(sealed).unwrap();
    assert_eq!(answer(&fleet.pods[1], "POST", Some(&header)).await.0, 404);
    let session = fleet.initialize(0).await;
    let foreign = format!("/weather/messages?s={}", session.to_str().unwrap());
    for endpoint in [foreign.as_str(), "/weather/messages?s=x", "/weather/messages", &format!("{endpoint}&s=x")] {
        assert_eq!(say(&fleet.pods[1], endpoint, CALL).await, 404, "{endpoint}");
    }
    drop(events);
    crate::tests::eventually("the session is over", || fleet.pods[0].door.status().sessions == 1).await;
    assert_eq!(say(&fleet.pods[1], &endpoint, CALL).await, 404);
}

#[tokio::test]
async fn the_address_for_messages_is_good_for_its_client_and_its_time_alone() {
    let (one, two) = (Memory::default().serve().await, Memory::default().serve().await);
    let fleet = Fleet::of(&[&one, &two], |_| {}).await;
    let (endpoint, _events) = endpoint(fleet.pods[0].ask(fleet.pods[0].bare("GET", "/weather/sse")).await).await;
    for front in fleet.pods.iter().rev() {
        let as_bob = another_caller(front);
        let theirs = as_bob(message(front, &endpoint, CALL));
        let (status, body) = text(front.ask(theirs).await).await;
        assert!(status == 404 && body.contains("-32001"), "{status} {body}");
    }
    assert_eq!(fleet.forwards(1), 0, "the pod that it came to knows");
    for front in &fleet.pods {
        assert_eq!(say(front, &endpoint, INITIALIZE).await, 202);
    }
    for (front, backend) in fleet.pods.iter().zip([&one, &two]) {
        let mut config = http_config(backend.port);
        config["sessions"] = serde_json::json!({"maxAgeMs": 0});
        reconfigure(front, &config);
        assert_eq!(say(front, &endpoint, CALL).await, 404);
    }
    assert_eq!((fleet.forwards(1), fleet.pods[0].door.status().sessions), (1, 1));
}

#[tokio::test]
async fn a_session_before_an_older_server_is_sealed_too() {
    let server = crate::tests::older::Older::default();
    let (one, two) = (server.start().await, server.start().await);
    let fleet = Fleet::of(&[&one, &two], |config| {
        config["source"]["http"]["path"] = "/backend/sse".into();
        config["source"]["http"]["transport"] = "sse".into();
        config["sessions"] = serde_json::json!({"maxPerPod": 1});
    })
    .await;
    let (status, headers, _) = collect(fleet.pods[0].ask(fleet.pods[0].post(INITIALIZE)).await).await;
    assert_eq!(status, 200);
    let token = token(&headers);
    for pod in [1, 0] {
        let (status, body) = fleet.call(pod, &token).await;
        assert!(status == 200 && body.contains("tools/call"), "{body}");
    }
    assert_eq!(text(fleet.pods[0].ask(fleet.pods[0].post(INITIALIZE)).await).await.0, 503);
    assert_eq!(text(fleet.pods[1].ask(request(&fleet.pods[1], "DELETE", Some(&token))).await).await.0, 204);
    for pod in [0, 1] {
        assert_eq!(fleet.call(pod, &token).await.0, 404);
    }
}
