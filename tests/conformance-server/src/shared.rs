//! What outlives one request or session: running tasks, the key of request states, and that a list has changed.

use rmcp::model::{RequestStateCodec, RequestStateError};
use rmcp::task_manager::TaskManager;
use tokio::sync::watch;

/// Why a server could not be made.
pub(crate) type Fault = Box<dyn std::error::Error>;

/// How often each list has changed. A change of a list is all that a subscriber learns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) tools: u64,
    pub(crate) prompts: u64,
}

/// The state of the whole server.
pub(crate) struct Shared {
    pub(crate) tasks: TaskManager,
    codec: RequestStateCodec,
    changes: watch::Sender<Changes>,
}

impl Shared {
    #[expect(clippy::disallowed_methods, reason = "the key of this process, made once at its start")]
    pub(crate) fn new() -> Result<Self, Fault> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        let codec = RequestStateCodec::try_new(key)?;
        Ok(Self { tasks: TaskManager::new(), codec, changes: watch::Sender::default() })
    }

    /// A request state that says where a tool was, so that nobody can make up another.
    pub(crate) fn seal(&self, place: &str) -> String {
        self.codec.seal(place.as_bytes())
    }

    /// Where the tool was.
    pub(crate) fn open(&self, state: &str) -> Result<String, RequestStateError> {
        Ok(String::from_utf8_lossy(&self.codec.open(state)?).into_owned())
    }

    /// Notes that lists have changed.
    pub(crate) fn change(&self, note: impl FnOnce(&mut Changes)) {
        self.changes.send_modify(note);
    }

    /// Sees every change from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<Changes> {
        self.changes.subscribe()
    }
}
