//! From ANTLR's parse tree to the tree of the expression, as cel-go walks it.
//!
//! The recursion is bounded: the machine limits the depth of each rule, and this walk its own.

use super::super::Syntax;
use super::super::lexer::{Kind, Token};
use super::super::nodes::{balance, call_or_macro, constant, is_reserved, select};
use super::MAX_DEPTH;
use super::grammar::Rule;
use super::tree::{Child, Context, ContextId};
use crate::ast::{Call, Expr, Id, ListLiteral, MapEntry, Name, StructField, StructLiteral};
use crate::builder::Builder;
use crate::names;

pub fn visit(
    source: &str,
    tokens: &[Token],
    contexts: &[Context],
    root: ContextId,
    syntax: Syntax,
    builder: &mut Builder,
) -> Id {
    let mut visitor = Visitor {
        source,
        tokens,
        contexts,
        syntax,
        builder,
        depth: 0,
    };
    let expr = visitor.rule(&contexts[root.0], Rule::Expr);
    match visitor.visit(expr) {
        Ok(root) => root,
        Err(TooDeep) => {
            builder.report.add(None, "max recursion depth exceeded");
            builder.reserve(0)
        }
    }
}

struct TooDeep;

struct Visitor<'a> {
    source: &'a str,
    tokens: &'a [Token],
    contexts: &'a [Context],
    syntax: Syntax,
    builder: &'a mut Builder,
    depth: usize,
}

/// A token of the tree: its place and text.
#[derive(Clone, Copy)]
struct Found<'a> {
    kind: Kind,
    offset: u32,
    text: &'a str,
    is_missing: bool,
}

type Visited = Result<Id, TooDeep>;

impl<'a> Visitor<'a> {
    fn rules(&self, of: &'a Context, rule: Rule) -> impl Iterator<Item = &'a Context> + use<'a> {
        let contexts = self.contexts;
        of.children.iter().filter_map(move |child| match child {
            Child::Rule(id) if contexts[id.0].rule == rule => Some(&contexts[id.0]),
            _ => None,
        })
    }

    fn rule(&self, of: &'a Context, rule: Rule) -> Option<&'a Context> {
        self.rules(of, rule).next()
    }

    fn found(
        &self,
        of: &'a Context,
        kinds: &'a [Kind],
    ) -> impl Iterator<Item = Found<'a>> + use<'a> {
        let (tokens, source) = (self.tokens, self.source);
        of.children.iter().filter_map(move |child| {
            let found = match child {
                Child::Token(index) => {
                    let token = tokens.get(*index)?;
                    Found {
                        kind: token.kind,
                        offset: token.offset,
                        text: token.text(source),
                        is_missing: false,
                    }
                }
                Child::Missing(kind, offset) => Found {
                    kind: *kind,
                    offset: *offset,
                    text: "<missing undefined>",
                    is_missing: true,
                },
                _ => return None,
            };
            kinds.contains(&found.kind).then_some(found)
        })
    }

    fn first(&self, of: &'a Context, kinds: &'a [Kind]) -> Option<Found<'a>> {
        self.found(of, kinds).next()
    }

    fn offset(&self, of: &Context) -> u32 {
        let token = self.tokens.get(of.start).or(self.tokens.last());
        token.map_or(0, |token| token.offset)
    }

    fn unspecified(&mut self, of: &Context) -> Id {
        let offset = self.offset(of);
        self.builder.reserve(offset)
    }

