//! Integration tests of `study`, in one binary.
mod decision_cost;
mod deploy_shell;
mod diff;
mod ended;
mod field;
mod field3;
mod limits;
mod replay_messages;
mod replay_round_trip;
mod rtapp;
mod scenario_corpus;
mod scenario_errors;
mod second_half;
mod self_replay;
mod serve;
mod siblings;
mod window;
