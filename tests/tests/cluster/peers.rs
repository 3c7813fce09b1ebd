//! The way between pods of a server: who else gets to the peer port, what policies and broken links do to sessions, and
//! what is told of it.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::try_join_all;
use http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use mooring_contract::door_status::Unreachable;
use mooring_contract::port;
use mooring_plan::names;
use mooring_tests::mcp::Target;
use mooring_tests::wait::until;
use serde_json::{Value, json};

use crate::pair::{BOUNDED, BURST, ENFORCED, Pair, address, answers, answers_again, is_not_reached};
use crate::room::Room;
use crate::specs::{self, KEY};
use crate::world::{PODS, seconds};

/// What a front door says first to whoever connects to its peer port: its greeting and a number.
const GREETING: &[u8] = b"mooring1";
const NUMBER: usize = 32;
/// The answer to it, by which a front door proves itself: the id of a key, a number, and a tag.
const PROOF: usize = 4 + 32 + 32;

/// What somebody who connects is told.
#[derive(Debug, PartialEq, Eq)]
enum Heard {
    /// No connection: why.
    Nothing(String),
    /// What came until the other end closed the connection, or said no more.
    Bytes(Vec<u8>),
}

impl Heard {
    fn is_refused(&self) -> bool {
        matches!(self, Self::Nothing(why) if why == "ECONNREFUSED" || why == "silence")
    }

    fn status(&self) -> String {
        match self {
            Self::Nothing(why) => why.clone(),
            Self::Bytes(bytes) => String::from_utf8_lossy(bytes).chars().skip("HTTP/1.1 ".len()).take(3).collect(),
        }
    }
}

/// A program of node that connects, says something, and prints what it hears.
async fn say(room: &Room, from: &[&str], to: &str, port: u16, what: &[u8]) -> Result<Heard> {
    let script = format!(
        "const s = require('net').connect({port}, '{to}'); const heard = []; let open = false; \
         const end = why => {{ console.log(open ? '=' + Buffer.concat(heard).toString('base64') : why); process.exit(); }}; \
         s.setTimeout(5000, () => end('silence')); s.on('error', e => end(e.code)); s.on('close', () => end('closed')); \
         s.on('connect', () => {{ open = true; s.write(Buffer.from('{}', 'base64')); }}); s.on('data', d => heard.push(d));",
        STANDARD.encode(what),
    );
    let arguments = ["exec"].into_iter().chain(from.iter().copied()).chain(["--", "/usr/bin/node", "-e", &script]);
    let said = room.kubectl(arguments).await?;
    Ok(match said.trim().strip_prefix('=') {
        Some(bytes) => Heard::Bytes(STANDARD.decode(bytes)?),
        None => Heard::Nothing(said.trim().to_owned()),
    })
}

