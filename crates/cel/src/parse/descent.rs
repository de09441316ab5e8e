//! The short way of parsing: makes the tree while it reads the tokens, and gives up at the first
//! syntax error or where the nesting comes near the limit.

use super::lexer::{Kind, Token};
use super::{Syntax, literal};
use crate::ast::{
    Call, Constant, Expr, Id, ListLiteral, MapEntry, Name, Select, StructField, StructLiteral,
};
use crate::builder::Builder;
use crate::macros;
use crate::names;

/// Nesting that is surely within cel-go's limit of 250 for each rule of the grammar. It bounds the
/// recursion here; deeper expressions take the long way, which counts as cel-go does.
const MAX_DEPTH: usize = 120;

/// The root of the tree, or nothing where the long way has to be taken.
pub fn parse(source: &str, tokens: &[Token], syntax: Syntax, builder: &mut Builder) -> Option<Id> {
    let mut descent = Descent {
        source,
        tokens,
        position: 0,
        depth: 0,
        syntax,
        builder,
    };
    let root = descent.expression()?;
    descent.take(Kind::End)?;
    Some(root)
}

/// Names that are kept for later versions of the language.
pub fn is_reserved(name: &str) -> bool {
    matches!(
        name,
        "as" | "break"
            | "const"
            | "continue"
            | "else"
            | "for"
            | "function"
            | "if"
            | "import"
            | "let"
            | "loop"
            | "package"
            | "namespace"
            | "return"
            | "var"
            | "void"
            | "while"
    )
}

struct Descent<'a> {
    source: &'a str,
    tokens: &'a [Token],
    position: usize,
    depth: usize,
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

    fn deepen(&mut self) -> Option<()> {
        self.depth += 1;
        (self.depth <= MAX_DEPTH).then_some(())
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
        let depth = self.depth;
        self.deepen()?;
        let condition = self.disjunction()?;
        let Some(question) = self.take(Kind::Question) else {
            self.depth = depth;
            return Some(condition);
        };
        let id = self.builder.reserve(question.offset);
        let if_true = self.disjunction()?;
        self.take(Kind::Colon)?;
        let if_false = self.expression()?;
        self.depth = depth;
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
        while let Some(token) = self.take(operator) {
            terms.push(term(self)?);
            operators.push(self.builder.reserve(token.offset));
        }
        Some(balance(self.builder, function, &terms, &operators))
    }

    fn relation(&mut self) -> Option<Id> {
        let depth = self.depth;
        let mut left = self.sum(0)?;
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
            self.deepen()?;
            let id = self.operator()?;
            let right = self.sum(0)?;
            left = self.call(id, function, vec![left, right]);
        }
        self.depth = depth;
        Some(left)
    }

    /// Sums, and at the higher level only products.
    fn sum(&mut self, level: u8) -> Option<Id> {
        let depth = self.depth;
        let mut left = self.unary()?;
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
            self.deepen()?;
            let id = self.operator()?;
            // A product has no operator in its right operand.
            let right = if of_level == 0 {
                self.sum(1)?
            } else {
                self.unary()?
            };
            left = self.call(id, function, vec![left, right]);
        }
        self.depth = depth;
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
        let depth = self.depth;
        let mut operand = self.primary()?;
        loop {
            operand = match self.kind() {
                Kind::Dot => {
                    self.deepen()?;
                    self.select_or_call(operand)?
                }
                Kind::LeftBracket => {
                    self.deepen()?;
                    self.index(operand)?
                }
                _ => break,
            };
        }
        self.depth = depth;
        Some(operand)
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
        if self.take(Kind::RightParenthesis).is_some() {
            return Some(arguments);
        }
        loop {
            arguments.push(self.expression()?);
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
            let message = format!("reserved identifier: {name}");
            return Some(self.builder.error(offset, message));
        }
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
            self.take_separator(Kind::RightBrace)?;
        }
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
        while !self.is_closed(Kind::RightBracket)? {
            let question = self.take(Kind::Question);
            items.push(self.expression()?);
            if question.is_some() {
                self.needs_optional()?;
                optional.push(items.len() as u32 - 1);
            }
            self.take_separator(Kind::RightBracket)?;
        }
        let list = Expr::List(ListLiteral { items, optional });
        Some(self.builder.set(id, list))
    }

    fn map(&mut self) -> Option<Id> {
        let id = self.operator()?;
        let mut entries = Vec::new();
        while !self.is_closed(Kind::RightBrace)? {
            let question = self.take(Kind::Question);
            if question.is_some() {
                self.needs_optional()?;
            }
            // An entry is numbered before its key, though its place is that of the colon.
            let entry = self.builder.reserve(0);
            let key = self.expression()?;
            let colon = self.take(Kind::Colon)?;
            self.builder.set_offset(entry, colon.offset);
            entries.push(MapEntry {
                id: entry,
                key,
                value: self.expression()?,
                is_optional: question.is_some(),
            });
            self.take_separator(Kind::RightBrace)?;
        }
        Some(self.builder.set(id, Expr::Map(entries)))
    }

    fn literal(&mut self) -> Option<Id> {
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

/// The node of a literal, if a token is one.
pub fn constant(
    builder: &mut Builder,
    kind: Kind,
    text: &str,
    is_negative: bool,
    offset: u32,
) -> Option<Id> {
    let value = match kind {
        Kind::Int => literal::int(text, is_negative).ok_or("invalid int literal"),
        Kind::Uint => literal::uint(text).ok_or("invalid uint literal"),
        Kind::Float => literal::double(text, is_negative).ok_or("invalid double literal"),
        Kind::String => quoted(builder, literal::string(text), offset),
        Kind::Bytes => quoted(builder, literal::bytes(&text[1..]), offset),
        Kind::True => Ok(Constant::Bool(true)),
        Kind::False => Ok(Constant::Bool(false)),
        Kind::Null => Ok(Constant::Null),
        _ => return None,
    };
    Some(match value {
        Ok(value) => builder.add(offset, Expr::Constant(value)),
        Err(message) => builder.error(offset, message),
    })
}

/// A string that cannot be read is reported and taken as it is, as cel-go does.
fn quoted(
    builder: &mut Builder,
    value: Result<Constant, &'static str>,
    offset: u32,
) -> Result<Constant, &'static str> {
    value.or_else(|message| {
        builder.error(offset, message);
        Ok(Constant::Null)
    })
}

