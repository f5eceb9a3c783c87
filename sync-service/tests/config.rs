//! Settings come from three places, in a fixed order. Every error names its place.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use weir_sync::access::{Access, Refused, credentials::Role};
use weir_sync::config::settings::SETTINGS;
use weir_sync::config::{
    AuditFile, AuditStream, Config, ConfigErrors, LoadedConfig, Secret, StoreAddress, command, load,
};

fn loaded(flags: &[&str], variables: &[(&str, &str)]) -> Result<LoadedConfig, ConfigErrors> {
    let matches = command().get_matches_from([&["weir-sync"], flags].concat());
    let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    load(&matches, variables)
}

fn read(flags: &[&str], variables: &[(&str, &str)]) -> Result<Config, ConfigErrors> {
    loaded(flags, variables).map(|loaded| loaded.config)
}

fn errors(flags: &[&str], variables: &[(&str, &str)]) -> String {
    read(flags, variables).unwrap_err().to_string()
}

/// A file with `text`, and its path.
fn file(text: &str) -> (tempfile::NamedTempFile, String) {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), text).unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    (file, path)
}

const TOKEN: &str = "a-token-of-the-tests";
const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/weir-sync.yaml");
/// Flags, and what is said of them; it explains its form.
const FLAGS: &str = include_str!("config.txt");

#[test]
fn the_example_is_the_default() {
    assert_eq!(read(&["--config", EXAMPLE], &[]).unwrap(), Config::default());
    assert_eq!(read(&[], &[]).unwrap(), Config::default());
}

#[test]
fn the_example_explains_every_setting() {
    let example = fs::read_to_string(EXAMPLE).unwrap();
    for setting in SETTINGS {
        let line = format!("\n{}:", setting.key);
        let commented = format!("\n# {}:", setting.key);
        assert!(example.contains(&line) || example.contains(&commented), "{} is not in the example", setting.key);
    }
    let known = |key: &str| SETTINGS.iter().any(|setting| setting.key == key);
    for line in example.lines().filter(|line| !line.starts_with('#')) {
        let key = line.split_once(':').map_or("", |(key, _)| key);
        assert!(line.is_empty() || known(key), "{line}: no such setting");
    }
    for line in example.lines().filter_map(|line| line.strip_prefix("# ")) {
        // A setting that is commented out: one word with `_`, then its value.
        let key = line.split_once(": ").map_or("", |(key, _)| key);
        let is_setting = key.contains('_') && !key.contains(' ');
        assert!(!is_setting || known(key), "{line}: no such setting");
    }
}

#[test]
fn a_flag_overrides_the_environment_and_that_the_file() {
    let (_file, path) = file("region: from-file\nlog_format: json\npop_ttl_ms: 1000\n");
    let variables = [
        ("WEIR_SYNC_CONFIG", path.as_str()),
        ("WEIR_SYNC_REGION", "from-environment"),
        ("WEIR_SYNC_POP_TTL_MS", "2000"),
    ];
    let config = read(&["--pop-ttl-ms", "3000"], &variables).unwrap();
    assert!(config.log_json);
    assert_eq!(config.region, "from-environment");
    assert_eq!(config.pop_ttl.as_millis(), 3_000);
}

#[test]
fn replicas_of_a_region_share_its_name_and_have_one_each() {
    let config = read(&["--region", "fra", "--replica", "a"], &[]).unwrap();
    assert_eq!(config.hub().replica, "fra/a");
    let help = command().render_long_help().to_string();
    assert!(help.contains("replicas share the region's name"), "{help}");
}

#[test]
fn every_error_has_its_place() {
    let (_file, path) = file("lisen: 1\nregion: FRA\nlease_min_ms: soon\nlog_format:\n");
    let text = errors(
        &["--config", &path, "--log-level", "loud"],
        &[("WEIR_SYNC_STROE", "memory"), ("WEIR_SYNC_STORE", "redis:/x")],
    );
    let expected = [
        format!("{path}:1: lisen: there is no such setting"),
        format!("{path}:2: region: expected 1 to 64 of a-z"),
        format!("{path}:3: lease_min_ms: expected whole milliseconds from 1 to 3600000, found `soon`"),
        format!("{path}:4: log_format: expected a value, found nothing"),
        "WEIR_SYNC_STROE: there is no such setting".into(),
        "WEIR_SYNC_STORE: expected `memory`, redis://".into(),
        "--log-level: expected `error`, `warn`".into(),
    ];
    for line in &expected {
        assert!(text.contains(line), "no `{line}` in:\n{text}");
    }
    assert_eq!(text.lines().count(), expected.len(), "{text}");
}

