//! What is applied for each fixture, whole. A change here restarts pods or rewrites objects in every cluster.

use mooring_plan::Settings;
use mooring_plan::outcome::{Desired, Plan};
use mooring_plan::plan::plan;
use serde_json::{Value, json};

use crate::world::{folder_path, now, servers, settings, world};

/// A plan as a document.
pub fn document(plan: &Plan) -> Value {
    let debug = |list: &[&dyn std::fmt::Debug]| list.iter().map(|item| format!("{item:?}")).collect::<Vec<_>>();
    let Plan { mint, revoke, desired, prune, revisions, url, findings } = plan;
    let Desired {
        service_account,
        config_map,
        keys,
        network_policy,
        service,
        deployment,
        autoscaler,
        disruption_budget,
        ingress,
    } = desired;
    json!({
        "url": url,
        "mint": debug(&mint.iter().map(|item| item as _).collect::<Vec<_>>()),
        "revoke": debug(&revoke.iter().map(|item| item as _).collect::<Vec<_>>()),
        "prune": debug(&prune.iter().map(|item| item as _).collect::<Vec<_>>()),
        "revisions": { "config": revisions.config, "keys": revisions.keys, "keySecrets": revisions.key_secrets },
        "findings": findings
            .iter()
            .map(|finding| format!("{} {}: {}", finding.reason, finding.field, finding.message))
            .collect::<Vec<_>>(),
        "children": [
            service_account, config_map, keys, network_policy, service, deployment, autoscaler, disruption_budget,
            ingress,
        ],
    })
}

#[test]
fn every_fixture_has_its_bundle() {
    let servers = servers("fixtures");
    assert!(servers.len() >= 15);
    for (name, server) in servers {
        let plan = plan(&server, &world(&server), &settings(&name), now()).unwrap();
        insta::with_settings!({ snapshot_path => folder_path("fixtures"), prepend_module_to_snapshot => false }, {
            insta::assert_yaml_snapshot!(name, document(&plan));
        });
    }
}

#[test]
fn the_specs_own_trusted_proxies_replace_those_of_the_installation() {
    let own = |proxies: &[&str]| Some(proxies.iter().map(|proxy| (*proxy).to_owned()).collect());
    for (installation, spec, expected) in [
        (&[][..], None, json!(null)),
        (&["10.244.0.0/16", "10.0.0.5"], None, json!(["10.0.0.5", "10.244.0.0/16"])),
        (&["10.244.0.0/16"], own(&["fd00::/8"]), json!(["fd00::/8"])),
        (&["10.244.0.0/16"], own(&[]), json!(null)),
    ] {
        let mut server = crate::world::fixture("http-minimal");
        server.spec.trusted_proxies = spec;
        let trusted_proxies = installation.iter().map(|proxy| (*proxy).to_owned()).collect();
        let settings = Settings { trusted_proxies, ..settings("") };
        let plan = plan(&server, &world(&server), &settings, now()).unwrap();
        let config = &plan.desired.config_map.data.unwrap()["config.json"];
        let config: Value = serde_json::from_str(config).unwrap();
        assert_eq!(config["security"]["trustedProxies"], expected, "{installation:?}");
    }
}

#[test]
fn the_installations_trusted_proxies_wait_for_its_front_door() {
    let server = crate::world::fixture("http-minimal");
    let settings = Settings { trusted_proxies: vec!["10.0.0.5".to_owned()], ..settings("") };
    for (image, expected) in [("localhost/older:1", json!(null)), (&settings.front_door_image[..], json!(["10.0.0.5"]))]
    {
        let mut observed = world(&server);
        let deployment = observed.deployment.get_or_insert_default();
        deployment.front_door_image = Some(image.to_owned());
        deployment.applied_generation = server.metadata.generation;
        let plan = plan(&server, &observed, &settings, now()).unwrap();
        let config: Value = serde_json::from_str(&plan.desired.config_map.data.unwrap()["config.json"]).unwrap();
        assert_eq!(config["security"]["trustedProxies"], expected, "{image}");
    }
}

