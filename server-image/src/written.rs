//! Understands a configuration that a person wrote, JSON or YAML. Whatever is wrong is told in words about the file: where,
//! and what belongs there. No value of it is ever in them, because it may be a secret.

mod shape;

use mooring_contract::Config;
use mooring_contract::config::{VERSION, check_version};
use mooring_contract::document::{self, Document, twice};
use serde_json::Value;

/// Where a Kubernetes object stands in its place.
const KUBERNETES: &str = "it is a Kubernetes object; the file to name here is what `mooring render` prints of it as config.json, or one of \
                          your own with server and source";

/// Understands it; the error names the place.
pub fn understand(bytes: &[u8]) -> Result<Config, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is no text in UTF-8".to_owned())?;
    let documents = documents(text)?;
    if documents.iter().any(|document| document.get("apiVersion").is_some()) {
        return Err(KUBERNETES.to_owned());
    }
    let document = match <[Value; 1]>::try_from(documents) {
        Ok([Value::Null]) => return Err("it is empty: write at least server and source".to_owned()),
        Ok([document]) => document,
        Err(none) if none.is_empty() => return Err("it is empty: write at least server and source".to_owned()),
        Err(several) => return Err(format!("it has {} documents (---): write one", several.len())),
    };
    require(&document)?;
    let version = document.get("version").and_then(Value::as_u64).and_then(|version| u32::try_from(version).ok());
    let version = version.unwrap_or(VERSION);
    check_version(version).map_err(|error| error.to_string())?;
    // The operator's files may be newer than this build; a person's field that is not read is a mistake.
    shape::check(&document, version > VERSION).map_err(|error| error.to_string())?;
    document::understand(Document(document)).map_err(|error| error.to_string())
}

/// JSON is hardly ever no YAML; where it is meant, its own reader tells better what is wrong.
fn documents(text: &str) -> Result<Vec<Value>, String> {
    let first = text.trim_start_matches(['{', ' ', '\t', '\r', '\n']);
    // To YAML a comment of this kind is a field's name.
    let has_comment = ["//", "/*"].iter().any(|begin| first.starts_with(begin));
    let json = if text.trim_start().starts_with('{') {
        match serde_json::from_str(text) {
            Ok(Document(value)) => return Ok(vec![value]),
            Err(error) if error.is_data() => return Err(error.to_string()),
            Err(error) if has_comment => return Err(format!("it is no JSON, which has no comments: {error}")),
            Err(error) => Some(error),
        }
    } else {
        None
    };
    let options = serde_saphyr::options! {
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        with_snippet: false,
    };
    match serde_saphyr::from_multiple_with_options::<Document>(text, options) {
        Ok(documents) => Ok(documents.into_iter().map(|Document(value)| value).collect()),
        Err(error) => {
            let is_json = |_: &_| first.starts_with('"');
            Err(json.filter(is_json).map_or_else(|| of_yaml(&error), |error| format!("it is no JSON: {error}")))
        }
    }
}

fn of_yaml(error: &serde_saphyr::Error) -> String {
    match error.without_snippet() {
        serde_saphyr::Error::DuplicateMappingKey { key: Some(key), location } => {
            format!("{} at line {} column {}", twice(key), location.line(), location.column())
        }
        serde_saphyr::Error::NonFiniteFloat { location, .. } => {
            format!("a number must be finite at line {} column {}", location.line(), location.column())
        }
        error => format!("it is no YAML: {error}"),
    }
}