    /// Goes down to what is more than a rule with one part.
    fn unnest(&self, of: Option<&'a Context>) -> Option<&'a Context> {
        let mut of = of?;
        loop {
            let inner = match of.rule {
                Rule::Expr if self.first(of, &[Kind::Question]).is_none() => {
                    self.rule(of, Rule::Or)
                }
                Rule::Or if self.first(of, &[Kind::Or]).is_none() => self.rule(of, Rule::And),
                Rule::And if self.first(of, &[Kind::And]).is_none() => {
                    self.rule(of, Rule::Relation)
                }
                Rule::Relation if self.first(of, COMPARISONS).is_none() => {
                    self.rule(of, Rule::Calc)
                }
                Rule::Calc if self.first(of, ARITHMETIC).is_none() => self.rule(of, Rule::Unary),
                Rule::Unary if of.alternative == Some(0) => self.rule(of, Rule::Member),
                Rule::Member if of.pushed == 0 => self.rule(of, Rule::Primary),
                Rule::Primary if of.alternative == Some(2) => self.rule(of, Rule::Expr),
                Rule::Primary if of.alternative == Some(6) => self.rule(of, Rule::Literal),
                _ => return Some(of),
            };
            of = inner?;
        }
    }

    fn visit(&mut self, of: Option<&'a Context>) -> Visited {
        let Some(of) = self.unnest(of) else {
            return Ok(self.unknown());
        };
        let is_counted = matches!(
            of.rule,
            Rule::Expr | Rule::Relation | Rule::Calc | Rule::Member
        );
        if is_counted {
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return Err(TooDeep);
            }
        }
        let id = match (of.rule, of.alternative) {
            (Rule::Expr, _) => self.ternary(of)?,
            (Rule::Or, _) => self.chain(of, Rule::And, Kind::Or)?,
            (Rule::And, _) => self.chain(of, Rule::Relation, Kind::And)?,
            (Rule::Relation, _) => self.binary(of, Rule::Relation, COMPARISONS)?,
            (Rule::Calc, _) => self.binary(of, Rule::Calc, ARITHMETIC)?,
            (Rule::Unary, Some(1)) => self.unary(of, Kind::Exclamation)?,
            (Rule::Unary, Some(2)) => self.unary(of, Kind::Minus)?,
            (Rule::Member, Some(0)) => self.select(of)?,
            (Rule::Member, Some(1)) => self.member_call(of)?,
            (Rule::Member, Some(2)) => self.index(of)?,
            (Rule::Primary, Some(0)) => self.ident(of),
            (Rule::Primary, Some(1)) => self.global_call(of)?,
            (Rule::Primary, Some(3)) => self.list(of)?,
            (Rule::Primary, Some(4)) => self.map(of)?,
            (Rule::Primary, Some(5)) => self.structure(of)?,
            (Rule::Literal, Some(_)) => self.literal(of),
            _ => self.unknown(),
        };
        if is_counted {
            self.depth -= 1;
        }
        Ok(id)
    }

    /// Something that a syntax error left out.
    fn unknown(&mut self) -> Id {
        if self.builder.report.is_empty() {
            self.builder
                .report
                .add(None, "unknown parse element encountered: <<nil>>");
        }
        self.builder.reserve(0)
    }

    fn call(&mut self, id: Id, function: &Name, arguments: Vec<Id>) -> Id {
        let call = Call {
            function: function.clone(),
            target: None,
            arguments,
        };
        self.builder.set(id, Expr::Call(call))
    }

    fn ternary(&mut self, of: &'a Context) -> Visited {
        let mut parts = self.rules(of, Rule::Or);
        let (condition, if_true) = (parts.next(), parts.next());
        let condition = self.visit(condition)?;
        let question = self.first(of, &[Kind::Question]);
        let id = self
            .builder
            .reserve(question.map_or(0, |found| found.offset));
        let if_true = self.visit(if_true)?;
        let if_false = self.rule(of, Rule::Expr);
        let if_false = self.visit(if_false)?;
        Ok(self.call(id, &names::CONDITIONAL, vec![condition, if_true, if_false]))
    }

    fn chain(&mut self, of: &'a Context, term: Rule, operator: Kind) -> Visited {
        let operators: Vec<u32> = self
            .found(
                of,
                if operator == Kind::Or {
                    &[Kind::Or]
                } else {
                    &[Kind::And]
                },
            )
            .map(|found| found.offset)
            .collect();
        let mut rest = self.rules(of, term);
        let first = rest.next();
        let mut terms = vec![self.visit(first)?];
        let mut ids = Vec::new();
        for offset in operators {
            let Some(next) = rest.next() else {
                let wanted = if operator == Kind::Or { "||" } else { "&&" };
                let at = self.offset(of);
                let message = format!("unexpected character, wanted '{wanted}'");
                return Ok(self.builder.error(at, message));
            };
            terms.push(self.visit(Some(next))?);
            ids.push(self.builder.reserve(offset));
        }
        let function = if operator == Kind::Or {
            &names::OR
        } else {
            &names::AND
        };
        Ok(balance(self.builder, function, &terms, &ids))
    }

