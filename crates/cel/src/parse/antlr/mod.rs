//! The long way of parsing: as ANTLR's generated parser does it, with its messages, its recovery from
//! errors and cel-go's limits. It keeps its own stack, so that no nesting of a text reaches ours.

mod grammar;
mod predict;
mod recovery;
mod tree;
mod visit;

use super::Syntax;
use super::lexer::{Kind, Token, Unrecognized};
use crate::ast::Id;
use crate::builder::Builder;
use grammar::{Edge, NETWORK, Network, RULES, Rule, StateId, StateKind, TEXT_END, Tokens, token};
use predict::{Decision, Prediction, Predictor};
use tree::{Child, Context, ContextId};

/// How deep one rule of the grammar may be within itself.
const MAX_DEPTH: usize = 250;
/// How many syntax errors are reported.
const MAX_ERRORS: usize = 100;
/// How many attempts are made to go on after an error.
const MAX_RECOVERIES: usize = 30;
/// How many tokens one attempt may skip.
const MAX_SKIPPED: usize = 256;

/// The root of the tree. Syntax errors are in the builder's report.
pub fn parse(
    source: &str,
    tokens: &[Token],
    unrecognized: &[Unrecognized],
    syntax: Syntax,
    builder: &mut Builder,
) -> Id {
    let network = &*NETWORK;
    let kinds: Vec<Tokens> = tokens.iter().map(|one| token(one.kind)).collect();
    let mut machine = Machine {
        source,
        tokens,
        unrecognized,
        network,
        kinds: &kinds,
        predictor: Predictor::new(network, &kinds),
        position: 0,
        state: 0,
        contexts: Vec::new(),
        current: ContextId(0),
        depths: [0; RULES],
        is_recovering: false,
        last_error: None,
        last_states: Vec::new(),
        recoveries: 0,
        reported: 0,
        errors: Vec::new(),
    };
    let outcome = machine.run();
    // What was no token was met before the end, so that too many of these are what ended it.
    let outcome = match &outcome {
        Err(Abort { message: None }) => outcome,
        _ => machine.report_unrecognized().and(outcome),
    };
    for (offset, message) in machine.errors.drain(..) {
        builder.report.add(Some(offset), message);
    }
    match outcome {
        Ok(root) => visit::visit(source, tokens, &machine.contexts, root, syntax, builder),
        Err(Abort { message }) => {
            if let Some(message) = message {
                builder.report.add(None, message);
            }
            builder.reserve(0)
        }
    }
}

/// The parser gives up, with an error that has no place or one that is reported already.
struct Abort {
    message: Option<String>,
}

/// Why a rule cannot go on.
enum Failure {
    Mismatch,
    /// The tokens of the text that fits no alternative, from the first to the last.
    NoAlternative(usize, usize),
}

struct Machine<'a> {
    source: &'a str,
    tokens: &'a [Token],
    unrecognized: &'a [Unrecognized],
    network: &'a Network,
    kinds: &'a [Tokens],
    predictor: Predictor<'a>,
    position: usize,
    state: StateId,
    contexts: Vec<Context>,
    current: ContextId,
    depths: [usize; RULES],
    is_recovering: bool,
    last_error: Option<usize>,
    last_states: Vec<StateId>,
    recoveries: usize,
    /// How many of the unrecognized texts have been reported.
    reported: usize,
    errors: Vec<(u32, String)>,
}

