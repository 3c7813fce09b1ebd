//! What is wrong with a configuration.

/// Which field is wrong, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct Invalid {
    /// The field as a person writes it: `source.tools[0].http.timeoutMs`.
    pub field: String,
    /// What it must be.
    pub reason: String,
}

impl Invalid {
    /// A field and a reason.
    pub fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { field: field.into(), reason: reason.into() }
    }
}
