//! What is mounted comes into force while the front door runs.

use std::time::Duration;

use serde_json::json;

use super::backend::{Backend, endless};
use super::eventually;
use super::front::{Front, http_config, key, next, record, text};
use super::kubelet::Mount;
use crate::clock;
use crate::refusal::json as json_answer;

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

/// Answers a GET with a stream without end, and all else at once.
async fn streaming() -> Backend {
    Backend::start(|request| async move {
        if request.method() != http::Method::GET {
            return json_answer(http::StatusCode::OK, "{}".into());
        }
        endless("data: 1\n\n")
    })
    .await
}

#[tokio::test]
async fn a_revoked_key_stops_at_once_and_its_streams_end() {
    let backend = streaming().await;
    let front = Front::new(&http_config(backend.port));
    let kept = key(2);
    let (one, two) = (record(&front.key, None), record(&kept, None));
    front.keys.swap(&[(front.key.id(), &one), (kept.id(), &two)]);
    front.watch();
    eventually("both keys are in force", || front.door.keys().len() == 2).await;
    let mut ending = front.ask(front.bare("GET", "/weather/mcp")).await;
    let mut request = front.bare("GET", "/weather/mcp");
    request.headers_mut().insert("x-api-key", kept.expose().parse().unwrap());
    let mut staying = front.ask(request).await;
    assert_eq!(next(&mut ending).await.unwrap(), "data: 1\n\n");
    assert_eq!(next(&mut staying).await.unwrap(), "data: 1\n\n");

    front.keys.swap(&[(kept.id(), &two)]);
    let begin = clock::instant();
    assert_eq!(next(&mut ending).await, None);
    let lag = clock::instant() - begin;
    assert!(lag < Duration::from_millis(100), "revoked after {lag:?}");
    assert_eq!(text(front.ask(front.post(PING)).await).await.0, 401);
    let more = tokio::time::timeout(Duration::from_millis(100), next(&mut staying)).await;
    assert!(more.is_err(), "another key's stream goes on: {more:?}");
    eventually("the backend's stream is closed, too", || backend.open() == 1).await;

    // The whole Secret is deleted: the optional mount empties.
    front.keys.swap(&[]);
    assert_eq!(next(&mut staying).await, None);
}

#[tokio::test]
async fn a_key_that_expires_ends_its_streams() {
    let backend = streaming().await;
    let front = Front::new(&http_config(backend.port));
    let expires = clock::wall() + Duration::from_millis(400);
    front.keys.swap(&[(front.key.id(), &record(&front.key, Some(expires)))]);
    front.reloader().reload();
    let mut stream = front.ask(front.bare("GET", "/weather/mcp")).await;
    assert_eq!(next(&mut stream).await.unwrap(), "data: 1\n\n");
    assert_eq!(next(&mut stream).await, None);
    assert!(clock::wall() >= expires);
    assert_eq!(text(front.ask(front.post(PING)).await).await.0, 401);
}

#[tokio::test]
async fn a_configuration_comes_into_force_and_a_bad_one_does_not() {
    let backend = streaming().await;
    let front = Front::new(&http_config(backend.port));
    front.watch();
    let first = front.door.status().config_revision;
    let host = |name: &str| {
        let mut request = front.post(PING);
        request.headers_mut().insert("host", name.parse().unwrap());
        request
    };
    assert_eq!(text(front.ask(host("new.example.com")).await).await.0, 421);
    let mut config = http_config(backend.port);
    config["security"]["hosts"] = json!(["new.example.com"]);
    front.config.swap(&[("config.json", &config.to_string())]);
    eventually("the new configuration", || front.door.status().config_revision != first).await;
    let second = front.door.status().config_revision;
    assert_eq!(text(front.ask(host("new.example.com")).await).await.0, 200);
    assert_eq!(text(front.ask(host("mcp.example.com")).await).await.0, 421);

    let mut unknown = config.clone();
    unknown["security"]["requireMoonPhase"] = true.into();
    let mut wrong_host = config.clone();
    wrong_host["security"]["hosts"] = json!(["*"]);
    let mut wrong_source = config.clone();
    wrong_source["source"]["http"]["path"] = "mcp".into();
    let mut newer = config.clone();
    newer["version"] = 9.into();
    let bad = [unknown.to_string(), wrong_host.to_string(), wrong_source.to_string(), newer.to_string(), "{".into()];
    for (text_of_bad, told) in bad.iter().zip(["requireMoonPhase", "\"*\"", "path", "version 9", "EOF"]) {
        front.config.swap(&[("config.json", text_of_bad)]);
        let error = || front.door.status().config_error.unwrap_or_default();
        eventually(told, || error().contains(told)).await;
        assert_eq!(front.door.status().config_revision, second);
        assert_eq!(text(front.ask(host("new.example.com")).await).await.0, 200);
    }
    front.config.swap(&[("config.json", &config.to_string())]);
    eventually("no error", || front.door.status().config_error.is_none()).await;
}

