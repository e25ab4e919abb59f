"""One gate: who may give an approval, and what may import, delete, start or unpickle, are closed lists.

Whoever adds a place has to name it here, and say what keeps a stranger's file from leading there.
"""

import ast
import copy
import pickle
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

import scramjet
from scramjet.runtime.files import remove_tree
from scramjet.runtime.trust import Approval, digest_of, given, handed_over, said, shipped, signed

PACKAGE = Path(scramjet.__file__).parent

GIVES = {
    "said": {
        "commands.arguments.train", "commands.study", "commands.tune", "training.config.files",
        "training.playing", "training.start", "tuning.api",
    },
    "given": {"training.config.keywords"},
    "signed": {"runtime.checkpoint_format"},
    "handed_over": {"training.config.files", "training.resume"},
    "shipped": {"training.config.files"},
    "Approval": {"runtime.trust"},
}  # fmt: skip
"""Modules in which each function that gives an approval is called."""

CONSTANT = "a name that stands in our own code"
NAMED = "a world or player by its name: of the user's words, or of a config that `files.apply` has approved"
OWN_PROCESS = "our own program, in the words of this one"
GENERATED = "source that we generate from a layout of arrays"
PIPE = "bytes of a process of this user that this one started"

IMPORTS = {
    "algorithms.algorithm": "what builds ours, named in the one list, and entry points of installed packages",
    "scramjet": CONSTANT, "engine": CONSTANT, "policies": CONSTANT, "cli": CONSTANT,
    "adapters.exports.pettingzoo_env": CONSTANT, "tuning.space": CONSTANT,
    "adapters.pettingzoo": "a game of the installed package", "envs.registry": NAMED, "adapters.factories": NAMED,
    "adapters.gymnasium.registered_envs": NAMED,
    "runtime.video.video_file": CONSTANT,
    **{f"telemetry.tracking.{each}": CONSTANT for each in
       ("aim", "mlflow", "tracker", "tensorboard", "trackio", "wandb")},
}  # fmt: skip
STARTS = {
    "executors.compile_ahead": OWN_PROCESS, "adapters.gymnasium.process": OWN_PROCESS,
    "telemetry.tracking.background": OWN_PROCESS, "tuning.trials": OWN_PROCESS,
}  # fmt: skip
FORKS = {
    "tuning.trials": OWN_PROCESS, "tuning.trial_server": OWN_PROCESS,
    "adapters.gymnasium.guard": OWN_PROCESS,
}  # fmt: skip
RUNS_TEXT = {
    "compile.jit": GENERATED, "engine.layout": GENERATED, "engine.worlds.cuda": GENERATED,
}  # fmt: skip
UNPICKLES = {
    "adapters.gymnasium.process": PIPE, "adapters.gymnasium.worker": PIPE,
}  # fmt: skip
DELETES = {"runtime.files": "within a folder that the caller names: `remove_tree`"}

PRIMITIVES: tuple[tuple[tuple[str, ...], dict[str, str]], ...] = (
    (("import_module", "spec_from_file_location", "exec_module", "__import__", "run_path", "run_module"), IMPORTS),
    (("Popen", "subprocess.run", "subprocess.check_output", "subprocess.check_call", "subprocess.call"), STARTS),
    (("os.fork", "os.system", "os.popen", "os.execv", "os.execvp", "os.posix_spawn", "Process"), FORKS),
    (("exec", "eval"), RUNS_TEXT),
    (("pickle.loads", "pickle.load", "cloudpickle.loads", "marshal.loads", "Unpickler", "torch.load"), UNPICKLES),
    (("rmtree", "removedirs"), DELETES),
)


