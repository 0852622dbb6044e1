//! `watch --openmetrics`: the metrics of the flight recorder, of the tasks that are shown.

use crate::flight::FlightError;
use crate::flight::config::SERIES;
use crate::flight::meters::Meters;
use crate::flight::metrics::{Address, Bound, bind};
use prometheus_client::registry::Registry;
use schedlab_trace::analysis::By;
use std::sync::Arc;

/// What a live view counts for a scraper.
pub struct WatchMetrics(Meters);

/// Serves it.
pub struct MetricsServer {
    server: Bound,
    registry: Arc<Registry>,
}

impl WatchMetrics {
    /// Binds an address for metrics by `by`; series of their own have at most as many names as in
    /// the flight recorder.
    ///
    /// # Errors
    /// The address is taken, or may not be used.
    pub fn bind(address: &Address, by: By) -> Result<(WatchMetrics, MetricsServer), FlightError> {
        let server = bind(address)?;
        let (meters, registry) = Meters::of_view(by, SERIES);
        Ok((WatchMetrics(meters), MetricsServer { server, registry: Arc::new(registry) }))
    }

    #[cfg(test)]
    pub(super) fn of(meters: Meters) -> WatchMetrics {
        WatchMetrics(meters)
    }

    pub(super) fn into_meters(self) -> Meters {
        self.0
    }
}

impl MetricsServer {
    /// Serves until `stop`.
    pub fn serve(&self, stop: &dyn Fn() -> bool) {
        self.server.serve(&self.registry, stop);
    }
}
