//! A test's Envoy, and the bootstrap that makes of it (in JSON, which Envoy reads as well).

use std::env;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::artefact;
use crate::weir_sync::{TOKEN, WeirSync};

/// A port that Envoy picks.
const FREE_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The type of the network filter that HTTP filters are in.
pub(crate) const CONNECTION_MANAGER: &str = "type.googleapis.com/\
    envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";

/// Short, so that a test of a dead end is.
const CONNECT_TIMEOUT: &str = "0.25s";

/// The host of the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// Envoy's sandbox for WebAssembly.
    Wasm,
    /// Envoy itself: the filter is a dynamic module.
    Native,
}

impl Host {
    /// Both, for a test of what they share.
    pub const BOTH: [Self; 2] = [Self::Wasm, Self::Native];

    /// The value of `WEIR_HOST`, `wasm` or `native`; without it, wasm.
    fn asked_for() -> Self {
        match env::var("WEIR_HOST").as_deref() {
            Ok("native") => Self::Native,
            Ok("wasm") | Err(_) => Self::Wasm,
            Ok(other) => panic!("WEIR_HOST: expected wasm or native, found {other:?}"),
        }
    }

    /// Envoy's name of this metric of the filter's.
    pub(super) fn stat(self, name: &str) -> String {
        match (self, name.strip_prefix("weir.rule.").and_then(|of_rule| of_rule.rsplit_once('.'))) {
            (Self::Wasm, _) => format!("wasmcustom.{name}"),
            (Self::Native, None) => format!("dynamicmodulescustom.{name}"),
            // The rule is a label there.
            (Self::Native, Some((rule, what))) => {
                format!("dynamicmodulescustom.weir.rule.{what}.rule.{rule}")
            }
        }
    }
}

/// An Envoy to start: one listener, the filter in front of one route.
#[must_use]
#[derive(Clone, Debug)]
pub struct Setup {
    pub(super) plugin: Option<Value>,
    pub(super) host: Host,
    code: Option<PathBuf>,
    /// True if the filter's configuration is a `google.protobuf.Struct`, which an operator can write as YAML.
    is_struct: bool,
    /// True if the listener and the addresses of weir-syncs come from files, by LDS and EDS, and not in the bootstrap.
    pub(super) is_from_file: bool,
    /// The number of equal listeners: `edge`, `edge-1` and so on.
    listeners: usize,
    /// The name of the module's buckets.
    pub(super) filter_name: String,
    pub(super) concurrency: u32,
    /// Time for which a listener that was replaced goes on with its connections, in seconds.
    pub(super) drain_seconds: u32,
    pub(super) node: String,
    trusted_hops: u32,
    access_log: String,
    upstream: Option<SocketAddr>,
    /// The issuer of the upstream's certificate, if it is asked over HTTP/3.
    upstream_authority: Option<PathBuf>,
    /// The certificate of a listener for HTTP/3, and its key.
    http3: Option<[PathBuf; 2]>,
    clusters: Vec<Value>,
    /// Parts of a shipped bootstrap beside its addresses and its filter.
    shipped: Option<Value>,
    /// The addresses of its weir-syncs, and whether each is in use.
    pub(super) weir_syncs: Vec<(SocketAddr, bool)>,
    /// HTTP filters in front of the filter.
    before: Vec<Value>,
    /// HTTP filters behind the filter.
    behind: Vec<Value>,
    /// Fields more of the connection manager, and of the virtual host.
    more: [Value; 2],
    /// Names of routes, and the prefixes of their paths.
    routes: Vec<(String, String)>,
    /// Variables of its environment.
    pub(super) env: Vec<(String, OsString)>,
}

