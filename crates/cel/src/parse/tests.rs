//! Syntax errors, trees with their numbers, and texts made to explode. The answers are those that
//! cel-go gave.

use super::parse;
use crate::environment::Environment;
use crate::print;

const SYNTAX_ERRORS: &[(&str, &str)] = &[
    ("1 +", "ERROR: <input>:1:4: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}
 | 1 +
 | ...^"),
    ("a.b.", "ERROR: <input>:1:5: Syntax error: no viable alternative at input '.'
 | a.b.
 | ....^"),
    ("f(1,,2)", "ERROR: <input>:1:5: Syntax error: extraneous input ',' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}
 | f(1,,2)
 | ....^"),
    ("[1, 2", "ERROR: <input>:1:6: Syntax error: mismatched input '<EOF>' expecting {']', ','}
 | [1, 2
 | .....^"),
    ("{1: 2, 3}", "ERROR: <input>:1:9: Syntax error: mismatched input '}' expecting ':'
 | {1: 2, 3}
 | ........^"),
    ("a & b", "ERROR: <input>:1:3: Syntax error: token recognition error at: '& '
 | a & b
 | ..^
ERROR: <input>:1:5: Syntax error: extraneous input 'b' expecting <EOF>
 | a & b
 | ....^"),
    (r#""abc"#, r#"ERROR: <input>:1:1: Syntax error: token recognition error at: '"abc'
 | "abc
 | ^
ERROR: <input>:1:5: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}
 | "abc
 | ....^"#),
    ("x.true", "ERROR: <input>:1:3: Syntax error: mismatched input 'true' expecting IDENTIFIER
 | x.true
 | ..^"),
    ("if(1)", "ERROR: <input>:1:1: reserved identifier: if
 | if(1)
 | ^"),
    ("a ? b", "ERROR: <input>:1:6: Syntax error: mismatched input '<EOF>' expecting ':'
 | a ? b
 | .....^"),
    ("(1", "ERROR: <input>:1:3: Syntax error: missing ')' at '<EOF>'
 | (1
 | ..^"),
    ("1 1", "ERROR: <input>:1:3: Syntax error: extraneous input '1' expecting <EOF>
 | 1 1
 | ..^"),
    ("-1 x", "ERROR: <input>:1:4: Syntax error: extraneous input 'x' expecting <EOF>
 | -1 x
 | ...^"),
    ("{,", "ERROR: <input>:1:3: Syntax error: missing '}' at '<EOF>'
 | {,
 | ..^"),
    ("a{b: 1,", "ERROR: <input>:1:8: Syntax error: missing '}' at '<EOF>'
 | a{b: 1,
 | .......^"),
    (r#""\q""#, r#"ERROR: <input>:1:1: Syntax error: token recognition error at: '"\q'
 | "\q"
 | ^
ERROR: <input>:1:4: Syntax error: token recognition error at: '"'
 | "\q"
 | ...^
ERROR: <input>:1:5: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}
 | "\q"
 | ....^"#),
    (".", "ERROR: <input>:1:2: Syntax error: no viable alternative at input '.'
 | .
 | .^"),
    ("as + 1", "ERROR: <input>:1:1: reserved identifier: as
 | as + 1
 | ^"),
    ("9223372036854775808", "ERROR: <input>:1:1: invalid int literal
 | 9223372036854775808
 | ^"),
    ("a.`b-c`", "ERROR: <input>:1:3: unsupported syntax: '`'
 | a.`b-c`
 | ..^"),
    ("1u2", "ERROR: <input>:1:3: Syntax error: extraneous input '2' expecting <EOF>
 | 1u2
 | ..^"),
    ("has(a)", "ERROR: <input>:1:5: invalid argument to has() macro
 | has(a)
 | ....^"),
    ("[1].all(1, true)", "ERROR: <input>:1:9: argument must be a simple name
 | [1].all(1, true)
 | ........^"),
    ("[1].map(__result__, 1)", "ERROR: <input>:1:9: iteration variable overwrites accumulator variable
 | [1].map(__result__, 1)
 | ........^"),
    ("[1].exists(i, i, true)", "ERROR: <input>:1:15: duplicate variable name: i
 | [1].exists(i, i, true)
 | ..............^"),
    ("é + 1", "ERROR: <input>:1:1: Syntax error: token recognition error at: 'é'
 | é + 1
 | ＾
ERROR: <input>:1:3: Syntax error: extraneous input '+' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}
 | é + 1
 | ．.^"),
    ("a
  .b(
", "ERROR: <input>:3:1: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', ')', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}
 | 
 | ^"),
    ("0x", "ERROR: <input>:1:2: Syntax error: extraneous input 'x' expecting <EOF>
 | 0x
 | .^"),
    ("[?1", "ERROR: <input>:1:4: Syntax error: mismatched input '<EOF>' expecting {']', ','}
 | [?1
 | ...^"),
    ("a.?b(1)", "ERROR: <input>:1:5: Syntax error: mismatched input '(' expecting <EOF>
 | a.?b(1)
 | ....^"),
];

const TREES: &[(&str, &str)] = &[
    ("-1", "-1^#1#"),
    ("- 1", "-1^#1#"),
    ("--1", "1^#1#"),
    ("!!a", "a^#1#"),
    (
        "-a.b",
        "-_(
  a^#2#.b^#3#
)^#1#",
    ),
    (
        "a || b || c || d",
        "_||_(
  _||_(
    a^#1#,
    b^#2#
  )^#3#,
  _||_(
    c^#4#,
    d^#6#
  )^#7#
)^#5#",
    ),
    (
        "a ? b : c ? d : e",
        "_?_:_(
  a^#1#,
  b^#3#,
  _?_:_(
    c^#4#,
    d^#6#,
    e^#7#
  )^#5#
)^#2#",
    ),
    (
        "[1, 2].map(x, x > 1, x * 2)",
        "__comprehension__(
  // Variable
  x,
  // Target
  [
    1^#2#,
    2^#3#
  ]^#1#,
  // Accumulator
  @result,
  // Init
  []^#12#,
  // LoopCondition
  true^#13#,
  // LoopStep
  _?_:_(
    _>_(
      x^#6#,
      1^#8#
    )^#7#,
    _+_(
      @result^#14#,
      [
        _*_(
          x^#9#,
          2^#11#
        )^#10#
      ]^#15#
    )^#16#,
    @result^#17#
  )^#18#,
  // Result
  @result^#19#)^#20#",
    ),
    (
        "[1].all(i, v, i < v)",
        "__comprehension__(
  // Variable
  i,
  v,
  // Target
  [
    1^#2#
  ]^#1#,
  // Accumulator
  @result,
  // Init
  true^#9#,
  // LoopCondition
  @not_strictly_false(
    @result^#10#
  )^#11#,
  // LoopStep
  _&&_(
    @result^#12#,
    _<_(
      i^#6#,
      v^#8#
    )^#7#
  )^#13#,
  // Result
  @result^#14#)^#15#",
    ),
    (
        r#"{"a": 1}.transformMap(k, v, v + 1)"#,
        r#"__comprehension__(
  // Variable
  k,
  v,
  // Target
  {
    "a"^#3#:1^#4#^#2#
  }^#1#,
  // Accumulator
  @result,
  // Init
  {}^#14#,
  // LoopCondition
  true^#15#,
  // LoopStep
  cel.@mapInsert(
    @result^#11#,
    k^#12#,
    _+_(
      v^#8#,
      1^#10#
    )^#9#
  )^#13#,
  // Result
  @result^#16#)^#17#"#,
    ),
    ("has(a.b)", "a^#2#.b~test-only~^#4#"),
    (
        "m.?a[?0].optMap(v, v + 1)",
        r#"_?_:_(
  _[?_](
    _?._(
      m^#1#,
      "a"^#2#
    )^#3#,
    0^#5#
  )^#4#.hasValue()^#11#,
  optional.of(
    __comprehension__(
      // Variable
      #unused,
      // Target
      []^#12#,
      // Accumulator
      v,
      // Init
      _[?_](
        _?._(
          m^#15#,
          "a"^#16#
        )^#14#,
        0^#17#
      )^#13#.value()^#18#,
      // LoopCondition
      false^#19#,
      // LoopStep
      v^#20#,
      // Result
      _+_(
        v^#8#,
        1^#10#
      )^#9#)^#21#
  )^#22#,
  optional.none()^#23#
)^#24#"#,
    ),
    (
        "[3, 1].sortBy(e, -e)",
        "__comprehension__(
  // Variable
  #unused,
  // Target
  []^#19#,
  // Accumulator
  @__sortBy_input__,
  // Init
  [
    3^#2#,
    1^#3#
  ]^#1#,
  // LoopCondition
  false^#20#,
  // LoopStep
  @__sortBy_input__^#8#,
  // Result
  @__sortBy_input__^#17#.@sortByAssociatedKeys(
    __comprehension__(
      // Variable
      e,
      // Target
      @__sortBy_input__^#9#,
      // Accumulator
      @result,
      // Init
      []^#10#,
      // LoopCondition
      true^#11#,
      // LoopStep
      _+_(
        @result^#12#,
        [
          -_(
            e^#7#
          )^#6#
        ]^#13#
      )^#14#,
      // Result
      @result^#15#)^#16#
  )^#18#)^#21#",
    ),
];

fn errors(source: &str) -> String {
    match Environment::for_new_expressions().compile(source) {
        Ok(_) => String::new(),
        Err(errors) => errors.to_string(),
    }
}

#[test]
fn syntax_errors_have_the_words_and_places_of_cel_go() {
    let environment = Environment::for_new_expressions();
    for (source, expected) in SYNTAX_ERRORS {
        let errors = environment.compile(source).err();
        let errors = errors.map(|errors| errors.to_string());
        assert_eq!(errors.as_deref(), Some(*expected), "{source}");
    }
}

#[test]
fn nodes_have_the_numbers_of_cel_go() {
    let mut syntax = super::Syntax {
        optional: true,
        ..super::Syntax::default()
    };
    syntax.macros.optional = true;
    syntax.macros.two_variables = true;
    syntax.macros.sort_by = true;
    for (source, expected) in TREES {
        let tree = parse(source, syntax).map(|ast| print::tree(&ast));
        // The checker removes a leading name of a function's namespace; these have none.
        assert_eq!(tree.as_deref().ok(), Some(*expected), "{source}");
    }
}

#[test]
fn nesting_is_limited_without_using_the_stack() {
    const DEPTH: usize = 10_000;
    let limit = "ERROR: <input>:-1:0: expression recursion limit exceeded: 250";
    for (open, middle, close) in [
        ("(", "1", ")"),
        ("[", "", "]"),
        ("{1:", "1", "}"),
        ("1?1:", "1", ""),
        ("size(", "[]", ")"),
        ("a[", "0", "]"),
    ] {
        let source = format!("{}{middle}{}", open.repeat(DEPTH), close.repeat(DEPTH));
        assert_eq!(errors(&source), limit, "{open}");
    }
    // Chains are not nested for the parser, but for what walks its tree.
    for (operand, suffix) in [("a", ".a"), ("1", " + 1"), ("a", "[0]"), ("1", " == 1")] {
        let chain = format!("{operand}{}", suffix.repeat(DEPTH));
        assert_eq!(
            errors(&chain),
            "ERROR: <input>:-1:0: max recursion depth exceeded",
            "{suffix}"
        );
        let fits = format!("{operand}{}", suffix.repeat(250));
        assert!(!errors(&fits).contains("recursion"), "{suffix}");
    }
    let many = format!("{}true", "!".repeat(DEPTH));
    assert_eq!(errors(&many), "");
    let wide = vec!["true"; DEPTH].join(" || ");
    assert_eq!(errors(&wide), "");
}

#[test]
fn the_deepest_expression_that_is_allowed_compiles() {
    let nested = format!("{}true{}", "(".repeat(249), ")".repeat(249));
    assert_eq!(errors(&nested), "");
    let lists = format!("{}1{}", "[".repeat(249), "]".repeat(249));
    assert_eq!(errors(&lists), "");
    let folds = format!("{}true{}", "[1].all(x, ".repeat(120), ")".repeat(120));
    assert_eq!(errors(&folds), "");
}

#[test]
fn an_expression_of_a_megabyte_is_refused_by_its_size() {
    let source = "1+".repeat(500_000);
    let message = "ERROR: <input>:-1:0: expression code point size exceeds limit: \
                   size: 1000000, limit 100000";
    assert!(errors(&source).starts_with(message));
}

#[test]
fn many_mistakes_are_reported_in_bounded_time() {
    for part in [
        "-1.f(", "{", "a.b{c:", "[-1,", "?", "@ ", "\"", "1 2 ", "((1)", "- - [",
    ] {
        let source = part.repeat(90_000 / part.len());
        assert!(errors(&source).starts_with("ERROR: "), "{part}");
    }
}

#[test]
fn random_texts_never_panic() {
    const PARTS: &[&str] = &[
        "a", "b.", ".", "?", ":", "(", ")", "[", "]", "{", "}", ",", "1", "-", "!", "+", "&&",
        "||", "in", "true", "\"x\"", "'", "`a`", "\\", "\n", " ", "é", "0x", "1.5", "u",
        "has(a.b)", ".all(x, ", "r\"", "b'", "//", "%", "\u{0}", "map", "==", "<",
    ];
    // A linear congruential generator: the same texts each time.
    let mut state = 1u64;
    let mut next = |bound: usize| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) as usize % bound
    };
    let environment = Environment::for_new_expressions();
    for _ in 0..2_000 {
        let length = 1 + next(25);
        let source: String = (0..length).map(|_| PARTS[next(PARTS.len())]).collect();
        if let Err(errors) = environment.compile(&source) {
            assert!(
                errors.to_string().starts_with("ERROR: <input>:"),
                "{source}"
            );
        }
    }
}
