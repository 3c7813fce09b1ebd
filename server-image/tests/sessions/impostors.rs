//! What comes to somebody who has the address of a pod that is gone: nothing of a request.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

use super::common::eventually;
use super::pods::{PROOF, Pod, Server, is_out_of_reach, is_unknown};

type Heard = Arc<Mutex<Vec<Vec<u8>>>>;

/// Listens, says something to whoever connects and something more to what they say, and keeps that.
fn impostor(at: SocketAddr, first: Vec<u8>, then: Vec<u8>) -> Heard {
    let (socket, heard) = (TcpListener::bind(at).unwrap(), Heard::default());
    let kept = Arc::clone(&heard);
    std::thread::spawn(move || {
        for stream in socket.incoming() {
            let (mut stream, kept) = (stream.unwrap(), Arc::clone(&kept));
            let number = {
                let mut kept = kept.lock().unwrap();
                kept.push(Vec::new());
                kept.len() - 1
            };
            let (first, then) = (first.clone(), then.clone());
            std::thread::spawn(move || {
                let mut piece = [0; 4096];
                let _ = stream.write_all(&first);
                while let Ok(read @ 1..) = stream.read(&mut piece) {
                    kept.lock().unwrap()[number].extend_from_slice(&piece[..read]);
                    let _ = stream.write_all(&then);
                }
            });
        }
    });
    heard
}

/// A session whose pod is gone, and a pod that does not know it yet.
fn orphan() -> (Server, Pod, String) {
    let server = Server::new(1000);
    let (owner, other) = (server.pod(1), server.pod(2));
    let token = owner.initialize();
    (server, other, token)
}

#[test]
fn a_listener_at_the_address_of_a_pod_receives_nothing() {
    let settings = [&[0, 0, 0, 4, 0, 0, 0, 0, 0][..], &[0, 0, 0, 4, 1, 0, 0, 0, 0]].concat();
    let greeting = [&b"mooring1"[..], &[7; 32]].concat();
    let cases = [
        ("one that is silent", Vec::new(), Vec::new(), 0, "timedOut"),
        ("a server of HTTP/2", settings, Vec::new(), 0, "unproved"),
        ("a server of HTTP/1.1", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec(), Vec::new(), 0, "unproved"),
        ("one that greets and proves itself wrongly", greeting, vec![7; 32], PROOF, "unproved"),
    ];
    std::thread::scope(|scope| {
        for (who, first, then, most, why) in cases {
            scope.spawn(move || {
                let (server, other, token) = orphan();
                let heard = impostor(server.address(1), first, then);
                is_out_of_reach(&other, &token);
                assert_eq!(other.tells(), [why], "{who}");
                let heard = heard.lock().unwrap();
                assert!(!heard.is_empty() && heard.iter().all(|heard| heard.len() == most), "{who}: {heard:?}");
            });
        }
    });
}

#[test]
fn a_front_door_of_another_server_at_the_address_of_a_pod_receives_nothing() {
    let (server, other, token) = orphan();
    // It says to be the same pod, and has a session key of its own.
    let foreign = Server::with(2, 1000, server.port);
    let (impostor, link) = foreign.behind_a_link(1);
    is_out_of_reach(&other, &token);
    assert_eq!(other.tells(), ["unproved"]);
    let heard = link.heard();
    assert!(!heard.is_empty() && heard.iter().all(|heard| heard.len() <= PROOF), "{heard:?}");
    let of_token = |heard: &[u8]| heard.windows(8).any(|part| token.as_bytes().windows(8).any(|own| own == part));
    assert!(!heard.iter().any(|heard| of_token(heard)));
    assert_eq!([&foreign, &server].map(|server| server.backend.asked("a secret")), [0, 0]);
    // Nor does it know the token where a client brings it there.
    assert!(is_unknown(&impostor.post("tools/list", &token)));
    drop((impostor, link));
    let owner = server.pod(1);
    eventually("the pod itself is found when it is back", || other.call(&token) == 200);
    assert_eq!(owner.call(&token), 200);
}
