//! ANTLR's prediction: which alternative the tokens ahead ask for, or where none fits. It follows all
//! alternatives at once, at first without looking at the rules around (SLL), and again with them (LL)
//! where that leaves two that cannot be told apart.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::grammar::{Edge, Network, Rule, StateId, StateKind, TEXT_END, Tokens};

/// How many steps the predictions of one expression may take.
const MAX_STEPS: u32 = 1_000_000;

/// A stack of return states, shared with others: the number of a node in [`Stacks`].
type Stack = u32;
const EMPTY: Stack = 0;
/// In a node: the stack may end here.
const BOTTOM: StateId = StateId::MAX;

/// Nodes of stacks; equal ones have one number.
struct Stacks {
    nodes: Vec<Vec<(StateId, Stack)>>,
    known: HashMap<Vec<(StateId, Stack)>, Stack>,
}

impl Stacks {
    fn new() -> Stacks {
        let empty = vec![(BOTTOM, EMPTY)];
        Stacks {
            nodes: vec![empty.clone()],
            known: HashMap::from([(empty, EMPTY)]),
        }
    }

    fn node(&mut self, entries: Vec<(StateId, Stack)>) -> Stack {
        if let Some(known) = self.known.get(&entries) {
            return *known;
        }
        let id = self.nodes.len() as Stack;
        self.nodes.push(entries.clone());
        self.known.insert(entries, id);
        id
    }

    fn push(&mut self, stack: Stack, state: StateId) -> Stack {
        self.node(vec![(state, stack)])
    }

    /// Both stacks. Without the rules around, an empty one stands for all.
    fn merge(&mut self, left: Stack, right: Stack, is_full: bool) -> Stack {
        if left == right {
            return left;
        }
        if !is_full && (left == EMPTY || right == EMPTY) {
            return EMPTY;
        }
        let mut merged: BTreeMap<StateId, Stack> = BTreeMap::new();
        let (left, right) = (
            self.nodes[left as usize].clone(),
            self.nodes[right as usize].clone(),
        );
        for (state, below) in left.into_iter().chain(right) {
            let below = match merged.get(&state) {
                Some(&other) => self.merge(other, below, is_full),
                None => below,
            };
            merged.insert(state, below);
        }
        self.node(merged.into_iter().collect())
    }
}

#[derive(Clone, Copy)]
struct Config {
    stack: Stack,
    /// The path left the rule of the decision.
    is_outside: bool,
    is_suppressed: bool,
}

/// The places where the alternatives have arrived.
type Configs = BTreeMap<(StateId, usize), Config>;

pub enum Prediction {
    Alternative(usize),
    /// No alternative fits; the place of the token at which the last one ended.
    None(usize),
    /// The tokens ahead are too many or too ambiguous.
    TooComplex,
}

pub struct Predictor<'a> {
    network: &'a Network,
    /// What kind each token is.
    tokens: &'a [Tokens],
    stacks: Stacks,
    steps: u32,
    /// How far the tokens were looked at.
    pub furthest: usize,
}

/// Where a decision is made.
pub struct Decision<'a> {
    pub state: StateId,
    pub position: usize,
    /// The precedence that the rule was called with.
    pub precedence: u8,
    /// Where the rules around return to, the outermost first.
    pub returns: &'a [StateId],
}

struct Walk {
    is_full: bool,
    /// Predicates are looked at in the rule of the decision before a token is read.
    precedence: Option<u8>,
    is_end: bool,
    rule: Rule,
}