/// What has no default, and how it is written.
fn require(document: &Value) -> Result<(), &'static str> {
    if !document.is_object() {
        return Err("it is no list and no text, but fields: write at least server and source");
    }
    if document.pointer("/server/name").is_none() {
        return Err("server.name is missing: write `server: {name: weather}`, what the server calls itself");
    }
    if document.get("source").is_none() {
        return Err(
            "source is missing: write `source: {tools: [...]}`, or `source: {http: {port: 8000, path: /mcp}}` \
                    for an HTTP MCP server on this machine",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use mooring_contract::config::{
        Cors, HeaderValue, HttpBackend, Identity, Limits, Override, Overrides, Security, ServedOver, SessionMode,
        Sessions, Source, Tool, ToolHeader, ToolRequest, Transport, no_arguments,
    };
    use serde_json::json;

    use super::*;

    fn told(text: &str) -> String {
        understand(text.as_bytes()).expect_err(text)
    }

    #[test]
    fn a_name_and_a_source_are_enough() {
        let yaml = "
server: {name: weather}
source:
  tools:
    - name: forecast
      http: {url: 'http://localhost:8000/forecast'}
";
        let config = understand(yaml.as_bytes()).unwrap();
        assert_eq!((config.path.as_str(), config.limits.body_bytes), ("/", 4_194_304));
        assert!(!config.security.anonymous && config.security.hosts.is_empty());
        let Source::Tools(tools) = &config.source else { panic!("{config:?}") };
        assert_eq!((tools[0].http.method.as_str(), tools[0].http.timeout_ms), ("GET", 30_000));
        assert_eq!(tools[0].input_schema["additionalProperties"], false);
        // The operator's own text is read as it is.
        let json = config.to_json().unwrap();
        assert_eq!(understand(json.as_bytes()).unwrap(), config);
    }

    /// What is written, and what is said of it.
    const FILES: &[(&str, &str)] = &[
        ("", "it is empty"),
        ("---\n", "it is empty"),
        ("# nothing\n", "it is empty"),
        ("{", "it is no YAML"),
        (
            "{\n// the server\n\"server\": {\"name\": \"a\"}}",
            "it is no JSON, which has no comments: key must be a string at line 2 column 1",
        ),
        ("{\"server\": {\"name\": \"a\"} \"source\": 1}", "it is no JSON: expected `,` or `}` at line 1 column 26"),
        ("a: [", "it is no YAML"),
        ("a: .inf", "a number must be finite at line 1 column 4"),
        ("- a", "it is no list and no text, but fields: write at least server and source"),
        ("a", "it is no list and no text, but fields"),
        ("server: {name: a}", "source is missing: write `source: {tools: [...]}`"),
        ("server: {name: a}\nsources: {tools: []}", "source is missing"),
        ("source: {tools: []}", "server.name is missing: write `server: {name: weather}`"),
        ("server: {}\nsource: {tools: []}", "server.name is missing"),
        ("server:\nsource: {tools: []}", "server.name is missing"),
        ("server: weather\nsource: {tools: []}", "server.name is missing"),
        ("server: {name: 7}\nsource: {}", "server.name: it must be a text, so put it in quotes, and a number is there"),
        ("server: {name: a}\nsource: []", "source: it must have fields (tools, http), and a list is there"),
        ("server: {name: a}\nsource: {}", "source: exactly one of tools and http must be there"),
        ("server: {name: a}\nsource: {tool: []}", "source.tool: there is no such field; tools may be meant"),
        (
            "server: {name: a}\nsource: {tools: [], http: {port: 1, path: /}}",
            "source: exactly one of tools and http must be there",
        ),
        ("server: {name: a}\nsource: {tools: {}}", "source.tools: it must be a list, and a field with fields is there"),
        ("server: {name: a}\nsource: {http: {port: 1}}", "source.http.path: it is missing"),
        ("server: {name: a}\nsource: {http: {port: 65536, path: /}}", "source.http.port: it must be at most 65535"),
        (
            "server: {name: a}\nsource: {http: {port: 1, path: /, transport: http}}",
            "source.http.transport: it must be streamableHttp or sse",
        ),
        ("server: {name: a}\nsource: {tools: [{name: b}]}", "source.tools[0].http: it is missing"),
        ("server: {name: a}\nsource: {tools: []}\ntolls: 1", "tolls: there is no such field"),
        (
            "server: {name: a}\nsource: {tools: []}\nsecurity: {anonymos: true}",
            "security.anonymos: there is no such field; anonymous may be meant",
        ),
        (
            "server: {name: a}\nsource: {tools: []}\nsecurity: {anonymous: yes}",
            "security.anonymous: it must be true or false, and a text is there",
        ),
        (
            "server: {name: a}\nsource: {tools: []}\nsecurity:",
            "security: it must have fields (hosts, allowedHosts, origins",
        ),
        (
            "server: {name: a}\nsource: {tools: []}\nlimits: {requests: -1}",
            "limits.requests: it must be a whole number",
        ),
        (
            "server: {name: a}\nsource: {tools: []}\nlimits: {requests: 010}",
            "limits.requests: it must be a whole number",
        ),
        ("version: 9\nserver: {name: a}\nsource: {tools: []}", "version 9"),
        ("apiVersion: mooring.dev/v1alpha1\nkind: McpServer", "mooring render"),
        ("apiVersion: v1\nkind: ConfigMap\n---\napiVersion: v1\nkind: Secret", "mooring render"),
        ("server: {name: a}\nsource: {tools: []}\n---\nserver: {name: b}", "it has 2 documents (---): write one"),
        ("server: {name: a}\nserver: {name: b}", "server is there twice at line 2 column 1"),
        (
            "server: {name: a}\nsource: {tools: [{name: b, inputSchema: {type: object, type: object}}]}",
            "type is there twice at line 2 column",
        ),
        ("{\"server\": {\"name\": \"a\"}, \"server\": 1}", "server is there twice at line 1 column"),
        (
            r#"{"server": {"name": "a"}, "source": {"tools": []}, "security": {"anonymous": false, "anonymous": true}}"#,
            "anonymous is there twice at line 1 column",
        ),
    ];

    /// The same of a tool's request.
    const REQUESTS: &[(&str, &str)] = &[
        ("{url: 'http://a', timeout: 1}", ".timeout: there is no such field; timeoutMs may be meant"),
        ("{url: 'http://a', tmeout: 1}", ".tmeout: there is no such field; timeoutMs may be meant"),
        (
            "{url: 'http://a', timeoutMs: 10s}",
            ".timeoutMs: it must be a whole number, and not below 0, and a text is there",
        ),
        (
            "{url: 'http://a', timeoutMs: 1.5}",
            ".timeoutMs: it must be a whole number, and not below 0, and a number is there",
        ),
        ("'http://a'", ": it must have fields (method, url, timeoutMs, headers), and a text is there"),
        ("{url: 'http://a', headers: {A: b}}", ".headers: it must be a list, and a field with fields is there"),
        ("{url: 'http://a', headers: [{name: A}]}", ".headers[0]: exactly one of value and env must be there"),
        (
            "{url: 'http://a', headers: [{name: A, value: s3cret, env: C}]}",
            ".headers[0]: exactly one of value and env must be there",
        ),
        (
            "{url: 'http://a', headers: [{name: A, value: s3cret, extra: 1}]}",
            ".headers[0].extra: there is no such field",
        ),
        ("{url: 'http://a', headers: [{name: A, 'value:s3cret': }]}", ".headers[0]: the name of a field there is none"),
        ("{url: 'http://a', headers: [{value: s3cret}]}", ".headers[0].name: it is missing"),
        (
            "{url: 'http://a', headers: [{name: A, value: [s3cret]}]}",
            ".headers[0].value: it must be a text, and a list is",
        ),
    ];

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (text, said) in FILES {
            let error = told(text);
            assert!(error.contains(said), "{text}: {error}");
            for word in ["Rust", "u64", "struct", "enum", "variant", "Policy", "from_str", "map"] {
                assert!(!error.contains(word), "{text}: {error}");
            }
        }
        for (request, said) in REQUESTS {
            let error = told(&format!("server: {{name: a}}\nsource: {{tools: [{{name: b, http: {request}}}]}}"));
            assert!(error.starts_with(&format!("source.tools[0].http{said}")), "{request}: {error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
        assert!(understand(b"version: 2\nserver: {name: a}\nsource: {tools: []}\nlater: 1").is_ok());
    }

    /// Whatever is amiss with the text: each character left out, and each character replaced.
    #[test]
    fn no_error_has_a_value() {
        let yaml = "
server: {name: weather}
source:
  tools:
    - name: forecast
      http:
        url: 'http://localhost:8000/'
        headers:
          - {name: authorization, value: \"Bearer s3cr3t\"}
          - name: x-other
            value: s3cr3t
          - name: x-long
            value: >
              s3cr3t
";
        let json = r#"{"server": {"name": "weather"}, "source": {"tools": [{"name": "forecast", "http": {
            "url": "http://localhost:8000/", "headers": [{"name": "authorization", "value": "s3cr3t"}]}}]}}"#;
        let others = [
            "", "\n", "\t", ":", ": ", "[", "]", "{", "}", "'", "\"", "&", "*", "!", "|", "%", "@", "\\", "#", "? ",
            "- ",
        ];
        let mut told = 0;
        for text in [yaml, json] {
            assert!(understand(text.as_bytes()).is_ok());
            for (place, _) in text.char_indices() {
                let (before, after) = (&text[..place], &text[place + 1..]);
                for other in others {
                    let Err(error) = understand(format!("{before}{other}{after}").as_bytes()) else { continue };
                    told += 1;
                    assert!(!error.contains("s3cr"), "{before}{other}{after}: {error}");
                }
            }
        }
        assert!(told > 1000, "{told}");
    }

    /// YAML 1.2: what its predecessor took for a switch or a number is a text.
    #[test]
    fn a_text_stays_a_text() {
        let yaml = "
{server: {name: weather}, source: {tools: [{name: a, http: {url: 'http://a'}, inputSchema: {
  type: object, enum: [yes, no, on, off, y, N, 010, 1_000, 0o17, true, 7, 1.5, ~]}}]}}";
        let Source::Tools(tools) = understand(yaml.as_bytes()).unwrap().source else { panic!() };
        let expected = json!(["yes", "no", "on", "off", "y", "N", "010", "1_000", 15, true, 7, 1.5, null]);
        assert_eq!(tools[0].input_schema["enum"], expected);
    }

    /// Every field of the format is known here, and no other.
    #[test]
    fn the_fields_are_those_of_the_format() {
        let request = ToolRequest {
            method: "GET".into(),
            url: "http://a".into(),
            timeout_ms: 1,
            headers: vec![
                ToolHeader { name: "A".into(), value: HeaderValue::Value("b".into()) },
                ToolHeader { name: "C".into(), value: HeaderValue::Env("D".into()) },
            ],
        };
        let other =
            Override { description: Some("d".into()), input_schema: Some(no_arguments()), http: Some(request.clone()) };
        let tool = Tool {
            name: "a".into(),
            title: Some("t".into()),
            description: Some("d".into()),
            input_schema: no_arguments(),
            http: request,
            overrides: Overrides { stdio: Some(other.clone()), http: Some(other) },
        };
        let texts = || vec!["a".to_owned()];
        let tools = Config {
            version: VERSION,
            server: Identity { namespace: "n".into(), name: "a".into(), uid: "u".into() },
            path: "/".into(),
            security: Security {
                hosts: texts(),
                allowed_hosts: texts(),
                origins: texts(),
                cors: Cors {
                    origins: texts(),
                    headers: texts(),
                    expose_headers: texts(),
                    credentials: true,
                    max_age_seconds: 1,
                },
                anonymous: true,
                key_secrets: texts(),
                trusted_proxies: texts(),
            },
            source: Source::Tools(vec![tool]),
            limits: Limits::default(),
            sessions: Sessions { mode: SessionMode::Stateless, ..Sessions::default() },
        };
        let backend = HttpBackend { port: 1, path: "/".into(), transport: Transport::Sse };
        let http = Config { source: Source::Http(backend), ..tools.clone() };
        for config in [tools, http] {
            assert_eq!(understand(config.to_json().unwrap().as_bytes()).unwrap(), config);
        }
    }

    #[test]
    fn a_tool_is_otherwise_over_one_transport() {
        let yaml = "
server: {name: weather}
source:
  tools:
    - name: forecast
      description: base
      http: {url: 'http://base/'}
      overrides:
        stdio: {description: local, http: {url: 'http://localhost/'}}
        http: {inputSchema: {type: object}}
";
        let Source::Tools(tools) = understand(yaml.as_bytes()).unwrap().source else { panic!() };
        let over = |transport| {
            let tool = tools[0].clone().over(transport);
            (tool.description.unwrap(), tool.http.url, tool.input_schema.len(), tool.overrides.is_empty())
        };
        assert_eq!(over(ServedOver::Stdio), ("local".into(), "http://localhost/".into(), 2, true));
        assert_eq!(over(ServedOver::Http), ("base".into(), "http://base/".into(), 1, true));
    }
}
