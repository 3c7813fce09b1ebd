//! Slow links and cut ones between pods: what clients are told and when, and what arrives.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::backend::large;
use super::common::{eventually, now};
use super::http::send;
use super::link::{CUT, Pass};
use super::pods::{BOUNDED, PROOF, Pod, Server, bare, body, is_out_of_reach, message, status};

/// So many bytes a front door says first, and answers a proof with.
const GREETING: usize = 40;
const ANSWER: usize = 32;

/// A request whose answer is read as it comes.
struct Reader {
    stream: TcpStream,
    heard: String,
    begun: Instant,
}

impl Reader {
    fn ask(pod: &Pod, request: &str) -> Self {
        let mut stream = TcpStream::connect(&pod.public).unwrap();
        stream.set_read_timeout(Some(BOUNDED)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        Self { stream, heard: String::new(), begun: now() }
    }

    /// Reads until it has a text.
    fn until(&mut self, text: &str) {
        while !self.heard.contains(text) {
            let mut piece = [0; 1024];
            let read = self.stream.read(&mut piece).unwrap();
            assert!(read > 0, "it ended: {}", self.heard);
            self.heard += std::str::from_utf8(&piece[..read]).unwrap();
        }
    }

    /// Reads to the end, however that comes, and returns what was heard in all.
    fn end(mut self) -> String {
        let _ = self.stream.read_to_string(&mut self.heard);
        assert!(self.begun.elapsed() < BOUNDED, "after {:?}: {}", self.begun.elapsed(), self.heard);
        self.heard
    }
}

#[test]
fn a_link_that_is_cut_before_a_pod_is_proved_is_404_and_forgotten_when_it_is_mended() {
    let server = Server::new(1000);
    let ((owner, link), other) = (server.behind_a_link(1), server.pod(2));
    let token = owner.initialize();
    // Before the first byte, in the greeting, in the proof, and in the answer to it.
    for (most, left) in [(0, 0), (1, 0), (GREETING, GREETING), (GREETING + ANSWER - 1, PROOF)] {
        let before = link.heard().len();
        link.set(Pass::First(most));
        eventually("it is tried again", || {
            is_out_of_reach(&other, &token);
            let heard = link.heard();
            heard.len() > before && heard.last().is_some_and(|heard| heard.len() == left)
        });
        assert_eq!(other.tells(), ["timedOut"], "{most}");
    }
    assert!(link.heard().iter().all(|heard| heard.len() <= PROOF), "more than a proof has left");
    assert_eq!(server.backend.asked("a secret"), 0);
    assert_eq!(owner.call(&token), 200);
    link.set(Pass::Freely);
    eventually("it is found again", || other.call(&token) == 200);
    assert!(other.tells().is_empty());
}

#[test]
fn a_link_that_is_cut_under_a_call_is_502_and_nothing_is_sent_twice() {
    let server = Server::new(1000);
    let ((owner, link), other) = (server.behind_a_link(1), server.pod(2));
    let token = owner.initialize();
    let mut stream = Reader::ask(&other, &bare("GET", &token));
    stream.until("data: 1");
    let call = Reader::ask(&other, &message("hold", &token, ""));
    eventually("the call is there", || server.backend.asked("hold") == 1);
    link.set(CUT);
    let answer = call.end();
    assert_eq!(status(&answer), 502, "{answer}");
    let stream = stream.end();
    assert!(stream.contains("data: 1") && !stream.contains("data: 2"), "{stream}");
    is_out_of_reach(&other, &token);
    assert_eq!(other.tells(), ["timedOut"]);
    link.set(Pass::Freely);
    eventually("it is found again", || other.call(&token) == 200);
    assert_eq!(server.backend.asked("hold"), 1);
    eventually("the owner learns that nobody reads any more", || server.backend.gone() == 2);
}

#[test]
fn a_connection_that_breaks_under_a_call_is_502_and_the_next_call_makes_another() {
    let server = Server::new(1000);
    let ((owner, link), other) = (server.behind_a_link(1), server.pod(2));
    let token = owner.initialize();
    let call = Reader::ask(&other, &message("hold", &token, ""));
    eventually("the call is there", || server.backend.asked("hold") == 1);
    drop(link);
    let answer = call.end();
    assert_eq!(status(&answer), 502, "{answer}");
    assert_eq!(server.backend.asked("hold"), 1);
    is_out_of_reach(&other, &token);
    assert_eq!(other.tells(), ["refused"]);
    assert_eq!(owner.call(&token), 200);
}

#[test]
fn a_slow_link_brings_everything() {
    let server = Server::new(1000);
    let ((owner, link), other) = (server.behind_a_link(1), server.pod(2));
    let token = owner.initialize();
    link.set(Pass::Slowly(Duration::from_millis(200), 16 * 1024));
    assert_eq!(other.call(&token), 200);
    // Each takes longer than a pod may be silent.
    let text = large();
    for (method, pad) in [("take", text.as_str()), ("large", "")] {
        std::thread::scope(|scope| {
            let long = scope.spawn(|| send(&other.public, &message(method, &token, pad)));
            for _ in 0..3 {
                assert_eq!(other.call(&token), 200);
            }
            let answer = long.join().unwrap();
            assert_eq!(status(&answer), 200, "{method}: {}", &answer[..answer.len().min(400)]);
            assert!(method == "take" || body(&answer) == text);
        });
    }
    assert_eq!(server.backend.asked(&text), 1);
    assert!(other.tells().is_empty());
}

#[test]
fn events_pass_as_they_come_and_a_client_that_leaves_is_missed() {
    let server = Server::new(1000);
    let ((owner, link), other) = (server.behind_a_link(1), server.pod(2));
    let token = owner.initialize();
    link.set(Pass::Slowly(Duration::from_millis(100), 16 * 1024));
    let (mut one, mut two) = (Reader::ask(&other, &bare("GET", &token)), Reader::ask(&owner, &bare("GET", &token)));
    for stream in [&mut one, &mut two] {
        // The second event is only said when the first has been read.
        stream.until("data: 1");
    }
    drop(two);
    eventually("the server learns that its reader left", || server.backend.gone() == 1);
    server.backend.go();
    one.until("data: 2");
    // The answer to a call may be such a stream, too.
    let mut answer = Reader::ask(&other, &message("stream", &token, ""));
    answer.until("data: 1");
    server.backend.go();
    answer.until("data: 2");
    let (mut stream, call) =
        (Reader::ask(&other, &bare("GET", &token)), Reader::ask(&other, &message("hold", &token, "")));
    stream.until("data: 1");
    eventually("the call is there", || server.backend.asked("hold") == 1);
    drop(call);
    eventually("the server learns that its caller left", || server.backend.gone() == 2);
    drop(stream);
    eventually("the server learns that its reader left", || server.backend.gone() == 3);
}
