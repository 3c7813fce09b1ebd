//! The contract between the operator, which writes, and the front door, which reads: ports, mount paths, the config
//! file, key records and the `/status` document, and the rules that both of them judge by. Pure data and pure functions:
//! no file, socket, clock or randomness.

pub mod config;
pub mod document;
pub mod door_status;
pub mod invalid;
pub mod key;
pub mod key_entry;
pub mod mount;
pub mod network;
pub mod param_header;
pub mod pod;
pub mod port;
pub mod revision;
pub mod session_key;
pub mod url_template;

pub use config::Config;
pub use door_status::DoorStatus;
pub use invalid::Invalid;
pub use key::{Key, KeyError, KeyHash};
pub use key_entry::{EntryError, KeyEntry, KeyMetadata, KeyRecord};
pub use network::{Network, NetworkError};
pub use session_key::{SessionKey, SessionKeyError, Slot};
