use crate::document::source::*;

/// Place and text of the error for `text`, which is no YAML.
fn wrong(text: &str) -> (Option<(u64, u64)>, String) {
    let Misread { at, problem } = yaml(text.as_bytes()).expect_err(text);
    (at, problem.strip_prefix("no YAML: ").expect("what it is not").to_owned())
}

#[test]
fn each_error_has_a_place_a_cause_and_a_remedy() {
    for (text, line, column, expected) in [
        ("a:\n\tb: 1\n", 2, 2, "found a tab: expected spaces before"),
        ("- a: b\n\tc: 1\n", 1, 6, "found a tab after this text: expected spaces"),
        ("a: 1\nb: 2\na: 3\n", 3, 1, "a is given twice: expected it once"),
        ("a: {b: 1, b: 2}\n", 1, 11, "b is given twice"),
        ("a: [1,\n", 1, 4, "found no `]` for this `[`"),
        ("{a: 1\n", 1, 1, "found no `}` for this `{`"),
        ("a: [1}\n", 1, 4, "found `}` for a `[`"),
        ("a: []]\n", 1, 6, "found a closing bracket"),
        ("- name: 'b\n  c: 1\n", 2, 3, "found no closing quote"),
        ("- name: \"b\n", 2, 1, "found no closing quote"),
        ("a: 'b' c\n", 1, 8, "found more after a closing quote"),
        ("a: \"\\q\"\n", 1, 4, "found an escape that means no character"),
        ("a: *.example.com\n", 1, 4, "found `*` with a name that no `&` gives before: quote a text"),
        ("a: [*]\n", 1, 5, "found `*` or `&` without a name"),
        ("a: &b [*b]\n", 1, 8, "found `*` within the value that it stands for"),
        ("- a: 1\n   b: 2\n", 2, 5, "found `:` where no field can be: expected the fields of an object in one column"),
        ("a: b: c\n", 1, 5, "found `:` where no field can be"),
        ("a:\n  - b\n - c\n", 3, 2, "expected a field, as in `name: value`"),
        ("- a\nb: 1\n", 2, 1, "expected an item that begins with `- `"),
        ("a: @b\n", 1, 4, "found '@', which begins no text: expected it in quotes"),
        ("a: 1\n---\nb: 1\n", 3, 1, "found a second document after `---`"),
        ("a: !!binary x\n", 1, 13, "found a tag: expected none"),
        ("? [a]\n: 1\n", 1, 3, "expected a text, found a list or an object"),
        ("~: 1\n", 1, 1, "expected a text, found nothing"),
        ("a: .nan\n", 1, 4, "expected a finite number"),
        ("<<: 1\n", 1, 5, "expected an object after `<<`"),
        ("%YAML 9.9\n---\na: 1\n", 1, 1, "found a directive: expected none"),
        ("{a: 1,, b: 2}\n", 1, 7, "expected a field, as in `name: value`, before a `,`"),
        ("a: |2x\n  b\n", 1, 4, "expected the text after `|` or `>` on lines of its own"),
    ] {
        let (at, problem) = wrong(text);
        assert!(problem.starts_with(expected), "{text:?}: {problem}");
        assert_eq!(at, Some((line, column)), "{text:?}: {problem}");
    }
    let twice = |n: u32| format!("- &a{} [{}]\n", n + 1, vec![format!("*a{n}"); 9].join(", "));
    let aliases = format!("- &a0 [x]\n{}", (0..9).map(twice).collect::<String>());
    assert!(wrong(&aliases).1.starts_with("expected less"), "{:?}", wrong(&aliases));
    assert!(wrong(&"[".repeat(1_000)).1.ends_with("expected fewer"));
}

#[test]
fn a_column_counts_characters() {
    assert_eq!(wrong("\u{e9}\u{20ac}\u{1f511}: [\n").0, Some((1, 6)));
    let Misread { at, problem } = yaml(b"a: \xc3\xa9\nb: \xc3\xa9\xe4\n").unwrap_err();
    assert_eq!((at, problem.starts_with("expected UTF-8")), (Some((2, 5)), true));
}