/// A call in a session, as bytes.
fn call(session: &Target, key: Option<&str>) -> Vec<u8> {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    let mut head = format!("POST {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", session.path, session.host);
    for (name, value) in &session.headers {
        write!(head, "{name}: {value}\r\n").unwrap_or_default();
    }
    if let Some(key) = key {
        write!(head, "authorization: Bearer {key}\r\n").unwrap_or_default();
    }
    let accept = "accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n";
    format!("{head}{accept}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

pub(crate) async fn the_peer_port_is_for_pods_of_the_same_server(room: Room) -> Result<()> {
    let mut spec = specs::everything(&room, "one", 2);
    spec["auth"] = json!({"keys": [{"name": KEY}, {"name": "second"}]});
    let other = specs::everything(&room, "two", 1);
    room.apply(specs::bystander(&room, "bystander")).await?;
    room.serve("two", &other).await?;
    let one = Pair::serve(&room, "one", &spec).await?;
    room.ready("two").await?;
    room.kubectl(["wait", "--for=condition=Ready", "pod/bystander", "--timeout=60s"]).await?;
    let (session, through) = one.session().await?;
    answers_again("the pods of the server to reach each other", &through).await?;

    let owner = address(&one.pods[0])?;
    let (bystander, foreign) = (&["bystander"][..], &["deployment/two"][..]);
    let own = one.pods[1].metadata.name.as_deref().context("a name")?;
    let Heard::Bytes(greeting) = say(&room, &[own], owner, port::PEER, b"").await? else { bail!("it is closed") };
    ensure!(greeting.starts_with(GREETING) && greeting.len() == GREETING.len() + NUMBER, "{greeting:?}");
    for pod in [bystander, foreign] {
        until("the peer port to be closed to others", ENFORCED, || async {
            let heard = say(&room, pod, owner, port::PEER, &call(&session, session.key.as_deref())).await?;
            ensure!(heard.is_refused(), "{pod:?} heard {heard:?}");
            Ok(())
        })
        .await?;
    }
    // At the public port: the token alone, and with a key that opens the server but began another session.
    let second = room.key("one", "second").await?;
    for (key, expected) in [(None, "401"), (Some(second.as_str()), "404"), (session.key.as_deref(), "200")] {
        for to in &one.pods {
            let heard = say(&room, bystander, address(to)?, port::PUBLIC, &call(&session, key)).await?;
            ensure!(heard.status() == expected, "{expected}, not {heard:?}");
        }
    }

    // Where nothing enforces policies, who connects there hears a greeting, whatever they have.
    room.change("one", &json!({"networkPolicy": {"enabled": false}})).await?;
    let requests = call(&session, session.key.as_deref()).repeat(2);
    until("the peer port to be open", ENFORCED, || async {
        let heard = say(&room, bystander, owner, port::PEER, &requests).await?;
        ensure!(!heard.is_refused(), "{heard:?}");
        let Heard::Bytes(heard) = heard else { bail!("{heard:?}") };
        ensure!(heard.is_empty() || heard.starts_with(GREETING) && heard.len() == GREETING.len() + NUMBER, "{heard:?}");
        Ok(())
    })
    .await?;
    try_join_all([&session, &through].map(answers)).await?;
    Ok(())
}

/// What a namespace begins with whose owner allows only what is named.
fn deny_all() -> Value {
    let spec = json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]});
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "deny-all"}, "spec": spec})
}

/// What `docs/sessions.md` has its reader allow, for another server.
fn allow_peers(server: &str) -> Result<Value> {
    let docs = include_str!("../../../docs/sessions.md");
    let (_, policy) = docs.split_once("```yaml\n").context("an example of a policy")?;
    let (policy, _) = policy.split_once("```").context("its end")?;
    Ok(serde_saphyr::from_str(&policy.replace("weather", server))?)
}

pub(crate) async fn sessions_where_everything_is_denied(room: Room) -> Result<()> {
    room.apply(deny_all()).await?;
    let mut spec = specs::everything(&room, "allowed", 2);
    let dns = json!({"to": [{"namespaceSelector": {}}], "ports": [{"port": 53, "protocol": "UDP"}]});
    spec["networkPolicy"] = json!({"egressTo": [dns]});
    let spec_of_denied = specs::everything(&room, "denied", 2);
    let (allowed, denied) =
        tokio::try_join!(Pair::serve(&room, "allowed", &spec), Pair::serve(&room, "denied", &spec_of_denied))?;
    let (_, through) = allowed.session().await?;
    answers_again("`egressTo` to let pods reach each other", &through).await?;
    let before = room.identities("denied").await?;
    let (session, through) = denied.session().await?;
    let slowest = is_not_reached(&through).await?;
    let other = denied.pods[1].metadata.name.as_deref().context("a name")?;
    let log = room.kubectl(["logs", other, "--container", names::FRONT_DOOR]).await?;
    let attempts = log.matches("the pod of a session cannot be reached").count();
    ensure!((1..=3).contains(&attempts), "{attempts} attempts for one burst");
    let refused = room.metric(&denied.pods[1], "mooring_server_forward_errors_total").await?;
    ensure!(refused > f64::from(u8::try_from(BURST)?), "{refused} refused requests are counted");
    answers(&session).await.context("at its own pod")?;
    room.world.figure(
        format!("{BURST} requests whose pod a policy keeps away: attempts, slowest answer"),
        format!("{attempts}, {}", seconds(slowest)),
    );

    let reason = match denied.tells(Unreachable::Refused).await {
        Ok(()) => "refused",
        Err(_) => denied.tells(Unreachable::TimedOut).await.map(|()| "no answer")?,
    };
    denied.ask_doors(1_000_000).await?;
    denied.is_told(reason).await?;
    room.apply(allow_peers("denied")?).await?;
    answers_again("the allowed way to be found", &through).await?;
    denied.ask_doors(2_000_000).await?;
    denied.is_well(&before).await
}

