//! The API server's audit log, followed while it grows: who looks at the log asks the API server nothing, and who reads it once
//! needs little of the CPU that the fleet needs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context, Result};
use jiff::Timestamp;
use mooring_tests::cluster::AuditEvent;

use super::{NAMESPACE, OPERATOR};

/// What the log said so far, as far as it is about the fleet. Times are seconds since 1970.
pub struct Trail {
    log: File,
    /// The beginning of a line that is still being written.
    begun: Vec<u8>,
    /// When each server was created.
    pub born: BTreeMap<String, f64>,
    /// When the last of its children was written by the operator.
    pub last_child: BTreeMap<String, f64>,
    /// Servers whose status the operator wrote.
    pub told: BTreeSet<String>,
    /// Deployments that were deleted.
    pub deleted: usize,
    /// Writes of the operator, Lease and Events apart.
    pub writes: usize,
    /// Those of them that wrote a status.
    pub statuses: usize,
    /// What the operator asked besides: whose a name is, before its first write.
    pub reads: usize,
}

impl Trail {
    /// Follows the log of a cluster from its beginning.
    pub fn follow(path: &Path) -> Result<Self> {
        Ok(Self {
            log: File::open(path).with_context(|| format!("cannot read {}", path.display()))?,
            begun: Vec::new(),
            born: BTreeMap::new(),
            last_child: BTreeMap::new(),
            told: BTreeSet::new(),
            deleted: 0,
            writes: 0,
            statuses: 0,
            reads: 0,
        })
    }

    /// Reads what was added since.
    pub fn read(&mut self) -> Result<()> {
        let mut text = std::mem::take(&mut self.begun);
        self.log.read_to_end(&mut text)?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.begun = text.split_off(whole);
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let event = serde_json::from_slice(line).context("an audit event is not understood")?;
            self.take(&event)?;
        }
        Ok(())
    }

    fn take(&mut self, event: &AuditEvent) -> Result<()> {
        let Some(object) = event.object_ref.as_ref().filter(|object| object.namespace == NAMESPACE) else {
            return Ok(());
        };
        if event.stage != "ResponseComplete" {
            return Ok(());
        }
        let is_operators = event.user.username == OPERATOR;
        self.reads += usize::from(is_operators && event.verb == "get");
        if !event.is_write() || event.code() >= 300 {
            return Ok(());
        }
        match (is_operators, event.verb.as_str(), object.resource.as_str()) {
            (true, _, "events") => {}
            (true, _, "mcpservers") => {
                self.writes += 1;
                self.statuses += 1;
                self.told.insert(object.name.clone());
            }
            (true, ..) => {
                self.writes += 1;
                let owner = object.name.split('.').next().unwrap_or_default();
                if !owner.is_empty() {
                    self.last_child.insert(owner.to_owned(), seconds(&event.stage_timestamp)?);
                }
            }
            (false, "create", "mcpservers") => {
                self.born.insert(object.name.clone(), seconds(&event.request_received_timestamp)?);
            }
            (false, "delete", "deployments") => self.deleted += 1,
            _ => {}
        }
        Ok(())
    }
}

fn seconds(text: &str) -> Result<f64> {
    Ok(text.parse::<Timestamp>()?.as_microsecond() as f64 / 1e6)
}
