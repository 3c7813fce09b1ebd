//! A small API server in this process, for faults of single calls: it stores objects by path, merges patches and writes
//! down what it was asked. It knows no defaults, no validation and no field ownership; a real one is in the harness.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt as _;
use kube::Client;
use serde_json::{Value, json};

/// The API server: clones share what they store.
#[derive(Clone, Default)]
pub struct Fake {
    state: Arc<Mutex<Stored>>,
}

#[derive(Default)]
struct Stored {
    objects: BTreeMap<String, Value>,
    log: Vec<(Method, String)>,
    faults: Vec<(Method, &'static str, Value)>,
    version: u64,
}

impl Fake {
    /// A client of it.
    pub fn client(&self) -> Client {
        Client::new(Router::new().fallback(answer).with_state(self.clone()), "demo")
    }

    /// Stores an object as it is.
    pub fn put(&self, path: &str, object: Value) {
        self.lock().objects.insert(path.to_owned(), object);
    }

    /// The object at a path.
    pub fn get(&self, path: &str) -> Option<Value> {
        self.lock().objects.get(path).cloned()
    }

    /// Answers the next such request with an error.
    pub fn fail(&self, method: Method, path: &'static str, code: u16, message: &str) {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message, "details": {"retryAfterSeconds": 1}});
        self.lock().faults.push((method, path, status));
    }

    /// How many requests of this method were made to paths that end so.
    pub fn count(&self, method: &Method, path: &str) -> usize {
        self.lock().log.iter().filter(|(made, to)| made == method && to.ends_with(path)).count()
    }

    /// How many writes were made.
    pub fn writes(&self) -> usize {
        self.lock().log.iter().filter(|(method, _)| method != Method::GET).count()
    }

    fn lock(&self) -> MutexGuard<'_, Stored> {
        self.state.lock().unwrap()
    }
}

async fn answer(State(fake): State<Fake>, request: Request) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let (code, value) = fake.lock().answer(&method, &path, &body);
    (StatusCode::from_u16(code).unwrap(), axum::Json(value)).into_response()
}

impl Stored {
    fn answer(&mut self, method: &Method, path: &str, body: &Bytes) -> (u16, Value) {
        self.log.push((method.clone(), path.to_owned()));
        if let Some(index) = self.faults.iter().position(|(on, at, _)| on == method && path.ends_with(at)) {
            let (.., status) = self.faults.remove(index);
            return (u16::try_from(status["code"].as_u64().unwrap()).unwrap(), status);
        }
        let error = |code: u16, reason: &str| {
            (
                code,
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": reason}),
            )
        };
        match *method {
            Method::GET => {
                self.objects.get(path).map_or_else(|| error(404, "NotFound"), |object| (200, object.clone()))
            }
            Method::DELETE => self
                .objects
                .remove(path)
                .map_or_else(|| error(404, "NotFound"), |_| (200, json!({"kind": "Status", "status": "Success"}))),
            Method::POST => {
                let object: Value = serde_json::from_slice(body).unwrap();
                let path = format!("{path}/{}", object["metadata"]["name"].as_str().unwrap());
                if self.objects.contains_key(&path) {
                    return error(409, "AlreadyExists");
                }
                (201, self.store(&path, object))
            }
            _ => {
                let change: Value = serde_json::from_slice(body).unwrap();
                let mut object = self.objects.get(path).cloned().unwrap_or(json!({}));
                let uid = &change["metadata"]["uid"];
                if !uid.is_null() && *uid != object["metadata"]["uid"] {
                    return error(409, "Conflict");
                }
                merge(&mut object, &change);
                (200, self.store(path, object))
            }
        }
    }

    fn store(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1; // what tests put in place is older: its versions are small
        let version = 100 + self.version;
        let metadata = &mut object["metadata"];
        metadata["resourceVersion"] = json!(version.to_string());
        metadata["generation"] = json!(1);
        if metadata["uid"].is_null() {
            metadata["uid"] = json!(format!("uid-{version}"));
        }
        self.objects.insert(path.to_owned(), object.clone());
        object
    }
}

fn merge(object: &mut Value, patch: &Value) {
    match patch {
        Value::Object(fields) => {
            if !object.is_object() {
                *object = json!({});
            }
            for (name, value) in fields {
                if value.is_null() {
                    object.as_object_mut().unwrap().remove(name);
                } else {
                    merge(&mut object[name.as_str()], value);
                }
            }
        }
        other => *object = other.clone(),
    }
}
