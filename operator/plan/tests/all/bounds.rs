//! What the front door refuses, the API server refuses, too: both are asked for the bounds of every limit.

use mooring_contract::config::{Cors, Limits, ToolRequest};
use serde_json::Value;

/// The least and the most of a field, in milliseconds where it is a duration.
fn bounds(field: &Value) -> (u64, u64) {
    if let (Some(least), Some(most)) = (field["minimum"].as_u64(), field["maximum"].as_u64()) {
        return (least, most);
    }
    let rule = field["x-kubernetes-validations"][0]["rule"].as_str().unwrap();
    let mut ends = rule.split("duration('").skip(1).map(|rest| {
        let text = rest.split('\'').next().unwrap();
        let number: u64 = text.trim_end_matches(char::is_alphabetic).parse().unwrap();
        number
            * match text.trim_start_matches(char::is_numeric) {
                "s" => 1000,
                "m" => 60 * 1000,
                "h" => 60 * 60 * 1000,
                unit => panic!("{unit}"),
            }
    });
    (ends.next().unwrap(), ends.next().unwrap())
}

#[test]
fn the_bounds_of_the_front_door_are_those_of_the_api_server() {
    let definition = mooring_api::crd::definition().unwrap();
    let spec = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    let limits = &spec["limits"]["properties"];
    for (field, _, least, most) in Limits::BOUNDS {
        let declared = &limits[field.trim_end_matches("Ms")];
        assert_eq!(bounds(declared), (least, most), "{field}");
    }
    assert_eq!(limits.as_object().unwrap().len(), Limits::BOUNDS.len());
    let timeout = &spec["tools"]["items"]["properties"]["http"]["properties"]["timeout"];
    let (least, most) = ToolRequest::TIMEOUT_BOUNDS;
    assert_eq!(bounds(timeout), (0, most), "above 0, in whole milliseconds");
    assert_eq!(least, 1);
    Limits::default().check().unwrap();
    let rule = &spec["cors"]["properties"]["maxAge"]["x-kubernetes-validations"][0]["rule"];
    assert!(rule.as_str().unwrap().ends_with("duration(self) <= duration('24h')"), "{rule}");
    assert_eq!(Cors::MAX_AGE_SECONDS_MOST, 24 * 60 * 60);
}
