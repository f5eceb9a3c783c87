//! Envoy's rate limit service (`envoy.service.ratelimit.v3`) over gRPC: each descriptor is a check of the gateway. The same port
//! has the service of quotas ([`super::rlqs`]).
//!
//! [`asking`] makes checks of descriptors, [`answering`] a response of verdicts, [`health`] says whether it is worth asking.

pub mod answering;
pub mod asking;
mod health;
mod kept;
mod port;
mod raw;
mod reflection;
mod service;
mod unary;

pub use port::Port;
pub use service::Limits;
