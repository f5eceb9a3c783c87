//! Settings from a file, the environment and flags; later ones override earlier ones.
//!
//! Every setting is one row of [`settings::SETTINGS`] and can be given in all three places: `lease_min_ms` in the file,
//! `WEIR_SYNC_LEASE_MIN_MS` in the environment, `--lease-min-ms` as a flag. An error names the place and states what
//! was expected. All errors are reported at once.

mod layers;
pub mod settings;
pub(crate) mod values;

pub use layers::{ConfigErrors, LoadedConfig, command, load};
pub use settings::Config;
pub use values::{AuditFile, AuditStream, Secret, StoreAddress, TokenSource};