impl Setup {
    /// With the filter, configured by `plugin`. One worker, one trusted hop (so X-Forwarded-For
    /// names the client), and 200 from Envoy itself for what gets through.
    pub fn with(plugin: Value) -> Self {
        Self {
            plugin: Some(plugin),
            host: Host::asked_for(),
            code: None,
            is_struct: false,
            is_from_file: false,
            listeners: 1,
            filter_name: "weir".into(),
            concurrency: 1,
            drain_seconds: 1,
            node: "edge".into(),
            trusted_hops: 1,
            access_log: "%RESPONSE_CODE%".into(),
            upstream: None,
            upstream_authority: None,
            http3: None,
            clusters: Vec::new(),
            shipped: None,
            weir_syncs: Vec::new(),
            before: Vec::new(),
            behind: Vec::new(),
            more: [Value::Null, Value::Null],
            routes: Vec::new(),
            env: Vec::new(),
        }
    }

    /// With this variable in its environment.
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Without the filter: distinguishes a broken harness from a broken filter.
    pub fn plain() -> Self {
        Self { plugin: None, ..Self::with(Value::Null) }
    }

    /// With the filter in this host, whatever `WEIR_HOST` is.
    pub fn host(self, host: Host) -> Self {
        Self { host, ..self }
    }

    /// With this module (wasm) in place of the filter: shows that the harness sees one fail.
    pub fn code(self, file: &Path) -> Self {
        Self { code: Some(file.into()), host: Host::Wasm, ..self }
    }

    /// With the filter's configuration as a Struct instead of text.
    pub fn as_struct(self) -> Self {
        Self { is_struct: true, ..self }
    }

    /// With this number of workers, among whom connections are spread evenly.
    pub fn concurrency(self, concurrency: u32) -> Self {
        Self { concurrency, ..self }
    }

    /// With this time for the connections of a listener that was replaced: a busy machine may take a second to make
    /// the VM that comes next, and its worker answers nobody meanwhile.
    pub fn drain_seconds(self, drain_seconds: u32) -> Self {
        Self { drain_seconds, ..self }
    }

    /// With this number of equal listeners.
    pub fn listeners(self, listeners: usize) -> Self {
        Self { listeners, ..self }
    }

    /// With this number of trusted proxies in front; none makes the peer's address the client's.
    pub fn trusted_hops(self, trusted_hops: u32) -> Self {
        Self { trusted_hops, ..self }
    }

    /// With this line per request in the access log.
    pub fn access_log(self, line: &str) -> Self {
        Self { access_log: line.into(), ..self }
    }

    /// With a real upstream behind it.
    pub fn upstream(self, upstream: SocketAddr) -> Self {
        Self { upstream: Some(upstream), ..self }
    }

    /// With an upstream that is asked over HTTP/3 as `edge.test`, and has its certificate from this authority.
    pub fn http3_upstream(self, upstream: SocketAddr, authority: &Path) -> Self {
        Self { upstream: Some(upstream), upstream_authority: Some(authority.into()), ..self }
    }

    /// Listening for HTTP/3, with this certificate and its key.
    pub fn over_http3(self, certificate: &Path, key: &Path) -> Self {
        Self { http3: Some([certificate.into(), key.into()]), ..self }
    }

    /// With one more cluster, for weir-sync.
    pub fn cluster(mut self, name: &str, address: SocketAddr) -> Self {
        self.clusters.push(cluster(name, address, CONNECT_TIMEOUT));
        self
    }

