//! What happens to a session when its front door is killed, stands still, or is told to stop.

use std::io::Read as _;

use super::backend::X;
use super::common::eventually;
use super::http::{get, send};
use super::pods::{Pod, Server, bare, message, post, status, token};

#[test]
fn a_session_outlives_its_front_door() {
    let server = Server::new(1000);
    let (owner, other) = (server.pod(1), server.pod(2));
    let token = owner.initialize();
    assert_eq!((other.call(&token), owner.call(&token)), (200, 200));
    drop(owner); // killed
    let owner = server.pod(1);
    assert_eq!(owner.call(&token), 200);
    eventually("the other finds it again", || other.call(&token) == 200);
}

#[test]
fn a_front_door_that_stands_still_is_noticed_and_found_again() {
    let server = Server::new(1000);
    let (owner, other, third) = (server.pod(1), server.pod(2), server.pod(3));
    let token = owner.initialize();
    assert_eq!(other.call(&token), 200);
    owner.running.signal("STOP");
    assert_eq!(other.call(&token), 502, "the call had left");
    assert_eq!(third.call(&token), 404, "nobody proved to be the owner");
    owner.running.signal("CONT");
    for pod in [&other, &third, &owner] {
        eventually("it is found again", || pod.call(&token) == 200);
    }
}

#[test]
fn told_to_stop_it_begins_no_session_and_goes_when_the_last_has_ended() {
    let server = Server::new(60_000);
    let (mut owner, other) = (server.pod(1), server.pod(2));
    let token = owner.initialize();
    owner.running.signal("TERM");
    owner.running.line("sessions live on");
    assert!(get(&owner.management, "/health/ready").starts_with("HTTP/1.1 503"));
    let refused = owner.post("initialize", "");
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("retry-after"), "{refused}");
    assert_eq!((other.call(&token), owner.call(&token)), (200, 200));
    assert_eq!(status(&send(&other.public, &bare("DELETE", &token))), 200);
    owner.running.line("stopped");
    assert!(owner.running.child.wait().unwrap().success());
    assert_eq!(other.call(&token), 404);
}

#[test]
fn no_token_and_no_id_is_logged() {
    let server = Server::new(1);
    let pods = [server.logging(1, "trace"), server.logging(2, "trace")].map(|Pod { mut running, public, .. }| {
        let pid = running.child.id().to_string();
        let log = std::thread::spawn(move || {
            let mut log = String::new();
            running.log.read_to_string(&mut log).unwrap();
            log
        });
        (public, pid, log)
    });
    let [owner, other] = pods.each_ref().map(|(public, ..)| public.as_str());
    let token = token(&post(owner, "initialize", ""));
    let altered = format!("{}0", &token[1..]);
    for (session, expected) in [(token.as_str(), 200), (altered.as_str(), 404), (X, 404)] {
        for pod in [owner, other] {
            if expected == 200 {
                server.backend.go(); // its stream ends
            }
            for request in [message("tools/list", session, ""), bare("GET", session)] {
                assert_eq!(status(&send(pod, &request)), expected, "{request}");
            }
            send(pod, &format!("POST /messages?s={session} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
        }
    }
    // The first who is told ends it.
    for (session, expected) in [(token.as_str(), [200, 404]), (altered.as_str(), [404; 2]), (X, [404; 2])] {
        let answers = [other, owner].map(|pod| status(&send(pod, &bare("DELETE", session))));
        assert_eq!(answers, expected, "{session}");
    }
    for (_, pid, log) in pods {
        assert!(std::process::Command::new("kill").arg(pid).status().unwrap().success());
        let log = log.join().unwrap();
        assert!(log.contains("\"refusal\":\"session\""), "{log}");
        for secret in [&token, &altered, X] {
            let line = log.lines().find(|line| line.contains(secret));
            assert!(line.is_none(), "{line:?}");
        }
    }
}

#[test]
fn sessions_live_on_no_longer_than_they_may() {
    let server = Server::new(100);
    let mut owner = server.pod(1);
    owner.initialize();
    owner.running.signal("TERM");
    owner.running.line("stopped");
    assert!(owner.running.child.wait().unwrap().success());
}
