//! Text of `/metrics`: `OpenMetrics` 1.0, or the older Prometheus text format.
//!
//! The library writes `OpenMetrics`. The older format appends `_total` to the name of a counter family, as to
//! its samples, and lacks the kinds `info` and `unknown`.

use std::fmt::{self, Write as _};

use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

/// Format of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `OpenMetrics` 1.0.
    OpenMetrics,
    /// Prometheus text 0.0.4.
    Text,
}

impl Format {
    /// Format for an `Accept` header: `OpenMetrics` if the header names it and prefers no other format.
    pub fn accepted(accept: Option<&str>) -> Self {
        let (mut open, mut plain) = (0, 0);
        for range in accept.unwrap_or_default().split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media_type = parts.next().unwrap_or_default().to_ascii_lowercase();
            let quality = parts.find_map(|part| part.strip_prefix("q=")).map_or(1_000, thousandths);
            match media_type.as_str() {
                "application/openmetrics-text" => open = quality.max(open),
                "text/plain" | "text/*" => plain = quality.max(plain),
                _ => {}
            }
        }
        if open > 0 && open >= plain { Self::OpenMetrics } else { Self::Text }
    }

    /// Media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Quality value in thousandths (RFC 9110, section 12.4.2). An invalid value counts as 0.
fn thousandths(quality: &str) -> u32 {
    let quality: f64 = quality.parse().unwrap_or_default();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 1000")]
    let thousandths = (quality.clamp(0.0, 1.0) * 1_000.0) as u32;
    thousandths
}

/// Renders the metrics of `registry`.
pub fn write(registry: &Registry, format: Format) -> String {
    let mut page = String::new();
    // Writing to a string cannot fail.
    let _ = text::encode(&mut page, registry);
    if format == Format::OpenMetrics { page } else { older(&page).unwrap_or_default() }
}

/// Converts a page of `OpenMetrics` into the older format.
fn older(page: &str) -> Result<String, fmt::Error> {
    let mut out = String::with_capacity(page.len());
    let mut help = "";
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            // Written with the next `# TYPE` line, which determines the name.
            help = rest.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scraper_that_asks_for_open_metrics_gets_it() {
        use Format::{OpenMetrics, Text};
        let prometheus_3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
            application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
            text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        let prometheus_2 = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
            text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accept, format) in [
            (None, Text),
            (Some(""), Text),
            (Some("*/*"), Text),
            (Some("text/html, */*;q=0.8"), Text),
            (Some("text/plain;version=0.0.4;q=1,*/*;q=0.1"), Text),
            (Some("Application/OpenMetrics-Text; version=1.0.0"), OpenMetrics),
            (Some(prometheus_3), OpenMetrics),
            (Some(prometheus_2), OpenMetrics),
            (Some("text/plain, application/openmetrics-text; q=0.5"), Text),
            (Some("application/openmetrics-text;q=0"), Text),
            (Some("application/openmetrics-text;q=nonsense"), Text),
        ] {
            assert_eq!(Format::accepted(accept), format, "{accept:?}");
        }
    }

    #[test]
    fn families_have_the_names_of_the_older_format() {
        let page = "# HELP a Things.\n# TYPE a counter\na_total 1\n# HELP b About b.\n# TYPE b info\nb_info{x=\"#\"} 1\n\
                    # HELP c_seconds Time.\n# TYPE c_seconds gauge\n# UNIT c_seconds seconds\nc_seconds 1.5\n# EOF\n";
        let expected = "# HELP a_total Things.\n# TYPE a_total counter\na_total 1\n# HELP b_info About b.\n\
                        # TYPE b_info gauge\nb_info{x=\"#\"} 1\n# HELP c_seconds Time.\n# TYPE c_seconds gauge\n\
                        c_seconds 1.5\n";
        assert_eq!(older(page).unwrap(), expected);
    }
}
