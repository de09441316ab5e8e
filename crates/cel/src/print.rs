//! Writes a tree with the numbers of its nodes, as cel-go's debug package does, to compare the two.

use std::fmt::Write;

use crate::ast::{Ast, Constant, Expr, Id};

/// The text of a tree. The depth of trees is limited by the parser.
pub fn tree(ast: &Ast) -> String {
    let mut printer = Printer {
        ast,
        text: String::new(),
        indent: 0,
    };
    printer.node(ast.root);
    printer.text
}

struct Printer<'a> {
    ast: &'a Ast,
    text: String,
    indent: usize,
}

impl Printer<'_> {
    fn add(&mut self, text: &str) {
        if self.text.ends_with('\n') {
            for _ in 0..self.indent {
                self.text.push_str("  ");
            }
        }
        self.text.push_str(text);
    }

    fn lines<T>(&mut self, items: &[T], mut write: impl FnMut(&mut Self, usize, &T)) {
        if items.is_empty() {
            return;
        }
        self.add("\n");
        self.indent += 1;
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.add(",\n");
            }
            write(self, index, item);
        }
        self.indent -= 1;
        self.add("\n");
    }

    fn number(&mut self, id: Id) {
        let number = format!("^#{}#", id.0);
        self.add(&number);
    }

    fn node(&mut self, id: Id) {
        match self.ast.expr(id) {
            Expr::Unspecified => {}
            Expr::Constant(value) => {
                let text = constant(value);
                self.add(&text);
            }
            Expr::Ident(name) => self.add(name),
            Expr::Select(select) => {
                self.node(select.operand);
                self.add(".");
                self.add(&select.field);
                if select.is_test {
                    self.add("~test-only~");
                }
            }
            Expr::Call(call) => {
                if let Some(target) = call.target {
                    self.node(target);
                    self.add(".");
                }
                self.add(&call.function);
                self.add("(");
                self.lines(&call.arguments, |printer, _, argument| {
                    printer.node(*argument);
                });
                self.add(")");
            }
            Expr::List(list) => {
                self.add("[");
                self.lines(&list.items, |printer, _, item| printer.node(*item));
                self.add("]");
            }
            Expr::Map(entries) => {
                self.add("{");
                self.lines(entries, |printer, _, entry| {
                    if entry.is_optional {
                        printer.add("?");
                    }
                    printer.node(entry.key);
                    printer.add(":");
                    printer.node(entry.value);
                    printer.number(entry.id);
                });
                self.add("}");
            }
            Expr::Struct(literal) => {
                self.add(&literal.type_name);
                self.add("{");
                self.lines(&literal.fields, |printer, _, field| {
                    if field.is_optional {
                        printer.add("?");
                    }
                    printer.add(&field.name);
                    printer.add(":");
                    printer.node(field.value);
                    printer.number(field.id);
                });
                self.add("}");
            }
            Expr::Comprehension(fold) => {
                self.add("__comprehension__(");
                self.indent += 1;
                self.add("\n");
                self.add("// Variable\n");
                self.add(&fold.variable);
                self.add(",\n");
                if let Some(second) = &fold.second_variable {
                    self.add(second);
                    self.add(",\n");
                }
                self.add("// Target\n");
                self.node(fold.range);
                self.add(",\n");
                self.add("// Accumulator\n");
                self.add(&fold.accumulator);
                self.add(",\n");
                for (name, part) in [
                    ("// Init\n", fold.initial),
                    ("// LoopCondition\n", fold.condition),
                    ("// LoopStep\n", fold.step),
                ] {
                    self.add(name);
                    self.node(part);
                    self.add(",\n");
                }
                self.add("// Result\n");
                self.node(fold.result);
                self.add(")");
                self.indent -= 1;
            }
        }
        self.number(id);
    }
}

fn constant(value: &Constant) -> String {
    match value {
        Constant::Null => "null".to_owned(),
        Constant::Bool(value) => value.to_string(),
        Constant::Int(value) => value.to_string(),
        Constant::Uint(value) => format!("{value}u"),
        Constant::Double(value) => double(*value),
        Constant::String(value) => quoted(value.chars().map(Ok)),
        Constant::Bytes(value) => format!("b{}", quoted(characters(value).into_iter())),
    }
}

/// As Go's `%v` writes a number: with an exponent where it is very small or large.
fn double(value: f64) -> String {
    let text = format!("{value:e}");
    let exponent: i32 = text
        .split_once('e')
        .and_then(|(_, exponent)| exponent.parse().ok())
        .unwrap_or(0);
    if value != 0.0 && !(-4..6).contains(&exponent) {
        let (digits, _) = text.split_once('e').unwrap_or((&text, ""));
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.unsigned_abs());
    }
    format!("{value}")
}

/// The characters of a text that may not be one, with the bytes that are none.
fn characters(bytes: &[u8]) -> Vec<Result<char, u8>> {
    let mut all = Vec::new();
    for chunk in bytes.utf8_chunks() {
        all.extend(chunk.valid().chars().map(Ok));
        all.extend(chunk.invalid().iter().map(|byte| Err(*byte)));
    }
    all
}

fn quoted(characters: impl Iterator<Item = Result<char, u8>>) -> String {
    let mut text = String::from("\"");
    for character in characters {
        match character {
            Ok('"') => text.push_str("\\\""),
            Ok('\\') => text.push_str("\\\\"),
            Ok('\u{7}') => text.push_str("\\a"),
            Ok('\u{8}') => text.push_str("\\b"),
            Ok('\u{c}') => text.push_str("\\f"),
            Ok('\n') => text.push_str("\\n"),
            Ok('\r') => text.push_str("\\r"),
            Ok('\t') => text.push_str("\\t"),
            Ok('\u{b}') => text.push_str("\\v"),
            Ok(control) if control < ' ' || control == '\u{7f}' => {
                let _ = write!(text, "\\x{:02x}", control as u32);
            }
            Ok(other) => text.push(other),
            Err(byte) => {
                let _ = write!(text, "\\x{byte:02x}");
            }
        }
    }
    text.push('"');
    text
}
