use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn one(message: &Message<'_>) -> String {
    match message {
        Message::Request(id, call) => format!("request {id} {}", call.method),
        Message::Notification(call) => format!("notification {}", call.method),
        Message::Response => "response".into(),
    }
}

fn view(text: &str) -> String {
    match peek(text.as_bytes()) {
        Ok(Reading::One(message)) => one(&message),
        Ok(Reading::Batch(elements)) => {
            let each = |element: &Result<Message<'_>, Unread<'_>>| match element {
                Ok(message) => one(message),
                Err(unread) => unread.refusal.to_string(),
            };
            format!("batch: {}", elements.iter().map(each).collect::<Vec<_>>().join(", "))
        }
        Err(refusal) => refusal.to_string(),
    }
}

#[test]
fn messages_are_told_apart() {
    let cases = [
        r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
        r#" {"method":"ping","id":"a\u0022","future":{"id":2}} "#,
        r#"{"id":12345678901234567890123,"method":"m"}"#,
        r#"{"id":1.0,"method":"m"}"#,
        r#"{"id":-1e2,"method":"m"}"#,
        r#"{"m\u0065thod":"m","id":1}"#,
        r#"{"method":"notifications/x"}"#,
        r#"{"method":"ping","id":null}"#,
        r#"{"id":1,"result":{}}"#,
        r#"{"id":1,"error":{"code":1}}"#,
        r#"[{"id":1,"method":"m"}]"#,
        r#"[{"id":1,"method":"m"},7,{"method":"n"},[],{"id":2},{"id":3,"result":1}]"#,
        r"[]",
        r#"[{"id":1,"method":"m"},]"#,
        r#"{"id":1,"method":"a","method":"b"}"#,
        r#"{"id":1,"m\u0065thod":"a","method":"b"}"#,
        r#"{"id":1,"id":1,"method":"b"}"#,
        r#"{"id":1,"method":"a","Method":"b"}"#,
        r#"{"ID":1,"method":"a"}"#,
        r#"{"id":1,"method":"a","result":{}}"#,
        r#"{"id":1,"error":{},"method":"a"}"#,
        r#"{"id":1,"result":{},"error":{}}"#,
        r#"{"id":1,"method":7}"#,
        r#"{"id":1,"method":{"a":1}}"#,
        r#"{"id":1,"method":null}"#,
        r#"{"id":true,"method":"a"}"#,
        r#"{"id":[1],"method":"a"}"#,
        r#"{"id":1}"#,
        r"{}",
        r"1",
        r#""text""#,
        r"null",
        r"",
        r"{",
        r#"{"id":1,"method":"a"} {}"#,
        r#"{"id":1,"method":"a",}"#,
        r#"{"id":01,"method":"a"}"#,
        "\u{feff}{}",
        r#"{"id":1,"method":"a\u0000b"}"#,
        r#"{"id":1,"method":"a","method\u0000":"b"}"#,
        r#"{"id":1,"method":"\ud800"}"#,
        "{\"id\":1,\"method\":\"m\",\"param\u{17f}\":{}}",
    ];
    let lines: Vec<_> = cases.iter().map(|case| format!("{case} -> {}", view(case))).collect();
    insta::assert_snapshot!(lines.join("\n"));
    assert_eq!(peek(b"{\"id\":1,\"method\":\"\xff\"}").unwrap_err(), Refusal::NotJson);
}

