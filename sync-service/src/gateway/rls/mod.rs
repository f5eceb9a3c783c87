//! Envoy's rate limit service (`envoy.service.ratelimit.v3`) over gRPC: each descriptor is a check of the gateway.
//!
//! [`asking`] makes checks of descriptors, [`answering`] a response of verdicts, [`health`] says whether it is worth asking.

pub mod answering;
pub mod asking;
mod health;
mod port;
mod reflection;
mod service;

pub use port::Port;
pub use service::Limits;
