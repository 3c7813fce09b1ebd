//! Events: news once, and none at rest.

use mooring_api::McpServerStatus;
use mooring_plan::events::{EventKind, events};
use mooring_plan::observed::{Door, Observed, ObservedPod};
use serde_json::json;

use crate::autoscaling;
use crate::statuses::{after, deployment, handshaken, pod, pods, ready, refused, waiting};
use crate::world::{fixture, world};

/// A moment by its name: what it changes in the world.
type Moment = (&'static str, fn(&mut Observed));

/// The events of a server's life, moment by moment.
fn life(of: &str, moments: &[Moment]) -> Vec<(String, Vec<String>)> {
    let server = fixture(of);
    let mut old = McpServerStatus::default();
    let mut told = Vec::new();
    for (name, change) in moments {
        let mut observed = world(&server);
        change(&mut observed);
        let new = after(&old, &server, &observed);
        let news = events(&server, &old, &new);
        assert_eq!(events(&server, &new, &new), [], "at rest: {name}");
        let line = |event: &mooring_plan::events::Event| {
            assert!(event.note.len() <= 1024);
            let kind = if event.kind == EventKind::Warning { "Warning" } else { "Normal" };
            format!("{kind} {} {}: {}", event.action, event.reason, event.note)
        };
        told.push(((*name).to_owned(), news.iter().map(line).collect()));
        old = new;
    }
    told
}

fn serves(observed: &mut Observed) {
    observed.deployment = Some(deployment(1, 1, 1));
    observed.pods = pods([ready(handshaken())]);
}

#[test]
fn good_news_and_bad_news_are_told_once() {
    insta::assert_yaml_snapshot!(life(
        "http-minimal",
        &[
            ("new", |_| {}),
            ("pods are made", |observed| observed.deployment = Some(deployment(1, 1, 0))),
            ("serves", serves),
            ("serves still", serves),
            ("image of the next", |observed| {
                observed.deployment = Some(deployment(2, 1, 1));
                let failing = pod(false, waiting("ErrImagePull", "not found"), json!({}));
                observed.pods = pods([ready(handshaken()), failing]);
            }),
            ("serves again", serves),
            ("backend falls silent", |observed| {
                observed.deployment = Some(deployment(1, 1, 0));
                observed.pods = pods([ObservedPod { door: refused("timed out"), ..pod(false, json!({}), json!({})) }]);
            }),
            ("out of reach", |observed| {
                observed.deployment = Some(deployment(1, 1, 1));
                observed.pods = pods([ready(Door::Unreachable("timed out".to_owned()))]);
            }),
        ]
    ));
}

#[test]
fn a_rejection_is_one_event() {
    insta::assert_yaml_snapshot!(life(
        "keys-from-secrets",
        &[("missing", |observed| observed.key_secrets.clear()), ("there", |_| {}), ("serves", serves)]
    ));
}

#[test]
fn an_autoscaler_that_does_not_act_is_one_event_and_its_end_another() {
    let measured: fn(&mut Observed) = |observed| {
        observed.deployment = Some(autoscaling::available_since("2026-06-01T11:00:00Z"));
        observed.pods = pods([ready(handshaken())]);
    };
    let unmeasured: fn(&mut Observed) = |observed| {
        observed.deployment = Some(autoscaling::available_since("2026-06-01T11:00:00Z"));
        observed.pods = pods([ready(handshaken())]);
        observed.inactive_autoscaler = autoscaling::unmeasured("2026-06-01T11:00:00Z");
    };
    insta::assert_yaml_snapshot!(life(
        "autoscaling",
        &[("serves", measured), ("no metrics", unmeasured), ("no metrics still", unmeasured), ("metrics", measured),]
    ));
}

/// A note is cut where the API server would refuse it.
#[test]
fn notes_are_short_enough() {
    let told = life(
        "http-minimal",
        &[("crashes", |observed| {
            observed.deployment = Some(deployment(1, 1, 0));
            let mut refused = deployment(0, 0, 0);
            let condition = json!([{"type": "ReplicaFailure", "status": "True", "message": "ä".repeat(3000)}]);
            refused.status.conditions = serde_json::from_value(condition).unwrap();
            observed.deployment = Some(refused);
        })],
    );
    assert_eq!(told[0].1.len(), 1);
}
