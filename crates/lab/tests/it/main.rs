//! Integration tests of the lab.
mod scenario_errors;
