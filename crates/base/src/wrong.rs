//! What is wrong with a text that somebody has written.

use thiserror::Error;

/// Text that is not what it should be: what is wrong with it, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}; {remedy}")]
pub struct Wrong {
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub remedy: String,
}

impl Wrong {
    /// A mistake and its remedy.
    pub fn new(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            remedy: remedy.into(),
        }
    }
}
