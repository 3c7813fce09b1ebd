//! An answer far larger than what the front door may hold of it.

use std::time::Duration;

use anyhow::Result;
use http::Method;
use http_body_util::BodyExt as _;
use mooring_tests::front_door_process::{FrontDoorProcess, config, http};
use serde_json::json;

use crate::backend::Backend;
use crate::connection::{Connection, Version, request};

/// Size of the answer, in MiB.
const SIZE: u64 = 64;
/// Most that the memory of the front door grows meanwhile, in KiB.
const ROOM: u64 = 4 * 1024;
/// Its reader takes a rest after so many bytes, so that the server behind is always ahead of it.
const DRAUGHT: usize = 256 * 1024;
/// That rest.
const REST: Duration = Duration::from_millis(10);

#[tokio::test]
async fn a_huge_answer_passes_to_a_slow_reader_in_little_memory() -> Result<()> {
    let backend = Backend::start().await?;
    let door = FrontDoorProcess::start(&config(&http(backend.port()))).await?;
    door.ready().await?;
    for version in [Version::Http1, Version::Http2] {
        let mut client = Connection::open(&door.target().host, version).await?;
        client.initialize().await?;
        let before = door.usage()?.resident_kib;
        let arguments = json!({"text": "much", "mebibytes": SIZE});
        let call = request(1, "tools/call", &json!({"name": "echo", "arguments": arguments}));
        let mut answer = client.send(Method::POST, call.to_string()).await?.into_body();
        let (mut taken, mut since) = (0, 0);
        while let Some(frame) = answer.frame().await {
            let length = frame?.into_data().unwrap_or_default().len();
            (taken, since) = (taken + length, since + length);
            if since >= DRAUGHT {
                since = 0;
                tokio::time::sleep(REST).await;
            }
        }
        let more = door.usage()?.peak_kib - before;
        println!("{version:?}: {taken} bytes in {more} KiB");
        assert!(taken as u64 > SIZE * 1024 * 1024 && more < ROOM, "{version:?}: {taken} bytes in {more} KiB");
    }
    Ok(())
}
