//! What distinguishes this worker and its table from others.

use alloc::string::String;

use crate::key::Secret;

/// What the workers of one proxy share besides the slots; made once per process.
#[derive(Clone, Copy)]
pub struct TableIdentity {
    /// What keys are hashed with.
    pub secret: Secret,
    /// Names this process's table in reports; random.
    pub table_id: u32,
}

/// Bytes of an identity.
const IDENTITY_BYTES: usize = 20;

impl TableIdentity {
    /// The identity that these bytes are: 16 of the secret, 4 of the table's name.
    pub fn of(bytes: &[u8; IDENTITY_BYTES]) -> Self {
        let (mut secret, mut table_id) = ([0; 16], [0; 4]);
        secret.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        table_id.iter_mut().zip(bytes.iter().skip(16)).for_each(|(to, from)| *to = *from);
        Self { secret: Secret::new(secret), table_id: u32::from_le_bytes(table_id) }
    }
}

/// This worker's name in reports.
#[derive(Clone, Debug)]
pub struct Reporter {
    /// The POP's name, the same for all its workers; 1 to [`weir_wire::messages::POP_NAME_MAX`] bytes.
    pub pop: String,
    /// A random name of this worker.
    pub worker: u64,
}