impl Machine<'_> {
    fn run(&mut self) -> Result<ContextId, Abort> {
        self.enter(Rule::Start, None, 0)?;
        let root = self.current;
        let mut at = self.network.starts[Rule::Start as usize];
        loop {
            let state = &self.network.states[at as usize];
            if state.kind == StateKind::Stop {
                match self.leave() {
                    Some(follow) => at = follow,
                    None => return Ok(root),
                }
                continue;
            }
            at = match self.step(at)? {
                Ok(next) => next,
                Err(failure) => {
                    self.report(failure)?;
                    self.recover()?;
                    match self.leave() {
                        Some(follow) => follow,
                        None => return Ok(root),
                    }
                }
            };
        }
    }

    /// Goes on from a state: the next one, or why there is none.
    fn step(&mut self, at: StateId) -> Result<Result<StateId, Failure>, Abort> {
        let network = self.network;
        let state = &network.states[at as usize];
        let edges = &state.edges;
        let target = |index: usize| match edges.get(index) {
            Some(Edge::Epsilon(to)) => *to,
            _ => at,
        };
        match state.kind {
            StateKind::Basic | StateKind::BlockEnd | StateKind::Stop => match edges.first() {
                Some(Edge::Epsilon(to) | Edge::Precedence(_, to)) => Ok(Ok(*to)),
                Some(Edge::Match(tokens, to)) => {
                    self.state = at;
                    Ok(self.match_token(*tokens)?.map(|()| *to))
                }
                Some(Edge::Call {
                    rule, precedence, ..
                }) => {
                    self.state = at;
                    self.enter(*rule, Some(at), *precedence)?;
                    Ok(Ok(network.starts[*rule as usize]))
                }
                None => Err(Abort { message: None }),
            },
            StateKind::Block { is_predicted } => {
                if let Err(failure) = self.synchronize(at)? {
                    return Ok(Err(failure));
                }
                let index = if is_predicted {
                    match self.predict(at)? {
                        Ok(index) => index,
                        Err(failure) => return Ok(Err(failure)),
                    }
                } else {
                    let kind = self.kind();
                    let fits = |edge: &Edge| match edge {
                        Edge::Epsilon(to) => network.next[*to as usize] & kind != 0,
                        _ => false,
                    };
                    match edges.iter().position(fits) {
                        Some(index) => index,
                        // The last way of an optional part leads around it.
                        None if state.rule != Rule::EscapeIdent => edges.len() - 1,
                        None => {
                            let here = self.position;
                            return Ok(Err(Failure::NoAlternative(here, here)));
                        }
                    }
                };
                self.choose(at, index)?;
                Ok(Ok(target(index)))
            }
            StateKind::StarEntry {
                is_predicted,
                is_precedence,
            } => {
                if let Err(failure) = self.synchronize(at)? {
                    return Ok(Err(failure));
                }
                self.enter_loop(at, is_predicted, is_precedence)
            }
            StateKind::StarBack => {
                if let Err(failure) = self.synchronize(at)? {
                    return Ok(Err(failure));
                }
                let entry = target(0);
                match network.states[entry as usize].kind {
                    StateKind::StarEntry {
                        is_predicted,
                        is_precedence,
                    } => self.enter_loop(entry, is_predicted, is_precedence),
                    _ => Ok(Ok(entry)),
                }
            }
            StateKind::PlusBack { is_predicted } => {
                if let Err(failure) = self.synchronize(at)? {
                    return Ok(Err(failure));
                }
                if is_predicted {
                    return Ok(self.predict(at)?.map(target));
                }
                let is_again = network.next[target(0) as usize] & self.kind() != 0;
                Ok(Ok(target(usize::from(!is_again))))
            }
        }
    }

    fn enter_loop(
        &mut self,
        entry: StateId,
        is_predicted: bool,
        is_precedence: bool,
    ) -> Result<Result<StateId, Failure>, Abort> {
        let network = self.network;
        let ways: Vec<StateId> = network.states[entry as usize]
            .edges
            .iter()
            .filter_map(|edge| match edge {
                Edge::Epsilon(to) => Some(*to),
                _ => None,
            })
            .collect();
        let (Some(&body), Some(&exit)) = (ways.first(), ways.get(1)) else {
            return Ok(Ok(entry));
        };
        let index = if is_predicted {
            match self.predict(entry)? {
                Ok(index) => index,
                Err(failure) => return Ok(Err(failure)),
            }
        } else {
            usize::from(network.next[body as usize] & self.kind() == 0)
        };
        if index != 0 {
            return Ok(Ok(exit));
        }
        if is_precedence {
            // ANTLR says that the node so far is over before it begins the one around it, so that
            // chains of operators and members do not deepen their rule.
            let depth = &mut self.depths[self.contexts[self.current.0].rule as usize];
            *depth = depth.saturating_sub(1);
        }
        let has_alternatives =
            matches!(network.states[body as usize].kind, StateKind::Block { .. });
        if is_precedence && !has_alternatives {
            self.push_recursion()?;
        }
        Ok(Ok(body))
    }

    fn predict(&mut self, at: StateId) -> Result<Result<usize, Failure>, Abort> {
        self.state = at;
        let mut returns = Vec::new();
        let mut context = Some(self.current);
        while let Some(id) = context {
            let of = &self.contexts[id.0];
            if let Some(invoking) = of.invoking {
                returns.push(self.follow(invoking));
            }
            context = of.parent;
        }
        returns.reverse();
        let decision = Decision {
            state: at,
            position: self.position,
            precedence: self.contexts[self.current.0].precedence,
            returns: &returns,
        };
        match self.predictor.predict(&decision) {
            Prediction::Alternative(alternative) => Ok(Ok(alternative - 1)),
            Prediction::None(at) => Ok(Err(Failure::NoAlternative(self.position, at))),
            Prediction::TooComplex => Err(Abort {
                message: Some("the syntax of the expression is too complex".to_owned()),
            }),
        }
    }

    fn follow(&self, invoking: StateId) -> StateId {
        match self.network.states[invoking as usize].edges.first() {
            Some(Edge::Call { follow, .. }) => *follow,
            _ => invoking,
        }
    }

    fn kind(&self) -> Tokens {
        self.kind_ahead(0)
    }

    fn kind_ahead(&self, count: usize) -> Tokens {
        self.kinds
            .get(self.position + count)
            .copied()
            .unwrap_or(TEXT_END)
    }

    fn deepen(&mut self, rule: Rule) -> Result<(), Abort> {
        let depth = &mut self.depths[rule as usize];
        *depth += 1;
        if *depth > MAX_DEPTH {
            return Err(Abort {
                message: Some(format!("expression recursion limit exceeded: {MAX_DEPTH}")),
            });
        }
        Ok(())
    }

    fn enter(
        &mut self,
        rule: Rule,
        invoking: Option<StateId>,
        precedence: u8,
    ) -> Result<(), Abort> {
        let parent = invoking.map(|_| self.current);
        self.current = ContextId(self.contexts.len());
        self.contexts.push(Context {
            rule,
            invoking,
            parent,
            precedence,
            start: self.position,
            alternative: None,
            pushed: 0,
            children: Vec::new(),
        });
        self.deepen(rule)
    }

    /// Puts what was read of a left-recursive rule into a new node of it.
    fn push_recursion(&mut self) -> Result<(), Abort> {
        let before = &mut self.contexts[self.current.0];
        let rule = before.rule;
        let new = Context {
            rule,
            invoking: before.invoking,
            parent: before.parent,
            precedence: before.precedence,
            start: before.start,
            // With one suffix there is nothing to choose.
            alternative: Some(0),
            pushed: before.pushed + 1,
            children: vec![Child::Rule(self.current)],
        };
        self.current = ContextId(self.contexts.len());
        self.contexts.push(new);
        self.deepen(rule)
    }

    /// Remembers which alternative of its rule a node is.
    fn choose(&mut self, at: StateId, index: usize) -> Result<(), Abort> {
        let state = &self.network.states[at as usize];
        let is_predicted = state.kind == StateKind::Block { is_predicted: true };
        match state.rule {
            Rule::Calc | Rule::Member if is_predicted => self.push_recursion()?,
            Rule::Unary | Rule::Primary | Rule::Literal if is_predicted => {}
            Rule::EscapeIdent => {}
            _ => return Ok(()),
        }
        self.contexts[self.current.0].alternative = Some(index);
        Ok(())
    }

    /// Ends a rule: where its caller goes on, if there is one.
    fn leave(&mut self) -> Option<StateId> {
        let context = &self.contexts[self.current.0];
        let (rule, parent, invoking) = (context.rule, context.parent, context.invoking);
        let depth = &mut self.depths[rule as usize];
        *depth = depth.saturating_sub(1);
        let child = Child::Rule(self.current);
        let (parent, invoking) = (parent?, invoking?);
        self.contexts[parent.0].children.push(child);
        self.current = parent;
        self.state = invoking;
        Some(self.follow(invoking))
    }

    fn is_at_end(&self) -> bool {
        self.tokens
            .get(self.position)
            .is_none_or(|token| token.kind == Kind::End)
    }
}
