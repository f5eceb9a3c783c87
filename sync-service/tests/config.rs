//! The configuration: three places, one order, every error with its place.

use std::ffi::OsString;
use std::fs;

use weir_sync::config::settings::SETTINGS;
use weir_sync::config::{Config, Errors, LogFormat, Secret, StoreAddress, Token, command, load};

fn read(flags: &[&str], variables: &[(&str, &str)]) -> Result<Config, Errors> {
    let matches = command().get_matches_from([&["weir-sync"], flags].concat());
    let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    load(&matches, variables).map(|loaded| loaded.config)
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
        assert!(
            example.contains(&line) || example.contains(&commented),
            "{} is not in the example",
            setting.key
        );
    }
}

#[test]
fn help_shows_the_true_defaults() {
    let mut config = Config::default();
    for setting in SETTINGS.iter().filter(|setting| !setting.default.is_empty()) {
        (setting.set)(&mut config, setting.default).unwrap();
    }
    assert_eq!(config, Config::default());
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
    assert_eq!(config.log_format, LogFormat::Json);
    assert_eq!(config.region, "from-environment");
    assert_eq!(config.pop_ttl.as_millis(), 3_000);
}

#[test]
fn replicas_of_a_region_share_its_name_and_have_one_each() {
    let config = read(&["--region", "fra", "--replica", "a"], &[]).unwrap();
    assert_eq!(config.hub().member, "fra/a");
    for name in ["", "a/b", "A"] {
        assert!(
            errors(&["--replica", name], &[]).starts_with("--replica: expected 1 to 64 of a-z"),
            "{name}"
        );
        assert!(errors(&["--region", name], &[]).starts_with("--region: expected 1 to 64 of a-z"), "{name}");
    }
    let help = command().render_long_help().to_string();
    assert!(help.contains("replicas share the region's name"), "{help}");
}

#[test]
fn every_error_is_told_with_its_place() {
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
        ("- a\n", "line 1"),
        ("region: [a]\n", "line 1"),
        ("region: a\nregion: b\n", "duplicate"),
        ("a: b: c\n", "line 1"),
    ] {
        let (_file, path) = file(text);
        let said = errors(&["--config", &path], &[]);
        assert!(said.contains(&path) && said.contains(expected), "{said}");
    }
    assert!(errors(&["--config", "/nowhere/weir.yaml"], &[]).contains("cannot read /nowhere/weir.yaml"));
    let (_file, path) = file("# nothing but this\n");
    assert_eq!(read(&["--config", &path], &[]).unwrap(), Config::default());
}

#[test]
fn what_kubernetes_puts_into_the_environment_is_not_ours() {
    let variables = [
        ("WEIR_SYNC_SERVICE_HOST", "10.0.0.1"),
        ("WEIR_SYNC_PORT", "tcp://10.0.0.1:7878"),
        ("WEIR_SYNC_PORT_7878_TCP_ADDR", "10.0.0.1"),
        ("WEIR_SYNC_METRICS_SERVICE_PORT", "1"),
        ("WEIR", "x"),
    ];
    assert_eq!(read(&[], &variables).unwrap(), Config::default());
    // So none of our own settings may look like those.
    for setting in SETTINGS {
        let name = setting.variable();
        assert!(
            !name.ends_with("_PORT") && !name.contains("_PORT_") && !name.contains("_SERVICE_"),
            "{name}"
        );
    }
}

#[test]
fn without_a_token_only_loopback_is_listened_on() {
    let said = errors(&["--listen", "0.0.0.0:7878"], &[]);
    assert!(
        said.starts_with("listen: 0.0.0.0:7878 is not a loopback address") && said.contains("token"),
        "{said}"
    );
    read(&["--listen", "0.0.0.0:7878"], &[("WEIR_SYNC_TOKEN", TOKEN)]).unwrap();
    read(&["--listen", "[::1]:7878"], &[]).unwrap();
}

#[test]
fn a_token_is_read_from_its_file() {
    let (_token, path) = file("s3cret-s3cret-s3cret\n");
    let config = read(&["--token-file", &path], &[]).unwrap();
    assert_eq!(config.token.secrets(), [Secret::new("s3cret-s3cret-s3cret")]);
    assert_eq!(read(&["--token-file", &path], &[("WEIR_SYNC_TOKEN", TOKEN)]).unwrap().token, config.token);
    assert!(errors(&["--token-file", &path, "--token", TOKEN], &[]).contains("found both"));
    assert!(errors(&["--token-file", "/nowhere/token"], &[]).contains("cannot read /nowhere/token"));
    let (_empty, path) = file("\n");
    let said = errors(&["--token-file", &path], &[]);
    assert_eq!(said, format!("token_file: {path}: expected 1 to 8 tokens, one a line, found 0"));
}

#[test]
fn a_file_may_hold_several_tokens_one_a_line() {
    let (_both, path) = file("the-old-token-of-pops\r\n\nthe-new-token-of-pops");
    let read = read(&["--token-file", &path], &[]).unwrap().token;
    assert_eq!(read.secrets(), [Secret::new("the-old-token-of-pops"), Secret::new("the-new-token-of-pops")]);
    let (_short, path) = file("the-old-token-of-pops\nshort\n");
    let said = errors(&["--token-file", &path], &[]);
    assert!(said.starts_with(&format!("token_file: {path}:2: expected 16 to 1024 ")), "{said}");
    let (_many, path) = file(&"the-old-token-of-pops\n".repeat(9));
    assert!(errors(&["--token-file", &path], &[]).ends_with("expected 1 to 8 tokens, one a line, found 9"));
}

