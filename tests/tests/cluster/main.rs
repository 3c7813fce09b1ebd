//! The main job on pods that really run: a whole Kubernetes, the operator installed by its chart, servers that nobody here
//! wrote in namespaces that enforce *restricted*, real clients through a real ingress controller.
//!
//! One cluster serves all scenarios, so this is a program of its own rather than Rust's test runner: it ends the cluster
//! when the last scenario is done, and prints what was measured. It takes the runner's filters:
//! `cargo test -p mooring-tests --test cluster -- keys`.

mod calls;
mod changes;
mod conformance;
mod failures;
mod helm;
mod history;
mod keys;
mod nodes;
mod outage;
mod pair;
mod path;
mod peers;
mod pods;
mod refusals;
mod room;
mod runner;
mod scale;
mod sessions;
mod sizes;
mod specs;
mod stuck;
mod tls;
mod world;

use std::process::ExitCode;

use runner::Company::{Alone, Together};
use runner::On::{Any, Own};
use runner::Scenario;

macro_rules! scenarios {
    ($($company:ident $on:ident $(($why:literal))? $module:ident::$name:ident;)+) => {
        &[$(Scenario {
            name: concat!(stringify!($module), "::", stringify!($name)),
            company: $company,
            on: $on$(($why))?,
            run: |room| Box::pin($module::$name(room)),
        },)+]
    };
}

/// In the order in which they begin. The last ones change the release that all others stand on.
const SCENARIOS: &[Scenario] = scenarios! {
    Together Own("its autoscalers look every few seconds, and no others") scale::an_autoscaler_follows_the_load;
    Together Any sessions::pods_that_stop_lose_no_call;
    Together Any scale::sessions_outlive_their_pods_and_find_fresh_ones;
    Together Any path::declared_tools_answer_every_client;
    Together Any path::server_everything_answers_every_client;
    Together Any path::fastmcp_below_a_path_answers_every_client;
    Together Any path::the_older_transport_on_both_sides;
    Together Any path::the_smallest_server_answers_at_its_service;
    Together Any path::a_session_streams_as_it_goes;
    Together Any failures::an_image_that_is_no_mcp_server;
    Together Any failures::a_secret_that_comes_later;
    Together Any path::two_servers_share_a_host;
    Together Own("it knows what Traefik answers, and where it listens for TLS") tls::with_tls_nothing_is_served_in_the_clear;
    Together Any refusals::what_is_refused_never_reaches_the_backend;
    Together Any pods::a_pod_is_restricted_and_without_rights;
    Together Any pods::another_pod_reaches_nothing_without_a_key;
    Together Any pods::the_budget_spares_pods_that_serve_and_no_others;
    Together Own("its image is made for the harness's cluster only") conformance::pods_behind_traefik_score_full_marks;
    Together Own("its image is made for the harness's cluster only") conformance::an_open_pod_scores_full_marks;
    Together Any failures::an_image_that_does_not_exist;
    Together Any failures::a_server_that_crashes;
    Together Any failures::a_front_door_without_memory;
    Together Any failures::a_command_that_is_not_in_the_image;
    Together Any failures::a_quota_that_is_used_up;
    Together Any failures::a_node_that_nobody_has;
    Together Own("it kills processes of pods") sessions::a_killed_process_ends_only_its_own;
    Together Any stuck::a_quota_without_room_for_a_rollout;
    Together Own("it has one node") stuck::a_node_without_room_for_a_rollout;
    Together Any changes::a_rollout_of_declared_tools_loses_no_call;
    Together Any changes::a_rollout_of_an_image_loses_no_call;
    Together Any changes::what_is_deleted_leaves_nothing;
    Together Any scale::the_number_of_pods_changes_hands_and_never_falls;
    Together Any peers::the_peer_port_is_for_pods_of_the_same_server;
    Together Any peers::sessions_where_everything_is_denied;
    Together Own("it drops packets between pods") peers::a_link_that_is_cut;
    Together Own("it hands the address of a pod to another") peers::a_pod_that_has_the_address_of_another;
    Together Any sessions::what_clients_say_of_sessions_is_checked;
    Together Any sessions::each_is_right_to_its_end;
    Together Own("it stops processes of pods") sessions::a_pod_that_stands_still_is_waited_for;
    Alone Any sizes::a_new_server_answers_within_seconds;
    Alone Own("it reads the memory of a process on the node") sizes::images_and_memory_stay_small;
    Alone Any keys::a_revoked_key_stops_on_every_pod;
    Alone Any keys::an_open_stream_ends_with_its_key;
    Alone Any keys::declared_keys_rotate_and_come_back;
    Alone Any keys::keys_that_somebody_else_manages;
    Alone Any changes::configuration_reaches_running_pods;
    Alone Own("it drains a node") nodes::a_drained_node_loses_no_call;
    Alone Any outage::without_the_operator_servers_serve;
    Alone Own("it stops the API server") outage::without_the_api_server_servers_serve;
    Alone Own("it loads an image into the node") helm::an_upgrade_moves_servers_one_after_another;
    Alone Any helm::a_release_goes_and_another_takes_over;
};

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let outcome = runtime.map_err(anyhow::Error::from).and_then(|runtime| runtime.block_on(runner::run(SCENARIOS)));
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
