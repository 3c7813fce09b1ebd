//! Clients that are gone without a word: power, network or machine. Nothing says so but their silence, and by itself the
//! kernel repeats what they do not acknowledge for about a quarter of an hour, and waits for ever where nothing is to be
//! sent. So long an open stream would keep its session in use, and its place taken. Here it is told to give up earlier; the
//! connection then ends as one that was reset.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// A client that has acknowledged nothing for so long is gone. Long enough for a train's tunnel, a handover between networks
/// and what a congested link loses; short beside the times after which sessions are idle.
const LOST: Duration = Duration::from_secs(60);
/// So much later than `limits.writeTimeout`, so that who lives and reads nothing is cut as that, and counted.
const AFTER: Duration = Duration::from_secs(15);

/// How long a client may acknowledge nothing. To the kernel one that lives but has no room for what is sent is silent, too.
pub fn patience(write_timeout: Duration) -> Duration {
    LOST.max(write_timeout.saturating_add(AFTER))
}

/// Ends the connection when its other end is silent for `patience`, or a third of it longer where nothing is to be sent.
/// Who lives answers the kernel's probes, however little it has to say itself.
pub fn notice(stream: &TcpStream, patience: Duration) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_user_timeout(Some(patience))?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(patience / 3).with_interval(patience / 3))
}

#[cfg(test)]
pub mod tests {
    use std::io::ErrorKind;

    use socket2::SockFilter;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    const SHORT: Duration = Duration::from_secs(3);

    /// Both ends of a connection.
    pub async fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (listener.accept().await.unwrap().0, client)
    }

    /// From now on nothing reaches it, and it acknowledges nothing.
    pub fn unplug(client: &TcpStream) {
        const DROP_ALL: SockFilter = SockFilter::new(6, 0, 0, 0); // return 0 bytes
        SockRef::from(client).attach_filter(&[DROP_ALL]).unwrap();
    }

    #[tokio::test]
    async fn who_is_gone_is_noticed_and_who_is_silent_is_not() {
        let (mut told, client_of_told) = connected().await;
        let (mut idle, client_of_idle) = connected().await;
        let (mut silent, mut client_of_silent) = connected().await;
        for stream in [&told, &idle, &silent] {
            notice(stream, SHORT).unwrap();
        }
        unplug(&client_of_told);
        unplug(&client_of_idle);
        told.write_all(b": keep-alive\n\n").await.unwrap();
        for gone in [&mut told, &mut idle] {
            assert_eq!(gone.read(&mut [0]).await.unwrap_err().kind(), ErrorKind::TimedOut);
        }
        // As silent as the others, and longer than they were waited for.
        tokio::time::sleep(SHORT).await;
        client_of_silent.write_all(b"x").await.unwrap();
        assert_eq!(silent.read(&mut [0]).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn a_client_may_read_nothing_for_as_long_as_it_may() {
        let second = Duration::from_secs(1);
        for (write_timeout, expected) in [(1, 60), (45, 60), (60, 75), (3600, 3615)] {
            let (stream, _client) = connected().await;
            notice(&stream, patience(second * write_timeout)).unwrap();
            let socket = SockRef::from(&stream);
            assert_eq!(socket.tcp_user_timeout().unwrap(), Some(second * expected));
            assert!(socket.keepalive().unwrap());
            let keepalive = (socket.tcp_keepalive_time().unwrap(), socket.tcp_keepalive_interval().unwrap());
            assert_eq!(keepalive, (second * expected / 3, second * expected / 3));
        }
    }
}
