//! The gateway for Envoy's rate limit filters: a client over gRPC, and a real weir-sync.

mod answers;
mod charges;
mod gateway;
mod health;
mod limits;
mod protos;
mod quotas;
mod refusals;
