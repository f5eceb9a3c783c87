//! Resource usage of the process, under the names that Prometheus's client libraries use. Only on Linux, from /proc.

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
    use procfs::process::{LimitValue, Process};
    use prometheus_client::collector::Collector;
    use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
    use prometheus_client::metrics::counter::ConstCounter;
    use prometheus_client::metrics::gauge::ConstGauge;
    use prometheus_client::registry::Unit;

    #[derive(Debug)]
    pub(super) struct ProcessCollector;

    impl Collector for ProcessCollector {
        fn encode(&self, mut out: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
            // Without /proc, there is nothing to export.
            for (name, help, unit, metric) in read().into_iter().flatten() {
                metric.encode(out.encode_descriptor(name, help, unit.as_ref(), metric.metric_type())?)?;
            }
            Ok(())
        }
    }

    type Row = (&'static str, &'static str, Option<Unit>, Box<dyn EncodeMetric>);

    fn read() -> Option<[Row; 6]> {
        let process = Process::myself().ok()?;
        let stat = process.stat().ok()?;
        let per_second = ticks(procfs::ticks_per_second());
        let started_s = ticks(procfs::boot_time_secs().ok()?) + ticks(stat.starttime) / per_second;
        let max_fds = match process.limits().ok()?.max_open_files.soft_limit {
            LimitValue::Value(max) => max,
            LimitValue::Unlimited => u64::MAX,
        };
        let count = |number: u64| Box::new(ConstGauge::new(i64::try_from(number).unwrap_or(i64::MAX)));
        let cpu = Box::new(ConstCounter::new(ticks(stat.utime + stat.stime) / per_second));
        let started = Box::new(ConstGauge::new(started_s));
        let (resident, open_fds) = (stat.rss_bytes().get(), process.fd_count().ok()? as u64);
        Some([
            ("process_cpu", "CPU time used.", Some(Unit::Seconds), cpu),
            ("process_start_time", "When the process began, since 1970.", Some(Unit::Seconds), started),
            ("process_resident_memory", "Resident memory.", Some(Unit::Bytes), count(resident)),
            ("process_virtual_memory", "Virtual memory.", Some(Unit::Bytes), count(stat.vsize)),
            ("process_open_fds", "Open file descriptors.", None, count(open_fds)),
            ("process_max_fds", "The most file descriptors.", None, count(max_fds)),
        ])
    }

    #[allow(clippy::cast_precision_loss, reason = "a metric")]
    fn ticks(number: u64) -> f64 {
        number as f64
    }
}