    fn binary(&mut self, of: &'a Context, operand: Rule, operators: &'a [Kind]) -> Visited {
        let operator = self.first(of, operators).filter(|found| !found.is_missing);
        let function = operator.and_then(|found| {
            Some(match found.kind {
                Kind::Less => &names::LESS,
                Kind::LessEquals => &names::LESS_EQUALS,
                Kind::Greater => &names::GREATER,
                Kind::GreaterEquals => &names::GREATER_EQUALS,
                Kind::Equals => &names::EQUALS,
                Kind::NotEquals => &names::NOT_EQUALS,
                Kind::In => &names::IN,
                Kind::Star => &names::MULTIPLY,
                Kind::Slash => &names::DIVIDE,
                Kind::Percent => &names::MODULO,
                Kind::Plus => &names::ADD,
                Kind::Minus => &names::SUBTRACT,
                _ => return None,
            })
        });
        let (Some(operator), Some(function)) = (operator, function) else {
            let at = self.offset(of);
            return Ok(self.builder.error(at, "operator not found"));
        };
        let mut operands = self.rules(of, operand);
        let (left, right) = (operands.next(), operands.next());
        let left = self.visit(left)?;
        let id = self.builder.reserve(operator.offset);
        let right = self.visit(right)?;
        Ok(self.call(id, function, vec![left, right]))
    }

    fn unary(&mut self, of: &'a Context, operator: Kind) -> Visited {
        let kinds = if operator == Kind::Minus {
            &[Kind::Minus]
        } else {
            &[Kind::Exclamation]
        };
        let count = self.found(of, kinds).count();
        let member = self.rule(of, Rule::Member);
        if count.is_multiple_of(2) {
            return self.visit(member);
        }
        let first = self.first(of, kinds);
        let id = self.builder.reserve(first.map_or(0, |found| found.offset));
        let operand = self.visit(member)?;
        let function = if operator == Kind::Minus {
            &names::NEGATE
        } else {
            &names::NOT
        };
        Ok(self.call(id, function, vec![operand]))
    }

