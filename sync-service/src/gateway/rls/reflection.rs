//! Reflection of the port's services, for clients such as `grpcurl`.

use tonic_health::pb::FILE_DESCRIPTOR_SET as HEALTH;
use tonic_reflection::server::{Builder, Error, v1, v1alpha};

use crate::gateway::proto::DESCRIPTORS;

fn builder() -> Builder<'static> {
    Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(HEALTH)
}

/// Reflection protocol `v1`.
pub(super) fn present() -> Result<v1::ServerReflectionServer<impl v1::ServerReflection>, Error> {
    builder().build_v1()
}

/// Reflection protocol `v1alpha`, for older clients.
pub(super) fn before() -> Result<v1alpha::ServerReflectionServer<impl v1alpha::ServerReflection>, Error> {
    builder().build_v1alpha()
}
