//! The real module on a host that answers what a test says: failing, lying, racing, out of time.

mod answering;
mod calls;
mod clock;
mod configuration;
mod contexts;
mod exchange;
mod harness;
mod keys;
mod live;
mod memory;
mod metrics;
mod random;
mod requests;
mod shared_data;
mod strict;
mod sweep;
