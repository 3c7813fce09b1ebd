//! A session of another pod.

use std::sync::Arc;

use http::{HeaderName, HeaderValue, Request, StatusCode};
use http_body_util::BodyExt as _;
use mooring_contract::door_status::Unreachable;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;

use super::fleet::{CALL, Fleet, INITIALIZE, Memory, SESSION, answer, request, token, uid};
use crate::clock;
use crate::pipeline::{self, Arrival};
use crate::session::keys::tests::ring;
use crate::session::proof;
use crate::tests::backend::Backend;
use crate::tests::eventually;
use crate::tests::front::{Front, collect, next, text};

async fn three() -> [Backend; 3] {
    [Memory::default().serve().await, Memory::default().serve().await, Memory::default().serve().await]
}

#[tokio::test]
async fn a_session_is_reached_through_every_pod() {
    let backends = three().await;
    let fleet = Fleet::of(&backends.each_ref(), |_| {}).await;
    for owner in 0..3 {
        let token = fleet.initialize(owner).await;
        let others = |backends: &[Backend; 3]| -> usize {
            (0..3).filter(|other| *other != owner).map(|other| backends[other].calls()).sum()
        };
        let untouched = others(&backends);
        for round in 0..9 {
            let front = &fleet.pods[round % 3];
            let (status, headers, body) = collect(front.ask(request(front, "POST", Some(&token))).await).await;
            assert_eq!((status.as_u16(), &body[..]), (200, &br#"{"id":"c","jsonrpc":"2.0","result":{}}"#[..]));
            assert_eq!(super::fleet::token(&headers), token);
        }
        let seen = backends[owner].last();
        assert_eq!(seen.headers()[SESSION].len(), 36);
        assert_eq!(seen.headers()["x-forwarded-for"], "10.0.0.9");
        assert_eq!(seen.headers()["x-forwarded-host"], "mcp.example.com");
        assert!(!seen.headers().contains_key("mooring-client") && !seen.headers().contains_key("authorization"));
        // Two of its streams, through two pods.
        let mut streams = Vec::new();
        for pod in [(owner + 1) % 3, (owner + 2) % 3] {
            let mut stream = fleet.pods[pod].ask(request(&fleet.pods[pod], "GET", Some(&token))).await;
            assert_eq!(next(&mut stream).await.unwrap(), "data: 1\n\n");
            streams.push(stream);
        }
        eventually("both are open", || backends[owner].open() == 2).await;
        drop(streams);
        eventually("that the clients are gone is known to the backend", || backends[owner].open() == 0).await;
        let through = &fleet.pods[(owner + 1) % 3];
        assert_eq!(answer(through, "DELETE", Some(&token)).await.0, 200);
        for pod in 0..3 {
            assert_eq!(fleet.call(pod, &token).await.0, 404);
        }
        assert_eq!(others(&backends), untouched);
    }
    // Two pods came to each, and their connections stay.
    let (_, figures) = fleet.pods[0].door.metrics.text(false).unwrap();
    assert!(figures.contains("mooring_server_connections{listener=\"peer\"} 2\n"), "{figures}");
}

#[tokio::test]
async fn initialize_stays_where_it_came_to_and_the_owner_judges_the_rest() {
    let backends = three().await;
    let fleet = Fleet::of(&backends.each_ref(), |_| {}).await;
    let old = fleet.initialize(0).await;
    let front = &fleet.pods[1];
    let mut again = front.post(INITIALIZE);
    again.headers_mut().insert(SESSION, old.clone());
    let (status, headers, _) = collect(front.ask(again).await).await;
    assert_eq!((status, backends[1].calls()), (StatusCode::OK, 1));
    assert_ne!(token(&headers), old);
    // Nor does it where the answer is a stream.
    let mut again = front.post(INITIALIZE);
    *again.uri_mut() = "/weather/mcp?stream".parse().unwrap();
    again.headers_mut().insert(SESSION, old.clone());
    let (status, headers, body) = collect(front.ask(again).await).await;
    assert_eq!((status.as_u16(), body.starts_with(b"data:"), backends[1].calls()), (200, true, 2));
    let began = token(&headers);
    for pod in [2, 0] {
        assert_eq!(fleet.call(pod, &began).await.0, 200);
    }
    let calls = backends[1].calls();
    let with = |body: String| {
        let mut request = front.post(&body);
        request.headers_mut().insert(SESSION, old.clone());
        request
    };
    // What is no initialize but has the word in it.
    let mentions = CALL.replace("\"t\"", r#""initialize""#);
    assert_eq!(text(front.ask(with(mentions)).await).await.0, 200);
    // Refusals of the owner come back as they are.
    assert_eq!(text(front.ask(with("{".into())).await).await.0, 400);
    let (status, body) = text(front.ask(with(format!("{CALL}{}", " ".repeat(100_000)))).await).await;
    assert_eq!(status, 413, "{body}");
    let mut batch = with(CALL.into());
    batch.headers_mut().insert("origin", HeaderValue::from_static("https://app.example.com"));
    let (status, headers, _) = collect(front.ask(batch).await).await;
    assert_eq!((status.as_u16(), headers.get_all("access-control-allow-origin").iter().count()), (200, 1));
    assert_eq!(headers.get_all("vary").iter().count(), 1);
    // Two sessions in one request are none, whosever they are.
    for method in ["POST", "GET", "DELETE"] {
        let mut two = request(front, method, Some(&old));
        two.headers_mut().append(SESSION, began.clone());
        assert_eq!(text(front.ask(two).await).await.0, 400, "{method}");
    }
    assert_eq!(backends[1].calls(), calls);
}

#[tokio::test]
async fn the_end_of_a_session_comes_back_as_its_server_said_it() {
    for (deleted, after) in [(202, 404), (405, 200)] {
        let memory = Memory { deleted: Some(StatusCode::from_u16(deleted).unwrap()), ..Memory::default() };
        let (one, two) = (memory.serve().await, Memory::default().serve().await);
        let fleet = Fleet::of(&[&one, &two], |_| {}).await;
        let token = fleet.initialize(0).await;
        assert_eq!(answer(&fleet.pods[1], "DELETE", Some(&token)).await.0, deleted);
        for pod in [1, 0] {
            assert_eq!(fleet.call(pod, &token).await.0, after, "{deleted}");
        }
        assert_eq!(two.calls(), 0);
    }
}

#[tokio::test]
async fn a_head_that_the_entry_pod_admits_is_none_too_large_for_the_owner() {
    let backends = three().await;
    let fleet = Fleet::of(&backends.each_ref(), |config| {
        config["limits"]["headerBytes"] = 1024.into();
        config["limits"]["headerCount"] = 16.into();
    })
    .await;
    let token = fleet.initialize(0).await;
    // What the entry pod's own limits are by now does not matter here: only its listener holds them.
    let mut request = request(&fleet.pods[1], "POST", Some(&token));
    for number in 0..80 {
        request
            .headers_mut()
            .insert(HeaderName::try_from(format!("x-{number}")).unwrap(), "y".repeat(600).parse().unwrap());
    }
    assert_eq!(text(fleet.pods[1].ask(request).await).await.0, 200);
    assert_eq!(backends[0].last().headers()["x-79"].len(), 600);
}

/// Asks as another pod would.
async fn ask_as_peer(front: &Front, request: Request<crate::body::Body>) -> u16 {
    let (wall, instant) = (clock::wall(), clock::instant());
    let arrival = Arrival { wall, instant, peer: [10, 0, 0, 1].into(), fault: None, beyond: false, forwarded: true };
    pipeline::answer(Arc::clone(&front.door), arrival, request).await.status().as_u16()
}

#[tokio::test]
async fn what_another_pod_passed_on_is_never_passed_on_again() {
    let backends = three().await;
    let fleet = Fleet::of(&backends.each_ref(), |_| {}).await;
    let token = fleet.initialize(0).await;
    assert_eq!(ask_as_peer(&fleet.pods[0], request(&fleet.pods[0], "POST", Some(&token))).await, 200);
    assert_eq!(ask_as_peer(&fleet.pods[1], request(&fleet.pods[1], "POST", Some(&token))).await, 404);
    // The owner checks the credential itself.
    let mut anonymous = request(&fleet.pods[0], "POST", Some(&token));
    anonymous.headers_mut().remove("authorization");
    assert_eq!(ask_as_peer(&fleet.pods[0], anonymous).await, 401);
}

#[tokio::test]
async fn only_another_pod_says_who_the_client_is() {
    let backends = three().await;
    let fleet = Fleet::of(&backends.each_ref(), |_| {}).await;
    let token = fleet.initialize(0).await;
    for (pod, message) in [(0, INITIALIZE), (1, CALL), (0, CALL)] {
        let front = &fleet.pods[pod];
        let request = format!(
            "POST /weather/mcp HTTP/1.1\r\nHost: mcp.example.com\r\nx-api-key: {}\r\nContent-Type: application/json\r\n\
             mooring-client: 10.6.6.6\r\nmcp-session-id: {}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{message}",
            front.key.expose(),
            token.to_str().unwrap(),
            message.len()
        );
        let calls = backends[0].calls();
        let answer = front.raw(front.listen().await, request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 200") && backends[0].calls() == calls + 1, "{answer}");
        let seen = backends[0].last();
        assert_eq!(seen.headers()["x-forwarded-for"], "127.0.0.1");
        assert!(!seen.headers().contains_key("mooring-client"));
    }
}

#[tokio::test]
async fn what_a_trusted_proxy_says_goes_along_to_the_pod_of_the_session() {
    let backends = three().await;
    let here = ["10.0.0.9", "http", "mcp.example.com"];
    let by_proxy = ["203.0.113.7, 10.0.0.9", "https", "public.example.com"];
    // The pods among themselves are clients like any other: the peer that counts is the one of the pod that was reached.
    for (proxies, expected) in [("10.0.0.9", by_proxy), ("10.0.0.0/24", by_proxy), ("127.0.0.0/8", here)] {
        let fleet = Fleet::of(&backends.each_ref(), |config| {
            config["security"]["trustedProxies"] = vec![proxies].into();
        })
        .await;
        let token = fleet.initialize(0).await;
        for method in ["POST", "DELETE"] {
            let mut request = request(&fleet.pods[1], method, Some(&token));
            for (name, value) in [
                ("x-forwarded-for", "203.0.113.7"),
                ("x-forwarded-proto", "https"),
                ("x-forwarded-host", "public.example.com"),
                ("connection", "x-forwarded-for, x-forwarded-host"),
            ] {
                request.headers_mut().insert(name, HeaderValue::from_static(value));
            }
            let calls = backends[0].calls();
            assert_eq!(text(fleet.pods[1].ask(request).await).await.0, 200);
            assert_eq!(backends[0].calls(), calls + 1);
            let (seen, way) = (backends[0].last(), ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"]);
            assert_eq!(way.map(|name| seen.headers()[name].to_str().unwrap()), expected, "{proxies} {method}");
        }
    }
}

#[tokio::test]
async fn what_is_judged_is_judged_alike_though_it_is_named_by_connection() {
    let backends = three().await;
    let fleet = Fleet::of(&backends.each_ref(), |_| {}).await;
    let token = fleet.initialize(0).await;
    let named = "Mcp-Session-Id, MCP-Protocol-Version, Authorization, Host, Origin, Accept, Content-Type, Cookie";
    for front in &fleet.pods[..2] {
        let mut call = request(front, "POST", Some(&token));
        for (name, value) in [("connection", named), ("cookie", "a=1"), ("mcp-protocol-version", "2025-06-18")] {
            call.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        let (status, body) = text(front.ask(call).await).await;
        assert_eq!(status, 200, "{body}");
        let seen = backends[0].last();
        assert_eq!(seen.headers()[SESSION].len(), 36);
        for name in ["mcp-protocol-version", "accept", "content-type", "cookie"] {
            assert!(seen.headers().contains_key(name), "{name}");
        }
    }
    assert_eq!(backends[1].calls(), 0);
}

/// HTTP/2 may cut them in pieces; a server that is spoken to in HTTP/1 reads one header.
#[tokio::test]
async fn cookies_reach_the_server_in_one_header_whatever_their_way() {
    let backends = three().await;
    let fleet = Fleet::of(&backends.each_ref(), |_| {}).await;
    let token = fleet.initialize(0).await;
    for front in &fleet.pods[..2] {
        let mut crumbs = request(front, "POST", Some(&token));
        for crumb in ["a=1", "b=2", "c=3"] {
            crumbs.headers_mut().append("cookie", HeaderValue::from_static(crumb));
        }
        assert_eq!(text(front.ask(crumbs).await).await.0, 200);
        let seen = backends[0].last();
        let cookies: Vec<_> = seen.headers().get_all("cookie").iter().collect();
        assert_eq!(cookies, ["a=1; b=2; c=3"]);
    }
}

#[tokio::test]
async fn a_pod_that_is_gone_costs_one_attempt_and_is_told_of() {
    let backends = three().await;
    let mut fleet = Fleet::of(&backends.each_ref(), |_| {}).await;
    let token = fleet.initialize(0).await;
    fleet.stop_listening(0).await;
    for method in ["POST", "GET", "DELETE"] {
        let (status, body) = answer(&fleet.pods[1], method, Some(&token)).await;
        assert!(status == 404 && body.contains("-32001"), "{method} {body}");
    }
    let [told] = &fleet.pods[1].door.status().unreachable_peers[..] else { panic!() };
    assert_eq!((told.pod_uid.as_str(), told.reason), (uid(0).to_string().as_str(), Unreachable::Refused));
    assert!(fleet.pods[2].door.status().unreachable_peers.is_empty());
    // It is there again, and is found when the memory has faded.
    let socket = TcpListener::bind(fleet.peer(0)).await.unwrap();
    let door = Arc::clone(&fleet.pods[0].door);
    fleet.pods[0].run(crate::session::peer::serve(socket, uid(0), door, TaskTracker::new()));
    let mut found = false;
    for _ in 0..200 {
        found = fleet.call(1, &token).await.0 == 200;
        if found {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert!(found && fleet.pods[1].door.status().unreachable_peers.is_empty());
}

#[tokio::test]
async fn a_front_door_that_is_started_anew_is_waited_for() {
    let backends = three().await;
    let mut fleet = Fleet::of(&backends.each_ref(), |_| {}).await;
    let token = fleet.initialize(0).await;
    fleet.stop_listening(0).await;
    let back = async {
        // It takes some attempts.
        tokio::time::sleep(std::time::Duration::from_millis(900)).await;
        let socket = TcpListener::bind(fleet.peer(0)).await.unwrap();
        let door = Arc::clone(&fleet.pods[0].door);
        fleet.pods[0].run(crate::session::peer::serve(socket, uid(0), door, TaskTracker::new()));
    };
    let (answer, ()) = tokio::join!(fleet.call(1, &token), back);
    assert_eq!(answer.0, 200);
    assert!(fleet.pods[1].door.status().unreachable_peers.is_empty());
}

#[tokio::test]
async fn who_hangs_up_without_a_word_is_asked_again() {
    let backends = three().await;
    let mut fleet = Fleet::of(&backends.each_ref(), |_| {}).await;
    let token = fleet.initialize(0).await;
    fleet.stop_listening(0).await;
    let (socket, door) = (TcpListener::bind(fleet.peer(0)).await.unwrap(), Arc::clone(&fleet.pods[0].door));
    fleet.pods[0].run(async move {
        for _ in 0..3 {
            drop(socket.accept().await.unwrap());
        }
        crate::session::peer::serve(socket, uid(0), door, TaskTracker::new()).await;
    });
    assert_eq!(fleet.call(1, &token).await.0, 200);
}

/// Everything that comes to a socket that says `greeting` at first, until the other end is gone.
fn impostor(socket: TcpListener, greeting: Vec<u8>) -> tokio::task::JoinHandle<Vec<Vec<u8>>> {
    TaskTracker::new().spawn(async move {
        let mut received = Vec::new();
        while let Ok(Ok((mut stream, _))) =
            tokio::time::timeout(std::time::Duration::from_secs(1), socket.accept()).await
        {
            stream.write_all(&greeting).await.unwrap();
            let mut bytes = Vec::new();
            let _ = stream.read_to_end(&mut bytes).await;
            received.push(bytes);
        }
        received
    })
}

#[tokio::test]
async fn who_has_the_address_of_another_pod_receives_nothing() {
    // An HTTP server; one that repeats a greeting that it heard; a pod of this server with another uid; silence.
    let greeting = [&b"mooring1"[..], &[1; 32]].concat();
    for (says, most) in
        [(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".repeat(3), 0), (greeting, 68), (Vec::new(), 0)]
    {
        let backends = three().await;
        let mut fleet = Fleet::of(&backends.each_ref(), |_| {}).await;
        let token = fleet.initialize(0).await;
        fleet.stop_listening(0).await;
        let received = impostor(TcpListener::bind(fleet.peer(0)).await.unwrap(), says);
        let (status, body) = fleet.call(1, &token).await;
        assert!(status == 404 && body.contains("-32001"), "{body}");
        let received = received.await.unwrap();
        assert!(received.len() == 1 && received[0].len() <= most, "{received:?}");
        assert!(!received[0].windows(3).any(|bytes| bytes == b"mk_"));
    }
    let backends = three().await;
    let mut fleet = Fleet::of(&backends.each_ref(), |_| {}).await;
    let token = fleet.initialize(0).await;
    fleet.stop_listening(0).await;
    let socket = TcpListener::bind(fleet.peer(0)).await.unwrap();
    let door = Arc::clone(&fleet.pods[2].door);
    fleet.pods[2].run(crate::session::peer::serve(socket, uid(2), door, TaskTracker::new()));
    assert_eq!(fleet.call(1, &token).await.0, 404);
    assert_eq!(fleet.pods[1].door.status().unreachable_peers[0].reason, Unreachable::Unproved);
    assert_eq!(backends[2].calls(), 0);
}

#[tokio::test]
async fn who_has_no_key_gets_nothing_at_the_peer_port() {
    let backends = three().await;
    let fleet = Fleet::of(&backends.each_ref(), |_| {}).await;
    let token = fleet.initialize(0).await;
    let request = format!(
        "GET /weather/mcp HTTP/1.1\r\nHost: mcp.example.com\r\nx-api-key: {}\r\nmcp-session-id: {}\r\n\r\n{}",
        fleet.pods[0].key.expose(),
        token.to_str().unwrap(),
        " ".repeat(100)
    );
    let mut stream = TcpStream::connect(fleet.peer(0)).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut received = Vec::new();
    let _ = stream.read_to_end(&mut received).await; // a reset is fine, too
    assert!(received.len() <= 40, "{received:?}");
    assert_eq!(backends[0].calls(), 1);
}

/// A pod that proves itself and then stands still.
#[tokio::test]
async fn a_pod_that_stands_still_is_noticed() {
    let backends = three().await;
    let mut fleet = Fleet::of(&backends.each_ref(), |_| {}).await;
    let token = fleet.initialize(0).await;
    fleet.stop_listening(0).await;
    let socket = TcpListener::bind(fleet.peer(0)).await.unwrap();
    let paused = TaskTracker::new().spawn(async move {
        let (mut stream, _) = socket.accept().await.unwrap();
        proof::answer(&mut stream, &ring(&[("current", 1)]), uid(0), [1; 32]).await.unwrap();
        std::future::pending::<()>().await;
        drop((socket, stream));
    });
    let (status, body) = fleet.call(1, &token).await;
    assert_eq!(status, 502, "{body}");
    paused.abort();
    let _ = paused.await;
    assert_eq!(fleet.call(1, &token).await.0, 404);
}

#[tokio::test]
async fn keys_rotate_while_one_pod_is_behind() {
    let backends = three().await;
    let fleet = Fleet::of(&backends.each_ref(), |_| {}).await;
    let set = |pod: usize, slots: &[(&str, u8)]| {
        let entries: Vec<_> =
            slots.iter().map(|(slot, number)| (*slot, crate::session::keys::tests::entry(*number))).collect();
        let entries: Vec<_> = entries.iter().map(|(slot, text)| (*slot, text.as_str())).collect();
        fleet.pods[pod].session.swap(&entries);
        fleet.pods[pod].reloader().reload();
    };
    let mut tokens = vec![fleet.initialize(0).await, fleet.initialize(1).await];
    // The pod 1 always is a step behind: the next step is only made when it has caught up with the one before.
    let steps: [&[(&str, u8)]; 3] =
        [&[("current", 1)], &[("current", 1), ("next", 2)], &[("previous", 1), ("current", 2)]];
    for pair in steps.windows(2) {
        for (ahead, behind) in [(pair[1], pair[0]), (pair[1], pair[1])] {
            for pod in [0, 2] {
                set(pod, ahead);
            }
            set(1, behind);
            tokens.push(fleet.initialize(0).await);
            tokens.push(fleet.initialize(1).await);
            for token in &tokens {
                for pod in 0..3 {
                    assert_eq!(fleet.call(pod, token).await.0, 200);
                }
            }
        }
    }
}

#[tokio::test]
async fn one_slow_reader_holds_up_no_other_and_many_streams_have_room() {
    let backends = three().await;
    let fleet = Fleet::of(&backends.each_ref(), |config| {
        config["limits"]["streamsPerPrincipal"] = 1000.into();
    })
    .await;
    let token = fleet.initialize(0).await;
    let front = &fleet.pods[1];
    let mut unread = Vec::new();
    for _ in 0..40 {
        let mut large = request(front, "POST", Some(&token));
        *large.body_mut() = crate::body::full(CALL.replace("tools/call", "large"));
        unread.push(front.ask(large).await);
    }
    for _ in 0..300 {
        let mut stream = front.ask(request(front, "GET", Some(&token))).await;
        assert_eq!(next(&mut stream).await.unwrap(), "data: 1\n\n");
        unread.push(stream);
    }
    // Many clients who leave as soon as they have asked take nobody with them.
    let hasty = (0..150).map(|_| {
        let mut slow = request(front, "POST", Some(&token));
        *slow.body_mut() = crate::body::full(CALL.replace("tools/call", "slow"));
        tokio::time::timeout(std::time::Duration::from_millis(1), front.ask(slow))
    });
    assert!(futures::future::join_all(hasty).await.iter().all(Result::is_err));
    assert_eq!(fleet.call(1, &token).await.0, 200);
    let large = unread.swap_remove(0).into_body().collect().await.unwrap().to_bytes();
    assert_eq!(large.len(), 1024 * 1024);
    drop(unread);
    eventually("all streams are over", || backends[0].open() == 0).await;
}
