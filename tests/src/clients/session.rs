//! What a client is told to do in one session.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

/// Which versions of the protocol a client speaks, where it has the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Those up to 2025-11-25, which begin with `initialize`.
    Legacy,
    /// The newest that the server has.
    Auto,
    /// 2026-07-28 and nothing older.
    Modern,
}

/// How a client speaks HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Transport {
    /// Streamable HTTP, at an endpoint that ends in `/mcp`.
    StreamableHttp,
    /// HTTP+SSE, the transport of 2024-11-05, at an event stream that ends in `/sse`.
    Sse,
}

/// One session of a client.
#[derive(Clone, Debug, Serialize)]
pub struct Session {
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<IpAddr>,
    headers: BTreeMap<String, String>,
    mode: Mode,
    transport: Transport,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<Vec<String>>,
    listen: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    cancel: Option<Cancel>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<Call>,
    #[serde(skip_serializing_if = "Option::is_none")]
    interrupted: Option<u16>,
    /// The certificate of an authority, PEM.
    #[serde(skip)]
    trusted: Option<PathBuf>,
}

/// A call of a tool.
#[derive(Clone, Debug, Serialize)]
pub struct Call {
    /// The tool.
    pub name: String,
    /// Its arguments, an object.
    pub arguments: Value,
}

/// A call that is begun and cancelled.
#[derive(Clone, Debug, Serialize)]
pub struct Cancel {
    /// The call.
    pub call: Call,
    /// Another beside it, whose answer says that it is time.
    pub after: Call,
}

impl Call {
    fn new(tool: &str, arguments: Value) -> Self {
        Self { name: tool.to_owned(), arguments }
    }
}

impl Session {
    /// A session with the server at this URL.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            address: None,
            headers: BTreeMap::new(),
            mode: Mode::Auto,
            transport: Transport::StreamableHttp,
            command: None,
            listen: false,
            cancel: None,
            call: None,
            interrupted: None,
            trusted: None,
        }
    }

    /// A session with a program that the client starts and that serves its standard streams.
    pub fn program(program: &Path) -> Self {
        Self { command: Some(vec![program.display().to_string()]), ..Self::new("") }
    }

    /// Leads every host name to this address; the port stays that of the URL.
    #[must_use]
    pub fn resolve_to(mut self, address: IpAddr) -> Self {
        self.address = Some(address);
        self
    }

    /// Presents a key as `Authorization: Bearer`.
    #[must_use]
    pub fn key(self, key: &str) -> Self {
        self.header("Authorization", &format!("Bearer {key}"))
    }

    /// Sends a header with each request.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Speaks these versions, where the client has the choice.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Speaks only the versions up to 2025-11-25, where the client could speak newer ones.
    #[must_use]
    pub fn legacy(self) -> Self {
        self.mode(Mode::Legacy)
    }

    /// Trusts this authority, a file of PEM, for `https`.
    #[must_use]
    pub fn trust(mut self, authority: &Path) -> Self {
        self.trusted = Some(authority.to_owned());
        self
    }

    /// Speaks this transport; the URL is that of its endpoint. Not every client knows the older one.
    #[must_use]
    pub fn over(mut self, transport: Transport) -> Self {
        self.transport = transport;
        self
    }

    /// Opens a stream of changes before the list: `subscriptions/listen` of 2026-07-28. For the official SDKs' clients of both eras.
    #[must_use]
    pub fn listen(mut self) -> Self {
        self.listen = true;
        self
    }

    /// Begins a call of the first tool, without arguments, and cancels it as soon as the second is answered.
    #[must_use]
    pub fn cancel(mut self, tool: &str, after: &str) -> Self {
        let call = |tool| Call::new(tool, Value::Object(serde_json::Map::new()));
        self.cancel = Some(Cancel { call: call(tool), after: call(after) });
        self
    }

    /// Calls a tool after the list.
    #[must_use]
    pub fn call(mut self, tool: &str, arguments: Value) -> Self {
        self.call = Some(Call::new(tool, arguments));
        self
    }

    /// Stops after the call, until whoever listens at this port of 127.0.0.1 hangs up; then makes the same call twice more, whatever it says.
    #[must_use]
    pub fn interrupted(mut self, port: u16) -> Self {
        self.interrupted = Some(port);
        self
    }

    /// The authority that it trusts.
    pub fn trusted(&self) -> Option<&Path> {
        self.trusted.as_deref()
    }

    /// The URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The headers of each request.
    pub fn headers(&self) -> &BTreeMap<String, String> {
        &self.headers
    }

    /// The transport.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// The versions that it speaks.
    pub fn versions(&self) -> Mode {
        self.mode
    }

    /// The call at its end.
    pub fn last_call(&self) -> Option<&Call> {
        self.call.as_ref()
    }
}
