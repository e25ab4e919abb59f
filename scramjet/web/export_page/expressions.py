"""Python expressions and calls as JavaScript ones, by the operators of the page's runtime (`$`)."""

from __future__ import annotations

import ast
import inspect
from types import FunctionType, ModuleType
from typing import Any, NoReturn

from scramjet.web.export_page.values import (
    MISSING,
    NotALiteralError,
    Whole,
    literal,
    native_dtype,
    native_name,
    outer_value,
    parameters,
    spelled,
    target_names,
    text,
    untranslatable,
)

_BINARY = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv", ast.Mod: "mod",
    ast.Pow: "pow", ast.BitAnd: "bitand", ast.BitOr: "bitor", ast.BitXor: "bitxor", ast.LShift: "shl",
    ast.RShift: "shr", ast.MatMult: "matmul",
}  # fmt: skip
_COMPARISONS = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
_UNARY = {ast.USub: "neg", ast.UAdd: "pos", ast.Invert: "invert"}


class Expressions:
    """Translates the expressions of one function; `scopes` are the names that are its own, the innermost last."""

    def __init__(self, program: Whole, function: FunctionType) -> None:
        self.program, self.function = program, function
        self.scopes: list[set[str]] = []
        self.num_temporaries = 0

    def expression(self, node: ast.expr) -> str:
        """An expression in JavaScript."""
        translate = getattr(self, f"_{type(node).__name__.lower()}", None)
        if translate is None:
            self.refuse(node, f"`{ast.unparse(node)[:60]}`")
        translated: str = translate(node)
        return translated

    def refuse(self, node: ast.AST, what: str) -> NoReturn:
        """Raise the error for a construct without a translation."""
        raise untranslatable(self.program.world, self.function, node, what)

    def temporary(self) -> str:
        """A fresh name."""
        self.num_temporaries += 1
        return f"${self.num_temporaries}"

    def test(self, node: ast.expr) -> str:
        """An expression where only its truth counts, as one that is true or false in JavaScript."""
        if isinstance(node, ast.BoolOp):
            joined = (" && " if isinstance(node.op, ast.And) else " || ").join(map(self.test, node.values))
            return f"({joined})"
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return f"!{self.test(node.operand)}"
        if isinstance(node, ast.Compare):
            return self.expression(node)
        return f"$.truth({self.expression(node)})"

    # --- names and values ------------------------------------------------------------------------------------

    def is_local(self, name: str) -> bool:
        """Whether a name is a variable of the function."""
        return any(name in scope for scope in self.scopes)

    def static(self, node: ast.expr) -> Any:
        """The value of a name or attribute that is known now, such as a constant of the module; else MISSING."""
        if isinstance(node, ast.Name):
            if node.id == "self" and self.is_local("self"):
                return self.program.env
            return MISSING if self.is_local(node.id) else outer_value(self.function, node.id)
        if isinstance(node, ast.Attribute):
            owner = self.static(node.value)
            return MISSING if owner is MISSING else getattr(owner, node.attr, MISSING)
        return MISSING

    def _name(self, node: ast.Name) -> str:
        if node.id == "self" and self.is_local("self"):
            return "null"  # what it holds is known: a constant stands at each of its uses
        if self.is_local(node.id):
            return spelled(node.id)
        return self._known(node, node.id)

    def _attribute(self, node: ast.Attribute) -> str:
        if self.static(node.value) is not MISSING:
            return self._known(node, node.attr)
        return f"{self.expression(node.value)}.{node.attr}"

    def _known(self, node: ast.expr, name: str) -> str:
        """A value that is known now."""
        value = self.static(node)
        if value is MISSING:
            self.refuse(node, f"the name {ast.unparse(node)}, which nothing defines")
        if (native := native_name(value)) is not None:
            return native
        if isinstance(value, FunctionType):
            return self.program.function(value)
        try:
            return self.program.constant(name, value)
        except NotALiteralError as error:
            self.refuse(node, f"{ast.unparse(node)}, {error}")

    def _constant(self, node: ast.Constant) -> str:
        if node.value is Ellipsis:
            return "$.ellipsis"
        try:
            return literal(node.value)
        except NotALiteralError as error:
            self.refuse(node, str(error))

    # --- operators -------------------------------------------------------------------------------------------

    def _binop(self, node: ast.BinOp) -> str:
        return self.operation(node.op, self.expression(node.left), self.expression(node.right))

    def operation(self, operator: ast.operator, left: str, right: str) -> str:
        """A binary operator on two JavaScript expressions."""
        return f"$.{_BINARY[type(operator)]}({left}, {right})"

    def _unaryop(self, node: ast.UnaryOp) -> str:
        if isinstance(node.op, ast.Not):
            return self.test(node)
        if isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            return f"-{self.expression(node.operand)}"
        return f"$.{_UNARY[type(node.op)]}({self.expression(node.operand)})"

    def _boolop(self, node: ast.BoolOp) -> str:
        if all(_is_truth(value) for value in node.values):
            return self.test(node)
        name = "and" if isinstance(node.op, ast.And) else "or"
        *first, last = map(self.expression, node.values)
        for value in reversed(first):
            last = f"$.{name}({value}, () => {last})"
        return last

    def _compare(self, node: ast.Compare) -> str:
        parts, left = [], self.expression(node.left)
        for operator, comparator in zip(node.ops, node.comparators, strict=True):
            right = self._elements(comparator) if isinstance(comparator, ast.Set) else self.expression(comparator)
            kept = right
            if comparator is not node.comparators[-1] and not isinstance(comparator, ast.Name | ast.Constant):
                kept = self.temporary()
                right = f"({kept} = {right})"
            parts.append(self._comparison(operator, left, right, node))
            left = kept
        return parts[0] if len(parts) == 1 else f"({' && '.join(parts)})"

    def _comparison(self, operator: ast.cmpop, left: str, right: str, node: ast.Compare) -> str:
        if isinstance(operator, ast.In | ast.NotIn):
            return f"{'!' if isinstance(operator, ast.NotIn) else ''}$.contains({right}, {left})"
        if isinstance(operator, ast.Is | ast.IsNot):
            return f"({left} {'===' if isinstance(operator, ast.Is) else '!=='} {right})"
        return f"$.{_COMPARISONS[type(operator)]}({left}, {right})"

    def _ifexp(self, node: ast.IfExp) -> str:
        return f"({self.test(node.test)} ? {self.expression(node.body)} : {self.expression(node.orelse)})"

    def _namedexpr(self, node: ast.NamedExpr) -> str:
        return f"({spelled(node.target.id)} = {self.expression(node.value)})"

    # --- collections -----------------------------------------------------------------------------------------

    def _elements(self, node: Any) -> str:
        return f"[{', '.join(self.argument(one) for one in node.elts)}]"

    _tuple = _list = _elements

    def argument(self, node: ast.expr) -> str:
        """An argument or element; `*` spreads it."""
        if isinstance(node, ast.Starred):
            return f"...$.iter({self.expression(node.value)})"
        return self.expression(node)

    def _dict(self, node: ast.Dict) -> str:
        pairs = []
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                pairs.append(f"...$.call({self.expression(value)}, 'items', [])")
            else:
                pairs.append(f"[{self.expression(key)}, {self.expression(value)}]")
        return f"$.dict([{', '.join(pairs)}])"

    def _subscript(self, node: ast.Subscript) -> str:
        indices = self.indices(node.slice)
        return getting(self.expression(node.value), indices)

    def indices(self, node: ast.expr) -> list[str]:
        """The indices in brackets."""
        return [self.expression(one) for one in (node.elts if isinstance(node, ast.Tuple) else [node])]

    def _slice(self, node: ast.Slice) -> str:
        bounds = ("null" if bound is None else self.expression(bound) for bound in (node.lower, node.upper, node.step))
        return f"$.slice({', '.join(bounds)})"

    def _listcomp(self, node: Any) -> str:
        return self._comprehension(node.generators, lambda: self.expression(node.elt))

    _generatorexp = _listcomp

    def _dictcomp(self, node: ast.DictComp) -> str:
        pairs = self._comprehension(
            node.generators, lambda: f"[{self.expression(node.key)}, {self.expression(node.value)}]"
        )
        return f"$.dict({pairs})"

    def _comprehension(self, generators: list[ast.comprehension], element: Any) -> str:
        out, head, tail = self.temporary(), "", ""
        num_scopes = len(self.scopes)
        for generator in generators:
            each, source = self.temporary(), self.expression(generator.iter)
            self.scopes.append(target_names(generator.target))
            head += f"for (const {each} of $.iter({source})) {{ let {self.pattern(generator.target, each)}; "
            head += "".join(f"if (!{self.test(test)}) continue; " for test in generator.ifs)
            tail += " }"
        body = element()
        del self.scopes[num_scopes:]
        return f"(() => {{ const {out} = []; {head}{out}.push({body});{tail} return {out}; }})()"

    def pattern(self, target: ast.expr, value: str) -> str:
        """`target = value` where the target is a name or names in brackets, for a declaration or an assignment."""
        if isinstance(target, ast.Name):
            return f"{spelled(target.id)} = {value}"
        if not isinstance(target, ast.Tuple | ast.List):
            self.refuse(target, f"`{ast.unparse(target)}` as the target of a loop")
        return f"{self._names_in(target)} = {self.unpacked(target, value)}"

    def _names_in(self, target: ast.expr) -> str:
        if isinstance(target, ast.Name):
            return spelled(target.id)
        if isinstance(target, ast.Tuple):
            return f"[{', '.join(map(self._names_in, target.elts))}]"
        self.refuse(target, f"`{ast.unparse(target)}` as the target of a loop")

    def unpacked(self, target: ast.Tuple | ast.List, value: str) -> str:
        """The values for the parts of a target; `*rest` takes a list."""
        starred = [k for k, one in enumerate(target.elts) if isinstance(one, ast.Starred)]
        if not starred:
            return f"$.unpack({value}, {len(target.elts)})"
        return f"$.unpackAround({value}, {starred[0]}, {len(target.elts) - starred[0] - 1})"

    # --- texts -----------------------------------------------------------------------------------------------

    def _joinedstr(self, node: ast.JoinedStr) -> str:
        return f"[{', '.join(map(self.expression, node.values))}].join('')" if node.values else "''"

    def _formattedvalue(self, node: ast.FormattedValue) -> str:
        if node.conversion not in (-1, ord("s")):
            self.refuse(node, "a format with !r or !a")
        value = self.expression(node.value)
        return (
            f"$.str({value})" if node.format_spec is None else f"$.format({value}, {self.expression(node.format_spec)})"
        )


