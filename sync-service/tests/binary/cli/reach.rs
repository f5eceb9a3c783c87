//! The address and the token of a command, and its errors if they are wrong.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;

use super::{ALICE, Asked, BOARD};
use crate::running::{CommandOutput, file, run, weir_sync};
use crate::tls::Secured;

/// Output of `weir-sync rules versions` with more arguments and variables.
fn versions(arguments: &[&str], variables: &[(&str, &str)]) -> CommandOutput {
    let mut command = weir_sync(&[&["rules", "versions"], arguments].concat());
    for name in ["WEIR_URL", "WEIR_TOKEN", "WEIR_TOKEN_FILE", "WEIR_CA_FILE"] {
        command.env_remove(name);
    }
    CommandOutput::of(command.envs(variables.iter().copied()).output().unwrap())
}

#[test]
fn the_environment_sets_address_and_token() {
    let asked = Asked::start();
    let url = ("WEIR_URL", asked.url.as_str());
    versions(&[], &[url, ("WEIR_TOKEN_FILE", &asked.token)]).page(0);
    versions(&[], &[url, ("WEIR_TOKEN", BOARD)]).page(0);
    versions(
        &["--url", &asked.url, "--token-file", &asked.token],
        &[("WEIR_URL", "http://127.0.0.1:1"), ("WEIR_TOKEN", "x")],
    )
    .page(0);
    // As in weir-sync's own file.
    let (_file, named) = file(&format!("# of the operators\nalice write {ALICE}\n"));
    versions(&["--token-file", &named], &[url]).page(0);
}

#[test]
fn a_refused_token_is_reported_with_the_right_kind() {
    let asked = Asked::start();
    let url = ("WEIR_URL", asked.url.as_str());
    let none = versions(&[], &[url]).wrong(1);
    assert!(none.contains("--token-file FILE") && none.contains("admin_token_file"), "{none}");
    let stranger = versions(&[], &[url, ("WEIR_TOKEN", "a-token-of-a-stranger")]).wrong(1);
    assert!(stranger.contains("does not know the token") && !stranger.contains("a-token-of"), "{stranger}");
    let (_rules, rules) = file("rules:\n- {name: login, key: [client_address], rate: 5/m}\n");
    let (_board, board) = file(BOARD);
    let put = run(&["rules", "put", &rules, "--url", &asked.url, "--token-file", &board]).wrong(1);
    assert!(put.contains("the token `board` may only read"), "{put}");
    for (text, expected) in
        [("short", "expected 16 to 1024"), ("", "one token"), ("a-token-of-alice\na-token-of-bob\n", "one token")]
    {
        let (_file, path) = file(text);
        let wrong = versions(&["--token-file", &path], &[url]).wrong(2);
        assert!(wrong.starts_with(&format!("--token-file: {path}: ")) && wrong.contains(expected), "{wrong}");
    }
    assert!(versions(&["--token-file", "/nowhere/token"], &[url]).wrong(2).contains("/nowhere/token: cannot be read"));
}

#[test]
fn out_of_reach_and_refused_have_different_errors() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let gone = versions(&["--url", &format!("http://{free}")], &[]).wrong(3);
    assert!(gone.contains("Connection refused") && gone.contains("--url (or WEIR_URL) sets"), "{gone}");
    // It takes the connection, and sends nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let late = versions(&["--url", &url, "--timeout-s", "1"], &[]).wrong(3);
    assert!(late.contains("no answer within 1 s") && late.contains("--timeout-s"), "{late}");
    for url in ["127.0.0.1:7878", "localhost:7878", "ftp://h", "http://", "http://u:p@h", "http://h?x=1"] {
        let wrong = versions(&["--url", url], &[]).wrong(2);
        assert!(wrong.starts_with("--url: expected http:// or https://"), "{wrong}");
    }
}

/// The HTTP API has the same texts.
#[test]
fn a_refusal_names_the_command_that_helps_and_no_route() {
    let asked = Asked::start();
    let (_file, rules) = file("rules:\n- {name: login, key: [client_address], rate: 5/m}\n");
    assert!(asked.run(&["rules", "enforce", "on"]).wrong(1).contains("`weir-sync rules put FILE` puts the first"));
    asked.run(&["rules", "put", &rules]).page(0);
    for (command, named) in [
        ("rules rollback 7", "version 7 is not kept; `weir-sync rules versions`"),
        ("rules promote", "no canary runs: `weir-sync rules put FILE --pops A,B`"),
        ("rules withdraw", "no canary runs: `weir-sync rules put FILE --pops A,B`"),
        ("unban 203.0.113.7", "there is no such override: `weir-sync overrides`"),
        ("reset gone 192.0.2.7", "no rule `gone`; `weir-sync rules get`"),
        ("keys gone 192.0.2.7", "`weir-sync keys` lists keys"),
    ] {
        let refused = asked.run(&command.split(' ').collect::<Vec<_>>()).wrong(1);
        assert!(refused.contains(named), "{command}: {refused}");
    }
    let elsewhere = versions(&["--url", &format!("{}/api", asked.url)], &[]).wrong(1);
    assert!(elsewhere.contains("is the address right?"), "{elsewhere}");
}

