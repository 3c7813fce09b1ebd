//! What is said on each new connection between two pods, before anything else: both prove that they have the server's
//! session key, and the one that is called that it is the pod it was called as.
//!
//! ```text
//! called -> caller   greeting (8), nonce (32)
//! caller -> called   key id (4), nonce (32), HMAC (32)
//! called -> caller   HMAC (32)
//! ```
//!
//! Each HMAC-SHA256 is over who says it, both nonces, the key id and the uid of the pod that is called. Who cannot say the
//! right one is hung up on and has learnt nothing: a pod that took over the address of another has received no byte.

use ring::hmac;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::keys::{InForce, KeyId, Ring};
use super::pod::Uid;

const GREETING: &[u8; 8] = b"mooring1";
const CALLER: &[u8] = b"caller";
const CALLED: &[u8] = b"called";
const TAG: usize = 32;

/// A number that is used once.
pub type Number = [u8; 32];

/// The other end is not who it should be, or hung up.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other end could not prove that it belongs to this server")]
pub struct Unproved;

impl From<std::io::Error> for Unproved {
    fn from(_: std::io::Error) -> Self {
        Self
    }
}

/// What both ends know when they prove themselves.
struct Meeting {
    called: Number,
    caller: Number,
    key: KeyId,
    uid: Uid,
}

impl Meeting {
    fn said_by(&self, who: &[u8]) -> Vec<u8> {
        [who, &self.called, &self.caller, &self.key, &self.uid.0].concat()
    }
}

/// Proves to the pod `uid` that this one has the key, and waits for its proof.
pub async fn call<S>(stream: &mut S, key: &InForce, uid: Uid, number: Number) -> Result<(), Unproved>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut greeting = [0; GREETING.len()];
    stream.read_exact(&mut greeting).await?;
    if greeting != *GREETING {
        return Err(Unproved);
    }
    let mut meeting = Meeting { called: [0; 32], caller: number, key: key.id, uid };
    stream.read_exact(&mut meeting.called).await?;
    let own = hmac::sign(&key.proof, &meeting.said_by(CALLER));
    stream.write_all(&[&meeting.key[..], &meeting.caller, own.as_ref()].concat()).await?;
    let mut theirs = [0; TAG];
    stream.read_exact(&mut theirs).await?;
    hmac::verify(&key.proof, &meeting.said_by(CALLED), &theirs).map_err(|_| Unproved)
}

/// Waits for the proof of whoever calls the pod `uid`, which this is, and answers it.
pub async fn answer<S>(stream: &mut S, ring: &Ring, uid: Uid, number: Number) -> Result<(), Unproved>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    stream.write_all(&[&GREETING[..], &number].concat()).await?;
    let mut meeting = Meeting { called: number, caller: [0; 32], key: [0; 4], uid };
    stream.read_exact(&mut meeting.key).await?;
    stream.read_exact(&mut meeting.caller).await?;
    let mut theirs = [0; TAG];
    stream.read_exact(&mut theirs).await?;
    let key = ring.find(meeting.key).ok_or(Unproved)?;
    hmac::verify(&key.proof, &meeting.said_by(CALLER), &theirs).map_err(|_| Unproved)?;
    stream.write_all(hmac::sign(&key.proof, &meeting.said_by(CALLED)).as_ref()).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::keys::tests::ring;

    const UID: Uid = Uid([7; 16]);

    async fn meet(caller: &Ring, other_end: &Ring, as_whom: Uid) -> (Result<(), Unproved>, Result<(), Unproved>) {
        let (mut one, mut other) = tokio::io::duplex(1024);
        let calling = async {
            let result = call(&mut one, caller.current(), as_whom, [1; 32]).await;
            drop(one);
            result
        };
        let answering = async {
            let result = answer(&mut other, other_end, UID, [2; 32]).await;
            drop(other);
            result
        };
        tokio::join!(calling, answering)
    }

    #[tokio::test]
    async fn only_pods_with_the_key_meet_and_only_the_pod_that_was_meant() {
        let own = || ring(&[("current", 1)]);
        assert_eq!(meet(&own(), &own(), UID).await, (Ok(()), Ok(())));
        // In the middle of a rotation.
        assert_eq!(meet(&own(), &ring(&[("current", 2), ("previous", 1)]), UID).await, (Ok(()), Ok(())));
        assert_eq!(meet(&own(), &ring(&[("current", 2), ("next", 1)]), UID).await, (Ok(()), Ok(())));
        let neither = (Err(Unproved), Err(Unproved));
        assert_eq!(meet(&own(), &own(), Uid([8; 16])).await, neither);
        assert_eq!(meet(&own(), &ring(&[("current", 2)]), UID).await, neither);
    }

    #[tokio::test]
    async fn who_greets_wrongly_receives_nothing_and_who_proves_wrongly_no_answer() {
        let (mut one, mut other) = tokio::io::duplex(1024);
        other.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        let ring = ring(&[("current", 1)]);
        assert_eq!(call(&mut one, ring.current(), UID, [1; 32]).await, Err(Unproved));
        drop(one);
        let mut received = Vec::new();
        other.read_to_end(&mut received).await.unwrap();
        assert!(received.is_empty());

        let (mut one, mut other) = tokio::io::duplex(1024);
        one.write_all(&[&[1; 4][..], &[9; 32], &[0; 32]].concat()).await.unwrap();
        assert_eq!(answer(&mut other, &ring, UID, [2; 32]).await, Err(Unproved));
        drop(other);
        one.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, [&GREETING[..], &[2; 32]].concat());
    }

    /// What one end says is of no use at the other, nor later.
    #[tokio::test]
    async fn a_proof_is_good_for_one_meeting() {
        let ring = ring(&[("current", 1)]);
        let (mut one, mut other) = tokio::io::duplex(1024);
        let meeting = Meeting { called: [3; 32], caller: [9; 32], key: [1; 4], uid: UID };
        for who in [CALLED, CALLER] {
            let tag = hmac::sign(&ring.current().proof, &meeting.said_by(who));
            one.write_all(&[&[1; 4][..], &[9; 32], tag.as_ref()].concat()).await.unwrap();
            assert_eq!(answer(&mut other, &ring, UID, [2; 32]).await, Err(Unproved));
        }
    }
}
