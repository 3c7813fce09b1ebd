use super::*;
use crate::fake::Fake;

const SERVER: &str = "/apis/mooring.dev/v1alpha1/namespaces/demo/mcpservers/weather";
const KEYS: &str = "/api/v1/namespaces/demo/secrets/weather.keys";

fn fake() -> Fake {
    let fake = Fake::default();
    fake.put(
        SERVER,
        json!({
            "apiVersion": "mooring.dev/v1alpha1", "kind": "McpServer",
            "metadata": {"name": "weather", "namespace": "demo", "uid": "u1"},
            "spec": {"tools": [], "auth": {"keys": [{"name": "ci"}]}},
        }),
    );
    fake
}

async fn target(fake: &Fake) -> Target {
    let arguments = cli::Server { server: "weather".into(), namespace: None, kubeconfig: None };
    Target::find_with(fake.client(), &arguments).await.unwrap()
}

fn record(name: &str, expires: Option<&str>) -> KeyRecord {
    let key = Key::from_entropy(&[3; ENTROPY]);
    let created = "2026-11-29T21:00:00Z".parse().unwrap();
    mint::key_record(&key, name, "subject", created, expires.map(|time| time.parse().unwrap())).1
}

#[test]
fn an_expiry_is_a_moment_a_date_or_a_time_from_now() {
    let now: Timestamp = "2026-11-29T21:00:00Z".parse().unwrap();
    let moment = |text: &str| text.parse::<Expiry>().unwrap().moment(now).map(|moment| moment.to_string()).ok();
    assert_eq!(moment("2027-01-01T00:00:00Z").as_deref(), Some("2027-01-01T00:00:00Z"));
    assert_eq!(moment("2027-01-01").as_deref(), Some("2027-01-01T00:00:00Z"));
    assert_eq!(moment("90d").as_deref(), Some("2027-02-27T21:00:00Z"));
    assert_eq!(moment("12h").as_deref(), Some("2026-11-30T09:00:00Z"));
    assert_eq!(moment("2026-01-01"), None, "it has passed");
    assert!("tomorrow".parse::<Expiry>().unwrap_err().contains("90d"));
}

#[test]
fn the_table_shows_what_there_is() {
    let keys = [
        Listed { id: "0123456789a".into(), record: record("ci", None), declared: true },
        Listed { id: "abcdefghijk".into(), record: record("laptop", Some("2026-11-29T21:30:00Z")), declared: false },
        Listed { id: "zyxwvutsrqp".into(), record: record("phone", Some("2027-01-01T00:00:00Z")), declared: false },
    ];
    let used = BTreeMap::from([("abcdefghijk".to_owned(), "2026-11-29T21:20:00Z".parse().unwrap())]);
    insta::assert_snapshot!(table(&keys, &used, "2026-11-29T22:00:00Z".parse().unwrap()));
}

#[test]
fn a_key_is_named_by_name_or_hint_and_never_guessed() {
    let keys = [
        Listed { id: "0123456789a".into(), record: record("laptop", None), declared: false },
        Listed { id: "abcdefghijk".into(), record: record("laptop", None), declared: false },
        Listed { id: "zyxwvutsrqp".into(), record: record("012345", None), declared: false },
    ];
    let chosen =
        |name: &str| choose(&keys, name, "weather").map(|key| key.id.clone()).map_err(|error| error.to_string());
    assert_eq!(chosen("abcdef").as_deref(), Ok("abcdefghijk"));
    assert_eq!(chosen("012345").as_deref(), Ok("zyxwvutsrqp"), "a name goes before a hint");
    assert_eq!(chosen("laptop"), Err("weather has 2 keys laptop: name one by its hint: 012345, abcdef".into()));
    assert!(chosen("none").unwrap_err().contains("has no key none"));
}

