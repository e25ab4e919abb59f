"""Mistakes on the command line: one clear message that names the fix, and exit code 2."""

import shlex

import pytest
import torch

from tests.helpers import ROOT
from tests.helpers.command_calls import TINY, call, refusal

GENERAL = {
    "trian": ["trian", "Did you mean 'train'"],
    "train cartpol": ["cartpol", "Did you mean 'cartpole'", "scramjet list"],
    "train cartpole bandit": ["no use for 'bandit' after ENV cartpole"],
    "train --seed x": ["--seed x: expected a whole number"],
    "train --seed": ["--seed needs a value: a whole number"],
    "train --seed --no-fused": ["--seed needs a value"],
    "train -seed 3": ["unknown flag -seed. Did you mean --seed?"],
    "train --lerning-rate 3": ["unknown flag --lerning-rate. Did you mean --learning-rate?"],
    "train --lr 3": ["unknown flag --lr. It is called --learning-rate here."],
    "train --batch-size=64": ["It is called --minibatch-size here. It is the samples of one gradient step"],
    f"train --{'x' * 5000}": ["unknown flag"],
    "train --gamma much": ["--gamma much: expected a number; the default is 0.99"],
    "train --display pretty": ["--display pretty: expected 'auto' or 'live' or 'plain' or 'quiet'"],
    "train --display lvie": ["or 'quiet'. Did you mean 'live'?"],
    "train --curiosity rdn": ["or 'none'. Did you mean 'rnd'?"],
    "train --policy.memory NONE": ["or 'mingru' or 'none'. Did you mean 'none'?"],
    "train --policy.hidden 32 cartpole": ["other words stand before it"],
    "train --trust=no": ["--trust=no: expected true or false; write --trust or --no-trust"],
    "train --no-trust=x": ["--no-trust=x: it takes no value"],
    "check": ["scramjet check needs WORLD"],
    "check missing.py": [],
    "eval": ["scramjet eval needs RUN, such as: scramjet eval runs/cartpole-1", "scramjet eval --help"],
    "eval a b": ["no use for 'b' after RUN a"],
    "eval a --n-episodes 3": ["It is called --episodes here"],
    "eval nowhere": ["nowhere"],
    "eval nowhere --render --json": ["--render", "--json"],
    "eval nowhere --no-fused": ["--no-fused is for `scramjet train`"],
    "eval nowhere --sead 3": ["--sead", "--seed"],
    "eval nowhere --render --fps 0": ["fps=0.0", "--fps 30"],
    "bench --num-envs 0": ["--num-envs", "at least 1"],
    "bench --num-envs 4 x": ["--num-envs x: expected a whole number in each place"],
    "list --jsn": ["Did you mean --json?"],
    "list mze": ["Did you mean 'maze'?"],
    "list gym:CartPole-v1": ["`scramjet train gym:CartPole-v1 --help` its parameters"],
    "list missing.py": ["no such file"],
    "list my_world": ["give the file: my_world.py"],
    "example coridor": ["Did you mean 'corridor'?"],
    "grade": ["scramjet grade needs RUN"],
    "grade nowhere": ["nowhere"],
    "grade greedy --seed -1": ["seed=-1 must be 0 or more"],
    "grade greedy --markdown /nowhere/grades.md": ["there is no folder"],
    "sync": ["scramjet sync needs RUN"],
    "sync tiny": ["--to says where to send the runs"],
    "sync tiny --to aym": ["--to aym: expected 'tensorboard' or 'aim'"],
}
SETTINGS = {
    "train --gamma 2": ["gamma=2.0", "from 0 to 1"],
    "train --learning-rate fast": ["learning_rate='fast'", "0.001@0,0@end"],
    "train --num-envs 0": ["num_envs=0", "at least 1"],
    "train --num-envs many": ["num-envs"],
    "train --total-timesteps soon": ["--total-timesteps soon", "500K"],
    "train --time-limit '5 parsecs'": ["5 parsecs", "30s"],
    "train --time-limit 40": ["time_limit='40'", "no unit", "write 40s"],
    "train cartpole_spo": ["is a preset", "scramjet train --preset cartpole_spo"],
    "train --search alphazero:8": ["--search", "--algorithm alphazero --alphazero.simulations 8"],
    "train --search=spo:8x2": ["--search", "--algorithm spo --spo.particles 8 --spo.depth 2"],
    "train --search": ["--search", "--alphazero.simulations 64, or --algorithm spo"],
    "train --num-minibatches 4 --minibatch-size 64": ["give one of them"],
    "train --num-envs 7 --num-steps 3": ["num_minibatches=4", "evenly", "--num-minibatches 3"],
    "train --env.gravty 3": ["gravty", "Did you mean 'gravity'"],
    "train --env.gravity strong": ["--env.gravity", "strong"],
    "train --env.gravity": ["--env.gravity", "needs a value"],
    "train --env.no-gravity": ["no_gravity", "Did you mean 'gravity'"],
    "train --env.mass-pole -1": ["mass_pole=-1", "above 0"],
    "train cartpole --policy.encoder nature_cnn": ["nature_cnn", "--policy.encoder auto"],
    "train --policy.hidden 0": ["policy.hidden", "--policy.hidden 64 64"],
    "train maze --policy.ignore steps": ["'steps'", "its entries: agent, step_count, target, walls"],
    "train --run-name ../escape": ["../escape", "letters"],
    "train --resume nowhere": ["nowhere"],
    "train --fork nowhere": ["nowhere"],
    "train --config missing.toml": ["missing.toml"],
}
GAMES = {
    "play": ["scramjet play needs RUN, such as: scramjet play runs/connect_four-1"],
    "play connect_four": ["connect_four is a world: say who plays against you, --against random"],
    "play connect_four --against nobody": ["there is no player 'nobody'"],
    "play connect_four --against random --seat third": ["seat='third': expected first, second, random"],
    "play connect_four --against random --seed -1": ["--seed -1 must be from 0"],
    "play connect_four --against random --temperature -1": ["temperature=-1.0 must be 0"],
    "play connect_four --against random --env x.py": ["connect_four is a world itself"],
    "play connect_four --against runs/tiny": ["was trained on 'cartpole', and this game is connect_four"],
    "play connect_four --search spo:4x2": ["is a world; give a RUN"],
    "play pendulum": ["Pendulum cannot be played by a person: its actions are"],
    "play cartpole --against random": ["cartpole is played by one, so there is nobody to play against"],
    "play gym:CartPole-v1 --against random": ["cannot be played by a person: only worlds written for scramjet"],
    "play no-such-run": ["no-such-run"],
    "play four@spo:4": ["depth as a whole number"],
    "play four --against greedy --search spo:4x2": ["plays in its place"],
    "eval four --step": ["--step"],
    "eval four --against random --step": ["add --render"],
    "eval tiny --against random": ["cartpole is played by one"],
    "eval four --against tiny": ["tiny was trained on 'cartpole', and this game is connect_four"],
    "eval four --against nobody": ["there is no player 'nobody'"],
    "eval four --against minimax:99": ["1 to 10 moves ahead"],
    "eval four --against random --games 0": ["games=0 must be from 1"],
    "eval four --against random --episodes 5": ["against another: --games"],
    "eval four --against random --temperature -1": ["temperature=-1.0"],
    "eval four --against random --temperature-final 0": ["need each other"],
    "eval four --against random --max-steps 0": ["max_steps=0"],
    "eval four --against random --env.rows 5": ["changes the observation space"],
    "eval four --games 5": ["--games 5 needs --against PLAYER"],
    "eval four --temperature 1": ["--temperature 1.0 needs --against PLAYER"],
    "eval four --search alphazero:0": ["simulations as a whole number from 1 to 10,000"],
    "eval four --search spo:16x-1": ["depth as a whole number from 1 to 1,000"],
    "eval four --search spo:999999999x4": ["particles as a whole number from 1 to 10,000"],
    "eval four --search magic": ["names no search; use alphazero:64"],
    "eval four --search spo:4x2 --samples": ["give one of them"],
    "eval four --against random@spo:4x2": ["only networks search"],
    "eval four --against four@alphazero:x": ["simulations as a whole number"],
    "eval four --against four --search spo:4x2 --temperature 2": ["1 explores as in training"],
    "eval four@spo:4x2 --search spo:4x2": ["give one of them"],
    "grade greedy@spo:4x2": ["only networks search"],
    "grade greedy --search spo:4x2": ["is none; give a RUN"],
    "grade tiny": ["other worlds are measured by scramjet eval RUN"],
    "tournament": ["a tournament needs two players or more, and nobody takes part"],
    "tournament four --limit-per-run 1": ["only four@512 takes part"],
    "tournament four --round-robin --swiss": ["give one"],
    "tournament four --plot ratings.png": ["give a name that ends in .svg: ratings.svg"],
    "tournament four --players minmax:2": ["there is no player 'minmax:2'"],
    "tournament four --games 0": ["games=0 must be from 1"],
    "tournament four --seed -1": ["seed=-1"],
    "tournament four --max-steps 0": ["max_steps=0"],
    "tournament --players random greedy": ["add --env connect_four"],
    "tournament --players random greedy --env connect_four --plot ratings.svg": ["give a RUN"],
    "tournament four --swis": ["Did you mean --swiss"],
    "tournament four --random --search much": ["names no search"],
    "tournament four runs/tiny/checkpoints/latest": ["was trained on 'cartpole', and this game is connect_four"],
}
STUDIES = {
    "tune cartpole": ["a study needs a space"],
    "tune cartpole --learning-rat log:1e-4..1e-2": ["Did you mean 'learning_rate'?"],
    "tune cartpole --learning-rate log:0..1e-2": ["begin above 0"],
    "tune cartpole --gamma 0.99..0.9": ["must go up"],
    "tune cartpole --gamma 0.9..1.5": ["gamma=1.5"],
    "tune cartpole --seed int:1..3": ["all trials of a study share"],
    "tune cartpole --gamma 0.8..0.9 --gamma 0.8..0.9": ["given twice"],
    "tune cartpole --gamma 0.8..0.9 --method tpee": ["'random' or 'tpe'"],
    "tune cartpole --gamma 0.8..0.9 --objective finl": ["Did you mean 'final'?"],
    "tune cartpole --gamma 0.8..0.9 --trials 0": ["trials=0 must be at least 1"],
    "tune cartpole --gamma 0.8..0.9 --space nowhere.toml": ["nowhere.toml"],
    "tune cartpole --gamma 0.8..0.9 --study-name ../x": ["cannot be used"],
    "tune --resume nowhere": ["there is no study at 'nowhere'"],
    "tune --resume nowhere --gamma 0.8..0.9": ["--gamma cannot change when a study is resumed"],
    "tune --resume nowhere --method tpe": ["--method cannot change when a study is resumed"],
    "tune --report nowhere": ["there is no study at 'nowhere'"],
    "tune --out x.svg": ["add --report STUDY"],
}


