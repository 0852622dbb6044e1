//! One module for each command.

pub(crate) mod bench;
pub(crate) mod calibrate;
pub(crate) mod colocate;
pub(crate) mod compare;
pub(crate) mod confirm;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod experiment;
pub(crate) mod export;
pub(crate) mod generate;
pub(crate) mod guardian;
pub(crate) mod import;
pub(crate) mod latency;
pub(crate) mod list;
pub(crate) mod part;
pub(crate) mod published;
pub(crate) mod record;
pub(crate) mod restore;
pub(crate) mod run;
pub(crate) mod show;
pub(crate) mod status;
pub(crate) mod stress;
pub(crate) mod top;
pub(crate) mod watch;