/// What is seen of `params`, or why it is refused.
fn params(text: &str) -> String {
    let text = format!(r#"{{"id":1,"method":"m","params":{text}}}"#);
    match peek(text.as_bytes()) {
        Ok(Reading::One(Message::Request(_, call))) => {
            let Params { malformed, name, uri, task_id, cursor, protocol_version, arguments, meta } = call.params;
            if malformed {
                return "malformed".into();
            }
            let seen = [name, uri, task_id, cursor, protocol_version, meta.version, meta.capabilities];
            let seen = seen.map(|seen| match seen {
                None => "-".to_owned(),
                Some(Seen::Text(text)) => text.into_owned(),
                Some(other) => format!("{other:?}"),
            });
            format!("{} {}", seen.join(" "), arguments.map_or("-", RawValue::get))
        }
        other => other.map_or_else(|refusal| refusal.to_string(), |_| "?".into()),
    }
}

#[test]
fn what_policy_reads_of_params() {
    let cases = [
        r"null",
        r"{}",
        r"[]",
        r"7",
        r#""text""#,
        r#"{"name":"t","arguments":{"x": 12345678901234567890123, "x":1e2}}"#,
        r#"{"n\u0061me":"\u0074","uri":"u","taskId":"i","cursor":"c","protocolVersion":"v"}"#,
        r#"{"name":null,"uri":7,"taskId":{"a":1,"a":2},"cursor":[1,{}],"protocolVersion":true}"#,
        r#"{"arguments":null}"#,
        r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"v","io.modelcontextprotocol/clientCapabilities":{}}}"#,
        r#"{"_meta":{"x":1,"x":2,"X":3,"name":1,"Name":2}}"#,
        r#"{"_meta":7}"#,
        r#"{"name":"a","name":"b"}"#,
        r#"{"name":"a","n\u0061me":"b"}"#,
        r#"{"name":"a","Name":"b"}"#,
        r#"{"NAME":"a"}"#,
        r#"{"uri":"a","URI":"b"}"#,
        r#"{"taskid":"a"}"#,
        r#"{"tas\u212aId":"a"}"#,
        r#"{"arguments":{},"arguments":{}}"#,
        r#"{"Arguments":{}}"#,
        r#"{"_meta":{},"_meta":{}}"#,
        r#"{"_Meta":{}}"#,
        r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"v","io.modelcontextprotocol/protocolVersion":"w"}}"#,
        r#"{"_meta":{"io.modelcontextprotocol/protocolversion":"v"}}"#,
        r#"{"name":"a\u0000"}"#,
        r#"{"uri":"\u0000"}"#,
        r#"{"cursor":"\u0000"}"#,
        r#"{"name\u0000":"a"}"#,
        r#"{"x":"\u0000","_meta":{"y":"\u0000"},"arguments":{"z\u0000":"\u0000"}}"#,
    ];
    let lines: Vec<_> = cases.iter().map(|case| format!("{case} -> {}", params(case))).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn a_view_borrows() {
    let text = r#"{"id":1,"method":"tools/call","params":{"name":"t","_meta":{"io.modelcontextprotocol/protocolVersion":"v"}}}"#;
    let Ok(Reading::One(Message::Request(_, call))) = peek(text.as_bytes()) else { panic!("{text}") };
    assert!(matches!(call.method, Cow::Borrowed("tools/call")));
    assert!(matches!(call.params.name, Some(Seen::Text(Cow::Borrowed("t")))));
    assert!(matches!(call.params.meta.version, Some(Seen::Text(Cow::Borrowed("v")))));
}

