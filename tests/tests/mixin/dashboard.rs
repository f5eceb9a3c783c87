//! Makes the dashboard that Grafana reads of the one that people write.

use serde_json::{Value, json};

use crate::known::Known;
use crate::promql;

/// Grafana's grid has 24 columns.
const COLUMNS: usize = 24;
const WIDTH: usize = 8;
const HEIGHT: usize = 8;

/// An expression of the dashboard, and what its rows are called.
pub(crate) fn queries(source: &Value) -> impl Iterator<Item = (&str, &str)> {
    let panels = list(source).iter().flat_map(|row| list(&row["panels"]));
    panels.flat_map(|panel| list(&panel["queries"])).map(|query| (text(&query[0]), text(&query[1])))
}

/// Grafana's JSON.
pub(crate) fn made(source: &Value, known: &Known) -> Value {
    let (mut panels, mut y) = (Vec::new(), 0);
    for row in list(source) {
        let grid = json!({"h": 1, "w": COLUMNS, "x": 0, "y": y});
        let id = panels.len() + 1;
        panels.push(
            json!({"id": id, "type": "row", "title": row["row"], "collapsed": false, "gridPos": grid, "panels": []}),
        );
        y += 1;
        for (i, panel) in list(&row["panels"]).iter().enumerate() {
            let (line, column) = (i / (COLUMNS / WIDTH), i % (COLUMNS / WIDTH));
            let grid = json!({"h": HEIGHT, "w": WIDTH, "x": column * WIDTH, "y": y + line * HEIGHT});
            panels.push(made_panel(panels.len() + 1, &grid, panel, known));
        }
        y += list(&row["panels"]).len().div_ceil(COLUMNS / WIDTH) * HEIGHT;
    }
    json!({
        "uid": "weir",
        "title": "Weir",
        "description": "Made of weir.yaml by `make dashboard`: change that.",
        "tags": ["weir", "rate-limiting"],
        "schemaVersion": 39,
        "version": 1,
        "editable": true,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "templating": {"list": variables()},
        "annotations": {"list": []},
        "panels": panels,
    })
}

fn made_panel(id: usize, grid: &Value, panel: &Value, known: &Known) -> Value {
    let queries = list(&panel["queries"]).iter().zip('A'..);
    let target = |(query, ref_id): (&Value, char)| {
        let (legend, expr) = (&query[0], &query[1]);
        json!({"refId": ref_id, "expr": expr, "legendFormat": legend, "datasource": datasource()})
    };
    json!({
        "id": id,
        "type": "timeseries",
        "title": panel["title"],
        "description": description(panel, known),
        "datasource": datasource(),
        "gridPos": grid,
        "fieldConfig": {"defaults": {"unit": panel["unit"], "min": 0}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": true},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": queries.map(target).collect::<Vec<_>>(),
    })
}

/// weir-sync's help texts of the metrics in a panel.
fn description(panel: &Value, known: &Known) -> String {
    let mut lines: Vec<String> = Vec::new();
    for query in list(&panel["queries"]) {
        for name in promql::named(text(&query[1])).metrics {
            lines.extend(known.help_of(&name).map(|help| format!("{name}: {help}")));
        }
    }
    lines.dedup();
    lines.join("\n\n")
}

fn datasource() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

fn variables() -> Value {
    let of = |name: &str, label: &str, metric: &str| {
        json!({
            "name": name,
            "label": label,
            "type": "query",
            "datasource": datasource(),
            "query": {"query": format!("label_values({metric}, {name})"), "refId": name},
            "refresh": 2,
            "sort": 1,
            "multi": true,
            "includeAll": true,
            // Of an Envoy whose samples have no region, too.
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        })
    };
    json!([
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
        of("region", "region", "weir_sync_build_info"),
        of("rule", "rule", "rule:weir_rule_allowed:rate5m"),
    ])
}

/// The items of a list; none of what is none.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A text; empty if it is none.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