@pytest.mark.parametrize("group", ["GENERAL", "SETTINGS", "GAMES", "STUDIES"])
def test_a_mistake_gets_a_message_that_names_it_and_the_fix(group, runs, capsys):
    for name in {"GENERAL": ["tiny"], "GAMES": ["tiny", "four"]}.get(group, []):
        assert runs[name].is_dir()
    before = set(runs.folder.parent.rglob("*"))
    for command, parts in globals()[group].items():
        message = refusal(capsys, *shlex.split(command))
        for part in parts:
            assert part in message, command
        assert len(message) < 700, command
    assert set(runs.folder.parent.rglob("*")) == before, "a refused command left something behind"


def test_a_mistake_in_a_config_file_is_named(tmp_path, capsys):
    for name, text, parts in (
        ("a.toml", "lerning_rate = 1", ["lerning_rate", "Did you mean 'learning_rate'"]),
        ("a.yaml", "policy: {hiden: [3]}", ["hiden", "Did you mean 'hidden'"]),
        ("a.toml", "gamma = 'high'", ["gamma", "'high'", "a number"]),
        ("a.toml", "curiosity = 'rdn'", ["a.toml: curiosity='rdn'", "or 'none'. Did you mean 'rnd'?"]),
        ("a.yaml", "algorithm: alfazero", ["a.yaml: algorithm='alfazero'", "Did you mean 'alphazero'?"]),
        ("a.toml", "policy.memory = 'None!'", ["a.toml: policy.memory='None!'", "Did you mean 'none'?"]),
        ("a.toml", "policy.value_bins = 1", ["policy.value_bins=1", "at least 2 (or 'none'); the default is none"]),
        ("a.toml", "num_envs = 3.5", ["num_envs=3.5", "a whole number"]),
        ("a.toml", "gamma = ", ["a.toml", "not valid"]),
        ("a.yaml", "a: [1", ["a.yaml", "not valid"]),
        ("a.toml", "config_version = 99", ["99", "upgrade scramjet"]),
        ("a.toml", "[env]\nname = 'cartpole'\ngravty = 1", ["gravty", "Did you mean 'gravity'"]),
        ("a.txt", "", ["a.txt", ".toml"]),
    ):
        (tmp_path / name).write_text(text)
        message = refusal(capsys, "train", "--config", tmp_path / name, "--runs-dir", tmp_path)
        for part in parts:
            assert part in message, text