#[test]
fn a_file_that_is_no_settings_is_refused() {
    for (text, expected) in [
        ("- a\n", ":1:1: expected an object"),
        ("region: [a]\n", ":1:9: expected a text, found a list or an object"),
        ("region: a\nregion: b\n", ":2:1: region is given twice: expected it once"),
        ("a: b: c\n", ":1:5: found `:` where no field can be"),
        ("token: '0123456789\n", ":2:1: found no closing quote"),
    ] {
        let (_file, path) = file(text);
        let errors = errors(&["--config", &path], &[]);
        assert!(errors.starts_with(&format!("{path}{expected}")), "{errors}");
        assert!(!errors.contains("0123456789"), "it may be a secret: {errors}");
    }
    assert!(errors(&["--config", "/nowhere/weir.yaml"], &[]).contains("cannot read /nowhere/weir.yaml"));
    let (_file, path) = file("# nothing but this\n");
    assert_eq!(read(&["--config", &path], &[]).unwrap(), Config::default());
}

#[test]
fn kubernetes_variables_are_ignored() {
    let variables = [
        ("WEIR_SYNC_SERVICE_HOST", "10.0.0.1"),
        ("WEIR_SYNC_PORT", "tcp://10.0.0.1:7878"),
        ("WEIR_SYNC_PORT_7878_TCP_ADDR", "10.0.0.1"),
        ("WEIR_SYNC_METRICS_SERVICE_PORT", "1"),
        ("WEIR", "x"),
    ];
    assert_eq!(read(&[], &variables).unwrap(), Config::default());
    // So no setting of weir-sync may look like one of these.
    for setting in SETTINGS {
        let name = setting.variable();
        assert!(!name.ends_with("_PORT") && !name.contains("_PORT_") && !name.contains("_SERVICE_"), "{name}");
    }
}

#[test]
fn without_a_token_only_loopback_is_listened_on() {
    let errors = errors(&["--listen", "0.0.0.0:7878"], &[]);
    assert!(
        errors.starts_with("listen: 0.0.0.0:7878 is not a loopback address") && errors.contains("token"),
        "{errors}"
    );
    read(&["--listen", "0.0.0.0:7878"], &[("WEIR_SYNC_TOKEN", TOKEN)]).unwrap();
    read(&["--listen", "[::1]:7878"], &[]).unwrap();
}

/// The tokens of the file at `path`, as the setting `token_file` reads them.
fn tokens(path: &str) -> Access {
    loaded(&["--token-file", path], &[]).unwrap().secrets.access
}

/// The name of the token, and its POPs.
fn bearer(access: &Access, token: &str) -> Option<(String, String)> {
    let reporter = access.reporter(Some(token.as_bytes()))?;
    Some((reporter.name.clone(), reporter.scope.as_str().to_owned()))
}

fn named(name: &str, pops: &str) -> (String, String) {
    (name.into(), pops.into())
}

#[test]
fn a_line_may_name_its_token_and_pops() {
    let (_file, path) = file(
        "# the region of Frankfurt, two tokens while one is replaced\n\
         fra-2025   fra1,fra2   the-old-token-of-frankfurt\n\
         fra-2026   fra*\tthe-new-token-of-frankfurt\n\
         # gone iad* the-token-of-a-pop-that-is-gone\n\
         \x20the-token-of-all-other-pops\n",
    );
    let tokens = tokens(&path);
    assert_eq!(bearer(&tokens, "the-old-token-of-frankfurt"), Some(named("fra-2025", "fra1,fra2")));
    assert_eq!(bearer(&tokens, "the-new-token-of-frankfurt"), Some(named("fra-2026", "fra*")));
    assert_eq!(bearer(&tokens, "the-token-of-all-other-pops"), Some(named("pops", "*")));
    assert_eq!(bearer(&tokens, "the-token-of-a-pop-that-is-gone"), None);
}

#[test]
fn an_error_in_a_token_file_has_a_line_and_no_secret() {
    let line = "`TOKEN`, or `NAME POPS TOKEN` as in `fra-2026 fra1,fra2 TOKEN` or `emea fra*,ams* TOKEN`";
    for (wrong, expected) in [
        ("s3cret", "expected 16 to 1024 printable ASCII characters"),
        ("fra fra* s3cret", "expected 16 to 1024 printable ASCII characters"),
        ("s3cret-s3cret-s3cret fra", &format!("expected {line}, found 2 words")),
        ("fra fra* s3cret-s3cret-s3cret now", &format!("expected {line}, found 4 words")),
        ("s3cret/s3cret/s3cret fra* fra", "expected a name first, at most 64 of a-z, A-Z"),
        (
            "fra fra*, s3cret-s3cret-s3cret",
            "expected names of POPs, separated by commas, each of which may end in one `*`",
        ),
        ("fra f*a s3cret-s3cret-s3cret", "found `f*a`"),
        ("again * a-token-of-the-tests", "this token is in the file already"),
    ] {
        let (_file, path) = file(&format!("# a comment\n{TOKEN}\n{wrong}\n"));
        let errors = errors(&["--token-file", &path], &[]);
        assert!(errors.starts_with(&format!("token_file: {path}:3: ")) && errors.contains(expected), "{errors}");
        assert!(!errors.contains("s3cret"), "{errors}");
    }
    let (_file, path) = file("alice write an-admin-token-of-alice\nbob root an-admin-token-of-bob\n");
    let errors = errors(&["--admin-token-file", &path], &[]);
    assert_eq!(errors, format!("admin_token_file: {path}:2: expected the role `read` or `write`, found `root`"));
}

