//! The identities of a worker and of its table.

use alloc::string::String;

use crate::key::HashSecret;

/// The identity that the workers of one proxy share besides the slots; made once per process.
#[derive(Clone, Copy)]
pub struct TableIdentity {
    /// Secret that keys are hashed with.
    pub secret: HashSecret,
    /// Random name of this process's table in reports.
    pub table_id: u32,
}

/// Bytes of an identity.
const IDENTITY_BYTES: usize = 20;

impl TableIdentity {
    /// Decodes an identity: 16 bytes of the secret, 4 of the table's name.
    pub fn of(bytes: &[u8; IDENTITY_BYTES]) -> Self {
        let (mut secret, mut table_id) = ([0; 16], [0; 4]);
        secret.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        table_id.iter_mut().zip(bytes.iter().skip(16)).for_each(|(to, from)| *to = *from);
        Self { secret: HashSecret::new(secret), table_id: u32::from_le_bytes(table_id) }
    }
}

/// This worker's name in reports.
#[derive(Clone, Debug)]
pub struct Reporter {
    /// Name of the POP, the same for all its workers; 1 to [`weir_protocol::messages::POP_NAME_MAX`] bytes.
    pub pop: String,
    /// Random name of this worker.
    pub worker: u64,
}
