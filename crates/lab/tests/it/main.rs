//! Integration tests of `lab`, in one binary.
mod latency_page;