#[test]
fn a_batch_has_its_limit() {
    let batch = |number: usize| format!("[{}]", vec![r#"{"method":"n"}"#; number].join(","));
    assert!(peek(batch(BATCH_MAXIMUM).as_bytes()).is_ok());
    assert_eq!(view(&batch(BATCH_MAXIMUM + 1)), "Invalid request: a batch may have 100 messages");
}

#[test]
fn nesting_has_its_limit() {
    let nested = |depth: usize| {
        let inner = depth - 2; // the message and its params
        format!(
            r#"{{"id":1,"method":"m","params":{{"x":"[[[[\"[[[\\","y":{}{}}}}}"#,
            "[".repeat(inner),
            "]".repeat(inner)
        )
    };
    assert!(peek(nested(DEPTH_MAXIMUM).as_bytes()).is_ok());
    assert!(view(&nested(DEPTH_MAXIMUM + 1)).contains("nested"));
    // Many brackets beside each other, and within text, are no depth.
    let wide =
        format!(r#"{{"id":1,"method":"m","params":{{"x":"{}","y":[{}[]]}}}}"#, "[".repeat(500), "{},".repeat(500));
    assert_eq!(view(&wide), "request 1 m");
    for text in [nested(100_000), "[".repeat(1_000_000), format!("{}{}", "[".repeat(1_000_000), "]".repeat(1_000_000))]
    {
        assert!(peek(text.as_bytes()).is_err());
    }
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,8}|[\\[\\]{}\"\\\\]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("\\PC{0,6}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// The members that are read, by the pointers where a whole parse finds them.
const READ: [&str; 7] = [
    "/method",
    "/params/name",
    "/params/uri",
    "/params/taskId",
    "/params/cursor",
    "/params/protocolVersion",
    "/params/_meta/io.modelcontextprotocol~1protocolVersion",
];

/// Texts of the members, by the view.
fn texts(message: &Message<'_>) -> [Option<String>; 7] {
    let Some(Call { method, params }) = message.call() else { return Default::default() };
    let text = |seen: &Option<Seen<'_>>| Some(seen.as_ref()?.text()?.to_string());
    [
        Some(method.to_string()),
        text(&params.name),
        text(&params.uri),
        text(&params.task_id),
        text(&params.cursor),
        text(&params.protocol_version),
        text(&params.meta.version),
    ]
}

/// Every member that policy reads, escaped at will.
fn spelled(text: &str, escape: bool) -> String {
    let letters = text.encode_utf16().map(|unit| format!("\\u{unit:04x}"));
    if escape { format!("\"{}\"", letters.collect::<String>()) } else { Value::from(text).to_string() }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(values) => 1 + values.iter().map(depth).max().unwrap_or_default(),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

proptest! {
    #[test]
    fn nesting_is_measured(value in json_value()) {
        prop_assert_eq!(deepest(value.to_string().as_bytes()), depth(&value));
    }

    #[test]
    fn the_view_agrees_with_a_whole_parse(
        method in "[^\\x00]{0,12}", id in any::<i64>(), names in prop::collection::vec("[^\\x00]{0,6}", 5),
        escape in any::<bool>(), more in json_value(), arguments in json_value(),
    ) {
        let name = |place: usize| spelled(&names[place], escape);
        let key = |key: &str| spelled(key, escape);
        let text = format!(
            r#"{{ {}: {}, "id":{id}, {}: {{"m":{more}, {}:{}, {}:{}, {}:{}, {}:{arguments},
               {}:{{"z":{more}, {}:{}, "a":{more}}}, {}:{}}}, "more":{more}}}"#,
            key("method"), spelled(&method, escape), key("params"), key("name"), name(0), key("uri"), name(1),
            key("taskId"), name(2), key("arguments"), key("_meta"), key("io.modelcontextprotocol/protocolVersion"),
            name(3), key("cursor"), name(4),
        );
        let whole: Value = serde_json::from_str(&text).unwrap();
        let Ok(Reading::One(message)) = peek(text.as_bytes()) else { panic!("{text}") };
        prop_assert_eq!(message.id().unwrap().get(), id.to_string());
        prop_assert_eq!(message.call().unwrap().params.arguments.unwrap().get(), arguments.to_string());
        let expected = READ.map(|pointer| whole.pointer(pointer).and_then(Value::as_str).map(str::to_owned));
        prop_assert_eq!(texts(&message), expected);
    }

    #[test]
    fn any_bytes_are_judged_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = peek(&bytes);
    }

    /// Whoever takes the first of two keys, the last, or does not mind the case reads the same.
    #[test]
    fn what_is_accepted_has_one_reading(
        members in prop::collection::vec((
            "(id|method|params|name|uri|_meta|x|ID|Method|nAme|Uri)", "(1|\"a\"|\"b\"|null|\\{\\}|\\[1\\]|\\{\"name\":\"c\"\\}|\\{\"name\":\"c\",\"Name\":\"d\"\\})",
        ), 0..5),
    ) {
        let members: Vec<String> = members.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
        let text = format!("{{{}}}", members.join(","));
        if let Ok(Reading::One(message)) = peek(text.as_bytes()) {
            let seen = texts(&message);
            let last: Value = serde_json::from_str(&text).unwrap();
            let reversed: Vec<String> = members.iter().rev().cloned().collect();
            let first: Value = serde_json::from_str(&format!("{{{}}}", reversed.join(","))).unwrap();
            let folded: Value = serde_json::from_str(&text.to_ascii_lowercase()).unwrap();
            for whole in [last, first, folded] {
                let read = |pointer: &str| whole.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
                prop_assert_eq!(&seen[0], &read("/method"));
                prop_assert_eq!(&seen[1], &read("/params/name"));
                prop_assert_eq!(message.id().map(|id| id.get().to_owned()), whole.get("id").filter(|id| !id.is_null() && message.method().is_some()).map(Value::to_string));
            }
        }
    }

    #[test]
    fn what_is_accepted_is_json(text in r#"[\[\]{}":,a-c0-9 ]{0,24}"#) {
        if peek(text.as_bytes()).is_ok() {
            prop_assert!(serde_json::from_str::<Value>(&text).is_ok());
        }
    }

    #[test]
    fn a_second_method_is_refused_wherever_it_stands(before in json_value(), after in json_value()) {
        let text = format!(r#"{{"id":1,"method":"a","x":{before},"method":"b","y":{after}}}"#);
        prop_assert!(peek(text.as_bytes()).is_err());
    }

    #[test]
    fn a_batch_reads_as_its_messages_do(ids in prop::collection::vec(any::<i64>(), 1..6)) {
        let messages: Vec<_> = ids.iter().map(|id| json!({"id": id, "method": "m"}).to_string()).collect();
        let each: Vec<_> = messages.iter().map(|message| view(message)).collect();
        prop_assert_eq!(view(&format!("[{}]", messages.join(" , "))), format!("batch: {}", each.join(", ")));
    }
}