#[test]
fn a_token_that_could_be_guessed_is_refused() {
    for short in ["", "x", "fifteen-bytes-x"] {
        for flag in ["--token", "--admin-token"] {
            let said = errors(&[flag, short], &[]);
            assert!(said.starts_with(&format!("{flag}: expected 16 to 1024 ")), "{said}");
            assert!(said.contains("openssl rand -hex 32"), "what to do: {said}");
        }
    }
    read(&["--token", "sixteen-bytes-xy"], &[]).unwrap();
}

#[test]
fn a_token_from_a_file_is_taken_to_the_letter() {
    for (text, expected) in [
        ("token: 0123456701234567\n", "0123456701234567"),
        ("token: 10000000000000e5\n", "10000000000000e5"),
        ("token: 0x00000000000000ff\n", "0x00000000000000ff"),
    ] {
        let (_file, path) = file(text);
        assert_eq!(read(&["--config", &path], &[]).unwrap().token, Token::Given(Secret::new(expected)));
    }
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
fn the_longest_lease_is_not_below_the_shortest() {
    assert!(
        errors(&["--lease-min-ms", "5000", "--lease-max-ms", "4000"], &[])
            .contains("lease_min_ms: expected at most")
    );
}

#[test]
fn the_admin_token_is_read_as_the_other_and_is_another() {
    let (_token, path) = file("adm1n-adm1n-adm1n\n");
    let config = read(&["--admin-token-file", &path, "--token", TOKEN], &[]).unwrap();
    assert_eq!(config.admin_token.secrets(), [Secret::new("adm1n-adm1n-adm1n")]);
    assert!(errors(&["--admin-token-file", &path, "--admin-token", TOKEN], &[]).contains("found both"));
    assert!(
        errors(&["--admin-token-file", "/nowhere/token"], &[]).starts_with("admin_token_file: cannot read")
    );
    let same = errors(&["--admin-token-file", &path, "--token", "adm1n-adm1n-adm1n"], &[]);
    assert_eq!(same, "admin_token: expected another one than the token of the reports");
    let (_old_too, path) = file("0ld-adm1n-0ld-adm1n\nadm1n-adm1n-adm1n\n");
    assert_eq!(errors(&["--admin-token-file", &path, "--token", "adm1n-adm1n-adm1n"], &[]), same);
    let printed = format!("{config:?}");
    assert!(!printed.contains("adm1n"), "{printed}");
    assert_eq!(read(&["--rules-file", "a.yaml"], &[]).unwrap().rules_file.as_deref(), Some("a.yaml"));
}

#[test]
fn a_password_that_is_not_percent_encoded_is_told_so() {
    for bad in [
        "redis://:pa55#word@redis.internal",
        "redis://weir:pa55/word@redis.internal:6380",
        "rediss://weir:pa55?word@redis.internal/2",
        "redis://pa55#word@redis.internal",
        "redis://weir:1234/pa55@redis.internal",
    ] {
        let said = errors(&["--store", bad], &[]);
        assert!(said.contains("percent-encoded") && said.contains("%23"), "{bad}: {said}");
        assert!(!said.contains("pa55") && !said.contains("invalid port"), "{bad}: {said}");
    }
    for good in ["redis://:pa55%23word@redis.internal", "redis://weir:p@55:w0rd!$&@redis.internal:6380/2"] {
        assert!(read(&["--store", good], &[]).is_ok(), "{good}");
    }
    let said = errors(&["--store", "redis://redis.internal/two"], &[]);
    assert!(said.contains("database"), "{said}");
}

#[test]
fn certificates_are_refused_where_nothing_would_look_at_them() {
    for plain in ["redis://redis.internal", "memory"] {
        let said = errors(&["--store", plain, "--store-ca-file", "/etc/weir/ca.pem"], &[]);
        assert!(said.starts_with("store_ca_file: ") && said.contains("rediss://"), "{said}");
        assert!(said.contains(plain), "{said}");
    }
    let tls = |scheme: &str| read(&["--store", scheme, "--store-ca-file", "/etc/weir/ca.pem"], &[]).is_ok();
    assert!(tls("rediss://redis.internal") && tls("valkeys://a") && tls("rediss+sentinel://a,b/main"));
    for one in ["--store-client-cert-file", "--store-client-key-file"] {
        let said = errors(&["--store", "rediss://redis.internal", one, "/etc/weir/weir.pem"], &[]);
        assert!(said.contains("expected both a certificate and store_client_key_file"), "{said}");
    }
}

#[test]
fn a_password_file_stands_alone() {
    let file = ["--store-password-file", "/run/secrets/redis", "--store"];
    let said = |store| errors(&[&file[..], &[store]].concat(), &[]);
    assert!(said("redis://weir:pa55@redis.internal").contains("store_password_file: expected either"));
    assert!(said("memory").contains("store_password_file: expected a Redis"));
    for good in
        ["redis://weir@redis.internal", "unix:///run/redis.sock?user=weir", "redis+sentinel://weir@a,b/main"]
    {
        assert!(read(&[&file[..], &[good]].concat(), &[]).is_ok(), "{good}");
    }
}
