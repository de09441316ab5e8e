//! The grammar as the network of states that ANTLR makes of it. Its messages and its recovery from
//! errors follow from this network, so it has to have the same states at the same places.

use std::sync::LazyLock;

use super::super::lexer::Kind;

/// A set of tokens, one bit for each kind; the end of the text is the lowest bit.
pub type Tokens = u64;
/// In a set: the end of the rule can be reached.
pub const RULE_END: Tokens = 1 << 63;
/// The end of the text.
pub const TEXT_END: Tokens = 1;

pub fn token(kind: Kind) -> Tokens {
    match kind {
        Kind::End => TEXT_END,
        other => 1 << other as u8,
    }
}

pub type StateId = u16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Rule {
    Start,
    Expr,
    Or,
    And,
    Relation,
    Calc,
    Unary,
    Member,
    Primary,
    ExprList,
    ListInit,
    FieldList,
    OptField,
    MapList,
    EscapeIdent,
    OptExpr,
    Literal,
}

pub const RULES: usize = 17;

#[derive(Clone, Copy, Debug)]
pub enum Edge {
    Epsilon(StateId),
    Match(Tokens, StateId),
    Call {
        rule: Rule,
        precedence: u8,
        follow: StateId,
    },
    Precedence(u8, StateId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateKind {
    Basic,
    /// Alternatives; `is_predicted` where one token does not tell them apart.
    Block {
        is_predicted: bool,
    },
    PlusBack {
        is_predicted: bool,
    },
    StarEntry {
        is_predicted: bool,
        is_precedence: bool,
    },
    StarBack,
    BlockEnd,
    Stop,
}

pub struct State {
    pub rule: Rule,
    pub kind: StateKind,
    pub edges: Vec<Edge>,
}

pub struct Network {
    pub states: Vec<State>,
    pub starts: [StateId; RULES],
    /// What can come next at a state, within its rule.
    pub next: Vec<Tokens>,
    /// Where each rule returns to, and whether from a call at the lowest precedence.
    pub returns: Vec<Vec<(StateId, bool)>>,
}

pub static NETWORK: LazyLock<Network> = LazyLock::new(build);

/// A part of a rule.
enum Item {
    One(Tokens),
    Call(Rule, u8),
    Optional(Vec<Item>),
    /// Any number of times; `true` where the end needs prediction.
    Star(Vec<Item>, bool),
    /// Once or more often.
    Plus(Vec<Item>, bool),
}

fn one(kind: Kind) -> Item {
    Item::One(token(kind))
}

fn maybe(kind: Kind) -> Item {
    Item::Optional(vec![one(kind)])
}

fn any(kinds: &[Kind]) -> Item {
    Item::One(kinds.iter().fold(0, |all, kind| all | token(*kind)))
}

fn call(rule: Rule) -> Item {
    Item::Call(rule, 0)
}

fn build() -> Network {
    use Kind::*;
    let mut builder = Builder { states: Vec::new() };
    let starts: [StateId; RULES] = std::array::from_fn(|rule| {
        let rule = ALL[rule];
        builder.state(rule, StateKind::Basic)
    });
    let stops: [StateId; RULES] = std::array::from_fn(|rule| {
        let rule = ALL[rule];
        builder.state(rule, StateKind::Stop)
    });
    let mut rule = |rule: Rule, alternatives: Vec<Vec<Item>>, is_predicted: bool| {
        let (start, stop) = (starts[rule as usize], stops[rule as usize]);
        let end = builder.alternatives(start, alternatives, is_predicted);
        builder.edge(end, Edge::Epsilon(stop));
    };
    rule(Rule::Start, vec![vec![call(Rule::Expr), one(End)]], false);
    let ternary = vec![one(Question), call(Rule::Or), one(Colon), call(Rule::Expr)];
    rule(
        Rule::Expr,
        vec![vec![call(Rule::Or), Item::Optional(ternary)]],
        false,
    );
    let more = |operator, operand| Item::Star(vec![one(operator), operand], false);
    rule(
        Rule::Or,
        vec![vec![call(Rule::And), more(Or, call(Rule::And))]],
        false,
    );
    rule(
        Rule::And,
        vec![vec![call(Rule::Relation), more(And, call(Rule::Relation))]],
        false,
    );
    rule(
        Rule::Unary,
        vec![
            vec![call(Rule::Member)],
            vec![
                Item::Plus(vec![one(Exclamation)], false),
                call(Rule::Member),
            ],
            vec![Item::Plus(vec![one(Minus)], true), call(Rule::Member)],
        ],
        true,
    );
    let arguments = || Item::Optional(vec![call(Rule::ExprList)]);
    let in_literal =
        |list: Rule, end: Kind| [Item::Optional(vec![call(list)]), maybe(Comma), one(end)];
    let mut list = vec![one(LeftBracket)];
    list.extend(in_literal(Rule::ListInit, RightBracket));
    let mut map = vec![one(LeftBrace)];
    map.extend(in_literal(Rule::MapList, RightBrace));
    let mut structure = vec![
        maybe(Dot),
        one(Identifier),
        Item::Star(vec![one(Dot), one(Identifier)], false),
        one(LeftBrace),
    ];
    structure.extend(in_literal(Rule::FieldList, RightBrace));
    rule(
        Rule::Primary,
        vec![
            vec![maybe(Dot), one(Identifier)],
            vec![
                maybe(Dot),
                one(Identifier),
                one(LeftParenthesis),
                arguments(),
                one(RightParenthesis),
            ],
            vec![
                one(LeftParenthesis),
                call(Rule::Expr),
                one(RightParenthesis),
            ],
            list,
            map,
            structure,
            vec![call(Rule::Literal)],
        ],
        true,
    );
    rule(
        Rule::ExprList,
        vec![vec![call(Rule::Expr), more(Comma, call(Rule::Expr))]],
        false,
    );
    rule(
        Rule::ListInit,
        vec![vec![
            call(Rule::OptExpr),
            Item::Star(vec![one(Comma), call(Rule::OptExpr)], true),
        ]],
        false,
    );
    let mut entries = |list: Rule, key: Rule| {
        let entry = || vec![call(key), one(Colon), call(Rule::Expr)];
        let mut again = vec![one(Comma)];
        again.extend(entry());
        let mut all = entry();
        all.push(Item::Star(again, true));
        rule(list, vec![all], false);
    };
    entries(Rule::FieldList, Rule::OptField);
    entries(Rule::MapList, Rule::OptExpr);
    rule(
        Rule::OptField,
        vec![vec![maybe(Question), call(Rule::EscapeIdent)]],
        false,
    );
    rule(
        Rule::EscapeIdent,
        vec![vec![one(Identifier)], vec![one(EscapedIdentifier)]],
        false,
    );
    rule(
        Rule::OptExpr,
        vec![vec![maybe(Question), call(Rule::Expr)]],
        false,
    );
    let mut literals = vec![
        vec![maybe(Minus), one(Int)],
        vec![one(Uint)],
        vec![maybe(Minus), one(Float)],
    ];
    literals.extend([String, Bytes, True, False, Null].map(|kind| vec![one(kind)]));
    rule(Rule::Literal, literals, true);

    let mut left = |rule: Rule, first: Rule, suffixes: Vec<(u8, Vec<Item>)>| {
        let (start, stop) = (starts[rule as usize], stops[rule as usize]);
        let end = builder.sequence(start, vec![call(first)]);
        let end = builder.precedence_loop(end, suffixes);
        builder.edge(end, Edge::Epsilon(stop));
    };
    let comparisons = [
        Less,
        LessEquals,
        GreaterEquals,
        Greater,
        Equals,
        NotEquals,
        In,
    ];
    left(
        Rule::Relation,
        Rule::Calc,
        vec![(1, vec![any(&comparisons), Item::Call(Rule::Relation, 2)])],
    );
    left(
        Rule::Calc,
        Rule::Unary,
        vec![
            (
                2,
                vec![any(&[Star, Slash, Percent]), Item::Call(Rule::Calc, 3)],
            ),
            (1, vec![any(&[Plus, Minus]), Item::Call(Rule::Calc, 2)]),
        ],
    );
    left(
        Rule::Member,
        Rule::Primary,
        vec![
            (3, vec![one(Dot), maybe(Question), call(Rule::EscapeIdent)]),
            (
                2,
                vec![
                    one(Dot),
                    one(Identifier),
                    one(LeftParenthesis),
                    arguments(),
                    one(RightParenthesis),
                ],
            ),
            (
                1,
                vec![
                    one(LeftBracket),
                    maybe(Question),
                    call(Rule::Expr),
                    one(RightBracket),
                ],
            ),
        ],
    );
    finish(builder.states, starts)
}

const ALL: [Rule; RULES] = [
    Rule::Start,
    Rule::Expr,
    Rule::Or,
    Rule::And,
    Rule::Relation,
    Rule::Calc,
    Rule::Unary,
    Rule::Member,
    Rule::Primary,
    Rule::ExprList,
    Rule::ListInit,
    Rule::FieldList,
    Rule::OptField,
    Rule::MapList,
    Rule::EscapeIdent,
    Rule::OptExpr,
    Rule::Literal,
];

/// Computes what depends on the whole network.
fn finish(mut states: Vec<State>, starts: [StateId; RULES]) -> Network {
    shorten(&mut states);
    let mut returns = vec![Vec::new(); RULES];
    for state in &states {
        for edge in &state.edges {
            if let Edge::Call {
                rule,
                precedence,
                follow,
            } = edge
            {
                let is_precedence = matches!(rule, Rule::Relation | Rule::Calc | Rule::Member);
                returns[*rule as usize].push((*follow, is_precedence && *precedence == 0));
            }
        }
    }
    let mut network = Network {
        next: vec![0; states.len()],
        states,
        starts,
        returns,
    };
    // No rule matches the empty text, so a call never goes on behind it.
    loop {
        let mut is_changed = false;
        for id in 0..network.states.len() {
            let state = &network.states[id];
            let mut next = if state.kind == StateKind::Stop {
                RULE_END
            } else {
                0
            };
            for edge in &state.edges {
                next |= match *edge {
                    Edge::Epsilon(to) | Edge::Precedence(_, to) => network.next[to as usize],
                    Edge::Match(tokens, _) => tokens,
                    Edge::Call { rule, .. } => network.next[network.starts[rule as usize] as usize],
                };
            }
            is_changed |= next != network.next[id];
            network.next[id] = next;
        }
        if !is_changed {
            return network;
        }
    }
}

/// What ends an alternative leads to the end of its block at once, as ANTLR shortens it: so two
/// alternatives that end in the same call cannot be told apart within it.
fn shorten(states: &mut [State]) {
    for id in 0..states.len() {
        let (Some(&Edge::Match(_, to)) | Some(&Edge::Call { follow: to, .. })) =
            states[id].edges.first()
        else {
            continue;
        };
        let &[Edge::Epsilon(end)] = &states[to as usize].edges[..] else {
            continue;
        };
        if !matches!(
            states[end as usize].kind,
            StateKind::BlockEnd | StateKind::StarBack | StateKind::PlusBack { .. }
        ) {
            continue;
        }
        if let Some(Edge::Match(_, to) | Edge::Call { follow: to, .. }) =
            states[id].edges.first_mut()
        {
            *to = end;
        }
    }
}

struct Builder {
    states: Vec<State>,
}

impl Builder {
    fn state(&mut self, rule: Rule, kind: StateKind) -> StateId {
        self.states.push(State {
            rule,
            kind,
            edges: Vec::new(),
        });
        (self.states.len() - 1) as StateId
    }

    fn edge(&mut self, from: StateId, edge: Edge) {
        self.states[from as usize].edges.push(edge);
    }

    fn beside(&mut self, state: StateId, kind: StateKind) -> StateId {
        let rule = self.states[state as usize].rule;
        self.state(rule, kind)
    }

    fn then(&mut self, from: StateId, kind: StateKind) -> StateId {
        let to = self.beside(from, kind);
        self.edge(from, Edge::Epsilon(to));
        to
    }

    fn alternatives(
        &mut self,
        from: StateId,
        mut alternatives: Vec<Vec<Item>>,
        is_predicted: bool,
    ) -> StateId {
        if alternatives.len() == 1 {
            return self.sequence(from, alternatives.remove(0));
        }
        let block = self.then(from, StateKind::Block { is_predicted });
        let end = self.beside(from, StateKind::BlockEnd);
        for alternative in alternatives {
            let first = self.then(block, StateKind::Basic);
            let last = self.sequence(first, alternative);
            self.edge(last, Edge::Epsilon(end));
        }
        end
    }

    fn sequence(&mut self, from: StateId, items: Vec<Item>) -> StateId {
        items.into_iter().fold(from, |at, item| self.item(at, item))
    }

    fn item(&mut self, at: StateId, item: Item) -> StateId {
        match item {
            Item::One(tokens) => {
                // A state of its own, because errors remember the states they happened at.
                let at = self.then(at, StateKind::Basic);
                let to = self.beside(at, StateKind::Basic);
                self.edge(at, Edge::Match(tokens, to));
                to
            }
            Item::Call(rule, precedence) => {
                let at = self.then(at, StateKind::Basic);
                let follow = self.beside(at, StateKind::Basic);
                self.edge(
                    at,
                    Edge::Call {
                        rule,
                        precedence,
                        follow,
                    },
                );
                follow
            }
            Item::Optional(items) => {
                let is_predicted = false;
                let block = self.then(at, StateKind::Block { is_predicted });
                let first = self.then(block, StateKind::Basic);
                let last = self.sequence(first, items);
                let end = self.then(last, StateKind::BlockEnd);
                self.edge(block, Edge::Epsilon(end));
                end
            }
            Item::Star(items, is_predicted) => {
                let entry = self.then(
                    at,
                    StateKind::StarEntry {
                        is_predicted,
                        is_precedence: false,
                    },
                );
                let first = self.then(entry, StateKind::Basic);
                let last = self.sequence(first, items);
                let back = self.then(last, StateKind::StarBack);
                self.edge(back, Edge::Epsilon(entry));
                self.then(entry, StateKind::Basic)
            }
            Item::Plus(items, is_predicted) => {
                let first = self.then(at, StateKind::Basic);
                let last = self.sequence(first, items);
                let back = self.then(last, StateKind::PlusBack { is_predicted });
                self.edge(back, Edge::Epsilon(first));
                self.then(back, StateKind::Basic)
            }
        }
    }

    /// The suffixes of a left-recursive rule, each with its precedence.
    fn precedence_loop(&mut self, at: StateId, suffixes: Vec<(u8, Vec<Item>)>) -> StateId {
        let entry = self.then(
            at,
            StateKind::StarEntry {
                is_predicted: true,
                is_precedence: true,
            },
        );
        let kind = if suffixes.len() > 1 {
            StateKind::Block { is_predicted: true }
        } else {
            StateKind::Basic
        };
        let block = self.then(entry, kind);
        let back = self.beside(at, StateKind::StarBack);
        self.edge(back, Edge::Epsilon(entry));
        for (precedence, items) in suffixes {
            let guard = self.then(block, StateKind::Basic);
            let first = self.beside(at, StateKind::Basic);
            self.edge(guard, Edge::Precedence(precedence, first));
            let last = self.sequence(first, items);
            self.edge(last, Edge::Epsilon(back));
        }
        self.then(entry, StateKind::Basic)
    }
}