def getting(value: str, indices: list[str]) -> str:
    """The entry of a value at some indices."""
    if len(indices) == 1:
        return f"$.get({value}, {indices[0]})"
    if len(indices) == 2:
        return f"$.get2({value}, {indices[0]}, {indices[1]})"
    return f"$.getn({value}, [{', '.join(indices)}])"


def setting(value: str, indices: list[str], given: str) -> str:
    """The statement that writes the entry of a value at some indices."""
    if len(indices) == 1:
        return f"$.set({value}, {indices[0]}, {given});"
    if len(indices) == 2:
        return f"$.set2({value}, {indices[0]}, {indices[1]}, {given});"
    return f"$.setn({value}, [{', '.join(indices)}], {given});"


def _is_truth(node: ast.expr) -> bool:
    """Whether an expression is True or False for certain."""
    if isinstance(node, ast.BoolOp):
        return all(map(_is_truth, node.values))
    is_not = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    return is_not or isinstance(node, ast.Compare) or (isinstance(node, ast.Constant) and isinstance(node.value, bool))


# --- calls

_WITH_NAMES = {"$.sorted", "$.np.zeros", "$.np.ones", "$.np.full", "$.np.array"}
"""Functions of the runtime that take arguments by name in a last object."""
_IGNORED = {"$.zip": {"strict"}}
"""Arguments by name that change nothing where the rules are right."""


