//! One call of a declared tool: judge the arguments, make the HTTP request, and tell its answer as a tool result. A
//! fault of the arguments or an answer that is no success is a tool result that says so, for the model to act on; an API
//! that cannot be reached is a fault of the tool.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, LOCATION, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use jsonschema::Validator;
use mooring_contract::config::{HeaderValue as Setting, Tool, ToolHeader};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::arguments::{self, Arguments};
use super::mirror::{self, Mirror};
use super::template::Template;
use crate::clients::{ApiClient, Clients};
use crate::era::Era;
use crate::headers::essence;
use crate::log::cause;
use crate::refusal::Refusal;
use crate::rules::Environment;

/// Largest answer of an API that is passed on.
pub const ANSWER_MAXIMUM: usize = 4 * 1024 * 1024;
/// Longest part of an API's error page that is told.
const ERROR_MAXIMUM: usize = 16 * 1024;
/// Redirects within the API's own origin that are followed.
const REDIRECTS: usize = 5;

/// A compiled tool.
#[derive(Debug)]
pub struct DeclaredTool {
    name: String,
    validator: Validator,
    mirrors: Vec<Mirror>,
    method: Method,
    template: Template,
    headers: HeaderMap,
    /// Why no request can be made: a header's variable is not set.
    unset: Option<String>,
    timeout: Duration,
    client: ApiClient,
}

/// Why a call has no tool result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// `arguments` is no object.
    #[error("{0}")]
    Arguments(String),
    /// The API could not be asked.
    #[error("{0}")]
    Fault(String),
}

/// A tool result.
#[derive(Debug)]
pub struct ToolResult {
    text: String,
    structured: Option<Box<RawValue>>,
    is_error: bool,
}

impl ToolResult {
    fn error(text: String) -> Self {
        Self { text, structured: None, is_error: true }
    }

    /// As the revision wants it; a modern one names the server in `meta`.
    pub fn in_era<'a>(&'a self, era: Era, meta: &'a Value) -> impl Serialize + 'a {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Wire<'a> {
            content: [Content<'a>; 1],
            #[serde(skip_serializing_if = "Option::is_none")]
            structured_content: Option<&'a RawValue>,
            is_error: bool,
            #[serde(skip_serializing_if = "Option::is_none")]
            result_type: Option<&'static str>,
            #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
            meta: Option<&'a Value>,
        }
        #[derive(Serialize)]
        struct Content<'a> {
            r#type: &'static str,
            text: &'a str,
        }
        Wire {
            content: [Content { r#type: "text", text: &self.text }],
            structured_content: self.structured.as_deref(),
            is_error: self.is_error,
            result_type: (era == Era::Modern).then_some("complete"),
            meta: (era == Era::Modern).then_some(meta),
        }
    }
}

impl DeclaredTool {
    /// Compiles a declaration; the error says what is wrong with it.
    pub fn new(
        tool: Tool,
        call_timeout: Duration,
        clients: &Clients,
        environment: Environment<'_>,
    ) -> Result<Self, String> {
        let method = match tool.http.method.as_str() {
            "GET" => Method::GET,
            "POST" => Method::POST,
            "PUT" => Method::PUT,
            "PATCH" => Method::PATCH,
            "DELETE" => Method::DELETE,
            other => return Err(format!("http.method {other:?} is not GET, POST, PUT, PATCH or DELETE")),
        };
        let template = Template::parse(&tool.http.url).map_err(|error| format!("http.url: {error}"))?;
        let (headers, unset) = compile_headers(&tool.http.headers, environment)?;
        if let Some(unset) = &unset {
            tracing::warn!(tool = tool.name, unset, "the tool cannot be called");
        }
        Ok(Self {
            validator: arguments::compile(&tool.input_schema)?,
            mirrors: mirror::compile(&tool.input_schema)?,
            name: tool.name,
            method,
            template,
            headers,
            unset,
            timeout: Duration::from_millis(tool.http.timeout_ms).min(call_timeout),
            client: clients.api()?,
        })
    }

    /// Refuses a modern call whose `Mcp-Param-*` headers are not its arguments.
    pub fn check_headers(&self, headers: &HeaderMap, arguments: Option<&RawValue>) -> Result<(), Refusal> {
        mirror::check(&self.mirrors, headers, arguments)
    }

    /// Calls the tool.
    pub async fn call(&self, raw: Option<&RawValue>) -> Result<ToolResult, CallError> {
        let arguments = arguments::read(raw).map_err(CallError::Arguments)?;
        if let Err(reason) = arguments::violations(&self.validator, raw) {
            return Ok(ToolResult::error(format!("Invalid arguments: {reason}")));
        }
        let url = match self.template.expand(&arguments) {
            Ok(url) => url,
            Err(reason) => return Ok(ToolResult::error(format!("Invalid arguments: {reason}"))),
        };
        if let Some(unset) = &self.unset {
            return Err(CallError::Fault(format!("The tool {} is not set up: {unset}", self.name)));
        }
        let body = self.body(&arguments);
        if let Ok(result) = tokio::time::timeout(self.timeout, self.exchange(&url, body)).await {
            return result;
        }
        tracing::info!(tool = self.name, "the API did not answer in time");
        let seconds = self.timeout.as_secs_f64();
        Err(CallError::Fault(format!("The API behind {} did not answer within {seconds} s", self.name)))
    }

    /// The arguments that the URL does not use, as a JSON object, for methods that have a body.
    fn body(&self, arguments: &Arguments<'_>) -> Option<Bytes> {
        if !matches!(self.method, Method::POST | Method::PUT | Method::PATCH) {
            return None;
        }
        let used = self.template.arguments();
        let rest: Arguments<'_> = arguments
            .iter()
            .filter(|(name, _)| !used.contains(name.as_str()))
            .map(|(name, raw)| (name.clone(), *raw))
            .collect();
        Some(serde_json::to_vec(&rest).unwrap_or_default().into()) // raw JSON under text keys: cannot fail
    }

