//! The pages for operators, tried as a newcomer would: their commands are run as they stand there, with real
//! servers. Only addresses, folders and passwords are others.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use crate::running::{BINARY, CommandOutput, Running, program, until};

const PAGES: [&str; 6] = [
    include_str!("../../../docs/gateway.md"),
    include_str!("../../../docs/operating.md"),
    include_str!("../../../docs/redis.md"),
    include_str!("../../../docs/reference/commands.md"),
    include_str!("../../../docs/reference/http-api.md"),
    include_str!("../../../docs/secrets.md"),
];

/// The blocks of code below a heading of the pages.
fn blocks(heading: &str) -> Vec<&'static str> {
    let line = format!("{heading}\n");
    let below =
        |page: &'static str| page.strip_prefix(&line).or_else(|| Some(page.split_once(&format!("\n{line}"))?.1));
    let start = PAGES.into_iter().find_map(below).unwrap_or_else(|| panic!("no heading `{heading}`"));
    let mut section = start.split("\n```");
    let mut blocks = Vec::new();
    // Text and blocks in turn; a heading in the text ends the section.
    while let Some(text) = section.next() {
        if text.lines().any(|line| line.starts_with("##")) {
            break;
        }
        blocks.extend(section.next().and_then(|block| Some(block.split_once('\n')?.1)));
    }
    blocks
}

/// The only block of a section that has `mark` in it.
fn block(heading: &str, mark: &str) -> &'static str {
    let found: Vec<_> = blocks(heading).into_iter().filter(|block| block.contains(mark)).collect();
    let [block] = found[..] else { panic!("`{heading}` has {} blocks with `{mark}`", found.len()) };
    block
}

