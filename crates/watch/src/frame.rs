//! What the verbs of the frame need.

use anyhow::Result;
use tarn_base::error::Unsupported;
use tarn_frame::Stages;
use tarn_frame::state::StateDirectory;
use tarn_kernel::features::require_root;

/// What the verbs of the frame act on.
#[derive(Clone)]
pub struct Frame {
    /// The stages, in packet order.
    pub stages: Stages,
    /// What tarn keeps about this network namespace.
    pub state: StateDirectory,
    /// Refuses a verb that this process has not the rights for.
    pub rights: fn(&str) -> Result<(), Unsupported>,
}

impl Frame {
    /// This network namespace, with the rights of root.
    ///
    /// # Errors
    /// When the kernel cannot tell namespaces apart (before 5.14).
    pub fn of_this_namespace(stages: Stages) -> Result<Self> {
        let state = StateDirectory::of_this_namespace()?;
        Ok(Self {
            stages,
            state,
            rights: require_root,
        })
    }
}
