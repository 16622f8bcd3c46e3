//! The reader of `tarn.toml`: sections, and errors that know their place in the file.

mod nearest;
mod reader;
mod section;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod value;

pub use nearest::suggestion;
pub use reader::{NumberOrText, Reader};
pub use section::{ConfigError, ConfigErrors, Document, Section, position};

/// As many errors are reported of a file that is wrong throughout.
const ERROR_LIMIT: usize = 50;