/// Output of a command whose only request gets this answer.
fn answered(answer: &'static str, arguments: &[&str]) -> CommandOutput {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", other.local_addr().unwrap());
    let server = thread::spawn(move || {
        let mut stream = other.accept().unwrap().0;
        assert!(stream.read(&mut [0; 4_096]).unwrap() > 0);
        stream.write_all(answer.as_bytes()).unwrap();
        other
    });
    let output = run(&[arguments, &["--url", &url]].concat());
    let other = server.join().unwrap();
    other.set_nonblocking(true).unwrap();
    assert!(other.accept().is_err(), "a second request of {arguments:?}");
    output
}

#[test]
fn json_output_needs_one_request() {
    let fleet = "HTTP/1.1 200 OK\r\ncontent-length: 36\r\n\r\n{\"version\":7,\"rule_set\":7,\"pops\":[]}";
    assert_eq!(answered(fleet, &["fleet", "--json"]).json(0)["rule_set"], 7);
}

#[test]
fn of_a_change_whose_answer_is_lost_it_is_said_that_it_may_have_been_made() {
    let gone = "HTTP/1.1 502 Bad Gateway\r\ncontent-length: 4\r\n\r\nnope";
    let store = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 29\r\n\r\n{\"detail\":\"no answer (slow)\"}";
    let broken = "HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n{";
    for answer in [gone, store, broken] {
        let reset = answered(answer, &["reset", "login", "192.0.2.1"]).wrong(3);
        assert!(reset.contains("may have been made all the same: `weir-sync keys` shows it"), "{reset}");
        assert!(!reset.contains("try again"), "{reset}");
        let ban = answered(answer, &["ban", "192.0.2.1", "--for", "1h"]).wrong(3);
        assert!(ban.contains("`weir-sync overrides` shows it"), "{ban}");
        let looked = answered(answer, &["rules", "versions"]).wrong(3);
        assert!(!looked.contains("may have been made"), "{looked}");
    }
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{free}");
    let unsent = run(&["reset", "login", "192.0.2.1", "--url", &url]).wrong(3);
    assert!(!unsent.contains("may have been made"), "{unsent}");
}

#[test]
fn another_server_is_not_taken_for_a_weir_sync() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n<a/>",
        "HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}",
        "HTTP/1.1 302 Found\r\nlocation: /\r\ncontent-length: 0\r\n\r\n",
    ] {
        let wrong = answered(answer, &["rules", "versions"]).wrong(2);
        assert!(wrong.contains("not as a weir-sync does"), "{wrong}");
    }
}

#[test]
fn a_weir_sync_with_a_certificate_is_asked_over_tls() {
    let (_operators, operators) = file(ALICE);
    let secured = Secured::start(&["--admin-token-file", &operators]);
    let port = secured.running.address.rsplit_once(':').unwrap().1.to_owned();
    let (https, http) = (format!("https://localhost:{port}"), format!("http://localhost:{port}"));
    let token = ("WEIR_TOKEN", ALICE);
    versions(&["--url", &https, "--ca-file", &secured.ca()], &[token]).page(0);
    versions(&["--url", &https], &[token, ("WEIR_CA_FILE", &secured.ca())]).page(0);
    let stranger = Secured::start(&[]);
    let unknown = versions(&["--url", &https, "--ca-file", &stranger.ca()], &[token]).wrong(3);
    assert!(unknown.contains("--ca-file FILE (or WEIR_CA_FILE)"), "{unknown}");
    let named =
        versions(&["--url", &format!("https://127.0.0.1:{port}"), "--ca-file", &secured.ca()], &[token]).wrong(3);
    assert!(named.contains("its certificate is for another name"), "{named}");
    let plain = versions(&["--url", &http], &[token]).wrong(3);
    assert!(plain.contains("begins with https://"), "{plain}");
    let asked = Asked::start();
    let over = asked.url.replace("http://127.0.0.1", "https://localhost");
    let secure = versions(&["--url", &over, "--ca-file", &secured.ca()], &[token]).wrong(3);
    assert!(secure.contains("begins with http://"), "{secure}");
    let (_empty, empty) = file("");
    let wrong = versions(&["--url", &https, "--ca-file", &empty], &[token]).wrong(2);
    assert_eq!(wrong, format!("--ca-file: {empty}: expected certificates (PEM), found none\n"));
}
