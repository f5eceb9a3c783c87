//! The dashboard, the alerts and the rules in envoy/observe name metrics that there are, work, and are explained.

mod dashboard;
mod files;
mod known;
mod openmetrics;
mod promql;

use std::collections::BTreeSet;
use std::{env, fs};

use dashboard::{list, text};
use files::{folder, paths, promtool, read_all, sections, yaml};
use known::Known;
use serde_json::{Value, json};

/// With this variable the dashboard is written instead of compared.
const WRITE: &str = "WEIR_WRITE_DASHBOARD";
/// There are more alerts than this, or they are not found any more.
const ALERTS_MIN: usize = 30;

/// The rules in the files of a folder of the mixin.
fn rules(name: &str) -> Vec<Value> {
    let files = read_all(&folder().join("mixin").join(name), "yaml");
    let groups = files.iter().flat_map(|file| list(&file["groups"]));
    groups.flat_map(|group| list(&group["rules"])).cloned().collect()
}

fn dashboard_source() -> Value {
    yaml(&folder().join("mixin/dashboards/weir.yaml"))
}

/// Every expression, with where it is.
fn expressions() -> Vec<(String, String)> {
    let of_rules = [rules("alerts"), rules("rules")].concat();
    let place = |rule: &Value| [text(&rule["alert"]), text(&rule["record"])].concat();
    let of_rules = of_rules.iter().map(|rule| (place(rule), text(&rule["expr"]).to_owned()));
    let source = dashboard_source();
    let of_panels = dashboard::queries(&source).map(|(legend, expr)| (format!("panel, {legend}"), expr.to_owned()));
    of_rules.chain(of_panels).collect()
}

/// Unknown names in the expressions, each with its place.
fn unknown(expressions: &[(String, String)], known: &Known) -> Vec<String> {
    let recorded: BTreeSet<String> = rules("rules").iter().map(|rule| text(&rule["record"]).to_owned()).collect();
    let mut wrong = Vec::new();
    for (place, expression) in expressions {
        let named = promql::named(expression);
        let metrics = named.metrics.into_iter().filter(|name| !known.has(name) && !recorded.contains(name));
        let labels = named.labels.into_iter().filter(|label| !known.labels.contains(label));
        let ends = known::ends(expression).filter(|end| !known.ends.contains(end));
        wrong.extend(metrics.chain(labels).chain(ends).map(|name| format!("{place}: {name}")));
    }
    wrong
}

#[test]
fn every_metric_in_an_expression_exists() {
    let (known, expressions) = (Known::all(), expressions());
    let found = [known.of_weir_sync.len(), known.of_filter.len(), expressions.len()];
    assert!(found[0] > 50 && found[1] > 25 && found[2] > 100, "{found:?}");
    assert_eq!(unknown(&expressions, &known), [""; 0]);
    let shared: Vec<_> = known.of_weir_sync.intersection(&known.of_filter).collect();
    assert!(shared.is_empty(), "two metrics of one name: {shared:?}");
    let wrong = r#"weir_sync_lag_seconds_bucket{le="7.0"} > weir_sync_gone{colour="red"}"#;
    let wrong = [("an alert".to_owned(), wrong.to_owned())];
    let found = ["an alert: weir_sync_gone", "an alert: colour", "an alert: 7.0"];
    assert_eq!(unknown(&wrong, &known), found);
}

#[test]
fn the_dashboard_shows_every_metric() {
    let (known, source) = (Known::all(), dashboard_source());
    let recorded = rules("rules");
    let of_record = |name: &str| {
        let rule = recorded.iter().find(|rule| rule["record"] == name);
        rule.map(|rule| promql::named(text(&rule["expr"])).metrics).unwrap_or_default()
    };
    let mut shown = BTreeSet::new();
    for (_, expression) in dashboard::queries(&source) {
        for name in promql::named(expression).metrics {
            shown.extend(of_record(&name));
            shown.insert(name);
        }
    }
    // Of a histogram, its buckets.
    let is_sum = |name: &str| name.ends_with("_sum") || name.ends_with("_count");
    let all = known.of_weir_sync.union(&known.of_filter).filter(|name| !is_sum(name));
    let missing: Vec<_> = all.filter(|name| !shown.contains(*name)).collect();
    assert!(missing.is_empty(), "add to envoy/observe/mixin/dashboards/weir.yaml: {missing:?}");
}

