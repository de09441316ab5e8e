//! The names that cel-go gives to operators and hidden variables, shared by all trees.

use std::sync::LazyLock;

use crate::ast::Name;

macro_rules! names {
    ($($constant:ident = $text:literal;)*) => {
        $(pub static $constant: LazyLock<Name> = LazyLock::new(|| Name::from($text));)*
    };
}

names! {
    ADD = "_+_";
    AND = "_&&_";
    CONDITIONAL = "_?_:_";
    DIVIDE = "_/_";
    EQUALS = "_==_";
    GREATER = "_>_";
    GREATER_EQUALS = "_>=_";
    IN = "@in";
    INDEX = "_[_]";
    LESS = "_<_";
    LESS_EQUALS = "_<=_";
    MODULO = "_%_";
    MULTIPLY = "_*_";
    NEGATE = "-_";
    NOT = "!_";
    NOT_EQUALS = "_!=_";
    NOT_STRICTLY_FALSE = "@not_strictly_false";
    OPTIONAL_INDEX = "_[?_]";
    OPTIONAL_SELECT = "_?._";
    OR = "_||_";
    SUBTRACT = "_-_";

    ACCUMULATOR = "@result";
    MAP_INSERT = "cel.@mapInsert";
    OPTIONAL_NONE = "optional.none";
    OPTIONAL_OF = "optional.of";
    SORT_BY_INPUT = "@__sortBy_input__";
    UNUSED = "#unused";
}