    /// With a cluster as a bootstrap writes it, but at this address.
    pub fn shipped_cluster(mut self, mut cluster: Value, address: SocketAddr) -> Self {
        let name = cluster["name"].clone();
        cluster["type"] = "STATIC".into();
        let endpoint = json!({"endpoint": {"address": tcp(address)}});
        cluster["load_assignment"] = json!({"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]});
        self.clusters.push(cluster);
        self
    }

    /// With the cluster `weir-sync` and the stats' tags of envoy/single/envoy.yaml, for these weir-syncs.
    pub fn as_shipped(self, weir_syncs: &[SocketAddr]) -> Self {
        let weir_syncs = weir_syncs.iter().map(|address| (*address, true)).collect();
        Self { shipped: Some(artefact::yaml("envoy/single/envoy.yaml")), weir_syncs, ..self }
    }

    /// With this HTTP filter in front of the filter, behind those that are there.
    pub fn before(mut self, filter: Value) -> Self {
        self.before.push(filter);
        self
    }

    /// With this HTTP filter behind the filter and those that are there: it is asked later, and sees responses earlier.
    pub fn behind(mut self, filter: Value) -> Self {
        self.behind.push(filter);
        self
    }

    /// With a second filter of ours, in the same host, behind the first, configured by `plugin`.
    pub fn second(self, plugin: &Value) -> Self {
        let filter = self.filter("second", plugin);
        self.behind(filter)
    }

    /// With these fields more of the HTTP connection manager, and of its virtual host.
    pub fn more(self, connection_manager: Value, virtual_host: Value) -> Self {
        Self { more: [connection_manager, virtual_host], ..self }
    }

    /// With a route of this name for paths that begin with `prefix`. What is for no such route is for one without
    /// a name.
    pub fn route(mut self, name: &str, prefix: &str) -> Self {
        self.routes.push((name.into(), prefix.into()));
        self
    }

    /// With this node id.
    pub fn node(self, id: &str) -> Self {
        Self { node: id.into(), ..self }
    }

    /// As the POP `name`, which reports to `weir_sync`. The plugin's own settings for that stay as they are.
    pub fn pop(mut self, name: &str, weir_sync: &WeirSync) -> Self {
        if let Some(plugin) = &mut self.plugin {
            for (field, value) in [("cluster", "weir-sync"), ("pop", name), ("token", TOKEN)] {
                let field = &mut plugin["sync"][field];
                if field.is_null() {
                    *field = value.into();
                }
            }
        }
        self.node(name).cluster("weir-sync", weir_sync.address())
    }

    /// With its listener from a file that [`super::Envoy::reconfigure`] replaces, and the addresses of its
    /// weir-syncs from one that [`super::Envoy::take_out`] does.
    pub fn from_file(self) -> Self {
        Self { is_from_file: true, ..self }
    }

    /// The bootstrap; the listener's files are in `folder`.
    pub(super) fn bootstrap(&self, folder: &Path) -> Value {
        let mut clusters = vec![];
        clusters.extend(self.upstream.map(|address| self.upstream_cluster(address)));
        clusters.extend(self.clusters.iter().cloned());
        let mut bootstrap = json!({
            "node": {"id": self.node, "cluster": "weir-tests"},
            "admin": {"address": tcp(FREE_PORT)},
            "static_resources": {"clusters": clusters},
        });
        if self.host == Host::Native {
            // The filter's metrics have the same names on the Prometheus page in both hosts.
            let flag = json!({"envoy.reloadable_features.dynamic_modules_strip_custom_stat_prefix": true});
            bootstrap["layered_runtime"] = json!({"layers": [{"name": "weir", "static_layer": flag}]});
        }
        if let Some(shipped) = &self.shipped {
            bootstrap["stats_config"] = shipped["stats_config"].clone();
            let clusters = shipped["static_resources"]["clusters"].as_array().into_iter().flatten();
            for mut cluster in clusters.filter(|cluster| cluster["name"] == "weir-sync").cloned() {
                if self.is_from_file {
                    cluster["type"] = "EDS".into();
                    cluster["load_assignment"] = Value::Null;
                    cluster["eds_cluster_config"] = json!({"eds_config": from(&weir_syncs_file(folder))});
                } else {
                    cluster["type"] = "STATIC".into();
                    cluster["load_assignment"] = self.weir_syncs();
                }
                if let Some(clusters) = bootstrap["static_resources"]["clusters"].as_array_mut() {
                    clusters.push(cluster);
                }
            }
        }
        if self.is_from_file {
            bootstrap["dynamic_resources"] = json!({"lds_config": from(&listener_file(folder))});
        } else {
            bootstrap["static_resources"]["listeners"] = json!([self.listener(folder)]);
        }
        bootstrap
    }

    fn upstream_cluster(&self, address: SocketAddr) -> Value {
        let mut cluster = cluster("upstream", address, CONNECT_TIMEOUT);
        if let Some(authority) = &self.upstream_authority {
            let tls = json!({"sni": "edge.test",
                "common_tls_context": {"validation_context": {"trusted_ca": {"filename": authority}}}});
            cluster["transport_socket"] = quic("Upstream", &json!({"upstream_tls_context": tls}));
            cluster["typed_extension_protocol_options"] = protocol("http3_protocol_options");
        }
        cluster
    }

    /// The content of the listener's file.
    pub(super) fn listener_found(&self, folder: &Path) -> Value {
        let listener = |n: usize| {
            let mut listener = self.listener(folder);
            if n > 0 {
                listener["name"] = format!("edge-{n}").into();
            }
            listener
        };
        resources("listener.v3.Listener", (0..self.listeners).map(listener))
    }

    /// The content of the file of the weir-syncs' addresses.
    pub(super) fn weir_syncs_found(&self) -> Value {
        resources("endpoint.v3.ClusterLoadAssignment", [self.weir_syncs()])
    }

    /// The addresses of the cluster `weir-sync`.
    fn weir_syncs(&self) -> Value {
        let endpoint = |(address, is_in_use): &(SocketAddr, bool)| {
            let status = if *is_in_use { "UNKNOWN" } else { "DRAINING" };
            json!({"endpoint": {"address": tcp(*address)}, "health_status": status})
        };
        let endpoints: Vec<_> = self.weir_syncs.iter().map(endpoint).collect();
        json!({"cluster_name": "weir-sync", "endpoints": [{"lb_endpoints": endpoints}]})
    }

    fn listener(&self, folder: &Path) -> Value {
        let mut listener = listener("edge", &tcp(FREE_PORT), &self.connection_manager(folder));
        if let Some([certificate, key]) = &self.http3 {
            listener["address"]["socket_address"]["protocol"] = "UDP".into();
            listener["connection_balance_config"] = Value::Null;
            listener["udp_listener_config"] = json!({"quic_options": {}});
            let certificate = json!({"certificate_chain": {"filename": certificate}, "private_key": {"filename": key}});
            let tls = json!({"common_tls_context": {"tls_certificates": [certificate]}});
            let chain = &mut listener["filter_chains"][0];
            chain["transport_socket"] = quic("Downstream", &json!({"downstream_tls_context": tls}));
            chain["filters"][0]["typed_config"]["codec_type"] = "HTTP3".into();
        }
        listener
    }

    fn connection_manager(&self, folder: &Path) -> Value {
        let mut filters = self.before.clone();
        filters.extend(self.plugin.as_ref().map(|plugin| self.filter(&self.filter_name, plugin)));
        filters.extend(self.behind.iter().cloned());
        filters.push(router());
        let route = |prefix: &str| {
            let mut route = json!({"match": {"prefix": prefix}});
            if self.upstream.is_some() {
                route["route"] = json!({"cluster": "upstream"});
            } else {
                route["direct_response"] = json!({"status": 200, "body": {"inline_string": "through\n"}});
            }
            route
        };
        let named = self.routes.iter().map(|(name, prefix)| {
            let mut route = route(prefix);
            route["name"] = json!(name);
            route
        });
        let routes: Vec<_> = named.chain([route("/")]).collect();
        let mut host = json!({"name": "all", "domains": ["*"], "routes": routes});
        let mut manager = json!({
            "@type": CONNECTION_MANAGER,
            "stat_prefix": "edge",
            "use_remote_address": true,
            "xff_num_trusted_hops": self.trusted_hops,
            "access_log": [{"name": "file", "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
                "path": access_log_file(folder),
                "log_format": {"text_format_source": {"inline_string": format!("{}\n", self.access_log)}},
            }}],
            "http_filters": filters,
        });
        for (object, more) in [&mut manager, &mut host].into_iter().zip(&self.more) {
            if let (Some(object), Some(more)) = (object.as_object_mut(), more.as_object()) {
                object.extend(more.clone());
            }
        }
        manager["route_config"] = json!({"virtual_hosts": [host]});
        manager
    }

    fn filter(&self, name: &str, plugin: &Value) -> Value {
        let configuration = if self.is_struct {
            json!({"@type": "type.googleapis.com/google.protobuf.Struct", "value": plugin})
        } else {
            text(&plugin.to_string())
        };
        match self.host {
            Host::Wasm => {
                let code = self.code.clone().unwrap_or_else(artefact::filter_wasm);
                wasm_filter(name, "weir", &code, &configuration)
            }
            Host::Native => native_filter(name, &configuration),
        }
    }
}

/// A filter's configuration as text.
pub fn text(configuration: &str) -> Value {
    json!({"@type": "type.googleapis.com/google.protobuf.StringValue", "value": configuration})
}

/// The filter that sends requests to their routes.
pub fn router() -> Value {
    json!({
        "name": "router",
        "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
    })
}

/// A listener whose connections are spread evenly over the workers.
pub(crate) fn listener(name: &str, address: &Value, connection_manager: &Value) -> Value {
    json!({
        "name": name,
        "address": address,
        "connection_balance_config": {"exact_balance": {}},
        "filter_chains": [{"filters": [{"name": "http", "typed_config": connection_manager}]}],
    })
}

/// The options of a cluster that is asked over this protocol.
pub(crate) fn protocol(options: &str) -> Value {
    json!({"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {options: {}},
    }})
}