    /// The name that a rule for a name with or without backticks holds.
    fn name(&self, of: &'a Context) -> Result<Name, &'static str> {
        match of.alternative {
            Some(0) => Ok(self
                .first(of, &[Kind::Identifier])
                .map_or_else(|| Name::from(""), |found| Name::from(found.text))),
            Some(_) => Err("unsupported syntax: '`'"),
            None => Err("unsupported ident kind"),
        }
    }

    fn select(&mut self, of: &'a Context) -> Visited {
        let operand = self.rule(of, Rule::Member);
        let operand = self.visit(operand)?;
        let (Some(field), Some(dot)) = (
            self.rule(of, Rule::EscapeIdent),
            self.first(of, &[Kind::Dot]),
        ) else {
            return Ok(self.unspecified(of));
        };
        let offset = self.offset(field);
        let name = self.name(field).unwrap_or_else(|message| {
            self.builder.error(offset, message);
            Name::from("")
        });
        let is_optional = self.first(of, &[Kind::Question]).is_some();
        if is_optional && !self.syntax.optional {
            return Ok(self.builder.error(dot.offset, "unsupported syntax '.?'"));
        }
        let field = (name, offset);
        Ok(select(
            self.builder,
            operand,
            field,
            dot.offset,
            is_optional,
        ))
    }

    fn arguments(&mut self, of: &'a Context) -> Result<Vec<Id>, TooDeep> {
        let mut ids = Vec::new();
        if let Some(list) = self.rule(of, Rule::ExprList) {
            for argument in self.rules(list, Rule::Expr) {
                ids.push(self.visit(Some(argument))?);
            }
        }
        Ok(ids)
    }

    /// The number of a call, whose place is that of its opening parenthesis.
    fn call_id(&mut self, of: &'a Context) -> Id {
        match self.first(of, &[Kind::LeftParenthesis]) {
            Some(open) => self.builder.reserve(open.offset),
            None => self.unspecified(of),
        }
    }

    fn member_call(&mut self, of: &'a Context) -> Visited {
        let target = self.rule(of, Rule::Member);
        let target = self.visit(target)?;
        let Some(name) = self.first(of, &[Kind::Identifier]) else {
            return Ok(self.unspecified(of));
        };
        let id = self.call_id(of);
        let arguments = self.arguments(of)?;
        let function = Name::from(name.text);
        let target = Some(target);
        Ok(call_or_macro(
            self.builder,
            self.syntax,
            id,
            function,
            target,
            arguments,
        ))
    }

    fn index(&mut self, of: &'a Context) -> Visited {
        let operand = self.rule(of, Rule::Member);
        let operand = self.visit(operand)?;
        let Some(bracket) = self.first(of, &[Kind::LeftBracket]) else {
            return Ok(self.unspecified(of));
        };
        let id = self.builder.reserve(bracket.offset);
        let index = self.rule(of, Rule::Expr);
        let index = self.visit(index)?;
        if self.first(of, &[Kind::Question]).is_none() {
            return Ok(self.call(id, &names::INDEX, vec![operand, index]));
        }
        if !self.syntax.optional {
            return Ok(self
                .builder
                .error(bracket.offset, "unsupported syntax '[?'"));
        }
        Ok(self.call(id, &names::OPTIONAL_INDEX, vec![operand, index]))
    }

    /// The identifier of a name or call, or the node that stands for it.
    fn identifier(&mut self, of: &'a Context) -> Result<(Name, u32), Id> {
        let Some(found) = self.first(of, &[Kind::Identifier]) else {
            return Err(self.unspecified(of));
        };
        if is_reserved(found.text) {
            let at = self.offset(of);
            let message = format!("reserved identifier: {}", found.text);
            return Err(self.builder.error(at, message));
        }
        let name = match self.first(of, &[Kind::Dot]) {
            Some(_) => Name::from(format!(".{}", found.text)),
            None => Name::from(found.text),
        };
        Ok((name, found.offset))
    }

    fn ident(&mut self, of: &'a Context) -> Id {
        match self.identifier(of) {
            Ok((name, offset)) => self.builder.add(offset, Expr::Ident(name)),
            Err(id) => id,
        }
    }

    fn global_call(&mut self, of: &'a Context) -> Visited {
        let name = match self.identifier(of) {
            Ok((name, _)) => name,
            Err(id) => return Ok(id),
        };
        let id = self.call_id(of);
        let arguments = self.arguments(of)?;
        Ok(call_or_macro(
            self.builder,
            self.syntax,
            id,
            name,
            None,
            arguments,
        ))
    }

    fn list(&mut self, of: &'a Context) -> Visited {
        let open = self.first(of, &[Kind::LeftBracket]);
        let id = self.builder.reserve(open.map_or(0, |found| found.offset));
        let mut items = Vec::new();
        let mut optional = Vec::new();
        if let Some(list) = self.rule(of, Rule::ListInit) {
            for item in self.rules(list, Rule::OptExpr) {
                let value = self.rule(item, Rule::Expr);
                items.push(self.visit(value)?);
                match self.first(item, &[Kind::Question]) {
                    Some(question) if !self.syntax.optional => {
                        self.builder
                            .error(question.offset, "unsupported syntax '?'");
                    }
                    Some(_) => optional.push(items.len() as u32 - 1),
                    None => {}
                }
            }
        }
        let list = Expr::List(ListLiteral { items, optional });
        Ok(self.builder.set(id, list))
    }

    fn map(&mut self, of: &'a Context) -> Visited {
        let open = self.first(of, &[Kind::LeftBrace]);
        let id = self.builder.reserve(open.map_or(0, |found| found.offset));
        let mut entries = Vec::new();
        if let Some(list) = self.rule(of, Rule::MapList) {
            let mut keys = self.rules(list, Rule::OptExpr);
            let mut values = self.rules(list, Rule::Expr);
            for colon in self.found(list, &[Kind::Colon]) {
                let entry = self.builder.reserve(colon.offset);
                let (Some(key), Some(value)) = (keys.next(), values.next()) else {
                    entries.clear();
                    break;
                };
                let question = self.first(key, &[Kind::Question]);
                if question.is_some() && !self.syntax.optional {
                    let at = self.offset(key);
                    self.builder.error(at, "unsupported syntax '?'");
                    continue;
                }
                let key = self.rule(key, Rule::Expr);
                entries.push(MapEntry {
                    id: entry,
                    key: self.visit(key)?,
                    value: self.visit(Some(value))?,
                    is_optional: question.is_some(),
                });
            }
        }
        Ok(self.builder.set(id, Expr::Map(entries)))
    }

    fn structure(&mut self, of: &'a Context) -> Visited {
        let names: Vec<&str> = self
            .found(of, &[Kind::Identifier])
            .map(|found| found.text)
            .collect();
        let mut type_name = names.join(".");
        let is_absolute = of.children.iter().find_map(|child| match child {
            Child::Token(index) => Some(self.tokens.get(*index)?.kind == Kind::Dot),
            _ => None,
        });
        if is_absolute == Some(true) {
            type_name.insert(0, '.');
        }
        let open = self.first(of, &[Kind::LeftBrace]);
        let id = self.builder.reserve(open.map_or(0, |found| found.offset));
        let mut fields = Vec::new();
        if let Some(list) = self.rule(of, Rule::FieldList) {
            let mut colons = self.found(list, &[Kind::Colon]);
            let mut values = self.rules(list, Rule::Expr);
            for field in self.rules(list, Rule::OptField) {
                let (Some(colon), Some(value)) = (colons.next(), values.next()) else {
                    fields.clear();
                    break;
                };
                let number = self.builder.reserve(colon.offset);
                let is_optional = self.first(field, &[Kind::Question]).is_some();
                if is_optional && !self.syntax.optional {
                    let at = self.offset(field);
                    self.builder.error(at, "unsupported syntax '?'");
                    continue;
                }
                let name = match self.rule(field, Rule::EscapeIdent) {
                    Some(name) => self.name(name),
                    None => Err("unsupported ident kind"),
                };
                match name {
                    Ok(name) => fields.push(StructField {
                        id: number,
                        name,
                        value: self.visit(Some(value))?,
                        is_optional,
                    }),
                    Err(message) => {
                        let at = self.offset(list);
                        self.builder.error(at, message);
                    }
                }
            }
        }
        let literal = StructLiteral {
            type_name: Name::from(type_name),
            fields,
        };
        Ok(self.builder.set(id, Expr::Struct(literal)))
    }

    fn literal(&mut self, of: &'a Context) -> Id {
        let offset = self.offset(of);
        let is_negative = self.first(of, &[Kind::Minus]).is_some();
        let Some(found) = self.first(of, LITERALS) else {
            return self.unspecified(of);
        };
        let id = constant(self.builder, found.kind, found.text, is_negative, offset);
        id.unwrap_or_else(|| self.unspecified(of))
    }
}

const COMPARISONS: &[Kind] = &[
    Kind::Less,
    Kind::LessEquals,
    Kind::GreaterEquals,
    Kind::Greater,
    Kind::Equals,
    Kind::NotEquals,
    Kind::In,
];
const ARITHMETIC: &[Kind] = &[
    Kind::Star,
    Kind::Slash,
    Kind::Percent,
    Kind::Plus,
    Kind::Minus,
];
const LITERALS: &[Kind] = &[
    Kind::Int,
    Kind::Uint,
    Kind::Float,
    Kind::String,
    Kind::Bytes,
    Kind::True,
    Kind::False,
    Kind::Null,
];