/// Place to try a recipe: a folder for its files, and a network of its own on this machine.
struct Place {
    folder: TempDir,
    network: String,
    others: Vec<(&'static str, String)>,
}

impl Place {
    fn new() -> Self {
        // Test processes side by side, and the tests in each, have different ones.
        static GIVEN: AtomicU32 = AtomicU32::new(0);
        let number = std::process::id() * 16 + GIVEN.fetch_add(1, Ordering::Relaxed);
        let network = format!("127.{}.{}.", 64 + number / 256 % 64, number % 256);
        Self { folder: tempfile::tempdir().unwrap(), network, others: Vec::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// A text of the page with what is other here.
    fn here(&self, text: &str) -> String {
        let folder = format!("{}/", self.folder.path().display());
        let mut text = text
            .replace("/etc/weir/", &folder)
            .replace("/run/secrets/", &folder)
            .replace("10.0.0.", &self.network)
            .replace(">PASSWORD", ">correct-horse");
        for (from, to) in &self.others {
            text = text.replace(from, to);
        }
        text
    }

    /// A program in the folder, with the binary among the programs that it finds.
    fn command(&self, name: &str, arguments: &[&str]) -> Command {
        let mut path = vec![Path::new(BINARY).parent().unwrap().to_owned()];
        path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        let mut command = program(name, arguments);
        command.current_dir(self.folder.path()).env("PATH", std::env::join_paths(path).unwrap());
        command
    }

    /// Runs lines of the page to their end; what they print.
    fn run(&self, lines: &str) -> String {
        let lines = self.here(lines);
        let output = self.command("sh", &["-ec", &lines]).output().unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{lines}\n{text}");
        text
    }

    /// Starts the weir-sync of a line of the page, after it has checked the same configuration, and waits until it
    /// is ready.
    fn start(&self, line: &str) -> Running {
        let line = self.here(line.trim());
        let has_address = line.contains("--listen");
        // A connection over TLS may take longer than two seconds on a busy machine, and a check tries once.
        let checked = self.run(&format!("WEIR_SYNC_STORE_TIMEOUT_MS=2500 {line} --check"));
        assert!(checked.contains("the configuration is good"), "{checked}");
        let mut command = self.command("sh", &["-c", &format!("exec {line}")]);
        if !has_address {
            command.env("WEIR_SYNC_LISTEN", "127.0.0.1:0");
        }
        Running::started(&mut command)
    }

    /// A Redis with these settings at an address of the network, or at a port of 127.0.0.1.
    fn redis(&self, address: &str, port: u16, settings: &str, more: &[&str]) -> Redis {
        let address = &self.here(address);
        let name = format!("redis-{address}-{port}");
        std::fs::create_dir_all(self.path(&name)).unwrap();
        let port = port.to_string();
        // On one machine a server's messages would come from 127.0.0.1, where other nodes of a cluster would answer
        // them.
        let own = ["--bind", address, "--bind-source-addr", address, "--dir", self.path(&name).to_str().unwrap()]
            .map(str::to_owned);
        self.write(&format!("{name}/redis.conf"), &self.here(settings));
        let mut command = self.command("redis-server", &[self.path(&name).join("redis.conf").to_str().unwrap()]);
        command.args(more).args(own).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("redis-server (Debian: apt-get install redis-server)");
        until("Redis to listen", || TcpStream::connect(format!("{address}:{port}")).is_ok());
        Redis(child)
    }

    /// Makes weir-sync's user at a server.
    fn add_user(&self, redis_cli: &str) {
        self.write("acl.txt", &self.here(block("# Redis", "ACL SETUSER")));
        self.write("redis-password", "correct-horse\n");
        let output = self.run(&format!("{redis_cli} < acl.txt"));
        assert_eq!(output.trim(), "OK");
    }
}

/// A Redis. Dropping it ends it.
struct Redis(Child);

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until it reaches its store.
fn is_ready(running: &Running) {
    until("it is ready", || running.status("GET /readyz", "") == 200);
}

#[test]
fn a_cluster_comes_up_from_the_page() {
    let place = Place::new();
    let settings = block("## Cluster", "cluster-enabled");
    let addresses: Vec<_> = (1..=6).map(|n| place.here(&format!("10.0.0.{n}"))).collect();
    let _servers: Vec<_> =
        addresses.iter().map(|address| place.redis(address, 6_379, settings, &["--save", ""])).collect();
    let commands = block("## Cluster", "--cluster create");
    let (login, _) = commands.split_once('\n').unwrap();
    for address in &addresses {
        place.add_user(&format!("{login}\nredis-cli -h {address}"));
    }
    let (create, start) = commands.split_once("weir-sync ").unwrap();
    place.run(&create.replace("--cluster-replicas 1", "--cluster-replicas 1 --cluster-yes"));
    // The nodes need a moment to agree.
    let is_up = |address: &String| {
        place.run(&format!("{login}\nredis-cli -h {address} cluster info")).contains("cluster_state:ok")
    };
    until("the cluster to be up", || addresses.iter().all(is_up));
    let running = place.start(&format!("weir-sync {start}"));
    is_ready(&running);
    assert_eq!(running.report("fra1", "").0, 200);
}

#[test]
fn sentinels_work_as_on_the_page() {
    let place = Place::new();
    let _master = place.redis("10.0.0.4", 6_379, "requirepass OPERATORS-PASSWORD", &["--save", ""]);
    place.add_user("export REDISCLI_AUTH=OPERATORS-PASSWORD\nredis-cli -h 10.0.0.4");
    let settings = block("## Sentinel", "sentinel monitor");
    let _sentinels: Vec<_> = (1..=3)
        .map(|n| place.redis(&format!("10.0.0.{n}"), 26_379, settings, &["--sentinel", "--port", "26379"]))
        .collect();
    let running = place.start(block("## Sentinel", "weir-sync --store"));
    is_ready(&running);
    assert_eq!(running.report("fra1", "").0, 200);
}

#[test]
fn acquires_that_wait_for_a_replica_need_one() {
    let place = Place::new();
    let _master = place.redis("10.0.0.1", 6_379, "repl-diskless-sync-delay 0\nprotected-mode no", &["--save", ""]);
    let line = place.here("weir-sync --store redis://10.0.0.1 --store-wait-ms 200 --check");
    let errors = CommandOutput::of(place.command("sh", &["-c", &line]).output().unwrap()).wrong(1);
    for part in [place.here("10.0.0.1:6379: too few replicas").as_str(), "store_wait_ms"] {
        assert!(errors.contains(part), "no `{part}` in: {errors}");
    }
    let replica = place.here("replicaof 10.0.0.1 6379");
    let _replica = place.redis("10.0.0.2", 6_379, &replica, &["--save", ""]);
    until("a replica to answer", || place.command("sh", &["-c", &line]).output().unwrap().status.success());
}

/// Makes the certificates of the page, with `localhost` in place of `name`.
fn make_certificates(place: &mut Place, name: &'static str) {
    place.others.push((name, "localhost".into()));
    place.run(block("## Certificates", "openssl req"));
}

#[test]
fn redis_over_tls_works_as_on_the_page() {
    let mut place = Place::new();
    make_certificates(&mut place, "redis.example");
    let port = free_port();
    let tls = format!(
        "port 0\ntls-port {port}\ntls-ca-cert-file /etc/weir/ca.crt\ntls-cert-file /etc/weir/localhost.crt\n\
         tls-key-file /etc/weir/localhost.key\n"
    );
    let _redis = place.redis("127.0.0.1", port, &tls, &["--save", ""]);
    let keys = "--tls --cacert ca.crt --cert localhost.crt --key localhost.key";
    place.add_user(&format!("redis-cli -h localhost -p {port} {keys}"));
    place.others.insert(0, ("@redis.example", format!("@localhost:{port}")));
    let running = place.start(block("## TLS to Redis", "rediss://"));
    is_ready(&running);
}

#[test]
fn client_certificates_work_as_on_the_page() {
    let mut place = Place::new();
    make_certificates(&mut place, "weir-sync.example");
    place.write("pops.token", "fra-2026 fra* the-token-of-frankfurt\n");
    place.write("admin.token", "the-token-of-operators\n");
    let running = place.start(block("## TLS", "--tls-cert-file"));
    let (_, port) = running.address.rsplit_once(':').unwrap();
    let status = |more: &str| {
        let curl = "curl -s -o /dev/null -w '%{http_code}' --cacert ca.crt";
        place.run(&format!("{curl} {more} https://localhost:{port}/v1/rules"))
    };
    assert_eq!(status("--cert fra1.crt --key fra1.key"), "404", "a POP with a certificate: nothing was put");
    assert_eq!(status("-H 'authorization: Bearer the-token-of-frankfurt'"), "404", "a POP with a token");
    assert_eq!(status(""), "401", "neither");
}

#[test]
fn two_weir_syncs_serve_a_region_as_on_the_page() {
    let place = Place::new();
    let _redis = place.redis("10.0.0.9", 6_379, "", &["--save", ""]);
    place.add_user("redis-cli -h 10.0.0.9");
    place.write("pops.token", "the-token-of-all-pops\n");
    place.write("admin.token", "the-token-of-operators\n");
    let lines = block("## Several weir-syncs", "--replica").replace("\\\n", " ");
    let mut replicas: Vec<_> = lines.trim().lines().map(|line| place.start(line)).collect();
    assert_eq!(replicas.len(), 2);
    for replica in &replicas {
        is_ready(replica);
        assert_eq!(replica.report("fra1", "the-token-of-all-pops").0, 200);
    }
    for replica in &replicas {
        until("both know of the POP", || {
            replica.ask("GET /v1/fleet", "the-token-of-operators", "", b"").1.contains(r#""name":"fra1""#)
        });
    }
    replicas.remove(0).signal("KILL");
    assert_eq!(replicas[0].report("fra1", "the-token-of-all-pops").0, 200);
}

#[test]
fn tokens_are_named_and_replaced_as_on_the_page() {
    let place = Place::new();
    let pops = block("## A token for each POP", "fra-2026");
    let operators = block("## A token for each operator", "alice");
    place.write("pops.token", pops);
    place.write("admin.token", operators);
    place.run("chmod 600 pops.token admin.token");
    let running = place.start("weir-sync --token-file pops.token --admin-token-file admin.token");
    let token = |file: &'static str, name: &str| {
        let line = file.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().last().unwrap()
    };
    let (fra, ams) = (token(pops, "fra-2026"), token(pops, "ams"));
    assert_eq!(running.report("fra1", fra).0, 200);
    assert_eq!(running.report("ams2", ams).0, 200);
    assert_eq!(running.report("fra1", ams).0, 403);
    // The log line that the page shows, but for its address.
    let shown = block("## A token for each POP", "WARN").replace('\n', " ");
    let shown = shown.trim().split(" peer=").next().unwrap();
    until("it is logged", || running.logs().contains(shown));

    let status = |line: &str, name: &str| running.status(line, token(operators, name));
    assert_eq!(status("GET /v1/fleet", "dashboard"), 200);
    assert_eq!(status("PUT /v1/rules", "dashboard"), 403);
    assert_eq!([status("PUT /v1/rules", "alice"), status("PUT /v1/rules", "deploy-ci")], [415, 415]);

    // Another token beside the old one, then without it.
    let new = "9f1c5a7e3b2d4f6a8c0e1b3d5f7a9c2e";
    place.write("pops.token", &format!("{pops}\nfra-2027 fra* {new}\n"));
    until("the new token is taken", || running.report("fra1", new).0 == 200);
    assert_eq!(running.report("fra1", fra).0, 200);
    place.write("pops.token", &format!("fra-2027 fra* {new}\n"));
    until("the old token is refused", || running.report("fra1", fra).0 == 401);
    assert_eq!(running.report("fra1", new).0, 200);
}

/// The weir-sync of the page about changing rules, with its Redis, and the page's commands behind its own.
fn changing(place: &mut Place) -> (Redis, Running, String) {
    let redis = place.redis("10.0.0.1", 6_379, "", &["--save", ""]);
    place.write("pops.token", "the-token-of-all-pops\n");
    place.write("admin.token", "the-token-of-operators\n");
    place.write("rules.yaml", "rules:\n- {name: login, key: [client_address], rate: 5/m}\n");
    let commands = block(CHANGING, "weir-sync explain").replace("redis://127.0.0.1", "redis://10.0.0.1");
    let (start, rest) = commands.split_once(" &\n").unwrap();
    let running = place.start(start);
    is_ready(&running);
    place.others.push(("http://127.0.0.1:7878", format!("http://{}", running.address)));
    (redis, running, rest.to_owned())
}

const CHANGING: &str = "## Changing rules in a running fleet";
/// The same over HTTP.
const HTTP_CHANGES: &str = "## Changes";

#[test]
fn rules_are_changed_by_commands_as_on_the_page() {
    let mut place = Place::new();
    let (_redis, running, commands) = changing(&mut place);
    let (export, commands) = commands.split_once('\n').unwrap();
    let export = format!("{export}\nexport WEIR_URL=http://127.0.0.1:7878");
    let mut first = String::new();
    for line in commands.lines().filter(|line| !line.is_empty()) {
        if line.contains("fleet") {
            let current = place.run(&format!("{export}\nweir-sync rules get --json"));
            let current: serde_json::Value = serde_json::from_str(&current).unwrap();
            running.runs("fra1", "the-token-of-all-pops", current["version"].as_u64().unwrap());
        }
        // It ends with 1, as there is no rule set yet.
        let line = line.replace("rules.yaml                       # what", "rules.yaml || true # what");
        let output = place.run(&format!("{export}\n{}", line.replace("rollback N", &format!("rollback {first}"))));
        if let Some((version, _)) = output.strip_prefix("Version ").and_then(|rest| rest.split_once(" is the first")) {
            version.clone_into(&mut first);
        }
    }
    let kept = running.ask("GET /v1/rules/versions", "the-token-of-operators", "", b"").1;
    assert!(["for the sale", "too many false alarms", "rollback"].iter().all(|part| kept.contains(part)), "{kept}");
}

#[test]
fn rules_are_changed_over_http_as_on_the_page() {
    let mut place = Place::new();
    let (_redis, running, _) = changing(&mut place);
    let (shorthands, rest) = block(HTTP_CHANGES, "curl").split_once('\n').unwrap();
    let mut version = String::new();
    for line in rest.lines().filter(|line| !line.is_empty()) {
        let line = line.replace("\"N\"", &format!("\"{version}\"")).replace("=N", &format!("={version}"));
        let line = line.replace(": N", &format!(": {version}")).replace("curl ", "curl -sS --fail-with-body ");
        let output = place.run(&format!("{shorthands}\n{line}"));
        let is_change = !["fleet", "versions", "dry_run"].iter().any(|other| line.contains(other));
        if let Some((_, number)) = output.rsplit_once("\"version\":").filter(|_| is_change) {
            version = number.chars().take_while(char::is_ascii_digit).collect();
        }
        let is_compared = line.contains("dry_run") || line.contains("/diff");
        assert_eq!(output.contains("\"is_same\":true"), is_compared, "{output}");
    }
    let kept = running.ask("GET /v1/rules/versions", "the-token-of-operators", "", b"").1;
    assert!(kept.contains("too many false alarms") && kept.contains("rollback"), "{kept}");
}

#[test]
fn overrides_and_keys_work_as_on_the_page() {
    let mut place = Place::new();
    let (_redis, running, _) = changing(&mut place);
    let rules = "rules:\n- {name: per-address, key: [client_address], rate: 5/s}\n- {name: per-account, key: \
        [{header: x-account}], rate: 5/s}\n";
    let headers = "content-type: application/yaml\r\nif-none-match: *\r\n";
    let operators = "the-token-of-operators";
    assert_eq!(running.ask("PUT /v1/rules", operators, headers, rules.as_bytes()).0, 201);
    until("the rules are known", || running.status("GET /v1/keys/per-address/203.0.113.7", operators) == 200);
    let (shorthands, _) = block(HTTP_CHANGES, "curl").split_once('\n').unwrap();
    let run = |line: &str| {
        let line = line.replace("curl ", "curl -sS --fail-with-body ");
        place.run(&format!("{shorthands}\n{line}"))
    };
    let lines = block("## Overrides", "curl").replace("\\\n", " ");
    let outputs: Vec<String> = lines.lines().map(run).collect();
    assert!(
        outputs[4].contains("\"ban\"") && outputs[4].contains("\"allow\"") && !outputs[4].contains("launch"),
        "{outputs:?}"
    );
    let left = running.ask("GET /v1/overrides", operators, "", b"").1;
    assert!(left.contains("their load test") && !left.contains("scans"), "{left}");
    let lines = block("## Keys", "curl").replace("\\\n", " ");
    let outputs: Vec<String> = lines.lines().map(run).collect();
    assert!(outputs[3].contains("\"rule\":\"per-address\"") && outputs[4].contains("\"list\":null"), "{outputs:?}");
    let reset = "## Resets";
    let value = |text: &str| -> serde_json::Value { serde_json::from_str(text).unwrap() };
    assert_eq!(value(&run(block(reset, "curl"))), value(block(reset, "\"reset\"")));
}

#[test]
fn files_are_checked_as_on_the_page() {
    let place = Place::new();
    place.write("eu.yaml", "rules: [{name: api, key: [client_address], rate: 100/s}]\n");
    let api = "- name: api\n  key: [client_address]\n  rate: 100/s\n";
    let login = "- name: login\n  match:\n    path: {exact: /login}\n  key: [client_address]\n  rate: fast\n";
    place.write("us.yaml", &format!("rules:\n{api}{login}"));
    let checking = block("### Checking rules", "$ weir-sync check");
    let (command, expected) = checking.split_once('\n').unwrap();
    let command = command.strip_prefix("$ ").unwrap();
    let check = |more: &str| {
        let output = place.command("sh", &["-c", &format!("{command}{more}")]).output().unwrap();
        let CommandOutput { code, page, errors } = CommandOutput::of(output);
        assert_eq!(code, Some(1), "{page}{errors}");
        [page, errors]
    };
    let [page, errors] = check("");
    assert!(page.starts_with("eu.yaml: 1 rules, good\n") && !page.contains("us.yaml"), "{page}");
    assert_eq!(errors.trim_end(), expected.trim_end());
    let [document, errors] = check(" --json");
    let value = |json: &str| serde_json::from_str::<serde_json::Value>(json).unwrap();
    assert_eq!((value(&document), errors.as_str()), (value(block("## check", "\"findings\"")), ""));
    assert!(document.starts_with("{\n  \"is_good\": false,\n"), "in the page's order: {document}");
}

/// A gateway with the settings of a section, on a loopback address, over these rules.
fn gateway(place: &mut Place, settings: &str, rules: &str) -> Running {
    place.others.push(("127.0.0.1:7880", "127.0.0.1:0".into()));
    place.write("settings.yaml", &place.here(settings));
    place.write("rules.yaml", rules);
    place.write("weir-key-secret", "a-key-secret-of-the-tests\n");
    place.write("weir-check-token", "orders check a-check-token-of-the-tests\njobs limit a-limit-token-of-the-tests\n");
    let running = place.start("weir-sync --config settings.yaml --rules-file rules.yaml");
    until("the rules are in force", || {
        running.metric(r#"weir_sync_rules_file_applied{region="default"}"#) == 1
            && running.ask("GET /metrics", "", "", b"").1.contains("weir_sync_gateway_allowed_total{")
    });
    running
}

/// The answer to a check with this token.
fn checked(running: &Running, path: &str, token: &str, body: &str) -> serde_json::Value {
    let headers = "content-type: application/json\r\n";
    let (status, answer) = running.ask(&format!("POST {path}"), token, headers, body.as_bytes());
    assert_eq!(status, 200, "{answer}");
    let body = answer.split_once("\r\n\r\n").map_or(answer.as_str(), |(_, body)| body);
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

#[test]
fn a_gateway_answers_as_on_the_page() {
    let mut place = Place::new();
    let heading = "## HTTP: the fleet's rules";
    let rules = "rules:\n- {name: per-key, key: [{header: x-api-key}], rate: 100/m}\n";
    let running = gateway(&mut place, block(heading, "gateway: on"), rules);
    let (asked, shown) = (block(heading, "\"cost\""), block(heading, "\"decision\""));
    let shown: serde_json::Value = serde_json::from_str(shown).unwrap();
    let check = || checked(&running, "/v1/check", "a-check-token-of-the-tests", asked);
    for _ in 0..33 {
        assert_eq!(check()["decision"], "allow", "3 of 100 each");
    }
    let refused = check();
    for field in ["decision", "rule", "status", "limit"] {
        assert_eq!(refused[field], shown[field], "{refused}");
    }
    let names = |answer: &serde_json::Value| answer.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&refused), names(&shown));
    assert_eq!(refused["headers"]["retry-after"], refused["retry_after_s"].to_string(), "{refused}");

    // The other API of the same weir-sync.
    let heading = "## HTTP: a limit in the request";
    let answer = checked(&running, "/ratelimit/check", "a-limit-token-of-the-tests", block(heading, "\"key\""));
    let shown: serde_json::Value = serde_json::from_str(block(heading, "\"allowed\"")).unwrap();
    assert_eq!(answer, shown);
}

#[test]
fn a_gateway_answers_envoys_as_on_the_page() {
    let mut place = Place::new();
    let heading = "## Envoy's rate limit service";
    let running = gateway(&mut place, block(heading, "grpc_listen"), block(heading, "users-of-orders"));
    let page = running.ask("GET /metrics", "", "", b"").1;
    assert!(page.contains(r#"rule="users-of-orders""#), "{page}");
}

/// A port of 127.0.0.1 that is free now.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
