//! The short way of parsing: makes the tree while it reads the tokens, and gives up at the first
//! syntax error or where the nesting is above cel-go's limits.

use super::Syntax;
use super::lexer::{Kind, Token};
use super::nodes::{balance, call_or_macro, constant, is_reserved, select};
use crate::ast::{Call, Expr, Id, ListLiteral, MapEntry, Name, StructField, StructLiteral};
use crate::builder::Builder;
use crate::names;

/// How deep one rule of the grammar may be within itself, and how high the tree may be. It bounds the
/// recursion here too; deeper expressions take the long way, which words the error.
const MAX_DEPTH: usize = 250;

/// What the short way comes to.
pub enum Parsed {
    Tree(Id),
    /// The nesting is above a limit; the message is cel-go's.
    TooDeep(String),
    /// The long way has to be taken.
    Unknown,
}

pub fn parse(source: &str, tokens: &[Token], syntax: Syntax, builder: &mut Builder) -> Parsed {
    let mut descent = Descent {
        source,
        tokens,
        position: 0,
        depths: [0; 3],
        height: 0,
        is_too_deep: false,
        syntax,
        builder,
    };
    let root = descent.expression();
    if descent.is_too_deep {
        return Parsed::TooDeep(format!("expression recursion limit exceeded: {MAX_DEPTH}"));
    }
    match (root, descent.take(Kind::End)) {
        (Some(root), Some(_)) if descent.height <= MAX_DEPTH => Parsed::Tree(root),
        // Errors of the tree that cel-go meets before it is too deep are found on the long way.
        (Some(_), Some(_)) if descent.builder.report.is_empty() => {
            Parsed::TooDeep("max recursion depth exceeded".to_owned())
        }
        _ => Parsed::Unknown,
    }
}

/// The rules whose depth is counted.
#[derive(Clone, Copy)]
enum Rule {
    Expression,
    Relation,
    Calculation,
}

struct Descent<'a> {
    source: &'a str,
    tokens: &'a [Token],
    position: usize,
    /// How deep the rules are that can be deepest; the others are within these.
    depths: [usize; 3],
    /// The height of the last expression, in those nodes that cel-go counts when it walks them:
    /// conditionals, comparisons, arithmetic, selections, member calls and indices.
    height: usize,
    is_too_deep: bool,
    syntax: Syntax,
    builder: &'a mut Builder,
}

impl<'a> Descent<'a> {
    fn kind(&self) -> Kind {
        self.kind_ahead(0)
    }

