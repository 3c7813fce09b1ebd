//! Which revision of the protocol one request speaks, and what the newest demands of it. Told per request, from headers
//! and `params._meta`; nothing is remembered.

use std::borrow::Cow;

use base64_decode::decode;
use http::HeaderMap;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The modern revision: no session, no handshake, every request complete in itself.
pub const MODERN: &str = "2026-07-28";
/// The revisions with a handshake, newest first.
pub const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// Names the revision on every request after the handshake.
pub const VERSION_HEADER: &str = "mcp-protocol-version";

const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

const INVALID_PARAMS: i64 = -32602;
const HEADER_MISMATCH: i64 = -32020;
const UNSUPPORTED_VERSION: i64 = -32022;

/// Every revision that is served, newest first.
pub fn all_versions() -> impl Iterator<Item = &'static str> {
    std::iter::once(MODERN).chain(LEGACY)
}

/// The revision that `initialize` is answered with.
pub fn negotiate(asked: Option<Cow<'_, str>>) -> &'static str {
    let [newest, ..] = LEGACY;
    asked.and_then(|asked| LEGACY.into_iter().find(|known| *known == asked)).unwrap_or(newest)
}

/// How a request is to be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// 2024-11-05 to 2025-11-25.
    Legacy,
    /// 2026-07-28.
    Modern,
}

/// Why a request cannot be understood: 400 in both eras.
#[derive(Debug)]
pub struct Problem {
    /// JSON-RPC code.
    pub code: i64,
    /// In words.
    pub message: String,
    /// For clients that can act on it.
    pub data: Option<Value>,
}

impl Problem {
    /// A revision that is not served; clients pick another one from `data.supported`.
    pub fn unsupported(requested: &str) -> Self {
        let supported: Vec<_> = all_versions().collect();
        Self {
            code: UNSUPPORTED_VERSION,
            message: format!("Unsupported protocol version; supported are {}", supported.join(", ")),
            data: Some(json!({"supported": supported, "requested": requested})),
        }
    }

    fn mismatch(header: &str) -> Self {
        let message = format!("Header mismatch: {header} must be there and say the same as the body");
        Self { code: HEADER_MISMATCH, message, data: None }
    }

    fn meta(field: &str) -> Self {
        Self { code: INVALID_PARAMS, message: format!("params._meta must have {field}"), data: None }
    }
}

impl Era {
    /// Tells the era, and checks what it demands.
    pub fn of(headers: &HeaderMap, method: &str, params: &Params<'_>) -> Result<Self, Problem> {
        let in_header = header(headers, VERSION_HEADER);
        let in_body = params.meta(META_VERSION);
        // A legacy `initialize` may carry any version header.
        let modern = in_body.is_some() || (method != "initialize" && in_header.as_deref() == Some(MODERN));
        if !modern {
            return legacy_version(headers, method).map(|()| Self::Legacy);
        }
        let version = in_body.and_then(string).ok_or_else(|| Problem::meta(META_VERSION))?;
        if in_header.as_deref() != Some(version.as_ref()) {
            return Err(Problem::mismatch("MCP-Protocol-Version"));
        }
        if version != MODERN {
            return Err(Problem::unsupported(&version));
        }
        if !params.meta(META_CAPABILITIES).is_some_and(|raw| raw.get().starts_with('{')) {
            return Err(Problem::meta(META_CAPABILITIES));
        }
        if header(headers, "mcp-method").as_deref() != Some(method) {
            return Err(Problem::mismatch("Mcp-Method"));
        }
        if method == "tools/call" && header(headers, "mcp-name").as_deref() != params.name().as_deref() {
            return Err(Problem::mismatch("Mcp-Name"));
        }
        Ok(Self::Modern)
    }
}

/// A legacy request may leave the version header out; an unknown one is refused on anything but `initialize`.
pub fn legacy_version(headers: &HeaderMap, method: &str) -> Result<(), Problem> {
    match header(headers, VERSION_HEADER) {
        Some(version) if method != "initialize" && !LEGACY.contains(&version.as_ref()) => {
            Err(Problem::unsupported(&version))
        }
        _ => Ok(()),
    }
}

/// A header's one value, decoded where it is written `=?base64?…?=`.
pub fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    let mut values = headers.get_all(name).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let text = value.to_str().ok()?.trim();
    match text.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        Some(encoded) => String::from_utf8(decode(encoded)?).ok(),
        None => Some(text.to_owned()),
    }
}

/// The members of `params` that are read here, each as it was written.
#[derive(Debug, Default, Deserialize)]
pub struct Params<'a> {
    #[serde(borrow, default)]
    name: Option<&'a RawValue>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, default)]
    cursor: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "protocolVersion")]
    protocol_version: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<Meta<'a>>,
}

#[derive(Debug, Deserialize)]
struct Meta<'a> {
    #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: Option<&'a RawValue>,
}

impl<'a> Params<'a> {
    /// Reads `params` of a whole message.
    pub fn read(body: &'a [u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Envelope<'a> {
            #[serde(borrow, default)]
            params: Option<&'a RawValue>,
        }
        let envelope: Envelope<'a> = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        match envelope.params {
            None => Ok(Self::default()),
            Some(params) if params.get().starts_with('{') => serde_json::from_str(params.get()).map_err(|error| {
                format!("params: {}", error.to_string().split(" at line ").next().unwrap_or_default())
            }),
            Some(_) => Err("params must be an object".into()),
        }
    }

    /// `params.name`, if it is a string.
    pub fn name(&self) -> Option<Cow<'a, str>> {
        self.name.and_then(string)
    }

    /// `params.arguments`, as written.
    pub fn arguments(&self) -> Option<&'a RawValue> {
        self.arguments
    }

    /// `params.cursor`.
    pub fn cursor(&self) -> Option<&'a RawValue> {
        self.cursor.filter(|raw| raw.get() != "null")
    }

    /// `params.protocolVersion` of an `initialize`.
    pub fn protocol_version(&self) -> Option<Cow<'a, str>> {
        self.protocol_version.and_then(string)
    }

    fn meta(&self, key: &str) -> Option<&'a RawValue> {
        let meta = self.meta.as_ref()?;
        if key == META_VERSION { meta.version } else { meta.capabilities }
    }
}

fn string(raw: &RawValue) -> Option<Cow<'_, str>> {
    serde_json::from_str::<String>(raw.get()).ok().map(Cow::Owned)
}

mod base64_decode {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    /// Standard base64.
    pub fn decode(text: &str) -> Option<Vec<u8>> {
        STANDARD.decode(text).ok()
    }
}
