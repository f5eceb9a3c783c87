//! Resource usage of the process, under the names that Prometheus's client libraries use. It comes from /proc,
//! so only Linux has these metrics.

use prometheus_client::registry::Registry;

#[cfg(not(target_os = "linux"))]
pub(super) fn register(_: &mut Registry) {}

#[cfg(target_os = "linux")]
pub(super) fn register(registry: &mut Registry) {
    registry.register_collector(Box::new(linux::ProcessCollector));
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fmt;

    use procfs::WithCurrentSystemInfo as _;
    use prometheus_client::collector::Collector;
    use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
    use prometheus_client::metrics::counter::ConstCounter;
    use prometheus_client::metrics::gauge::ConstGauge;
    use prometheus_client::registry::Unit;

    #[derive(Debug)]
    pub(super) struct ProcessCollector;

    impl Collector for ProcessCollector {
        fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
            // Without /proc, there is nothing to export.
            read().map_or(Ok(()), |used| used.encode(encoder))
        }
    }

    struct Used {
        cpu_s: f64,
        started_s: f64,
        resident: i64,
        virtual_size: i64,
        open_fds: i64,
        max_fds: i64,
    }

    fn read() -> Option<Used> {
        let process = procfs::process::Process::myself().ok()?;
        let stat = process.stat().ok()?;
        let per_second = ticks(procfs::ticks_per_second());
        let booted_s = ticks(procfs::boot_time_secs().ok()?);
        let max_fds = match process.limits().ok()?.max_open_files.soft_limit {
            procfs::process::LimitValue::Value(max) => gauge(max),
            procfs::process::LimitValue::Unlimited => i64::MAX,
        };
        Some(Used {
            cpu_s: ticks(stat.utime + stat.stime) / per_second,
            started_s: booted_s + ticks(stat.starttime) / per_second,
            resident: gauge(stat.rss_bytes().get()),
            virtual_size: gauge(stat.vsize),
            open_fds: gauge(process.fd_count().ok()? as u64),
            max_fds,
        })
    }

    #[allow(clippy::cast_precision_loss, reason = "a metric")]
    fn ticks(number: u64) -> f64 {
        number as f64
    }

    fn gauge(number: u64) -> i64 {
        i64::try_from(number).unwrap_or(i64::MAX)
    }

    impl Used {
        fn encode(&self, mut out: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
            let (seconds, bytes) = (Some(&Unit::Seconds), Some(&Unit::Bytes));
            let mut show = |name, help, unit, metric: &dyn EncodeMetric| {
                metric.encode(out.encode_descriptor(name, help, unit, metric.metric_type())?)
            };
            show("process_cpu", "CPU time used.", seconds, &ConstCounter::new(self.cpu_s))?;
            let help = "When the process began, since 1970.";
            show("process_start_time", help, seconds, &ConstGauge::new(self.started_s))?;
            show("process_resident_memory", "Resident memory.", bytes, &ConstGauge::new(self.resident))?;
            show("process_virtual_memory", "Virtual memory.", bytes, &ConstGauge::new(self.virtual_size))?;
            show("process_open_fds", "Open file descriptors.", None, &ConstGauge::new(self.open_fds))?;
            show("process_max_fds", "The most file descriptors.", None, &ConstGauge::new(self.max_fds))
        }
    }
}
