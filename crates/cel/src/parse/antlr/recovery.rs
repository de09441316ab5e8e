//! ANTLR's default way to report errors and to go on after them.

use super::super::lexer::{Kind, escape_whitespace};
use super::grammar::{Edge, RULE_END, StateId, StateKind, TEXT_END, Tokens};
use super::tree::{Child, ContextId};
use super::{Abort, Failure, MAX_ERRORS, MAX_RECOVERIES, MAX_SKIPPED, Machine};

impl Machine<'_> {
    /// Reads a token of a set, or makes up for it.
    pub(super) fn match_token(&mut self, wanted: Tokens) -> Result<Result<(), Failure>, Abort> {
        if self.kind() & wanted != 0 {
            self.end_recovery();
            self.consume();
            return Ok(Ok(()));
        }
        self.count_recovery()?;
        if self.delete_token()? {
            self.consume();
            return Ok(Ok(()));
        }
        if self.insert_token()? {
            let expected = self.expected(self.state);
            let (kind, place) = (first_of(expected), self.missing_place());
            let missing = Child::Missing(kind, place);
            self.contexts[self.current.0].children.push(missing);
            return Ok(Ok(()));
        }
        Ok(Err(Failure::Mismatch))
    }

    fn end_recovery(&mut self) {
        self.is_recovering = false;
        self.last_states.clear();
        self.last_error = None;
    }

    fn count_recovery(&mut self) -> Result<(), Abort> {
        if self.recoveries == MAX_RECOVERIES {
            self.recoveries += 1;
            let message = format!("error recovery attempt limit exceeded: {MAX_RECOVERIES}");
            self.syntax_error(self.position, message)?;
            return Err(Abort { message: None });
        }
        self.recoveries += 1;
        Ok(())
    }

    fn consume(&mut self) {
        let child = if self.is_recovering {
            Child::Error
        } else {
            Child::Token(self.position)
        };
        self.contexts[self.current.0].children.push(child);
        if !self.is_at_end() {
            self.position += 1;
        }
    }

    fn missing_place(&self) -> u32 {
        let at = match self.position.checked_sub(1) {
            Some(before) if self.is_at_end() => before,
            _ => self.position,
        };
        self.tokens.get(at).map_or(0, |token| token.offset)
    }

    /// Whether the token after the next is one that is wanted; then the next is skipped.
    fn delete_token(&mut self) -> Result<bool, Abort> {
        self.predictor.furthest = self.predictor.furthest.max(self.position + 1);
        if self.expected(self.state) & self.kind_ahead(1) == 0 {
            return Ok(false);
        }
        self.report_unwanted()?;
        self.consume();
        self.end_recovery();
        Ok(true)
    }

    /// Whether the next token is right after one that is missing.
    fn insert_token(&mut self) -> Result<bool, Abort> {
        let after = match self.network.states[self.state as usize].edges.first() {
            Some(Edge::Match(_, to) | Edge::Epsilon(to) | Edge::Precedence(_, to)) => *to,
            _ => return Ok(false),
        };
        if self.expected(after) & self.kind() == 0 {
            return Ok(false);
        }
        if !self.is_recovering {
            self.is_recovering = true;
            let message = format!(
                "missing {} at {}",
                describe(self.expected(self.state)),
                self.shown(self.position)
            );
            self.syntax_error(self.position, message)?;
        }
        Ok(true)
    }

    /// Before a choice: whether the next token can begin or follow it, and if not, what to do.
    pub(super) fn synchronize(&mut self, at: StateId) -> Result<Result<(), Failure>, Abort> {
        self.state = at;
        let next = self.network.next[at as usize];
        if self.is_recovering || next & (RULE_END | self.kind()) != 0 {
            return Ok(Ok(()));
        }
        match self.network.states[at as usize].kind {
            StateKind::Block { .. } | StateKind::StarEntry { .. } => {
                if self.delete_token()? {
                    return Ok(Ok(()));
                }
                Ok(Err(Failure::Mismatch))
            }
            StateKind::PlusBack { .. } | StateKind::StarBack => {
                self.report_unwanted()?;
                let until = self.expected(at) | self.recovery_set();
                while !self.is_at_end() && until & self.kind() == 0 {
                    self.consume();
                }
                Ok(Ok(()))
            }
            _ => Ok(Ok(())),
        }
    }

    pub(super) fn report(&mut self, failure: Failure) -> Result<(), Abort> {
        if self.is_recovering {
            return Ok(());
        }
        self.is_recovering = true;
        match failure {
            Failure::Mismatch => {
                let message = format!(
                    "mismatched input {} expecting {}",
                    self.shown(self.position),
                    describe(self.expected(self.state))
                );
                self.syntax_error(self.position, message)
            }
            Failure::NoAlternative(first, last) => {
                let text = self.text(first, last);
                let mut reserved = text.chars();
                reserved.next();
                // cel-go keeps an older message for reserved words.
                let message = match reserved.as_str() {
                    word @ ("true" | "false" | "null") => {
                        format!("mismatched input '{word}' expecting IDENTIFIER")
                    }
                    _ => format!(
                        "no viable alternative at input '{}'",
                        escape_whitespace(&text)
                    ),
                };
                self.syntax_error(last, message)
            }
        }
    }

    pub(super) fn recover(&mut self) -> Result<(), Abort> {
        self.count_recovery()?;
        let mut skipped = 0;
        if self.last_error == Some(self.position) && self.last_states.contains(&self.state) {
            self.consume();
            skipped += 1;
        }
        self.last_error = Some(self.position);
        self.last_states.push(self.state);
        let until = self.recovery_set();
        while !self.is_at_end() && until & self.kind() == 0 {
            if skipped >= MAX_SKIPPED {
                let message =
                    format!("error recovery token lookahead limit exceeded: {MAX_SKIPPED}");
                return Err(Abort {
                    message: Some(message),
                });
            }
            self.consume();
            skipped += 1;
        }
        Ok(())
    }

    /// What can follow any of the rules around.
    fn recovery_set(&self) -> Tokens {
        let mut all = 0;
        let mut context = Some(self.current);
        while let Some(ContextId(id)) = context {
            let of = &self.contexts[id];
            if let Some(invoking) = of.invoking {
                all |= self.network.next[self.follow(invoking) as usize];
            }
            context = of.parent;
        }
        all & !RULE_END
    }

    /// What can be next at a state, with the rules around.
    fn expected(&self, state: StateId) -> Tokens {
        let mut following = self.network.next[state as usize];
        let mut all = following;
        let mut context = Some(self.current);
        while let (true, Some(ContextId(id))) = (following & RULE_END != 0, context) {
            let of = &self.contexts[id];
            let Some(invoking) = of.invoking else { break };
            following = self.network.next[self.follow(invoking) as usize];
            all |= following;
            context = of.parent;
        }
        if following & RULE_END != 0 {
            all |= TEXT_END;
        }
        all & !RULE_END
    }

    fn report_unwanted(&mut self) -> Result<(), Abort> {
        if self.is_recovering {
            return Ok(());
        }
        self.is_recovering = true;
        let message = format!(
            "extraneous input {} expecting {}",
            self.shown(self.position),
            describe(self.expected(self.state))
        );
        self.syntax_error(self.position, message)
    }

    fn syntax_error(&mut self, position: usize, message: String) -> Result<(), Abort> {
        self.report_unrecognized()?;
        let token = self.tokens.get(position).or(self.tokens.last());
        let offset = token.map_or(0, |token| token.offset);
        self.add_error(offset, format!("Syntax error: {message}"))
    }

    /// Reports what was no token, as far as tokens have been looked at: errors of the two kinds count
    /// together, in the order in which they are met.
    pub(super) fn report_unrecognized(&mut self) -> Result<(), Abort> {
        let furthest = self.predictor.furthest.max(self.position);
        let unrecognized = self.unrecognized;
        while let Some(text) = unrecognized.get(self.reported)
            && text.after <= furthest
        {
            self.reported += 1;
            self.add_error(text.offset, text.message.clone())?;
        }
        Ok(())
    }

    fn add_error(&mut self, offset: u32, message: String) -> Result<(), Abort> {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push((offset, message));
            return Ok(());
        }
        let message = format!("Syntax error: More than {MAX_ERRORS} syntax errors");
        self.errors.push((offset, message));
        Err(Abort { message: None })
    }

    fn shown(&self, position: usize) -> String {
        match self.tokens.get(position) {
            Some(token) if token.kind != Kind::End => {
                format!("'{}'", escape_whitespace(token.text(self.source)))
            }
            _ => "'<EOF>'".to_owned(),
        }
    }

    /// The text from one token to another, without what is no token.
    fn text(&self, first: usize, last: usize) -> String {
        let at = |position: usize| self.tokens.get(position).or(self.tokens.last());
        let (Some(first), Some(last)) = (at(first), at(last)) else {
            return String::new();
        };
        if first.kind == Kind::End {
            return "<EOF>".to_owned();
        }
        let mut text = String::new();
        let mut from = first.start as usize;
        let end = last.end as usize;
        for unknown in self.unrecognized {
            if unknown.start >= from && unknown.end <= end {
                text.push_str(self.source.get(from..unknown.start).unwrap_or_default());
                from = unknown.end;
            }
        }
        text.push_str(self.source.get(from..end).unwrap_or_default());
        text
    }
}

