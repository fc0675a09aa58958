//! The words that follow a program.

use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

use super::tried;
use crate::error::Problem;
use crate::syntax::{Parameters, parse_with};

/// Returns the tree, as text, of `BEGIN { … }` that these words follow.
fn tree(body: &str, words: &[&str]) -> Result<String, Problem> {
    let words: Vec<String> = words.iter().map(ToString::to_string).collect();
    let tree = parse_with(&format!("BEGIN {{ {body} }}"), Parameters { words: &words });
    tree.map(|tree| tree.to_string()).map_err(|error| error.problem)
}

#[test]
fn words_stand_where_they_are_named() {
    for (body, words, same) in tried([
        ("$x = getopt(\"a\", 1);", &[][..], "$x = 1;"),
        ("$x = getopt(\"a\", 1);", &["--a=0x10"], "$x = 16;"),
        ("$x = getopt(\"a\", 1);", &["--a=5us"], "$x = 5000;"),
        ("$x = 2 - getopt(\"a\", -1);", &[], "$x = 2 - -1;"),
        ("$x = 2 - getopt(\"a\", 7);", &["--a=-4"], "$x = 2 - -4;"),
        ("$x = getopt(\"a\", 1);", &["--a=2", "--b", "--a=3"], "$x = 3;"),
        ("$x = getopt(\"a\", \"b\");", &[], "$x = \"b\";"),
        ("$x = getopt(\"a\", \"b\", \"what it is\");", &["--a=it's \"c\"=d"], "$x = \"it's \\\"c\\\"=d\";"),
        ("$x = getopt(\"a\", \"b\");", &["--a="], "$x = \"\";"),
        ("$x = getopt(\"a\");", &[], "$x = 0;"),
        ("$x = getopt(\"a\");", &["--a"], "$x = 1;"),
        ("$x = getopt(\"a\", true, \"text\");", &["--a=false"], "$x = 0;"),
        ("$x = getopt(\"a\", true);", &["--a=0"], "$x = 0;"),
        ("$x = getopt(\"a\", true);", &["--a=False"], "$x = 0;"),
        ("$x = getopt(\"a\");", &["--a=TRUE"], "$x = 1;"),
        ("$x = getopt(\"a\", true);", &[], "$x = 1;"),
        ("print(($1, $2, $3, $#));", &["5", "--b", "x y"], "print((5, \"x y\", 0, 2));"),
        ("print((str($1), str($2), str($3)));", &["5", "-6"], "print((\"5\", \"-6\", \"\"));"),
        ("print((str($1, 2), $1 + 1));", &["-65"], "print((\"-6\", -65 + 1));"),
        ("print((str($#), str($#, 1)));", &["a"; 12], "print((\"12\", \"1\"));"),
        ("print((str($1, 2), str($2, 9), str($3, 4)));", &["a\u{e9}b", "cd"], "print((\"a\", \"cd\", \"\"));"),
    ]) {
        let body = if words.contains(&"--b") { format!("{body} getopt(\"b\");") } else { body.into() };
        let same = if words.contains(&"--b") { format!("{same} 1;") } else { same.into() };
        assert_eq!(tree(&body, words), tree(&same, &[]), "{body} {words:?}");
    }
}

#[test]
fn words_that_do_not_fit_are_refused_by_their_number() {
    let [flag, number, text] = ["true or false", "a number, as in --name=5", "a string, as in --name=text"];
    for (body, words, problem) in tried([
        ("$x = getopt(\"a\");", &["1", "--a=2"][..], Problem::Parameter { number: 2, wanted: flag }),
        ("$x = getopt(\"a\", 1);", &["--a"], Problem::Parameter { number: 1, wanted: number }),
        ("$x = getopt(\"a\", 1);", &["--a=b"], Problem::Parameter { number: 1, wanted: number }),
        ("$x = getopt(\"a\", 1);", &["--a=99999999999999999999"], Problem::Parameter { number: 1, wanted: number }),
        ("$x = getopt(\"a\", \"b\");", &["--a"], Problem::Parameter { number: 1, wanted: text }),
        ("$x = getopt(\"a\", 1);", &["--a=1", "--b=1"], Problem::UnknownParameter { number: 2 }),
        ("$x = 1;", &["5", "--"], Problem::UnknownParameter { number: 2 }),
        ("$x = getopt(\"a\", arg0);", &[], Problem::ParameterDefault),
        ("$x = getopt(\"a\", -true);", &[], Problem::ParameterDefault),
        ("$x = str($1, arg0);", &["1"], Problem::NotConstant),
        ("$x = getopt(a);", &[], Problem::NotLiteral),
        ("$x = $0;", &["1"], Problem::PositionalParameter),
        ("$x = $1a;", &["1"], Problem::PositionalParameter),
    ]) {
        assert_eq!(tree(body, words), Err(problem), "{body} {words:?}");
    }
    let long = "x".repeat(256);
    for body in ["print($1);", "print(str($1));"] {
        assert_eq!(tree(body, &[&long]), Err(Problem::LongText { most: 255 }));
    }
    assert_eq!(
        tree("$x = getopt(\"a\", \"b\");", &[&format!("--a={long}")]),
        Err(Problem::Parameter { number: 1, wanted: text })
    );
    // Every parameter of a long list is checked.
    let mut many = ["1"; 200];
    many[199] = "--b=5";
    assert_eq!(tree("$x = 1;", &many), Err(Problem::UnknownParameter { number: 200 }));
}