def test_what_a_run_that_exists_does_not_allow_is_refused_with_the_way_out(runs, tmp_path, capsys):
    tiny = runs["tiny"]
    message = refusal(capsys, "train", "cartpole", *TINY, "--run-name", "tiny")
    assert "tiny" in message
    assert "--resume" in message
    for words in (["--gamma", "0.5"], ["--env.gravity", "1"], ["--seed=3"], ["bandit"]):
        assert words[0].partition("=")[0] in refusal(capsys, "train", "--resume", tiny, *words), words
    assert "the run knows its world" in refusal(capsys, "train", "cartpole", "--resume", tiny)  # the default, too
    for words in (["--resume", tiny], ["--fork", tiny]):
        assert "--total-timesteps" in refusal(capsys, "train", *words)  # it is finished
    fork = ["--fork", tiny, "--total-timesteps", "2048", "--runs-dir", tmp_path]
    assert "another world" in refusal(capsys, "train", "bandit", *fork)
    assert "another network" in refusal(capsys, "train", *fork, "--policy.hidden", "32")
    assert not list(tmp_path.glob("*")), "a refused fork left a folder"


def test_a_world_that_writes_past_its_observation_is_refused_before_it_is_compiled(tmp_path, capsys):
    source = (ROOT / "examples" / "corridor.py").read_text()
    (tmp_path / "wild.py").write_text(source.replace("obs[0] =", "obs[5] ="))
    message = refusal(capsys, "train", tmp_path / "wild.py", *TINY, "--runs-dir", tmp_path)
    assert "Corridor.observe" in message
    assert not list(tmp_path.glob("wild-*"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_one_message_and_exit_code_2(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in (("train", "cartpole", "--display", "quiet"), ("bench", "cartpole")):
        assert call(*words, "--device", "cuda") == 2
        message = capsys.readouterr().err
        assert "device='cuda' needs" in message
        assert "--device cpu" in message
        assert "Traceback" not in message