fn first_of(tokens: Tokens) -> Kind {
    KINDS
        .iter()
        .find(|kind| tokens & super::grammar::token(**kind) != 0)
        .copied()
        .unwrap_or(Kind::End)
}

/// A set of tokens as messages list them.
fn describe(tokens: Tokens) -> String {
    let names: Vec<&str> = KINDS
        .iter()
        .zip(NAMES)
        .filter(|(kind, _)| tokens & super::grammar::token(**kind) != 0)
        .map(|(_, name)| name)
        .collect();
    match &names[..] {
        [one] => (*one).to_owned(),
        many => format!("{{{}}}", many.join(", ")),
    }
}

const KINDS: [Kind; 36] = [
    Kind::End,
    Kind::Equals,
    Kind::NotEquals,
    Kind::In,
    Kind::Less,
    Kind::LessEquals,
    Kind::GreaterEquals,
    Kind::Greater,
    Kind::And,
    Kind::Or,
    Kind::LeftBracket,
    Kind::RightBracket,
    Kind::LeftBrace,
    Kind::RightBrace,
    Kind::LeftParenthesis,
    Kind::RightParenthesis,
    Kind::Dot,
    Kind::Comma,
    Kind::Minus,
    Kind::Exclamation,
    Kind::Question,
    Kind::Colon,
    Kind::Plus,
    Kind::Star,
    Kind::Slash,
    Kind::Percent,
    Kind::True,
    Kind::False,
    Kind::Null,
    Kind::Float,
    Kind::Int,
    Kind::Uint,
    Kind::String,
    Kind::Bytes,
    Kind::Identifier,
    Kind::EscapedIdentifier,
];

const NAMES: [&str; 36] = [
    "<EOF>",
    "'=='",
    "'!='",
    "'in'",
    "'<'",
    "'<='",
    "'>='",
    "'>'",
    "'&&'",
    "'||'",
    "'['",
    "']'",
    "'{'",
    "'}'",
    "'('",
    "')'",
    "'.'",
    "','",
    "'-'",
    "'!'",
    "'?'",
    "':'",
    "'+'",
    "'*'",
    "'/'",
    "'%'",
    "'true'",
    "'false'",
    "'null'",
    "NUM_FLOAT",
    "NUM_INT",
    "NUM_UINT",
    "STRING",
    "BYTES",
    "IDENTIFIER",
    "ESC_IDENTIFIER",
];