class Calls(Expressions):
    """Translates calls."""

    def _call(self, node: ast.Call) -> str:
        if _is_super(node.func):
            return self._super_call(node)
        value = self.static(node.func)
        if value is not MISSING:
            return self._call_of(value, node)
        if isinstance(node.func, ast.Attribute):
            return self._method(node, node.func)
        if node.keywords:
            self.refuse(node, f"arguments by name in `{ast.unparse(node)[:60]}`")
        return f"{self.expression(node.func)}({', '.join(map(self.argument, node.args))})"

    def _call_of(self, value: Any, node: ast.Call) -> str:
        """A call of something that is known now."""
        if isinstance(value, FunctionType) and native_name(value) is None:
            return self._helper(value, node, [])
        if inspect.ismethod(value) and isinstance(value.__func__, FunctionType):  # self.helper(...)
            return self._helper(value.__func__, node, ["null"])
        native, dtype = native_name(value), native_dtype(value)
        if native is None and dtype is not None:
            return f"$.cast({text(dtype)}, {', '.join(map(self.argument, node.args))})"
        if native is None:
            if isinstance(node.func, ast.Attribute) and not isinstance(self.static(node.func.value), ModuleType | type):
                return self._method(node, node.func)  # of a constant
            self.refuse(node, f"a call of {ast.unparse(node.func)}")
        is_numpy = native.startswith("$.np.")
        given = [self._numpy_argument(one) if is_numpy else self.argument(one) for one in node.args]
        if native in ("$.min", "$.max") and len(given) > 2:
            native = "$.lowest" if native == "$.min" else "$.highest"
        named = self._named(node, native)
        return f"{native}({', '.join([*given, *named])})"

    def _named(self, node: ast.Call, native: str) -> list[str]:
        """The arguments by name for a function of the runtime, in one object."""
        keywords = [one for one in node.keywords if one.arg not in _IGNORED.get(native, ())]
        if not keywords:
            return []
        if native not in _WITH_NAMES and {one.arg for one in keywords} != {"axis"}:
            self.refuse(node, f"arguments by name in `{ast.unparse(node)[:60]}`")
        return [self._names_object(keywords)]

    def _names_object(self, keywords: list[ast.keyword]) -> str:
        return f"{{ {', '.join(f'{one.arg}: {self._numpy_argument(one.value)}' for one in keywords)} }}"

    def _numpy_argument(self, node: ast.expr) -> str:
        """An argument that may be a number type."""
        value = self.static(node)
        dtype = None if value is MISSING else native_dtype(value)
        return self.argument(node) if dtype is None else text(dtype)

    def _helper(self, function: FunctionType, node: ast.Call, first: list[str]) -> str:
        """A call of a function that is translated too; arguments by name are put in their places."""
        given = [*first, *map(self.argument, node.args)]
        named = {one.arg: self.expression(one.value) for one in node.keywords}
        signature = inspect.signature(function)
        names = list(signature.parameters)
        for place, argument in enumerate(node.args):
            is_self = isinstance(argument, ast.Name) and argument.id == "self" and self.is_local("self")
            if is_self and names[place + len(first)] != "self":
                self.refuse(node, f"self given to {function.__name__} as `{names[place + len(first)]}`")
        for name in names[len(given) :]:
            if not named:
                break
            given.append(named.pop(name) if name in named else "undefined")
        if named:
            self.refuse(node, f"arguments by name in `{ast.unparse(node)[:60]}`")
        return f"{self.program.function(function)}({', '.join(given)})"

    def _super_call(self, node: ast.Call) -> str:
        """`super().name(...)`: the function of the next class in line."""
        assert isinstance(node.func, ast.Attribute)
        cls = dict(zip(self.function.__code__.co_freevars, self.function.__closure__ or (), strict=True))[
            "__class__"
        ].cell_contents
        line = type(self.program.env).__mro__
        for parent in line[line.index(cls) + 1 :]:
            found = parent.__dict__.get(node.func.attr)
            if isinstance(found, FunctionType):
                return self._helper(found, node, ["null"])
        self.refuse(node, f"super().{node.func.attr}")

    def _method(self, node: ast.Call, called: ast.Attribute) -> str:
        """A call of a method of some value."""
        given = ", ".join(self._numpy_argument(one) for one in node.args)
        names = f", {self._names_object(node.keywords)}" if node.keywords else ""
        return f"$.call({self.expression(called.value)}, {text(called.attr)}, [{given}]{names})"

    def _lambda(self, node: ast.Lambda) -> str:
        if node.args.vararg or node.args.kwarg or node.args.defaults:
            self.refuse(node, "a lambda with * or default values")
        names = parameters(node)
        self.scopes.append(set(names))
        body = self.expression(node.body)
        self.scopes.pop()
        return f"(({', '.join(map(spelled, names))}) => {body})"


def _is_super(node: ast.expr) -> bool:
    """Whether a called expression is `super().name`."""
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id == "super"
    )
