//! The real module on a host that a test scripts: failing, lying, racing, out of time.

mod configuration;
mod contexts;
mod exchange;
mod harness;
mod hosts;
mod live;
mod random;
mod requests;
mod resources;
mod shared_data;
mod sweep;