/// A wire between two pods that can be cut: nothing passes then, and nobody is told.
struct Wire<'a> {
    room: &'a Room,
    table: String,
}

impl<'a> Wire<'a> {
    fn cut(room: &'a Room, pods: &[Pod]) -> Result<(Self, String)> {
        let [one, other] = pods else { bail!("two pods") };
        let (one, other, table) = (address(one)?, address(other)?, format!("cut_{}", std::process::id()));
        let between = |from: &str, to: &str| format!("add rule ip {table} wire ip saddr {from} ip daddr {to} drop");
        let rules = format!(
            "add table ip {table}; add chain ip {table} wire {{ type filter hook forward priority -300; }}; {}; {}",
            between(one, other),
            between(other, one),
        );
        Ok((Self { room, table }, rules))
    }

    async fn nft(&self, rules: &str) -> Result<()> {
        self.room.world.cluster.own("cutting a link")?.exec_inside(&["nft", rules]).await.map(drop)
    }

    async fn mend(&self) -> Result<()> {
        self.nft(&format!("delete table ip {}", self.table)).await
    }
}

pub(crate) async fn a_link_that_is_cut(room: Room) -> Result<()> {
    let pair = Pair::serve(&room, "cut", &specs::everything(&room, "cut", 2)).await?;
    let before = room.identities("cut").await?;
    let (session, through) = pair.session().await?;
    answers_again("the pods to reach each other", &through).await?;
    let mut stream = through.open("GET", "").await?;
    ensure!(stream.status == StatusCode::OK, "GET: {}", stream.status);
    let slow = json!({"name": "trigger-long-running-operation", "arguments": {"duration": 15, "steps": 1}});
    let slow = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": slow}).to_string();
    let (asked, mut running) = (session.open("POST", slow.clone()).await?, through.open("POST", slow).await?);

    let (wire, rules) = Wire::cut(&room, &pair.pods)?;
    wire.nft(&rules).await?;
    let begun = Instant::now();
    // What had begun breaks off, and what comes now finds nobody.
    let call = through.send("POST", json!({"jsonrpc": "2.0", "id": 9, "method": "ping"}).to_string());
    let streams = async { Ok((stream.text().await?, running.text().await?)) };
    let (call, streams) = tokio::time::timeout(BOUNDED, async { tokio::try_join!(call, streams) })
        .await
        .context("what had begun hangs on")??;
    ensure!(call.status == StatusCode::BAD_GATEWAY, "the call had left: {} {}", call.status, call.text());
    ensure!(streams == (None, None), "{streams:?}");
    let noticed = begun.elapsed();
    let slowest = is_not_reached(&through).await?;
    pair.tells(Unreachable::TimedOut).await?;
    answers(&session).await.context("at its own pod")?;
    drop(asked);
    pair.ask_doors(1_000_000).await?;
    pair.is_told("no answer").await?;
    room.world.figure(
        "a link between two pods is cut: running calls end, new ones are answered, within",
        format!("{}, {}", seconds(noticed), seconds(slowest)),
    );

    wire.mend().await?;
    answers_again("the mended link to be used", &through).await?;
    pair.ask_doors(2_000_000).await?;
    pair.is_well(&before).await
}

/// A pod that greets at the peer port as a front door does, proves itself wrongly, and keeps what it hears; `/` of another port shows it.
fn impostor(room: &Room, name: &str) -> Value {
    let program = format!(
        "const heard = []; process.on('SIGTERM', () => process.exit(0)); \
         require('net').createServer(s => {{ const own = []; heard.push(own); s.on('data', d => {{ own.push(d); s.write(Buffer.alloc(32)); }}); s.on('error', () => {{}}); \
         s.write(Buffer.concat([Buffer.from('mooring1'), Buffer.alloc({NUMBER}, 7)])); }}).listen({}); \
         require('http').createServer((_, r) => r.end(JSON.stringify(heard.map(own => Buffer.concat(own).toString('base64'))))).listen(8080);",
        port::PEER
    );
    let mut pod = specs::bystander(room, name);
    pod["spec"]["containers"][0]["command"] = json!(["/usr/bin/node", "-e", program]);
    pod
}