#[test]
fn the_text_of_a_parameter_comes_through_macros() {
    let words = ["64".to_string(), "2".to_string()];
    let parse = |text: &str, words| parse_with(text, Parameters { words }).unwrap().clauses;
    let macros = "macro text(x) { str(x) } macro outer(y) { text(y) } macro begin(x, n) { str(x, n) } \
        macro sum(x) { str(x + 1) }";
    for (body, same) in tried([
        ("print(text($1));", "print({ \"64\" });"),
        ("print(outer($1));", "print({ { \"64\" } });"),
        ("print(outer($3));", "print({ { \"\" } });"),
        ("print(begin($1, 1));", "print({ \"6\" });"),
        ("print(begin($1, $2)); print(str($1, $2));", "print({ \"64\" }); print(\"64\");"),
        ("print(sum($1)); print(text($1 + 1));", "print({ str(64 + 1) }); print({ str(64 + 1) });"),
    ]) {
        let given = parse(&format!("{macros} BEGIN {{ {body} }}"), &words);
        assert_eq!(given, parse(&format!("BEGIN {{ {same} }}"), &[]), "{body}");
    }
}

#[test]
fn a_map_is_declared_with_a_parameter() {
    let parse = |text, word: &str| {
        let words = [word.to_string()];
        parse_with(text, Parameters { words: &words }).map_err(|error| (error.problem, error.span.start))
    };
    let text = "let @x = hash($1); BEGIN { }";
    assert_eq!(parse(text, "7").unwrap().maps[0].node.keys, 7);
    assert_eq!(parse("let @x = hash($2); BEGIN { }", "7").unwrap().maps[0].node.keys, 0);
    for (word, problem) in [("many", Problem::MapDeclaration), ("-7", Problem::MapDeclaration)] {
        assert_eq!(parse(text, word), Err((problem, text.find('$').unwrap())), "{word}");
    }
}

#[test]
fn a_sentence_quotes_its_parameter() {
    let words = ["5", "--cuont=5"].map(ToString::to_string);
    let sentence = |problem| Parameters { words: &words }.sentence(problem).to_string();
    for (problem, shown) in tried([
        (
            Problem::UnknownParameter { number: 2 },
            "parameter 2 of the program, `--cuont=5`, has a name that no getopt in it has",
        ),
        (Problem::Parameter { number: 2, wanted: "a b" }, "parameter 2 of the program, `--cuont=5`, has to be a b"),
        (Problem::UnknownParameter { number: 3 }, "parameter 3 of the program has a name that no getopt in it has"),
        (Problem::Word, "this word is unknown"),
    ]) {
        assert_eq!(sentence(problem), shown);
    }
}

#[test]
fn a_name_is_known_wherever_the_program_has_it() {
    let words = ["--a=5".to_string()];
    let parse = |text| parse_with(text, Parameters { words: &words }).map(drop).map_err(|error| error.problem);
    for text in ["macro m() { getopt(\"a\", 1) } BEGIN { }", "macro m(x) { 1 } BEGIN { print(m(getopt( \"a\" , 1))); }"]
    {
        assert_eq!(parse(text), Ok(()), "{text}");
    }
    for text in ["BEGIN { $x = \"a\"; }", "BEGIN { $x = getopt(\"ab\", 1); }", "BEGIN { $x = agetopt(\"a\"); }"] {
        assert_eq!(parse(text), Err(Problem::UnknownParameter { number: 1 }), "{text}");
    }
}
