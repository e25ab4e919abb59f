"""What a world's name would run, and the hash of it, found out without running any of it."""

from scramjet.adapters.world_code import NamedCode, code_of, file_in, loaded_text, source_fingerprint
from scramjet.envs.registry import canonical_name


def test_the_module_that_a_name_stands_for():
    of_scramjet = "cartpole CartPole-v1 unheard_of gym:CartPole-v1 vec:scramjet/CartPole-v1 ale:Pong mujoco:Ant-v5"
    of_scramjet += " envpool:Pong-v5 pettingzoo:pursuit_v5 gym:ale_py:ALE/Pong-v5"
    for name in of_scramjet.split():
        assert code_of(name) is None, name
    for name, place in {
        "my_package.worlds:World": "my_package.worlds",
        "gym:my_package:Mine-v0": "my_package",
        "gym:my_package.py:Mine-v0": "my_package.py",  # to Gymnasium that is a module
        "factory:my_package:make": "my_package",
        "factory:ale_py:make": "ale_py",
        "pettingzoo:os:system": "os",
    }.items():
        code = code_of(name)
        assert code is not None, name
        assert (code.place, code.is_file) == (place, False), name


def test_the_file_that_a_name_stands_for_by_its_full_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "real.py").touch()
    (tmp_path / "link.py").symlink_to("real.py")
    full = str(tmp_path.resolve() / "real.py")
    for name in ("real.py", "./real.py:World", "link.py", str(tmp_path / "real.py")):
        assert code_of(name) == NamedCode(full, is_file=True)
    assert code_of("factory:link.py:make") == NamedCode(full, is_file=True, function="make")
    for name in ("a:b/real.py", "a:b/real.py:World", "a.py:b/real.py:World", "real.py:b:World"):
        code, parts = code_of(name), file_in(name)
        assert code is not None
        assert parts is not None
        assert code.is_file
        assert canonical_name(name) == parts.at(code.place)
        assert parts.at(parts.path) == name


def test_numbers_and_known_words_are_not_text():
    harmless = {"a": 1, "b": 2.5, "c": None, "d": [1, [2.0, True]], "e": {"x": 1}, "render_mode": "ansi"}
    text = {"f": "a", "g": ["a"], "h": {"x": ["a"]}, "i": b"a", "map_name": "file.txt", "obs_type": ["rgb"]}
    assert loaded_text("gym:CartPole-v1", {**harmless, **text}) == text
    assert loaded_text("my_world.py", text) == {}  # of a native world its class refuses them


def test_a_fingerprint_covers_a_file_and_all_that_it_imports_from_its_folder(tmp_path):
    sources = {
        "world.py": "import helper\nfrom package import inner\nimport numpy, missing",
        "helper.py": "def late():\n    import deeper",
        "deeper.py": "",
        "package/__init__.py": "",
        "package/inner.py": "from . import beside\nfrom .sub.leaf import thing",
        "package/beside.py": "",
        "package/sub/leaf.py": "thing = 1",
    }
    (tmp_path / "package" / "sub").mkdir(parents=True)
    for name, text in {**sources, "unrelated.py": "x = 1", "package/unused.py": "x = 1"}.items():
        (tmp_path / name).write_text(text)
    first = source_fingerprint(tmp_path / "world.py")
    assert first == source_fingerprint(tmp_path / "world.py")
    for name in ("unrelated.py", "package/unused.py"):
        (tmp_path / name).write_text("x = 2")
    assert source_fingerprint(tmp_path / "world.py") == first
    for name, text in sources.items():
        (tmp_path / name).write_text(text + "\n# changed")
        assert source_fingerprint(tmp_path / "world.py") != first, name
        (tmp_path / name).write_text(text)
    (tmp_path / "missing.py").touch()  # what it imports is here now
    assert source_fingerprint(tmp_path / "world.py") != first


def test_what_cannot_be_read_has_no_fingerprint_and_what_cannot_be_parsed_or_is_a_circle_has_one(tmp_path):
    assert source_fingerprint(tmp_path / "nowhere.py") is None
    assert source_fingerprint(tmp_path) is None
    (tmp_path / "broken.py").write_bytes(b"def (\x00\xff")
    assert source_fingerprint(tmp_path / "broken.py") is not None
    (tmp_path / "a.py").write_text("import b")
    (tmp_path / "b.py").write_text("import a, b")
    assert source_fingerprint(tmp_path / "a.py") is not None