/// The filter in Envoy's sandbox, in the VM `vm_id` that it shares with others of this module, whatever their names.
pub(crate) fn wasm_filter(name: &str, vm_id: &str, code: &Path, configuration: &Value) -> Value {
    json!({
        "name": name,
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
            "config": {
                "name": name,
                "root_id": vm_id,
                "failure_policy": "FAIL_RELOAD",
                "vm_config": {
                    "vm_id": vm_id,
                    "runtime": "envoy.wasm.runtime.v8",
                    "code": {"local": {"filename": code}},
                },
                "configuration": configuration,
            },
        },
    })
}

/// The filter as a dynamic module, which shares its buckets with others of this name. Envoy finds the file by the
/// module's name: `lib`, that, `.so`.
pub(crate) fn native_filter(name: &str, configuration: &Value) -> Value {
    json!({
        "name": "weir",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter",
            "dynamic_module_config": {"name": "weir_native", "do_not_close": true},
            "filter_name": name,
            "filter_config": configuration,
        },
    })
}

/// A file of discovery with these resources.
fn resources(kind: &str, resources: impl IntoIterator<Item = Value>) -> Value {
    let typed = |mut resource: Value| {
        resource["@type"] = format!("type.googleapis.com/envoy.config.{kind}").into();
        resource
    };
    json!({"resources": resources.into_iter().map(typed).collect::<Value>()})
}

