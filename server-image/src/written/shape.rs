//! Which fields a file has and what kind of value each, so that a mistake is told as a person sees it. What a value must
//! be beyond that, [`mooring_contract::Config::check`] knows.

use mooring_contract::Invalid;
use mooring_contract::document::is_name;
use serde_json::{Map, Value};

/// What belongs at a place.
enum Shape {
    /// A text.
    Text,
    /// One of these.
    Choice(&'static [&'static str]),
    /// A whole number up to this one.
    Number(u64),
    /// True or false.
    Switch,
    /// Fields of anybody's choice: a JSON Schema.
    Free,
    /// Any number of these.
    List(&'static Shape),
    /// These fields.
    Fields(&'static [Field]),
    /// Exactly one of these fields, and the others.
    OneOf(&'static [Field], &'static [Field]),
}

/// A field: its name, whether it must be there, and what belongs there.
struct Field(&'static str, Need, Shape);

#[derive(PartialEq, Eq)]
enum Need {
    Must,
    May,
}

use Need::{May, Must};
use Shape::{Choice, Fields, Free, List, Number, OneOf, Switch, Text};

const SIZE: Shape = Number(u64::MAX);
const TEXTS: Shape = List(&Text);

const CONFIG: Shape = Fields(&[
    Field("version", May, Number(u32::MAX as u64)),
    Field("server", Must, Fields(&[Field("namespace", May, Text), Field("name", Must, Text), Field("uid", May, Text)])),
    Field("path", May, Text),
    Field("security", May, SECURITY),
    Field("source", Must, OneOf(&[Field("tools", May, List(&TOOL)), Field("http", May, BACKEND)], &[])),
    Field("limits", May, LIMITS),
    Field("sessions", May, SESSIONS),
]);

const SECURITY: Shape = Fields(&[
    Field("hosts", May, TEXTS),
    Field("allowedHosts", May, TEXTS),
    Field("origins", May, TEXTS),
    Field(
        "cors",
        May,
        Fields(&[
            Field("origins", May, TEXTS),
            Field("headers", May, TEXTS),
            Field("exposeHeaders", May, TEXTS),
            Field("credentials", May, Switch),
            Field("maxAgeSeconds", May, SIZE),
        ]),
    ),
    Field("anonymous", May, Switch),
    Field("keySecrets", May, TEXTS),
    Field("trustedProxies", May, TEXTS),
]);

const TOOL: Shape = Fields(&[
    Field("name", Must, Text),
    Field("title", May, Text),
    Field("description", May, Text),
    Field("inputSchema", May, Free),
    Field("http", Must, REQUEST),
    Field("overrides", May, Fields(&[Field("stdio", May, OVERRIDE), Field("http", May, OVERRIDE)])),
]);

const OVERRIDE: Shape =
    Fields(&[Field("description", May, Text), Field("inputSchema", May, Free), Field("http", May, REQUEST)]);

const REQUEST: Shape = Fields(&[
    Field("method", May, Text),
    Field("url", Must, Text),
    Field("timeoutMs", May, SIZE),
    Field(
        "headers",
        May,
        List(&OneOf(&[Field("value", May, Text), Field("env", May, Text)], &[Field("name", Must, Text)])),
    ),
]);

const BACKEND: Shape = Fields(&[
    Field("port", Must, Number(u16::MAX as u64)),
    Field("path", Must, Text),
    Field("transport", May, Choice(&["streamableHttp", "sse"])),
]);

const LIMITS: Shape = Fields(&[
    Field("bodyBytes", May, SIZE),
    Field("bodyBytesTotal", May, SIZE),
    Field("callTimeoutMs", May, SIZE),
    Field("connections", May, SIZE),
    Field("requests", May, SIZE),
    Field("streamsPerPrincipal", May, SIZE),
    Field("headerBytes", May, SIZE),
    Field("headerCount", May, SIZE),
    Field("uriBytes", May, SIZE),
    Field("headerTimeoutMs", May, SIZE),
    Field("bodyTimeoutMs", May, SIZE),
    Field("idleTimeoutMs", May, SIZE),
    Field("writeTimeoutMs", May, SIZE),
]);

const SESSIONS: Shape = Fields(&[
    Field("mode", May, Choice(&["Sticky", "Stateless"])),
    Field("idleTimeoutMs", May, SIZE),
    Field("maxPerPod", May, SIZE),
    Field("maxAgeMs", May, SIZE),
    Field("drainMs", May, SIZE),
]);

/// How alike two names are for one to be meant by the other.
const ALIKE: f64 = 0.85;

/// What is wrong with the form of a file, if anything. `newer`: whether it may have fields that this build does not know.
pub(super) fn check(document: &Value, newer: bool) -> Result<(), Invalid> {
    CONFIG.check(document, "", newer)
}

impl Shape {
    fn check(&self, value: &Value, place: &str, newer: bool) -> Result<(), Invalid> {
        let wrong = |must: String| Err(Invalid::new(place, format!("{must}, and {} is there", kind(value))));
        match (self, value) {
            (Text, Value::String(_)) | (Switch, Value::Bool(_)) | (Free, Value::Object(_)) => Ok(()),
            (Text, Value::Number(_) | Value::Bool(_)) => wrong("it must be a text, so put it in quotes".to_owned()),
            (Text, _) => wrong("it must be a text".to_owned()),
            (Switch, _) => wrong("it must be true or false".to_owned()),
            (Free, _) => wrong("it must be a JSON Schema, with type: object".to_owned()),
            (Choice(all), Value::String(text)) if all.contains(&text.as_str()) => Ok(()),
            (Choice(all), _) => Err(Invalid::new(place, format!("it must be {}", all.join(" or ")))),
            (Number(most), value) => match value.as_u64() {
                Some(number) if number <= *most => Ok(()),
                Some(_) => Err(Invalid::new(place, format!("it must be at most {most}"))),
                None => wrong("it must be a whole number, and not below 0".to_owned()),
            },
            (List(item), Value::Array(items)) => (0..)
                .zip(items)
                .try_for_each(|(index, value): (usize, _)| item.check(value, &format!("{place}[{index}]"), newer)),
            (List(_), _) => wrong("it must be a list".to_owned()),
            (Fields(fields), Value::Object(values)) => check_fields(&[fields], values, place, newer),
            (OneOf(choices, fields), Value::Object(values)) => {
                check_fields(&[choices, fields], values, place, newer)?;
                let there = choices.iter().filter(|Field(name, ..)| values.contains_key(*name)).count();
                let names: Vec<_> = choices.iter().map(|Field(name, ..)| *name).collect();
                if there == 1 {
                    return Ok(());
                }
                Err(Invalid::new(place, format!("exactly one of {} must be there", names.join(" and "))))
            }
            (Fields(fields) | OneOf(fields, _), _) => {
                let names: Vec<_> = fields.iter().map(|Field(name, ..)| *name).collect();
                wrong(format!("it must have fields ({})", names.join(", ")))
            }
        }
    }
}

fn check_fields(lists: &[&[Field]], values: &Map<String, Value>, place: &str, newer: bool) -> Result<(), Invalid> {
    let fields = || lists.iter().copied().flatten();
    let within = |name: &str| if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") };
    for (name, value) in values {
        match fields().find(|Field(known, ..)| known == name) {
            Some(Field(_, _, shape)) => shape.check(value, &within(name), newer)?,
            None if newer => {}
            None if !is_name(name) => {
                let reason = "the name of a field there is none: write `name: value`, with a space after the colon";
                return Err(Invalid::new(place, reason));
            }
            None => return Err(Invalid::new(within(name), unknown(name, fields()))),
        }
    }
    let missing = fields().find(|Field(name, need, _)| *need == Must && !values.contains_key(*name));
    missing.map_or(Ok(()), |Field(name, ..)| Err(Invalid::new(within(name), "it is missing")))
}

fn unknown<'a>(name: &str, fields: impl Iterator<Item = &'a Field>) -> String {
    let lower = name.to_ascii_lowercase();
    let alike = fields.map(|Field(known, ..)| (strsim::jaro_winkler(&lower, &known.to_ascii_lowercase()), known));
    match alike.filter(|(alike, _)| *alike >= ALIKE).max_by(|(one, _), (other, _)| one.total_cmp(other)) {
        Some((_, known)) => format!("there is no such field; {known} may be meant"),
        None => "there is no such field".to_owned(),
    }
}

/// What a value is, without the value.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a field with fields",
    }
}