#[tokio::test]
async fn secrets_of_others_count_as_long_as_they_are_named() {
    let backend = streaming().await;
    let mut config = http_config(backend.port);
    config["security"]["keySecrets"] = json!(["vault"]);
    let front = Front::new(&config);
    let vault = Mount::new();
    std::os::unix::fs::symlink(vault.path(), front.secrets.path().join("vault")).unwrap();
    let uuid = "0b6f4d5e-8f0e-4f43-9e58-1b6a3f4c2d10";
    vault.swap(&[("ci", uuid), ("weak", "hunter2")]);
    front.watch();
    eventually("its keys", || front.door.keys().len() == 2).await;
    let request = || {
        let mut request = front.post(PING);
        request.headers_mut().insert("authorization", format!("Bearer {uuid}").parse().unwrap());
        request
    };
    assert_eq!(text(front.ask(request()).await).await.0, 200);
    let status = front.door.status();
    assert_eq!(status.keys_last_used.keys().collect::<Vec<_>>(), ["vault/ci"]);
    assert_eq!(status.refused_keys.len(), 1);
    assert!(status.key_secret_revisions.contains_key("vault"));
    config["security"]["keySecrets"] = json!([]);
    front.config.swap(&[("config.json", &config.to_string())]);
    eventually("without them", || front.door.keys().len() == 1).await;
    assert_eq!(text(front.ask(request()).await).await.0, 401);
}

#[tokio::test]
async fn anonymous_access_can_be_closed_under_an_open_stream() {
    let backend = streaming().await;
    let mut config = http_config(backend.port);
    config["security"]["anonymous"] = true.into();
    let front = Front::new(&config);
    front.watch();
    let mut request = front.bare("GET", "/weather/mcp");
    request.headers_mut().remove("x-api-key");
    let mut stream = front.ask(request).await;
    assert_eq!(next(&mut stream).await.unwrap(), "data: 1\n\n");
    config["security"]["anonymous"] = false.into();
    front.config.swap(&[("config.json", &config.to_string())]);
    assert_eq!(next(&mut stream).await, None);
}

/// A directory that is not there yet tells of nothing, and is looked for often enough. Once it is watched, it tells at once.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_watched_comes_into_force_within_a_second() {
    let mut config = http_config(9);
    config["security"]["keySecrets"] = json!(["one", "two", "three"]);
    let front = Front::new(&config);
    front.watch();
    for (number, name) in (2..).zip(["one", "two", "three"]) {
        tokio::time::sleep(Duration::from_millis(777)).await; // wherever its round is
        let directory = front.secrets.path().join(name);
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("ci"), format!("{name}-0b6f4d5e-8f0e-4f43-9e58-1b6a3f4c2d10")).unwrap();
        let begin = clock::instant();
        eventually("the key", || front.door.keys().len() == number).await;
        let lag = clock::instant() - begin;
        assert!(lag < Duration::from_secs(1), "{name} after {lag:?}");
    }
}