/// `operand.field` or `operand.?field`.
pub fn select(
    builder: &mut Builder,
    operand: Id,
    (field, field_offset): (Name, u32),
    dot_offset: u32,
    is_optional: bool,
) -> Id {
    if !is_optional {
        let select = Select {
            operand,
            field,
            is_test: false,
        };
        return builder.add(dot_offset, Expr::Select(select));
    }
    let field = builder.add(field_offset, Expr::Constant(Constant::String(field)));
    let call = Call {
        function: names::OPTIONAL_SELECT.clone(),
        target: None,
        arguments: vec![operand, field],
    };
    builder.add(dot_offset, Expr::Call(call))
}

pub fn call_or_macro(
    builder: &mut Builder,
    syntax: Syntax,
    id: Id,
    function: Name,
    target: Option<Id>,
    arguments: Vec<Id>,
) -> Id {
    let expanded = macros::expand(syntax.macros, builder, id, &function, target, &arguments);
    expanded.unwrap_or_else(|| {
        let call = Call {
            function,
            target,
            arguments,
        };
        builder.set(id, Expr::Call(call))
    })
}

/// A tree of an operator over terms, as flat as it can be. Its depth is the logarithm of their
/// number.
pub fn balance(builder: &mut Builder, function: &Name, terms: &[Id], operators: &[Id]) -> Id {
    let middle = operators.len() / 2;
    let Some(&id) = operators.get(middle) else {
        return terms.first().copied().unwrap_or(Id(0));
    };
    let left = balance(builder, function, &terms[..=middle], &operators[..middle]);
    let right = balance(
        builder,
        function,
        &terms[middle + 1..],
        &operators[middle + 1..],
    );
    let call = Call {
        function: function.clone(),
        target: None,
        arguments: vec![left, right],
    };
    builder.set(id, Expr::Call(call))
}
