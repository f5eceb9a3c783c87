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

/// This worker's name in reports.
#[derive(Clone, Debug)]
pub struct Reporter {
    /// The POP's name, the same for all its workers; 1 to [`weir_wire::messages::POP_NAME_MAX`] bytes.
    pub pop: String,
    /// A random name of this worker.
    pub worker: u64,
}
