//! Requests as they are on the wire.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

pub fn get(address: &str, path: &str) -> String {
    send(address, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
}

pub fn send(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap(); // a test ends even where the server hangs
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
