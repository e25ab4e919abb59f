"""Signatures: what the user signed is his own, and nothing else is."""

from __future__ import annotations

import pytest

from scramjet.runtime.signatures import is_own, sign


@pytest.fixture(autouse=True)
def state_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SCRAMJET_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def test_what_was_signed_is_recognized_and_nothing_else():
    signature = sign("digest")
    assert is_own("digest", signature)
    assert not is_own("another digest", signature)
    for forged in (None, "", "0" * 64, signature[:-1], signature.upper(), 5):
        assert not is_own("digest", forged)


def test_another_users_signature_is_a_strangers(tmp_path, monkeypatch):
    signature = sign("digest")
    monkeypatch.setenv("SCRAMJET_STATE_DIR", str(tmp_path / "another"))
    assert not is_own("digest", signature)
    assert sign("digest") != signature


def test_the_key_is_readable_by_the_user_alone(state_folder):
    sign("digest")
    (key,) = (state_folder / "keys").iterdir()
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.parent.stat().st_mode & 0o777 == 0o700


def test_without_a_place_for_a_key_nothing_is_signed_and_it_is_told_once(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("SCRAMJET_STATE_DIR", str(tmp_path / "file" / "below"))
    with pytest.warns(UserWarning, match="checked as if somebody else had made them"):
        assert sign("digest") is None
    assert not is_own("digest", None)


@pytest.mark.parametrize("signature", ["é", "\ud800", "", 5, None, ["a"]])
def test_what_is_no_signature_is_nobodys(signature):
    sign("digest")
    assert not is_own("digest", signature)


def test_a_damaged_key_is_no_key(state_folder):
    signature = sign("digest")
    (key,) = (state_folder / "keys").iterdir()
    key.write_text(key.read_text().replace('"secret": "', '"secret": "zz'))
    assert not is_own("digest", signature)