#[test]
fn secrets_are_never_printed() {
    let url = "rediss://weir:pa55word@redis.internal:6380/2?x=pa55word";
    let config = read(&["--token", "s3cret-s3cret-token", "--store", url], &[]).unwrap();
    let printed = format!("{config:?} {}", config.store);
    assert!(!printed.contains("s3cret") && !printed.contains("pa55"), "{printed}");
    assert_eq!(config.store.to_string(), "rediss://redis.internal:6380/2");
    assert_eq!(config.store, StoreAddress::Redis(Secret::new(url)));
    for bad in ["redis://weir:pa55word@", "http://weir:pa55word@host", "redis://weir:pa55word@host:port"] {
        assert!(!errors(&["--store", bad], &[]).contains("pa55"), "{bad}");
    }
    assert!(!errors(&["--token", "s3cret s3cret token"], &[]).contains("s3cret"));
}

#[test]
fn the_admin_token_is_read_as_the_other_and_is_another() {
    let (_token, path) = file("adm1n-adm1n-adm1n\nalice write adm1n-of-alice-adm1n\nboard read adm1n-of-board-adm1n\n");
    let LoadedConfig { config, secrets, .. } = loaded(&["--admin-token-file", &path, "--token", TOKEN], &[]).unwrap();
    let role = |token: &str, needed| secrets.access.operator(Some(token.as_bytes()), needed).map(|of| of.name.clone());
    assert_eq!(role("adm1n-adm1n-adm1n", Role::Write), Ok("admin".into()));
    assert_eq!(role("adm1n-of-alice-adm1n", Role::Write), Ok("alice".into()));
    assert_eq!(role("adm1n-of-board-adm1n", Role::Read), Ok("board".into()));
    assert_eq!(role("adm1n-of-board-adm1n", Role::Write), Err(Refused::ReadOnly("board".into())));
    assert_eq!(role(TOKEN, Role::Read), Err(Refused::Unknown));
    assert!(errors(&["--admin-token-file", &path, "--admin-token", TOKEN], &[]).contains("found both"));
    assert!(errors(&["--admin-token-file", "/nowhere/token"], &[]).starts_with("admin_token_file: cannot read"));
    let same = "admin_token: expected another one than any token of the reports, which POPs hold";
    for token in ["adm1n-adm1n-adm1n", "adm1n-of-board-adm1n"] {
        assert_eq!(errors(&["--admin-token-file", &path, "--token", token], &[]), same);
    }
    let printed = format!("{config:?} {secrets:?}");
    assert!(!printed.contains("adm1n-"), "{printed}");
    assert_eq!(read(&["--rules-file", "a.yaml"], &[]).unwrap().rules_file.as_deref(), Some("a.yaml"));
}

#[test]
fn flags_are_accepted_or_refused_with_a_reason() {
    let mut lines = FLAGS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).peekable();
    while let Some(flags) = lines.next() {
        let found = read(&flags.split(' ').collect::<Vec<_>>(), &[]).map_err(|errors| errors.to_string());
        let stated: Vec<_> = std::iter::from_fn(|| lines.next_if(|line| line.starts_with(' '))).collect();
        assert_eq!(found.is_ok(), stated.is_empty(), "{flags}: {found:?}");
        for part in stated.into_iter().map(str::trim) {
            let (has, part) = part.strip_prefix("! ").map_or((true, part), |part| (false, part));
            assert!(found.as_ref().is_err_and(|errors| errors.contains(part) == has), "{flags}: {part}: {found:?}");
        }
    }
}

#[test]
fn the_audit_log_goes_to_a_file_and_a_stream() {
    let set = |flags: &str| {
        let config = read(&flags.split(' ').collect::<Vec<_>>(), &[]).unwrap();
        (config.audit_log_file, config.audit_log_redis)
    };
    assert_eq!(set("--audit-log-file stdout").0, Some(AuditFile::Stdout));
    assert_eq!(set("--audit-log-file /a/b").0, Some(AuditFile::File("/a/b".into())));
    assert_eq!(set("--store redis://a --audit-log-redis store").1, Some(AuditStream::Store));
    let redis = AuditStream::Redis(Secret::new("redis://:p@a"));
    assert_eq!(set("--audit-log-redis redis://:p@a").1, Some(redis));
}

#[test]
fn every_file_of_secrets_that_anybody_can_read_is_named() {
    let files: Vec<_> = (0..3).map(|_| file("a secret")).collect();
    let path = |n: usize| files[n].1.as_str();
    let flags = [
        "--store",
        "rediss+sentinel://weir@a,b/main",
        "--store-password-file",
        path(0),
        "--store-sentinel-password-file",
        path(1),
        "--store-client-key-file",
        path(2),
        "--store-client-cert-file",
        "/etc/weir/redis-client.pem",
    ];
    assert!(loaded(&flags, &[]).unwrap().warnings.is_empty(), "they are private");
    for (_, path) in &files {
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    }
    let warnings = loaded(&flags, &[]).unwrap().warnings;
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    assert!((0..3).all(|n| warnings.iter().any(|warning| warning.starts_with(path(n)))), "{warnings:?}");
}
