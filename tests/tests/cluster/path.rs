//! The demo's path: the files that ship, applied as they are, used by clients that nobody here wrote, through a real
//! ingress controller.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use http::StatusCode;
use mooring_tests::clients::{Client, Report, Session, Transport};
use mooring_tests::mcp::{Streaming, Target};
use mooring_tests::parts::servers;
use serde_json::{Value, json};

use crate::room::Room;
use crate::specs::{self, KEY};
use crate::world::text;

/// One call of one tool by one client, at the URL that the status shows.
async fn session(demo: &Room, server: &str, tool: &str, arguments: &Value) -> Result<Vec<Report>> {
    let target = demo.entrance(server, "laptop").await?;
    let url = format!("http://{}:{}{}", target.host, target.address.port(), target.path);
    let key = target.key.unwrap_or_default();
    let session = Session::new(url).resolve_to(target.address.ip()).key(&key).call(tool, arguments.clone());
    let mut reports = Vec::new();
    for client in Client::IN_CLUSTERS {
        reports.push(client.run(&session).await.with_context(|| format!("{client:?} at {server}"))?);
    }
    for client in [Client::Python, Client::FastMcp] {
        let legacy = session.clone().legacy();
        let report = client.run(&legacy).await.with_context(|| format!("{client:?} at {server}, legacy mode"))?;
        ensure!(report.protocol_version.as_str() <= "2025-11-25", "legacy mode spoke {}", report.protocol_version);
        reports.push(report);
    }
    Ok(reports)
}

pub(crate) async fn declared_tools_answer_every_client(room: Room) -> Result<()> {
    let demo = room.world.demo().await?;
    let reports = session(&demo, "weather", "forecast", &json!({"city": "Oslo", "days": 2})).await?;
    let days = json!([{"day": 0, "sky": "cloudy", "celsius": 16}, {"day": 1, "sky": "cloudy", "celsius": 17}]);
    for report in &reports {
        assert_eq!(report.tools, ["forecast", "report"], "{report:?}");
        assert!(!report.is_error, "{report:?}");
        let answer: Value = serde_json::from_str(&report.text.join("")).with_context(|| format!("{report:?}"))?;
        assert_eq!(answer, json!({"city": "Oslo", "days": days}));
    }
    // The tool's arguments are checked against its schema before the API is asked.
    let target = demo.entrance("weather", "laptop").await?;
    let said = target.call("forecast", json!({"city": "Oslo", "days": 9})).await;
    let refused = said.is_err_and(|error| format!("{error:#}").contains("days"));
    assert!(refused, "nine days are one more than a week");
    Ok(())
}

pub(crate) async fn server_everything_answers_every_client(room: Room) -> Result<()> {
    let demo = room.world.demo().await?;
    for report in session(&demo, "everything", "echo", &json!({"message": "hello"})).await? {
        assert_eq!(report.server, "mcp-servers/everything");
        assert_eq!((&report.text[..], report.is_error), (&["Echo: hello".to_owned()][..], false), "{report:?}");
        assert!(report.tools.contains(&"get-sum".to_owned()), "{report:?}");
    }
    let status = demo.verified("everything").await?;
    assert_eq!(text(&status, "/status/server/name")?, "mcp-servers/everything");
    assert!(status.pointer("/status/server/toolCount").and_then(Value::as_i64) > Some(5), "{status}");
    Ok(())
}

pub(crate) async fn fastmcp_below_a_path_answers_every_client(room: Room) -> Result<()> {
    let demo = room.world.demo().await?;
    assert_eq!(demo.ready("notes").await?, "http://tools.example.com/notes/mcp");
    for report in session(&demo, "notes", "add", &json!({"a": 2, "b": 3})).await? {
        assert_eq!(report.server, "fastmcp-sample");
        assert_eq!((&report.text[..], report.is_error), (&["5".to_owned()][..], false), "{report:?}");
        assert_eq!(report.tools, ["add", "where", "count"]);
    }
    Ok(())
}

/// A server that knows only the transport of 2024-11-05, for clients that know no other and for those that know a newer one.
pub(crate) async fn the_older_transport_on_both_sides(room: Room) -> Result<()> {
    let http = json!({"image": servers::EVERYTHING, "args": ["sse"], "port": 3001, "transport": "sse"});
    let keys = json!({"keys": [{"name": KEY}]});
    // In this mode the server does not heed SIGTERM, and its pod stays for as long as a call may take.
    let limits = json!({"callTimeout": "30s"});
    let spec = json!({"http": http, "hosts": [room.host("older")], "ingress": {}, "auth": keys, "limits": limits});
    room.serve("older", &spec).await?;
    let target = room.entrance("older", KEY).await?;
    let server = room.verified("older").await?;
    assert_eq!(text(&server, "/status/server/name")?, "mcp-servers/everything");
    let key = target.key.clone().unwrap_or_default();
    for (path, transport) in [("/sse", Transport::Sse), ("/mcp", Transport::StreamableHttp)] {
        let url = format!("http://{}:{}{path}", target.host, target.address.port());
        let session = Session::new(url).resolve_to(target.address.ip()).key(&key).over(transport);
        let session = session.call("echo", json!({"message": "hello"}));
        for client in Client::IN_CLUSTERS {
            let report = client.run(&session).await.with_context(|| format!("{client:?} over {transport:?}"))?;
            assert_eq!((&report.text[..], report.is_error), (&["Echo: hello".to_owned()][..], false), "{report:?}");
        }
        let nobody = Target { path: path.to_owned(), key: None, ..target.clone() };
        assert_eq!(nobody.send("GET", "").await?.status, StatusCode::UNAUTHORIZED);
    }
    Ok(())
}

