//! `<name>.keys`: the entries of declared keys. Others' entries belong to other field managers, and survive.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use mooring_api::McpServer;

use super::NonEmpty as _;
use crate::declared::Declared;
use crate::names::{self, ANNOTATION_DECLARED, ANNOTATION_SUBJECTS};

/// The Secret.
pub(crate) fn keys(server: &McpServer, declared: &Declared) -> Secret {
    let entries = declared.entries.iter().map(|(id, record)| (id.clone(), ByteString(record.clone())));
    let maps = [(ANNOTATION_DECLARED, &declared.ids), (ANNOTATION_SUBJECTS, &declared.subjects)];
    let annotations =
        maps.into_iter().filter(|(_, map)| !map.is_empty()).map(|(name, map)| (name.to_owned(), json(map)));
    let mut metadata = names::metadata(server, names::keys(&server.name_any()));
    metadata.annotations = annotations.collect::<BTreeMap<_, _>>().non_empty();
    Secret { metadata, data: entries.collect::<BTreeMap<_, _>>().non_empty(), ..Secret::default() }
}

fn json(map: &BTreeMap<String, String>) -> String {
    serde_json::Value::from_iter(map.clone()).to_string()
}
