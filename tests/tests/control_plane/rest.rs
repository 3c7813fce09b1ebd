//! At rest nothing is written, and a restart of the operator writes nothing that changes anything.

use std::time::Duration;

use anyhow::{Result, ensure};
use mooring_tests::wait::until;
use serde_json::json;

use crate::world::{World, full, left_out};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minute_at_rest_sees_no_write_but_the_lease() -> Result<()> {
    if left_out("it reads the API server's audit log")? {
        return Ok(());
    }
    let world = World::new("rest").await?;
    let operator = world.operator_with(&["--leader-elect", "true"]).await?;
    let names: Vec<String> = (0..20).map(|n| format!("server-{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for (n, name) in names.iter().enumerate() {
        let spec = match n % 3 {
            0 => full(&format!("{name}.rest.example.com")),
            1 => json!({"tools": [{"name": "a", "http": {"url": "http://a/"}}], "auth": {"keys": [{"name": "a"}]}}),
            _ if n == 2 => json!({"http": {"image": "b"}, "auth": {"keySecrets": [{"name": "nowhere"}]}}),
            _ => json!({"http": {"image": "b"}, "networkPolicy": {"enabled": false}}),
        };
        world.apply(name, &spec).await?;
    }
    let before = world.at_rest(&names).await?;
    let marks = (world.proxy.mark(), world.audited_writes()?.len());
    let start = std::time::Instant::now();
    until("a minute to pass", Duration::from_secs(70), || async {
        ensure!(start.elapsed() >= Duration::from_secs(60), "it has not");
        Ok(())
    })
    .await?;
    let records = world.proxy.since(marks.0);
    let writes: Vec<_> = records.iter().map(|record| &record.request).filter(|request| request.is_write()).collect();
    assert!(writes.iter().any(|write| write.resource == "leases"), "the lease is renewed");
    let other: Vec<_> = writes.iter().filter(|write| write.resource != "leases").map(|write| write.target()).collect();
    assert!(other.is_empty(), "written at rest: {other:?}");
    assert_eq!(world.audited_writes()?.len(), marks.1, "the API server's own log says the same");
    let reads: Vec<_> = records
        .iter()
        .map(|record| &record.request)
        .filter(|r| !r.is_write() && r.verb != "watch" && r.resource != "leases")
        .map(|r| r.uri.clone())
        .collect();
    assert!(reads.is_empty(), "nothing is read at rest but by watches: {reads:?}");
    assert_eq!(world.at_rest(&names).await?, before, "no resourceVersion moved");

    let minted = |child: &&str| child.contains(".key.") || child.ends_with(".session");
    let children = world.children_of(&names).await?;
    let applied =
        children.values().map(|children| children.names().iter().filter(|child| !minted(child)).count()).sum::<usize>();
    assert!(applied > 100, "{applied}");
    operator.kill();
    let _operator = world.operator_with(&["--leader-elect", "true"]).await?;
    until("the new operator to lead and to write", Duration::from_secs(60), || async {
        let written = world.audited_writes()?.len() - marks.1;
        ensure!(written >= applied, "it has written {written} times, and {applied} children are applied");
        Ok(())
    })
    .await?;
    assert_eq!(world.at_rest(&names).await?, before, "a restart applies everything once, and no resourceVersion moves");
    Ok(())
}
