use super::*;

const FILE: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: weather-api}
---
apiVersion: mooring.dev/v1alpha1
kind: McpServer
metadata: {name: weather, namespace: demo}
spec:
  tools:
    - name: forecast
      inputSchema: {type: object, properties: {city: {type: string}}, required: [city]}
      http: {url: "http://weather-api:8000/v1/forecast?city={city}"}
  hosts: [mcp.example.com]
  path: /weather
  ingress: {className: traefik, tls: {secretName: mcp-tls}}
  auth:
    keys: [{name: laptop}, {name: ci, expires: "2027-01-01T00:00:00Z"}]
    keySecrets: [{name: from-vault}]
  replicas: 2
"#;

fn rendered(text: &str) -> String {
    let servers = parse(text, "default").unwrap();
    let settings = Settings { front_door_image: "example.com/mooring-server:1".into(), ..Settings::default() };
    render(&servers[0], &observed(&servers[0], Some("traefik.io/ingress-controller")), &settings).unwrap()
}

fn refusal(text: &str) -> String {
    format!("{:#}", parse(text, "default").map(|_| ()).unwrap_err())
}

fn server(spec: &str) -> String {
    format!("apiVersion: mooring.dev/v1alpha1\nkind: McpServer\nmetadata: {{name: a}}\nspec: {spec}\n")
}

#[test]
fn children_are_shown_exactly_and_what_is_random_as_a_placeholder() {
    let text = rendered(FILE);
    assert!(!text.contains("mk_"), "a key's text is shown");
    assert!(!text.contains(Key::from_entropy(&[1; ENTROPY]).id()), "an id that no key has is shown");
    insta::assert_snapshot!(text);
}

#[test]
fn every_document_is_an_object_of_its_own() {
    let documents: Vec<Value> = serde_saphyr::from_multiple(&rendered(FILE)).unwrap();
    let kinds: Vec<_> = documents.iter().map(|document| document["kind"].as_str().unwrap()).collect();
    let expected = [
        "Secret",
        "Secret",
        "Secret",
        "ServiceAccount",
        "ConfigMap",
        "Secret",
        "NetworkPolicy",
        "Service",
        "Deployment",
        "PodDisruptionBudget",
        "Ingress",
    ];
    assert_eq!(kinds, expected);
}

#[test]
fn what_cannot_be_read_is_refused_with_field_and_reason() {
    assert_eq!(refusal("kind: [").split(':').next(), Some("this is no YAML"));
    assert_eq!(refusal("kind: ConfigMap"), "there is no McpServer in it");
    assert!(
        refusal(&server("{replicas: three}")).starts_with("document 1: spec.replicas: invalid type: string \"three\"")
    );
    assert_eq!(
        refusal(&server("{http: {image: a, port: 1, portt: 2}}")),
        "document 1: spec.http.portt: there is no such field"
    );
    let older = server("{}").replace("v1alpha1", "v1");
    assert!(refusal(&older).contains("mooring.dev/v1 McpServer, not mooring.dev/v1alpha1"));
    assert_eq!(
        refusal("kind: McpServer"),
        "document 1: apiVersion and kind are (nothing) McpServer, not mooring.dev/v1alpha1 McpServer"
    );
    assert!(refusal(&server("{}").replace("name: a", "labels: {}")).contains("metadata.name"));
}

#[test]
fn empty_fields_are_no_mistake() {
    let spec = "{tools: null, hosts: [], http: {image: a, port: 1, env: []}, pod: {labels: {}}}";
    assert_eq!(parse(&server(spec), "default").unwrap().len(), 1);
}

#[test]
fn a_spec_that_cannot_be_served_names_the_field() {
    let servers = parse(&server("{replicas: 1}"), "default").unwrap();
    let error = render(&servers[0], &Observed::default(), &Settings::default()).unwrap_err().to_string();
    assert!(error.starts_with("default/a: spec"), "{error}");
}