@lru_cache(maxsize=1)
def modules() -> list[tuple[str, list[ast.AST]]]:
    """Every module of scramjet, by its name in the package, with all that its source consists of."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__") or "scramjet"
        nodes = ast.walk(ast.parse(path.read_text()))
        kinds = (ast.Call, ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef)
        found.append((name, [node for node in nodes if isinstance(node, kinds)]))
    return found


def called(call: ast.Call) -> tuple[str, str]:
    """The name that is called, alone and with what it is called on: ("loads", "pickle.loads")."""
    if isinstance(call.func, ast.Attribute):
        on = call.func.value
        return call.func.attr, f"{on.id}.{call.func.attr}" if isinstance(on, ast.Name) else f"().{call.func.attr}"
    return (call.func.id, call.func.id) if isinstance(call.func, ast.Name) else ("", "")


def calls() -> Iterator[tuple[str, ast.Call]]:
    for module, nodes in modules():
        for node in nodes:
            if isinstance(node, ast.Call):
                yield module, node


def test_approvals_are_given_in_the_places_that_are_named_and_nowhere_else() -> None:
    found: dict[str, set[str]] = {name: set() for name in GIVES}
    for module, nodes in modules():
        imported = {
            alias.asname or alias.name
            for node in nodes
            if isinstance(node, ast.ImportFrom) and node.module == "scramjet.runtime.trust"
            for alias in node.names
        }
        for node in nodes:
            is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            name = node.func.id if is_call else ""  # type: ignore[attr-defined]
            if name in GIVES and (name in imported or module == "runtime.trust"):
                found[name].add(module)
        assert not any(
            isinstance(node, ast.Import) and any(alias.name.startswith("scramjet.runtime") for alias in node.names)
            for node in nodes
        ), f"{module}: names of the gate are imported by `from`, so that they are seen here"
    assert found == GIVES


def test_trust_is_what_the_user_said_and_no_value_that_stands_in_the_code() -> None:
    """`said(trust)` and `trust=...` take a variable of that name, which comes down from a flag or an argument."""
    for module, call in calls():
        given_trust = [each.value for each in call.keywords if each.arg == "trust"]
        if called(call)[0] == "said":
            given_trust += call.args
        for value in given_trust:
            if isinstance(value, ast.Call) and called(value)[0] == "coerce":
                value = value.args[1]
            name = value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else ""
            is_request = module == "tuning.trial_server" and ast.unparse(value) == "request['trust']"
            assert name.lstrip("_") == "trust" or is_request, f"{module}:{call.lineno}"
    for module, nodes in modules():
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                every = [*node.args.posonlyargs, *node.args.args]
                defaults = [*zip(every[::-1], node.args.defaults[::-1], strict=False)]
                defaults += [*zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)]  # type: ignore[list-item]
                for argument, default in defaults:
                    is_on = isinstance(default, ast.Constant) and default.value is True
                    assert not (argument.arg == "trust" and is_on), f"{module}:{node.lineno}"


def test_what_imports_starts_runs_unpickles_or_deletes_stands_in_a_closed_list() -> None:
    for names, allowed in PRIMITIVES:
        found = {module for module, call in calls() if set(called(call)) & {*names} and not is_method_of_ours(call)}
        assert found == set(allowed), (names, found ^ set(allowed))


def is_method_of_ours(call: ast.Call) -> bool:
    """`policy.eval()` and the like, which are none of Python's."""
    return called(call)[0] == "eval" and isinstance(call.func, ast.Attribute)


def test_an_approval_cannot_be_made_copied_or_read_from_a_file(tmp_path: Path) -> None:
    approval = given()
    for way in (
        lambda: Approval("I say so", object()),
        lambda: Approval("I say so", None),
        lambda: type("Mine", (Approval,), {}),
        lambda: pickle.dumps(approval),
        lambda: copy.copy(approval),
        lambda: copy.deepcopy(approval),
    ):
        with pytest.raises(TypeError):
            way()
    assert said(False) is None
    for odd in (1, "yes", [0], None):
        assert said(odd) is None, odd  # type: ignore[arg-type]
    assert signed("text", "0" * 64) is None
    assert signed("text", None) is None
    assert handed_over(b"config", digest_of(b"another")) is None
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "cartpole.toml").touch()
    assert shipped(tmp_path / "configs" / "cartpole.toml") is None
    assert [each.reason for each in (said(True), handed_over(b"x", digest_of(b"x"))) if each] == [
        "the user trusts it",
        "the study approved it",
    ]


def test_a_folder_is_removed_only_from_the_one_that_the_caller_names(tmp_path: Path) -> None:
    runs, victim = tmp_path / "runs", tmp_path / "victim"
    (runs / "trial-0001").mkdir(parents=True)
    victim.mkdir()
    for path in (victim, runs / "../victim", runs / ".." / "victim", runs / "trial-0001" / "..", runs / "..", runs):
        with pytest.raises(ValueError, match="does not lie directly in"):
            remove_tree(path, runs)
    (runs / "link").symlink_to(victim)
    remove_tree(runs / "link", runs)
    assert victim.is_dir()
    remove_tree(runs / "trial-0001", runs)
    assert not (runs / "trial-0001").exists()
