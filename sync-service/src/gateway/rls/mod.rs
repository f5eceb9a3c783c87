//! Envoy's rate limit service (`envoy.service.ratelimit.v3`) over gRPC, in which each descriptor is a check of
//! the gateway. The same port serves the quota service ([`super::rlqs`]).
//!
//! [`asking`] converts descriptors into checks, [`answering`] converts decisions into a response, and
//! [`health`] publishes the health of the port.

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
pub use service::RequestLimits;