/// Starts the impostor until it has the address of a pod that is gone: the node hands out the next free one after the last.
/// Then it goes on where it was. The next pods would have addresses of pods that are just gone, too, and the node sends what
/// is for them to nobody, for up to half a minute, because it remembers who had them.
async fn take_address(room: &Room, wanted: &str) -> Result<Pod> {
    let addresses = room.world.cluster.own("handing an address on")?.pod_addresses();
    let before = wanted.parse::<std::net::Ipv4Addr>()?.to_bits().checked_sub(1).context("an address")?;
    let (taken, last) = (addresses.join(wanted), addresses.join("last_reserved_ip.0"));
    until("an impostor to have the address", PODS, || async {
        ensure!(!taken.exists(), "the address is still taken");
        let farthest = std::fs::read_to_string(&last)?;
        std::fs::write(&last, std::net::Ipv4Addr::from_bits(before).to_string())?;
        room.apply(impostor(room, "impostor")).await?;
        let given = until("the address to be taken", PODS, || async {
            ensure!(taken.exists(), "it is free");
            Ok(())
        });
        let given = given.await;
        std::fs::write(&last, farthest)?;
        given?;
        room.kubectl(["wait", "--for=condition=Ready", "pod/impostor", "--timeout=60s"]).await?;
        let pods: kube::Api<Pod> = kube::Api::namespaced(room.world.cluster.client().await?, &room.name);
        let pod = pods.get("impostor").await?;
        if address(&pod)? == wanted {
            return Ok(pod);
        }
        // Another pod was quicker.
        room.kubectl(["delete", "pod", "impostor", "--grace-period=1"]).await?;
        bail!("it has another address")
    })
    .await
}

pub(crate) async fn a_pod_that_has_the_address_of_another(room: Room) -> Result<()> {
    let pair = Pair::serve(&room, "robbed", &specs::everything(&room, "robbed", 2)).await?;
    let (_, through) = pair.session().await?;
    answers_again("the pods to reach each other", &through).await?;
    let owner = pair.pods[0].metadata.name.as_deref().context("a name")?;
    room.kubectl(["delete", "pod", owner, "--grace-period=0", "--force"]).await?;
    let impostor = take_address(&room, address(&pair.pods[0])?).await?;
    // It says a word to the node and to the other pod, so that they know where the address is now.
    let node = room.world.cluster.own("handing an address on")?.node_ip().to_string();
    say(&room, &["impostor"], &node, 9, b"").await?;
    say(&room, &["impostor"], address(&pair.pods[1])?, port::PUBLIC, b"hello\r\n\r\n").await?;
    let shown: SocketAddr = room.pod_port(&impostor, 8080).await?;
    let heard = Target { address: shown, host: "impostor".into(), path: "/".into(), key: None, headers: Vec::new() };
    until("the impostor to be asked", ENFORCED, || async {
        let end = json!({"jsonrpc": "2.0", "id": 9, "method": "ping"}).to_string();
        let answer = through.send("POST", end).await?;
        ensure!(answer.status == StatusCode::NOT_FOUND, "{} {}", answer.status, answer.text());
        let heard = heard.send("GET", "").await?.message()?;
        ensure!(heard.as_array().is_some_and(|heard| !heard.is_empty()), "nobody came");
        Ok(())
    })
    .await?;
    is_not_reached(&through).await?;
    pair.tells(Unreachable::Unproved).await?;
    let heard: Vec<String> = serde_json::from_value(heard.send("GET", "").await?.message()?)?;
    let token = &through.headers.iter().find(|(name, _)| name == "mcp-session-id").context("a session")?.1;
    for connection in heard {
        let heard = STANDARD.decode(connection)?;
        let secrets = [token.as_bytes(), through.key.as_deref().unwrap_or_default().as_bytes()];
        ensure!(heard.len() <= PROOF, "the impostor has heard {} bytes", heard.len());
        let has = |secret: &[u8]| heard.windows(8).any(|bytes| secret.windows(8).any(|part| part == bytes));
        ensure!(!secrets.into_iter().any(has), "a part of a token or key has come to the impostor");
    }
    Ok(())
}