/// `mcpserver.yaml` has no Ingress: its Service is the way in.
pub(crate) async fn the_smallest_server_answers_at_its_service(room: Room) -> Result<()> {
    let demo = room.world.demo().await?;
    assert_eq!(demo.ready("hello").await?, "http://hello.demo.svc.cluster.local/mcp");
    let target = demo.service("hello", "/mcp", KEY).await?.with_host("hello.demo.svc.cluster.local");
    assert_eq!(target.call("health", json!({})).await?, r#"{"status":"alive"}"#);
    let table = demo.kubectl(["get", "mcps"]).await?;
    let hello = table.lines().find(|line| line.starts_with("hello ")).with_context(|| table.clone())?;
    assert_eq!(hello.split_whitespace().take(4).collect::<Vec<_>>(), ["hello", "True", "Ready", "1"]);
    Ok(())
}

/// A session with `server-everything`: state is kept between calls, a stream arrives event by event, DELETE ends it.
pub(crate) async fn a_session_streams_as_it_goes(room: Room) -> Result<()> {
    let demo = room.world.demo().await?;
    let target = demo.entrance("everything", "laptop").await?;
    let within = target.begin_session().await?;
    for message in ["one", "two", "three"] {
        assert_eq!(within.call("echo", json!({"message": message})).await?, format!("Echo: {message}"));
    }

    let mut listening = within.open("GET", "").await?;
    assert_eq!(listening.status, StatusCode::OK);
    assert_eq!(listening.headers["content-type"].to_str()?.split(';').next(), Some("text/event-stream"));

    let call = json!({"name": "trigger-long-running-operation", "arguments": {"duration": 2, "steps": 4},
        "_meta": {"progressToken": "p"}});
    let message = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": call});
    let begun = Instant::now();
    let mut stream = within.open("POST", message.to_string()).await?;
    let (mut progress, mut first) = (Vec::new(), None);
    let result = loop {
        let event = stream.event().await?.context("the stream ended before the result")?;
        first.get_or_insert_with(|| begun.elapsed());
        if event["method"] == "notifications/progress" {
            progress.push(event["params"]["progress"].as_i64().unwrap_or_default());
        } else {
            break event;
        }
    };
    assert_eq!(progress, [1, 2, 3, 4], "each step arrives, in order");
    assert_eq!(result["id"], 7);
    let (first, whole) = (first.context("an event")?, begun.elapsed());
    assert!(whole > first + Duration::from_millis(1200), "the first event after {first:?}, the last after {whole:?}");

    // What the server sends by itself comes on the GET stream.
    within.call("toggle-simulated-logging", json!({})).await?;
    let notification = event_within(&mut listening, Duration::from_secs(20)).await?;
    assert!(text(&notification, "/method")?.starts_with("notifications/"), "{notification}");

    let ended = within.send("DELETE", "").await?;
    assert!(ended.status.is_success(), "{}: {}", ended.status, ended.text());
    assert!(within.call("echo", json!({"message": "late"})).await.is_err(), "the session is over");
    assert!(target.begin_session().await.is_ok(), "and another can begin");
    Ok(())
}

async fn event_within(stream: &mut Streaming, limit: Duration) -> Result<Value> {
    let event = tokio::time::timeout(limit, stream.event()).await.context("no event in time")??;
    event.context("the stream ended")
}

/// Both answer, each with its own key, and an older claim to a path stands.
pub(crate) async fn two_servers_share_a_host(room: Room) -> Result<()> {
    let host = room.host("shared");
    for name in ["one", "two"] {
        let mut spec = specs::tools(&room, name);
        spec["hosts"] = json!([host]);
        spec["path"] = format!("/{name}").into();
        room.serve(name, &spec).await?;
    }
    let (one, two) = (room.entrance("one", KEY).await?, room.entrance("two", KEY).await?);
    assert_eq!((one.path.as_str(), two.path.as_str()), ("/one/mcp", "/two/mcp"));
    assert_eq!(one.host, two.host);
    for (own, other) in [(&one, &two), (&two, &one)] {
        assert_eq!(own.call("health", json!({})).await?, r#"{"status":"alive"}"#);
        let refused = own.with_key(other.key.as_deref()).send("POST", "{}").await?;
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED, "a key opens its own server only");
    }
    // A third server cannot take a path that an older one has, and takes nothing away from it.
    let mut spec = specs::tools(&room, "three");
    spec["hosts"] = json!([host]);
    spec["path"] = "/one".into();
    room.serve("three", &spec).await?;
    room.told("three", "Exposed", ("False", "HostConflict"), &[&host, "/one"]).await?;
    assert_eq!(one.call("health", json!({})).await?, r#"{"status":"alive"}"#);
    Ok(())
}