impl<'a> Predictor<'a> {
    pub fn new(network: &'a Network, tokens: &'a [Tokens]) -> Predictor<'a> {
        Predictor {
            network,
            tokens,
            stacks: Stacks::new(),
            steps: 0,
            furthest: 0,
        }
    }

    pub fn predict(&mut self, decision: &Decision<'_>) -> Prediction {
        let start = self.start(decision, false);
        let mut configs = start;
        let mut position = decision.position;
        loop {
            let Some(reached) = self.reach(&configs, position, false, decision) else {
                return match finished(&configs, self.network) {
                    _ if self.steps > MAX_STEPS => Prediction::TooComplex,
                    Some(alternative) => Prediction::Alternative(alternative),
                    None => Prediction::None(position),
                };
            };
            if self.steps > MAX_STEPS {
                return Prediction::TooComplex;
            }
            if let Some(alternative) = unique(&reached) {
                return Prediction::Alternative(alternative);
            }
            if self.is_conflict(&reached) {
                return self.predict_full(decision);
            }
            configs = reached;
            if self.token(position) != TEXT_END {
                position += 1;
            }
        }
    }

    fn predict_full(&mut self, decision: &Decision<'_>) -> Prediction {
        let mut configs = self.start(decision, true);
        let mut position = decision.position;
        loop {
            let Some(reached) = self.reach(&configs, position, true, decision) else {
                return match finished(&configs, self.network) {
                    _ if self.steps > MAX_STEPS => Prediction::TooComplex,
                    Some(alternative) => Prediction::Alternative(alternative),
                    None => Prediction::None(position),
                };
            };
            if self.steps > MAX_STEPS {
                return Prediction::TooComplex;
            }
            if let Some(alternative) = unique(&reached) {
                return Prediction::Alternative(alternative);
            }
            let mut smallest: BTreeSet<usize> = BTreeSet::new();
            for alternatives in subsets(&reached).values() {
                smallest.extend(alternatives.first());
            }
            if let (1, Some(only)) = (smallest.len(), smallest.first()) {
                return Prediction::Alternative(*only);
            }
            configs = reached;
            if self.token(position) != TEXT_END {
                position += 1;
            }
        }
    }

    fn token(&mut self, position: usize) -> Tokens {
        self.furthest = self.furthest.max(position);
        self.tokens.get(position).copied().unwrap_or(TEXT_END)
    }

    fn start(&mut self, decision: &Decision<'_>, is_full: bool) -> Configs {
        let mut stack = EMPTY;
        if is_full {
            for state in decision.returns {
                stack = self.stacks.push(stack, *state);
            }
        }
        let network = self.network;
        let state = &network.states[decision.state as usize];
        let is_precedence = matches!(
            state.kind,
            StateKind::StarEntry {
                is_precedence: true,
                ..
            }
        );
        let walk = Walk {
            is_full,
            precedence: Some(decision.precedence),
            is_end: false,
            rule: state.rule,
        };
        let mut configs = Configs::new();
        for (index, edge) in state.edges.iter().enumerate() {
            if let Edge::Epsilon(to) = edge {
                let config = Config {
                    stack,
                    is_outside: false,
                    is_suppressed: false,
                };
                self.close(&walk, *to, index + 1, config, 0, &mut configs);
            }
        }
        if is_precedence && !is_full {
            // Where both ways come to the same place, the loop goes on.
            let looping: Vec<(StateId, Stack)> = configs
                .iter()
                .filter(|((_, alternative), _)| *alternative == 1)
                .map(|((state, _), config)| (*state, config.stack))
                .collect();
            configs.retain(|(state, alternative), config| {
                *alternative == 1
                    || config.is_suppressed
                    || !looping.contains(&(*state, config.stack))
            });
        }
        configs
    }

    fn reach(
        &mut self,
        configs: &Configs,
        position: usize,
        is_full: bool,
        decision: &Decision<'_>,
    ) -> Option<Configs> {
        let token = self.token(position);
        let network = self.network;
        let is_end = token == TEXT_END;
        let mut stopped = Vec::new();
        let mut direct: Vec<(StateId, usize, Config)> = Vec::new();
        for (&(state, alternative), config) in configs {
            let state_of = &network.states[state as usize];
            if state_of.kind == StateKind::Stop {
                if is_full || is_end {
                    stopped.push((state, alternative, *config));
                }
                continue;
            }
            for edge in &state_of.edges {
                if let Edge::Match(tokens, to) = edge
                    && tokens & token != 0
                {
                    direct.push((*to, alternative, *config));
                }
            }
        }
        let first = direct.first().map(|(_, alternative, _)| *alternative);
        let is_unique = direct
            .iter()
            .all(|(_, alternative, _)| Some(*alternative) == first);
        let mut reached = Configs::new();
        if stopped.is_empty() && !is_end && is_unique {
            for (state, alternative, config) in direct {
                self.add(&mut reached, state, alternative, config, is_full);
            }
        } else {
            let walk = Walk {
                is_full,
                precedence: None,
                is_end,
                rule: network.states[decision.state as usize].rule,
            };
            for (state, alternative, config) in direct {
                self.close(&walk, state, alternative, config, 0, &mut reached);
            }
        }
        let is_stop = |state: &StateId| network.states[*state as usize].kind == StateKind::Stop;
        if is_end {
            reached.retain(|(state, _), _| is_stop(state));
        }
        if !is_full || !reached.keys().any(|(state, _)| is_stop(state)) {
            for (state, alternative, config) in stopped {
                self.add(&mut reached, state, alternative, config, is_full);
            }
        }
        (!reached.is_empty()).then_some(reached)
    }

    /// Adds a config; answers whether that changed anything.
    fn add(
        &mut self,
        configs: &mut Configs,
        state: StateId,
        alternative: usize,
        config: Config,
        is_full: bool,
    ) -> bool {
        match configs.get_mut(&(state, alternative)) {
            Some(known) => {
                let before = (known.stack, known.is_outside);
                known.stack = self.stacks.merge(known.stack, config.stack, is_full);
                known.is_outside |= config.is_outside;
                known.is_suppressed |= config.is_suppressed;
                before != (known.stack, known.is_outside)
            }
            None => {
                configs.insert((state, alternative), config);
                true
            }
        }
    }

    /// Adds all places that can be reached from one without reading a token.
    fn close(
        &mut self,
        walk: &Walk,
        state: StateId,
        alternative: usize,
        config: Config,
        depth: i32,
        configs: &mut Configs,
    ) {
        let network = self.network;
        let mut busy: BTreeSet<(StateId, Stack)> = BTreeSet::new();
        let mut left = vec![(state, config, depth)];
        while let Some((state, config, depth)) = left.pop() {
            self.steps += 1;
            if self.steps > MAX_STEPS {
                return;
            }
            if !busy.insert((state, config.stack)) {
                // The same place with another mark.
                if !config.is_outside {
                    continue;
                }
                if let Some(known) = configs.get_mut(&(state, alternative)) {
                    known.is_outside |= config.is_outside;
                    known.is_suppressed |= config.is_suppressed;
                }
                continue;
            }
            let state_of = &network.states[state as usize];
            if state_of.kind == StateKind::Stop {
                for (to, below) in self.stacks.nodes[config.stack as usize].clone() {
                    if to != BOTTOM {
                        let config = Config {
                            stack: below,
                            ..config
                        };
                        left.push((to, config, depth - 1));
                        continue;
                    }
                    let returns = &network.returns[state_of.rule as usize];
                    if walk.is_full || returns.is_empty() {
                        let config = Config {
                            stack: EMPTY,
                            ..config
                        };
                        self.add(configs, state, alternative, config, walk.is_full);
                        continue;
                    }
                    for &(to, is_lowest) in returns {
                        let config = Config {
                            stack: EMPTY,
                            is_outside: true,
                            is_suppressed: config.is_suppressed
                                || is_lowest && state_of.rule == walk.rule,
                        };
                        left.push((to, config, depth - 1));
                    }
                }
                continue;
            }
            let mut is_added = false;
            for edge in &state_of.edges {
                match *edge {
                    Edge::Match(tokens, to) => {
                        if !is_added {
                            is_added = true;
                            self.add(configs, state, alternative, config, walk.is_full);
                        }
                        if walk.is_end && tokens & TEXT_END != 0 {
                            left.push((to, config, depth));
                        }
                    }
                    Edge::Epsilon(to) => left.push((to, config, depth)),
                    Edge::Precedence(level, to) => {
                        let is_allowed = match walk.precedence {
                            Some(precedence) if depth == 0 => level >= precedence,
                            _ => true,
                        };
                        if is_allowed {
                            left.push((to, config, depth));
                        }
                    }
                    Edge::Call { rule, follow, .. } => {
                        let stack = self.stacks.push(config.stack, follow);
                        let config = Config { stack, ..config };
                        let deeper = if depth < 0 { depth } else { depth + 1 };
                        left.push((network.starts[rule as usize], config, deeper));
                    }
                }
            }
        }
    }

    fn is_conflict(&self, configs: &Configs) -> bool {
        let is_stopped = configs
            .keys()
            .all(|(state, _)| self.network.states[*state as usize].kind == StateKind::Stop);
        if is_stopped {
            return true;
        }
        let is_conflicting = subsets(configs)
            .values()
            .any(|alternatives| alternatives.len() > 1);
        let mut of_state: BTreeMap<StateId, BTreeSet<usize>> = BTreeMap::new();
        for (state, alternative) in configs.keys() {
            of_state.entry(*state).or_default().insert(*alternative);
        }
        is_conflicting && of_state.values().all(|alternatives| alternatives.len() > 1)
    }
}

/// The alternatives at each place with each stack.
fn subsets(configs: &Configs) -> BTreeMap<(StateId, Stack), BTreeSet<usize>> {
    let mut subsets: BTreeMap<_, BTreeSet<usize>> = BTreeMap::new();
    for ((state, alternative), config) in configs {
        subsets
            .entry((*state, config.stack))
            .or_default()
            .insert(*alternative);
    }
    subsets
}

fn unique(configs: &Configs) -> Option<usize> {
    let mut alternatives = configs.keys().map(|(_, alternative)| *alternative);
    let first = alternatives.next()?;
    alternatives.all(|other| other == first).then_some(first)
}

/// The first alternative that came to the end of the rule, where the text then goes wrong.
fn finished(configs: &Configs, network: &Network) -> Option<usize> {
    configs
        .iter()
        .filter(|((state, _), config)| {
            config.is_outside || network.states[*state as usize].kind == StateKind::Stop
        })
        .map(|((_, alternative), _)| *alternative)
        .min()
}