    async fn exchange(&self, url: &str, body: Option<Bytes>) -> Result<ToolResult, CallError> {
        let mut uri: Uri = url.parse().map_err(|_| CallError::Arguments("the arguments make no URL".into()))?;
        for _ in 0..=REDIRECTS {
            let response = self.send(&uri, body.clone()).await?;
            match redirect(&uri, &self.method, &response) {
                Redirect::None => return self.result(response).await,
                Redirect::Own(next) => uri = next,
                Redirect::Foreign => {
                    let status = response.status();
                    return Ok(ToolResult::error(format!("The API answered {status}: it redirects elsewhere")));
                }
            }
        }
        Ok(ToolResult::error("The API redirects in a circle".into()))
    }

    async fn send(&self, uri: &Uri, body: Option<Bytes>) -> Result<Response<Incoming>, CallError> {
        let json = HeaderValue::from_static("application/json");
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, */*;q=0.5"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("mooring-server/", env!("CARGO_PKG_VERSION"))));
        if body.is_some() {
            headers.insert(CONTENT_TYPE, json);
        }
        headers.extend(self.headers.iter().map(|(name, value)| (name.clone(), value.clone())));
        let mut request = Request::new(Full::new(body.unwrap_or_default()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = uri.clone();
        *request.headers_mut() = headers;
        self.client.request(request).await.map_err(|error| {
            tracing::info!(tool = self.name, cause = cause(&error), "the API could not be asked");
            let what = if error.is_connect() { "could not be reached" } else { "broke off before it answered" };
            CallError::Fault(format!("The API behind {} {what}", self.name))
        })
    }

    async fn result(&self, response: Response<Incoming>) -> Result<ToolResult, CallError> {
        let status = response.status();
        let media_type = Some(essence(response.headers()).to_owned()).filter(|media_type| !media_type.is_empty());
        let media_type = media_type.unwrap_or_else(|| "of no declared type".to_owned());
        let bytes = match bounded(response.into_body()).await {
            Ok(Some(bytes)) => bytes,
            Ok(None) => {
                let text = format!("The API's answer ({status}) is larger than {ANSWER_MAXIMUM} bytes");
                return Ok(ToolResult::error(text));
            }
            Err(error) => {
                tracing::info!(tool = self.name, cause = cause(&error), "the API's answer broke off");
                return Err(CallError::Fault(format!("The answer of the API behind {} broke off", self.name)));
            }
        };
        let Ok(text) = String::from_utf8(bytes.to_vec()) else {
            return Ok(ToolResult::error(format!(
                "The API answered {status} with data that is no text ({media_type})"
            )));
        };
        if status.is_success() {
            let object = text.trim_ascii_start().starts_with('{');
            let structured = object.then(|| serde_json::from_str::<Box<RawValue>>(&text).ok()).flatten();
            return Ok(ToolResult { text, structured, is_error: false });
        }
        let told: String = text.chars().take(ERROR_MAXIMUM).collect();
        Ok(ToolResult::error(format!("The API answered {status}: {told}").trim_end_matches([':', ' ']).to_owned()))
    }
}

/// Reads an answer; `None` where it is too large.
async fn bounded(mut body: Incoming) -> Result<Option<Bytes>, hyper::Error> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            if bytes.len() + data.len() > ANSWER_MAXIMUM {
                return Ok(None);
            }
            bytes.extend_from_slice(&data);
        }
    }
    Ok(Some(bytes.freeze()))
}

enum Redirect {
    None,
    Own(Uri),
    Foreign,
}

/// Redirects keep to the API's own origin, so that its headers go nowhere else, and to the method.
fn redirect(from: &Uri, method: &Method, response: &Response<Incoming>) -> Redirect {
    let keeps_method = match response.status() {
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => true,
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND | StatusCode::SEE_OTHER => *method == Method::GET,
        _ => return Redirect::None,
    };
    let location = response.headers().get(LOCATION).and_then(|location| location.to_str().ok());
    let target = location.filter(|_| keeps_method).and_then(|location| own_target(from, location));
    target.map_or(Redirect::Foreign, Redirect::Own)
}

fn own_target(from: &Uri, location: &str) -> Option<Uri> {
    let to: Uri = location.parse().ok()?;
    let mut parts = to.into_parts();
    match (&parts.scheme, &parts.authority) {
        (None, None) if location.starts_with('/') && !location.starts_with("//") => {
            parts.scheme = from.scheme().cloned();
            parts.authority = from.authority().cloned();
        }
        (Some(scheme), Some(authority)) if from.scheme() == Some(scheme) && from.authority() == Some(authority) => {}
        _ => return None,
    }
    Uri::from_parts(parts).ok()
}

fn compile_headers(list: &[ToolHeader], environment: Environment<'_>) -> Result<(HeaderMap, Option<String>), String> {
    let mut headers = HeaderMap::new();
    let mut unset = None;
    for header in list {
        let name = HeaderName::try_from(header.name.as_str())
            .map_err(|_| "http.headers: a name is no header name".to_owned())?;
        let value = match &header.value {
            Setting::Value(value) => value.clone(),
            Setting::Env(variable) => {
                let Some(value) = environment(variable) else {
                    unset = Some(format!("environment variable {variable} of header {name} is not set"));
                    continue;
                };
                value.trim().to_owned()
            }
        };
        let mut value = HeaderValue::try_from(value)
            .map_err(|_| format!("http.headers: the value of {name} has characters that a header cannot carry"))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok((headers, unset))
}
