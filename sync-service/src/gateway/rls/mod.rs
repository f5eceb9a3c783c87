//! Envoy's rate limit service (`envoy.service.ratelimit.v3`) over gRPC, in which each descriptor is a check of
//! the gateway. The same port serves the quota service ([`super::rlqs`]).
//!
//! [`asking`] converts descriptors into checks, [`answering`] converts decisions into a response, and
//! [`port`] publishes the health of the port.

pub(crate) mod answering;
pub(crate) mod asking;
mod port;
mod service;
mod unary;

pub(crate) use port::Port;
pub(crate) use service::RequestLimits;
