//! Envoy's rate limit service (`envoy.service.ratelimit.v3`) over gRPC, in which each descriptor is a check of
//! the gateway. The same port serves the quota service ([`crate::rlqs`]).
//!
//! [`asking`] converts descriptors into checks, and [`answering`] converts decisions into a response.

pub mod answering;
pub mod asking;
