//! The filter.