#[test]
fn the_dashboard_is_current() {
    let path = folder().join("mixin/dashboards/weir.json");
    let made = serde_json::to_string_pretty(&dashboard::made(&dashboard_source(), &Known::all())).unwrap() + "\n";
    if env::var_os(WRITE).is_some() {
        fs::write(&path, &made).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(written == made, "{} is not what weir.yaml makes: run `make dashboard`", path.display());
    let names: Vec<_> = list(&dashboard::made(&dashboard_source(), &Known::all())["panels"]).to_vec();
    let ids: BTreeSet<_> = names.iter().map(|panel| panel["id"].to_string()).collect();
    assert_eq!(ids.len(), names.len());
}

#[test]
fn promtool_accepts_every_expression_and_the_configuration() {
    let mixin = folder().join("mixin");
    let files = [paths(&mixin.join("rules"), "yaml"), paths(&mixin.join("alerts"), "yaml")].concat();
    promtool(&["check", "rules", "--lint=all", "--lint-fatal"], &files);
    let source = dashboard_source();
    let of_panel = |(i, (_, expr)): (usize, (&str, &str))| {
        let expr = expr.replace("$__rate_interval", "5m");
        json!({"record": format!("panel:{i}"), "expr": expr})
    };
    let panels: Vec<_> = dashboard::queries(&source).enumerate().map(of_panel).collect();
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    fs::write(file.path(), json!({"groups": [{"name": "panels", "rules": panels}]}).to_string()).unwrap();
    promtool(&["check", "rules"], &[file.path().to_owned()]);
    promtool(&["check", "config"], &[folder().join("prometheus.yaml")]);
}

#[test]
fn each_alert_passes_its_tests() {
    let folder = folder().join("mixin/tests");
    let files = read_all(&folder, "yaml");
    let tests: Vec<_> = files.iter().flat_map(|file| list(&file["tests"])).collect();
    for alert in rules("alerts") {
        let name = text(&alert["alert"]);
        let of = |word: &str| {
            let named = tests.iter().filter(|test| test["name"] == format!("{name} {word}"));
            named.map(|test| test["promql_expr_test"][0]["exp_samples"].to_string()).collect::<Vec<_>>()
        };
        let alone = json!([{"labels": format!("{{alertname=\"{name}\"}}"), "value": 1}]).to_string();
        assert_eq!(of("fires"), [alone], "{name}");
        assert_eq!(of("is silent"), ["[]"], "{name}");
    }
    promtool(&["test", "rules"], &paths(&folder, "yaml"));
}

#[test]
fn each_alert_links_to_its_page() {
    let (alerts, sections) = (rules("alerts"), sections("docs/operating.md"));
    assert!(alerts.len() > ALERTS_MIN, "{}", alerts.len());
    for alert in &alerts {
        let name = text(&alert["alert"]);
        let severity = text(&alert["labels"]["severity"]);
        assert!(["critical", "warning"].contains(&severity), "{name}: {severity}");
        assert!(text(&alert["annotations"]["summary"]).ends_with('.'), "{name}");
        let runbook = text(&alert["annotations"]["runbook_url"]);
        let anchor = runbook.strip_prefix("docs/operating.md#").unwrap_or_default();
        let section = sections.get(anchor).unwrap_or_else(|| panic!("{name}: no section {anchor:?}"));
        assert!(section.contains(&format!("| `{name}` |")), "docs/operating.md#{anchor} has no row of {name}");
    }
    let names: BTreeSet<_> = alerts.iter().map(|alert| text(&alert["alert"])).collect();
    let explained = sections.values().flat_map(|section| section.split("| `Weir").skip(1));
    let gone: Vec<_> = explained
        .filter_map(|rest| rest.split('`').next())
        .filter(|rest| !names.contains(format!("Weir{rest}").as_str()))
        .collect();
    assert!(gone.is_empty(), "docs/operating.md explains alerts that are gone: {gone:?}");
}

/// Docker is not asked: this is all that is known of the containers.
#[test]
fn every_mount_and_target_of_the_containers_exists() {
    let compose = yaml(&folder().join("compose.yaml"));
    let services = compose["services"].as_object().unwrap();
    let mut mounted = Vec::new();
    for (name, service) in services {
        let (_, version) = text(&service["image"]).split_once(':').unwrap_or_default();
        assert!(version.starts_with(|c: char| c == 'v' || c.is_ascii_digit()), "{name}: no version");
        for volume in list(&service["volumes"]) {
            let parts: Vec<_> = text(volume).split(':').collect();
            let [from, to, "ro"] = parts[..] else { panic!("{name}: {volume}") };
            assert!(folder().join(from).exists(), "{name}: there is no {from}");
            mounted.push(to.to_owned());
        }
    }
    let prometheus = list(&services["prometheus"]["command"]).iter().map(text).collect::<Vec<_>>().join(" ");
    assert!(prometheus.contains("--config.file=/etc/weir/prometheus.yaml"), "{prometheus}");
    let sources = yaml(&folder().join("grafana/datasources.yaml"));
    let address = text(&sources["datasources"][0]["url"]).trim_start_matches("http://");
    assert!(prometheus.contains(&format!("--web.listen-address={address}")), "{prometheus}");
    let provider = &yaml(&folder().join("grafana/dashboards.yaml"))["providers"][0];
    let home = text(&services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]);
    assert_eq!(home, format!("{}/weir.json", text(&provider["options"]["path"])));
    for path in [home, "/etc/weir/prometheus.yaml", "/etc/weir/mixin"] {
        assert!(mounted.iter().any(|mount| mount == path), "{path} is not mounted: {mounted:?}");
    }
}
