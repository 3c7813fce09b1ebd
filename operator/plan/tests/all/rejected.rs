//! Specs that the API server's rules let pass and that cannot be served.

use std::collections::BTreeMap;

use mooring_plan::plan::plan;

use crate::world::{now, servers, settings, world};

#[test]
fn every_refusal_names_the_field_and_the_reason() {
    let refusals: BTreeMap<_, _> = servers("rejected")
        .into_iter()
        .map(|(name, server)| {
            let rejection = plan(&server, &world(&server), &settings(""), now()).expect_err(&name);
            (name, format!("{} {}: {}", rejection.reason, rejection.field, rejection.message))
        })
        .collect();
    insta::assert_yaml_snapshot!(refusals);
}
