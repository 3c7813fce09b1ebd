//! What the log says of what is enforced.

use serde_json::json;

use super::Log;
use super::front::{Front, http_config};

/// Each field of the configuration that is enforced, with a value of its own.
#[tokio::test]
async fn all_that_is_enforced_is_one_line_in_the_log() {
    let mut config = http_config(8000);
    config["security"] = json!({
        "hosts": ["mcp.example.com"],
        "allowedHosts": ["other.example.com:8443"],
        "origins": ["https://app.example.com"],
        "trustedProxies": ["10.0.0.0/8"],
        "keySecrets": ["partners"],
        "cors": {
            "origins": ["https://reader.example.com"],
            "headers": ["X-Asked"],
            "exposeHeaders": ["X-Told"],
            "credentials": true,
            "maxAgeSeconds": 7,
        },
    });
    config["limits"] = json!({
        "bodyBytes": 1101,
        "bodyBytesTotal": 2002,
        "callTimeoutMs": 3003,
        "connections": 4004,
        "requests": 5005,
        "streamsPerPrincipal": 6006,
        "headerBytes": 7007,
        "headerCount": 88,
        "uriBytes": 999,
        "headerTimeoutMs": 10_010,
        "bodyTimeoutMs": 11_011,
        "idleTimeoutMs": 12_012,
        "writeTimeoutMs": 13_013,
    });
    config["sessions"] = json!({"idleTimeoutMs": 14_014, "maxPerPod": 15_015, "maxAgeMs": 16_016, "drainMs": 17_017});
    let log = Log::new();
    let front = Front::new(&config);
    config["sessions"]["mode"] = "Stateless".into();
    front.config.swap(&[("config.json", &config.to_string())]);
    front.reloader().reload();
    let [line, stateless] = &log.lines("enforcing")[..] else { panic!("two reloads, two lines") };
    insta::assert_snapshot!(serde_json::to_string_pretty(line).unwrap());
    assert_eq!(stateless["sessions"], "stateless");
}