#[tokio::test]
async fn a_key_is_made_without_a_secret_and_beside_others_and_only_its_hash_is_stored() {
    let fake = fake();
    let target = target(&fake).await;
    let first = make(&target, "laptop", None).await.unwrap();
    let second = make(&target, "phone", Some("90d".parse().unwrap())).await.unwrap();
    let stored = fake.get(KEYS).unwrap();
    assert_eq!(stored["metadata"]["ownerReferences"][0]["uid"], "u1");
    let secret: Secret = serde_json::from_value(stored.clone()).unwrap();
    let keys = listed(Some(&secret));
    let names: Vec<_> = keys.iter().map(|key| (key.record.metadata.name.as_str(), key.id.as_str())).collect();
    assert_eq!(names, [("laptop", first.id()), ("phone", second.id())]);
    assert_eq!(keys[0].record.key_hash, first.hash());
    let bytes: String =
        secret.data.unwrap().values().map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned()).collect();
    assert!(!bytes.contains(first.expose()) && !stored.to_string().contains(first.expose()));
}

#[tokio::test]
async fn a_name_is_used_once_and_declared_names_are_the_operators() {
    let fake = fake();
    let target = target(&fake).await;
    make(&target, "laptop", None).await.unwrap();
    let error = |name: &'static str| {
        let target = &target;
        async move { make(target, name, None).await.unwrap_err().to_string() }
    };
    assert!(error("laptop").await.contains("already"));
    assert!(error("ci").await.contains("declares a key ci"));
    assert!(error("No Spaces").await.contains("lower-case"));
    assert_eq!(fake.count(&http::Method::PATCH, "weather.keys"), 1);
}

#[tokio::test]
async fn a_secret_that_comes_or_goes_at_the_same_time_is_no_obstacle() {
    let fake = fake();
    let target = target(&fake).await;
    fake.fail(http::Method::POST, "/secrets", 409, "AlreadyExists");
    make(&target, "laptop", None).await.unwrap();
    fake.fail(http::Method::PATCH, "weather.keys", 409, "the UID is another one");
    make(&target, "phone", None).await.unwrap();
    let secret: Secret = serde_json::from_value(fake.get(KEYS).unwrap()).unwrap();
    assert_eq!(listed(Some(&secret)).len(), 2);
}

#[tokio::test]
async fn a_foreign_secret_is_left_untouched() {
    let fake = fake();
    let target = target(&fake).await;
    let foreign = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "weather.keys", "uid": "x"}});
    fake.put(KEYS, foreign.clone());
    assert!(make(&target, "laptop", None).await.unwrap_err().to_string().contains("does not belong"));
    assert!(take(&target, "laptop").await.unwrap_err().to_string().contains("does not belong"));
    assert_eq!((fake.get(KEYS), fake.writes()), (Some(foreign), 0));
}

#[tokio::test]
async fn revoking_takes_one_entry_and_says_when_it_comes_back() {
    let fake = fake();
    let target = target(&fake).await;
    let laptop = make(&target, "laptop", None).await.unwrap();
    make(&target, "phone", None).await.unwrap();
    assert_eq!(take(&target, "laptop").await.unwrap(), [format!("revoked key laptop ({})", laptop.hint())]);
    let mut stored = fake.get(KEYS).unwrap();
    assert_eq!(stored["data"].as_object().unwrap().len(), 1);

    let ci = Key::from_entropy(&[5; ENTROPY]);
    stored["data"][ci.id()] = json!(STANDARD.encode(record("ci", None).to_json().unwrap()));
    stored["metadata"]["annotations"][names::ANNOTATION_DECLARED] = json!(json!({"ci": ci.id()}).to_string());
    fake.put(KEYS, stored);
    let said = take(&target, "ci").await.unwrap();
    assert!(said[1].contains("auth.keys"), "{said:?}");
}

#[tokio::test]
async fn a_server_that_does_not_exist_is_named() {
    let arguments = cli::Server { server: "wether".into(), namespace: Some("demo".into()), kubeconfig: None };
    let error = Target::find_with(fake().client(), &arguments).await.map(|_| ()).unwrap_err();
    assert_eq!(error.to_string(), "there is no McpServer wether in namespace demo");
}