    fn kind_ahead(&self, count: usize) -> Kind {
        self.tokens
            .get(self.position + count)
            .map_or(Kind::End, |token| token.kind)
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.position).copied()?;
        self.position += 1;
        Some(token)
    }

    fn take(&mut self, kind: Kind) -> Option<Token> {
        if self.kind() == kind {
            self.next()
        } else {
            None
        }
    }

    fn enter(&mut self, rule: Rule) -> Option<()> {
        let depth = &mut self.depths[rule as usize];
        *depth += 1;
        self.is_too_deep = *depth > MAX_DEPTH;
        (!self.is_too_deep).then_some(())
    }

    fn leave(&mut self, rule: Rule) {
        self.depths[rule as usize] -= 1;
    }

    /// Where the environment has no optional values, their syntax is an error.
    fn needs_optional(&self) -> Option<()> {
        self.syntax.optional.then_some(())
    }

    fn call(&mut self, id: Id, function: &Name, arguments: Vec<Id>) -> Id {
        let call = Call {
            function: function.clone(),
            target: None,
            arguments,
        };
        self.builder.set(id, Expr::Call(call))
    }

    fn expression(&mut self) -> Option<Id> {
        self.enter(Rule::Expression)?;
        let condition = self.disjunction()?;
        let Some(question) = self.take(Kind::Question) else {
            self.leave(Rule::Expression);
            return Some(condition);
        };
        let mut height = self.height;
        let id = self.builder.reserve(question.offset);
        let if_true = self.disjunction()?;
        height = height.max(self.height);
        self.take(Kind::Colon)?;
        let if_false = self.expression()?;
        self.height = height.max(self.height) + 1;
        self.leave(Rule::Expression);
        Some(self.call(id, &names::CONDITIONAL, vec![condition, if_true, if_false]))
    }

    fn disjunction(&mut self) -> Option<Id> {
        self.chain(Kind::Or, &names::OR, Self::conjunction)
    }

    fn conjunction(&mut self) -> Option<Id> {
        self.chain(Kind::And, &names::AND, Self::relation)
    }

    /// Terms of `||` or `&&`, which become a balanced tree.
    fn chain(
        &mut self,
        operator: Kind,
        function: &Name,
        term: fn(&mut Self) -> Option<Id>,
    ) -> Option<Id> {
        let first = term(self)?;
        if self.kind() != operator {
            return Some(first);
        }
        let mut terms = vec![first];
        let mut operators = Vec::new();
        let mut height = self.height;
        while let Some(token) = self.take(operator) {
            terms.push(term(self)?);
            height = height.max(self.height);
            operators.push(self.builder.reserve(token.offset));
        }
        self.height = height;
        Some(balance(self.builder, function, &terms, &operators))
    }

    fn relation(&mut self) -> Option<Id> {
        self.enter(Rule::Relation)?;
        let mut left = self.sum(0)?;
        let mut height = self.height;
        loop {
            let function = match self.kind() {
                Kind::Less => &names::LESS,
                Kind::LessEquals => &names::LESS_EQUALS,
                Kind::Greater => &names::GREATER,
                Kind::GreaterEquals => &names::GREATER_EQUALS,
                Kind::Equals => &names::EQUALS,
                Kind::NotEquals => &names::NOT_EQUALS,
                Kind::In => &names::IN,
                _ => break,
            };
            let id = self.operator()?;
            self.enter(Rule::Relation)?;
            let right = self.sum(0)?;
            self.leave(Rule::Relation);
            height = height.max(self.height) + 1;
            left = self.call(id, function, vec![left, right]);
        }
        self.height = height;
        self.leave(Rule::Relation);
        Some(left)
    }

    /// Sums, and at the higher level only products.
    fn sum(&mut self, level: u8) -> Option<Id> {
        self.enter(Rule::Calculation)?;
        let mut left = self.unary()?;
        let mut height = self.height;
        loop {
            let (function, of_level) = match self.kind() {
                Kind::Star => (&names::MULTIPLY, 1),
                Kind::Slash => (&names::DIVIDE, 1),
                Kind::Percent => (&names::MODULO, 1),
                Kind::Plus => (&names::ADD, 0),
                Kind::Minus => (&names::SUBTRACT, 0),
                _ => break,
            };
            if of_level < level {
                break;
            }
            let id = self.operator()?;
            // A product has no operator in its right operand.
            let right = if of_level == 0 {
                self.sum(1)?
            } else {
                self.enter(Rule::Calculation)?;
                let right = self.unary()?;
                self.leave(Rule::Calculation);
                right
            };
            height = height.max(self.height) + 1;
            left = self.call(id, function, vec![left, right]);
        }
        self.height = height;
        self.leave(Rule::Calculation);
        Some(left)
    }

    fn operator(&mut self) -> Option<Id> {
        let token = self.next()?;
        Some(self.builder.reserve(token.offset))
    }

    fn unary(&mut self) -> Option<Id> {
        let operator = self.kind();
        let function = match operator {
            Kind::Exclamation => &names::NOT,
            Kind::Minus if !matches!(self.kind_ahead(1), Kind::Int | Kind::Float) => &names::NEGATE,
            _ => return self.member(),
        };
        let first = self.next()?;
        let mut count = 1;
        while self.take(operator).is_some() {
            count += 1;
        }
        if count % 2 == 0 {
            return self.member();
        }
        let id = self.builder.reserve(first.offset);
        let operand = self.member()?;
        Some(self.call(id, function, vec![operand]))
    }

    fn member(&mut self) -> Option<Id> {
        let mut operand = self.primary()?;
        loop {
            let height = self.height;
            self.height = 0;
            operand = match self.kind() {
                Kind::Dot => self.select_or_call(operand)?,
                Kind::LeftBracket => self.index(operand)?,
                _ => {
                    self.height = height;
                    return Some(operand);
                }
            };
            self.height = height.max(self.height) + 1;
        }
    }

    fn select_or_call(&mut self, operand: Id) -> Option<Id> {
        let dot = self.next()?;
        let is_optional = self.take(Kind::Question).is_some();
        let field = self.take(Kind::Identifier)?;
        let name = Name::from(field.text(self.source));
        if !is_optional && self.kind() == Kind::LeftParenthesis {
            let id = self.operator()?;
            let arguments = self.arguments()?;
            return Some(self.function_call(id, name, Some(operand), arguments));
        }
        if is_optional {
            self.needs_optional()?;
        }
        let field = (name, field.offset);
        Some(select(
            self.builder,
            operand,
            field,
            dot.offset,
            is_optional,
        ))
    }

    fn index(&mut self, operand: Id) -> Option<Id> {
        let bracket = self.next()?;
        let id = self.builder.reserve(bracket.offset);
        let is_optional = self.take(Kind::Question).is_some();
        let index = self.expression()?;
        self.take(Kind::RightBracket)?;
        if !is_optional {
            return Some(self.call(id, &names::INDEX, vec![operand, index]));
        }
        self.needs_optional()?;
        Some(self.call(id, &names::OPTIONAL_INDEX, vec![operand, index]))
    }

    fn function_call(
        &mut self,
        id: Id,
        function: Name,
        target: Option<Id>,
        arguments: Vec<Id>,
    ) -> Id {
        call_or_macro(self.builder, self.syntax, id, function, target, arguments)
    }

    /// Arguments after their opening parenthesis, with the closing one.
    fn arguments(&mut self) -> Option<Vec<Id>> {
        let mut arguments = Vec::new();
        let mut height = 0;
        if self.take(Kind::RightParenthesis).is_some() {
            self.height = height;
            return Some(arguments);
        }
        loop {
            arguments.push(self.expression()?);
            height = height.max(self.height);
            self.height = height;
            if self.take(Kind::RightParenthesis).is_some() {
                return Some(arguments);
            }
            self.take(Kind::Comma)?;
        }
    }

    fn primary(&mut self) -> Option<Id> {
        match self.kind() {
            Kind::Identifier => self.name(None),
            Kind::Dot => {
                let dot = self.next()?;
                self.name(Some(dot))
            }
            Kind::LeftParenthesis => {
                self.next()?;
                let inner = self.expression()?;
                self.take(Kind::RightParenthesis)?;
                Some(inner)
            }
            Kind::LeftBracket => self.list(),
            Kind::LeftBrace => self.map(),
            _ => self.literal(),
        }
    }

    fn name(&mut self, dot: Option<Token>) -> Option<Id> {
        if self.is_struct() {
            return self.structure(dot);
        }
        let token = self.take(Kind::Identifier)?;
        let name = token.text(self.source);
        let offset = dot.map_or(token.offset, |dot| dot.offset);
        let is_reserved = is_reserved(name);
        let full = match dot {
            Some(_) => Name::from(format!(".{name}")),
            None => Name::from(name),
        };
        if self.kind() == Kind::LeftParenthesis {
            if is_reserved {
                // The arguments of such a call are not looked at.
                return None;
            }
            let id = self.operator()?;
            let arguments = self.arguments()?;
            return Some(self.function_call(id, full, None, arguments));
        }
        if is_reserved {
            self.height = 0;
            let message = format!("reserved identifier: {name}");
            return Some(self.builder.error(offset, message));
        }
        self.height = 0;
        Some(self.builder.add(token.offset, Expr::Ident(full)))
    }

    /// Whether names with dots and a brace follow.
    fn is_struct(&self) -> bool {
        let mut ahead = 0;
        while self.kind_ahead(ahead) == Kind::Identifier {
            match self.kind_ahead(ahead + 1) {
                Kind::LeftBrace => return true,
                Kind::Dot => ahead += 2,
                _ => return false,
            }
        }
        false
    }

    fn structure(&mut self, dot: Option<Token>) -> Option<Id> {
        let mut type_name = String::new();
        if dot.is_some() {
            type_name.push('.');
        }
        loop {
            let token = self.take(Kind::Identifier)?;
            type_name.push_str(token.text(self.source));
            if self.take(Kind::Dot).is_none() {
                break;
            }
            type_name.push('.');
        }
        let brace = self.take(Kind::LeftBrace)?;
        let id = self.builder.reserve(brace.offset);
        let mut fields = Vec::new();
        let mut height = 0;
        while !self.is_closed(Kind::RightBrace)? {
            let is_optional = self.take(Kind::Question).is_some();
            let name = self.take(Kind::Identifier)?;
            let colon = self.take(Kind::Colon)?;
            let field = self.builder.reserve(colon.offset);
            if is_optional {
                self.needs_optional()?;
            }
            fields.push(StructField {
                id: field,
                name: Name::from(name.text(self.source)),
                value: self.expression()?,
                is_optional,
            });
            height = height.max(self.height);
            self.take_separator(Kind::RightBrace)?;
        }
        self.height = height;
        let literal = StructLiteral {
            type_name: Name::from(type_name),
            fields,
        };
        Some(self.builder.set(id, Expr::Struct(literal)))
    }

    /// Takes the end of a literal if it is next, also after a comma that nothing precedes.
    fn is_closed(&mut self, end: Kind) -> Option<bool> {
        if self.kind() == Kind::Comma {
            self.next()?;
            self.take(end)?;
            return Some(true);
        }
        Some(self.take(end).is_some())
    }

    /// Takes the comma after an item, unless the literal ends.
    fn take_separator(&mut self, end: Kind) -> Option<()> {
        if self.kind() == end || self.kind() == Kind::Comma && self.kind_ahead(1) == end {
            return Some(());
        }
        self.take(Kind::Comma).map(|_| ())
    }

    fn list(&mut self) -> Option<Id> {
        let id = self.operator()?;
        let mut items = Vec::new();
        let mut optional = Vec::new();
        let mut height = 0;
        while !self.is_closed(Kind::RightBracket)? {
            let question = self.take(Kind::Question);
            items.push(self.expression()?);
            height = height.max(self.height);
            if question.is_some() {
                self.needs_optional()?;
                optional.push(items.len() as u32 - 1);
            }
            self.take_separator(Kind::RightBracket)?;
        }
        self.height = height;
        let list = Expr::List(ListLiteral { items, optional });
        Some(self.builder.set(id, list))
    }

    fn map(&mut self) -> Option<Id> {
        let id = self.operator()?;
        let mut entries = Vec::new();
        let mut height = 0;
        while !self.is_closed(Kind::RightBrace)? {
            let question = self.take(Kind::Question);
            if question.is_some() {
                self.needs_optional()?;
            }
            // An entry is numbered before its key, though its place is that of the colon.
            let entry = self.builder.reserve(0);
            let key = self.expression()?;
            height = height.max(self.height);
            let colon = self.take(Kind::Colon)?;
            self.builder.set_offset(entry, colon.offset);
            entries.push(MapEntry {
                id: entry,
                key,
                value: self.expression()?,
                is_optional: question.is_some(),
            });
            height = height.max(self.height);
            self.take_separator(Kind::RightBrace)?;
        }
        self.height = height;
        Some(self.builder.set(id, Expr::Map(entries)))
    }

    fn literal(&mut self) -> Option<Id> {
        self.height = 0;
        let sign = self.take(Kind::Minus);
        let token = self.next()?;
        let offset = sign.map_or(token.offset, |sign| sign.offset);
        constant(
            self.builder,
            token.kind,
            token.text(self.source),
            sign.is_some(),
            offset,
        )
    }
}