/// The path of discovery's file.
fn from(path: &Path) -> Value {
    json!({"resource_api_version": "V3", "path_config_source": {"path": path}})
}

pub(super) fn listener_file(folder: &Path) -> PathBuf {
    folder.join("listener.json")
}

pub(super) fn weir_syncs_file(folder: &Path) -> PathBuf {
    folder.join("weir-syncs.json")
}

pub(super) fn access_log_file(folder: &Path) -> PathBuf {
    folder.join("access.log")
}

/// The transport socket of one side of HTTP/3, with these fields.
fn quic(side: &str, fields: &Value) -> Value {
    let kind = format!("type.googleapis.com/envoy.extensions.transport_sockets.quic.v3.Quic{side}Transport");
    let mut socket = json!({"name": "envoy.transport_sockets.quic", "typed_config": fields});
    socket["typed_config"]["@type"] = kind.into();
    socket
}

/// A cluster of one endpoint, as a bootstrap writes it.
pub(crate) fn cluster(name: &str, address: SocketAddr, connect_timeout: &str) -> Value {
    json!({
        "name": name,
        "type": "STATIC",
        "connect_timeout": connect_timeout,
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": tcp(address)}}]}],
        },
    })
}

/// A socket's address, as a bootstrap writes it.
pub(crate) fn tcp(address: SocketAddr) -> Value {
    json!({"socket_address": {"address": address.ip().to_string(), "port_value": address.port()}})
}