/// The first pass for a new server, where nothing is there yet, and what may be left over from before.
#[test]
fn what_is_missing_is_minted_and_what_is_left_over_goes() {
    use mooring_plan::observed::{ChildKind, Observed};
    use mooring_plan::outcome::Mint;

    let server = crate::world::fixture("keys-declared");
    let observed = Observed {
        existing_children: [
            ChildKind::HorizontalPodAutoscaler,
            ChildKind::Ingress,
            ChildKind::NetworkPolicy,
            ChildKind::PodDisruptionBudget,
            ChildKind::ServiceAccount,
        ]
        .into(),
        ..Observed::default()
    };
    let plan = plan(&server, &observed, &settings(""), now()).unwrap();
    let key = |key: &str| Mint::DeclaredKey { key: key.to_owned(), subject: None };
    assert_eq!(plan.mint, [Mint::Session, key("ci"), key("laptop"), key("old")]);
    assert_eq!(plan.prune, [ChildKind::Ingress, ChildKind::HorizontalPodAutoscaler, ChildKind::PodDisruptionBudget]);
    assert_eq!(plan.revisions.keys, None);
}

/// An upgrade of the operator moves no pod by itself.
#[test]
fn a_deployment_keeps_its_front_door_image_until_the_spec_changes_or_it_is_its_turn() {
    use mooring_plan::observed::ObservedDeployment;

    let server = crate::world::fixture("http-minimal");
    let image = |applied: Option<i64>, upgrade_turn| {
        let mut observed = world(&server);
        observed.upgrade_turn = upgrade_turn;
        observed.deployment = Some(ObservedDeployment {
            front_door_image: Some("old".to_owned()),
            applied_generation: applied,
            ..ObservedDeployment::default()
        });
        let plan = plan(&server, &observed, &settings(""), now()).unwrap();
        plan.desired.deployment.spec.unwrap().template.spec.unwrap().containers[0].image.clone().unwrap()
    };
    let newest = settings("").front_door_image;
    assert_eq!(image(Some(3), false), "old");
    assert_eq!(image(None, false), "old");
    assert_eq!(image(Some(3), true), newest);
    assert_eq!(image(Some(2), false), newest);
}

/// Where the spec leaves the number of pods to somebody else, what the Deployment has counts.
#[test]
fn a_budget_is_there_where_there_may_be_several_pods() {
    use mooring_plan::observed::ObservedDeployment;

    let mut server = crate::world::fixture("http-minimal");
    let mut has_budget = |wanted: Option<i32>, scaled: Option<i32>| {
        server.spec.replicas = wanted;
        let mut observed = world(&server);
        observed.deployment =
            scaled.map(|replicas| ObservedDeployment { replicas: Some(replicas), ..ObservedDeployment::default() });
        plan(&server, &observed, &settings(""), now()).unwrap().desired.disruption_budget.is_some()
    };
    let cases = [
        (None, None, false),
        (None, Some(1), false),
        (None, Some(2), true),
        (Some(0), Some(2), false),
        (Some(1), Some(2), false),
        (Some(2), None, true),
        (Some(2), Some(1), true),
    ];
    for (wanted, scaled, expected) in cases {
        assert_eq!(has_budget(wanted, scaled), expected, "{wanted:?} {scaled:?}");
    }
}

/// Where the cluster assigns users, the pod names none.
#[test]
fn no_user_is_named_where_the_cluster_assigns_them() {
    use mooring_plan::Settings;

    let server = crate::world::fixture("http-minimal");
    let settings = Settings { cluster_assigns_users: true, ..settings("") };
    let plan = plan(&server, &world(&server), &settings, now()).unwrap();
    let context = plan.desired.deployment.spec.unwrap().template.spec.unwrap().security_context.unwrap();
    assert_eq!((context.run_as_user, context.run_as_group, context.fs_group), (None, None, None));
    assert_eq!(context.run_as_non_root, Some(true));
}
