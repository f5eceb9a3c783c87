//! Text of `/metrics` in Prometheus's text format 0.0.4, which all scrapers read.
//!
//! The library writes `OpenMetrics`. Prometheus's format appends `_total` to the name of a counter family, as to
//! its samples, and lacks the kinds `info` and `unknown`.

use std::fmt::{self, Write as _};

use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

pub fn write(registry: &Registry) -> String {
    let mut page = String::new();
    // Writing to a string cannot fail.
    let _ = text::encode(&mut page, registry);
    of_prometheus(&page).unwrap_or_default()
}

fn of_prometheus(page: &str) -> Result<String, fmt::Error> {
    let mut out = String::with_capacity(page.len());
    let mut help = "";
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            // Written with the next `# TYPE` line, which determines the name.
            help = rest.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                _ => ("", kind),
            };
            write!(out, "# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n")?;
        } else if !line.starts_with('#') {
            writeln!(out, "{line}")?;
        }
    }
    Ok(out)
}
