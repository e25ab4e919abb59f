"""The names that other libraries give to our settings, so that a message can answer them with ours.

One table for flags, keys of config files and keyword arguments. SB3 is Stable-Baselines3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from scramjet.errors import nearest


@dataclass(frozen=True)
class Ours:
    """Our setting for another library's name."""

    names: tuple[str, ...]
    """Our name; if several, the first that a command has is meant. Empty: we have no such setting."""
    note: str = ""
    """A sentence to add where the meaning or the values differ, or what to do where there is no setting."""


def _same(ours: str, *theirs: str, note: str = "") -> dict[str, Ours]:
    """Table entries for names, `theirs`, that mean our setting `ours`."""
    return {name: Ours((ours,), note) for name in theirs}


def _none(note: str, *theirs: str) -> dict[str, Ours]:
    """Table entries for names, `theirs`, that we have no setting for."""
    return {name: Ours((), note) for name in theirs}


_ROLLOUT = "A rollout has num_envs x num_steps samples: choose these."
_MINIBATCH = "It is the samples of one gradient step; a rollout has num_envs x num_steps."
_ANNEAL = "A schedule in its place: 0.001@0,0@end falls from 0.001 to 0 at the end of training."
_WORLD = 'The world is named without a flag, `scramjet train cartpole`, and in a file by env = "cartpole".'
_LOG = "Each run writes runs/NAME/metrics.jsonl, one JSON object an update."
_TRACK = "It takes the names of tools: tensorboard, aim, wandb, mlflow, trackio."
_VIDEO = "Updates between videos; of a trained agent: `scramjet eval RUN --video out.mp4`."
_PICTURES = "Watch a trained agent with `scramjet eval RUN --render`, or in the browser with `scramjet serve`."

_NETWORK = (
    'A network is set by policy={"hidden": [64, 64], "activation": "relu"} from Python, --policy.hidden 64 64 as a '
    "flag, [policy] in a file; network=MODULE is one of your own, from Python."
)
_WRAPPED = (
    "Wrap the env in a function of yours: train(lambda: Wrapper(gym.make(...))) from Python, or "
    "`scramjet train factory:FILE.py:make_env`; frames are stacked by frame_stack."
)
_PARAMETERS = (
    "Parameters of the world, its time limit max_episode_steps among them, are env_parameters={...} from Python, "
    "--env.NAME VALUE as flags, [env] in a file."
)
_MADE = "The world is given itself: train(make_env) from Python, `scramjet train factory:FILE.py:make_env`."
_ADAM = "The optimizer is Adam: learning_rate, adam_eps and max_grad_norm are its settings."
_ASYNC = "Asynchronous training (mode async) corrects old data by V-trace by itself."
_GOAL = "A Callback ends a run when it is good enough: session.stop(reason) in its on_evaluation (docs/python.md)."
_LIKENESS = 0.7
"""How like a name must be to be meant: less is chance, as of the letters in wrappers and num_workers."""

_TABLE: dict[str, Ours] = {
    **_none(_NETWORK, "policy_kwargs", "policy_config", "model_config", "network_kwargs", "model", "custom_model"),
    **_none(_NETWORK, "policy_class", "model_kwargs", "policy_type", "agent", "actor_critic", "module"),
    **_none(
        _WRAPPED, "wrappers", "wrapper", "wrapper_class", "env_wrapper", "env_wrappers", "wrapper_kwargs", "monitor"
    ),
    **_none(_PARAMETERS, "env_kwargs", "env_config", "env_args", "vec_env_kwargs", "max_episode_steps", "time_horizon"),
    **_none(_PARAMETERS, "max_episode_length", "max_ep_len", "episode_length", "max_path_length"),
    **_none(_MADE, "make_env", "env_fn", "env_creator", "vec_env", "vec_env_cls", "env_maker", "envs_fn"),
    **_none(_ADAM, "optimizer", "optimizer_class", "optimizer_kwargs", "weight_decay", "betas", "momentum"),
    **_none(_ADAM, "adam_beta1", "adam_beta2", "optim"),
    **_none(_ASYNC, "vtrace", "use_vtrace"),
    **_none(_GOAL, "score_to_win", "target_reward", "stop_reward", "reward_threshold", "stop", "early_stopping"),
    **_none(
        "Noise over steps that hangs together, in place of gSDE: policy.noise_color.", "use_sde", "sde_sample_freq"
    ),
    **_none("Returns are averaged over the last 100 episodes.", "stats_window_size", "window_size"),
    **_none("resume=RUN goes on counting; fork=RUN begins a new run from a checkpoint.", "reset_num_timesteps"),
    **_none("Everything runs on PyTorch.", "framework", "backend_framework", "jax"),
    **_none(
        "The loss is clipped, without a penalty on KL; target_kl ends an update's epochs early.",
        *("kl_coeff", "kl_coef", "kl_beta", "use_kl_loss", "init_kl_coeff"),
    ),
    **_none(
        "A world scales its own rewards; normalize_rewards does it while training.", "reward_shaper", "reward_scale"
    ),
    **_none(
        "Actions beyond their bounds are clipped by the world's action space.", "bounds_loss_coef", "bound_loss_coef"
    ),
    **_none("eval.samples evaluates with drawn actions; training always draws them.", "explore", "exploration_config"),
    **_none(
        "The value's loss and advantages by GAE are always there; value_coef=0 drops the loss.", "use_gae", "use_critic"
    ),
    **_same("value_scale", "normalize_value", "value_normalization", "use_popart", "popart", note="Such as popart."),
    **_same("policy.shared_trunk", "vf_share_layers", "share_layers", "share_features_extractor", "separate"),
    **_same("bptt_horizon", "seq_length", "seq_len", "max_seq_len", "sequence_length"),
    **_same("num_epochs", "mini_epochs"),
    **_same("num_steps", "horizon_length"),
    **_same("clip_epsilon", "e_clip"),
    **_same("gae_lambda", "tau"),
    **_same("target_kl", "kl_threshold"),
    **_same("max_grad_norm", "grad_norm", "truncate_grads"),
    **_same("total_timesteps", "max_epochs", "max_frames", note="It counts env steps, of all envs."),
    **_same("num_workers", "backend", "vec_backend", note="Gymnasium's envs step in that many processes; 0: none."),
    **_same("checkpoint.every", "save_frequency"),
    **_same("normalize_observations", "observation_filter"),
    **_same("learning_rate", "lr", "alpha", "step_size", "lr_rate", "policy_lr"),
    **_same("learning_rate", "anneal_lr", "lr_schedule", "lr_decay", "linear_decay", note=_ANNEAL),
    **_same("num_envs", "envs", "n_envs", "num_env", "nenvs", "num_environments", "n_env", "env_num"),
    **_same("num_envs", "num_envs_per_worker", "num_envs_per_env_runner", note="It counts the envs of all workers."),
    **_same("total_timesteps", "timesteps", "total_steps", "n_timesteps", "num_timesteps", "max_steps", "env_steps"),
    **_same("total_timesteps", "steps", note="Steps of each env in one rollout are num_steps."),
    **_same("total_timesteps", "num_env_steps", "max_timesteps", "total_env_steps", "frames", "total_frames"),
    **_same(
        "total_timesteps",
        "updates",
        "num_updates",
        "n_updates",
        "iterations",
        "num_iterations",
        "training_iteration",
        note="It counts env steps; an update takes num_envs x num_steps of them.",
    ),
    **_same("num_steps", "n_steps", "nsteps", "rollout_length", "rollout_steps", "unroll_length", "rollout"),
    **_same("num_steps", "rollout_fragment_length", "horizon", "num_rollout_steps", "steps_per_rollout"),
    **_same("minibatch_size", "batch_size", note=_MINIBATCH),
    **_same("minibatch_size", "mini_batch_size", "sgd_minibatch_size", "minibatch", "max_minibatch_size"),
    **_same("num_minibatches", "n_minibatches", "nminibatches", "minibatches", "num_mini_batches", "num_mini_batch"),
    **_none(_ROLLOUT, "train_batch_size", "train_batch_size_per_learner", "buffer_size", "steps_per_epoch"),
    **_same("num_epochs", "n_epochs", "epochs", "update_epochs", "num_sgd_iter", "noptepochs", "k_epochs"),
    **_same("num_epochs", "ppo_epochs", "train_pi_iters", "ppo_epoch"),
    **_same("gamma", "discount", "discount_factor"),
    **_same("gae_lambda", "lam", "lambda", "lambda_", "gae_lam", "gae", "td_lambda"),
    **_same("clip_epsilon", "clip_range", "clip_coef", "clip_param", "clip", "cliprange", "clip_ratio", "clip_eps"),
    **_same("value_clip", "clip_range_vf", "vf_clip_coef", "vf_clip_param", "clip_value"),
    **_same("value_clip", "clip_vloss", "clip_value_loss", note="It is a number, the farthest that a value may move."),
    **_same("entropy_coef", "ent_coef", "entropy_coeff", "entropy_bonus", "entropy_cost", "entropy_loss_coeff"),
    **_same("entropy_coef", "entropy"),
    **_same("value_coef", "vf_coef", "vf_loss_coeff", "value_loss_coef", "baseline_cost", "critic_coef"),
    **_same("max_grad_norm", "max_grad", "grad_clip", "gradient_clip", "grad_norm_clip", "clip_grad_norm"),
    **_same("normalize_advantages", "norm_adv", "normalize_advantage", note="Its values: minibatch, batch or off."),
    **_same("normalize_observations", "norm_obs", "normalize_obs", "normalize_input", "normalize"),
    **_same("normalize_rewards", "norm_reward", "normalize_reward", "norm_rew", "reward_scaling"),
    **_same("reward_clip", "clip_reward", "clip_rewards"),
    **_same("target_kl", "kl_target", "desired_kl"),
    **_same("adam_eps", "adam_epsilon", "optimizer_eps", "eps", "rms_prop_eps"),
    **_same("algorithm", "algo", "algo_name"),
    **_same("policy.hidden", "net_arch", "hidden_sizes", "fcnet_hiddens", "hiddens", "hidden_dims", "layers"),
    **_same("policy.hidden", "hidden_size", "hidden_dim", "hidden", "num_units", note="Width of each layer: 64 64."),
    **_same("policy.activation", "activation_fn", "fcnet_activation", "activation"),
    **_same(
        "policy.memory", "use_rnn", "rnn", "use_lstm", "recurrent", "lstm", "rnn_type", note="lstm, gru or mingru."
    ),
    **_same("policy.memory_size", "lstm_hidden_size", "lstm_size", "rnn_size", "lstm_cell_size", "rnn_hidden_size"),
    **_same("policy.log_std_init", "log_std", "init_log_std", "initial_log_std"),
    **_same("policy.encoder", "cnn", "use_cnn", "features_extractor", "features_extractor_class", "policy_name"),
    **_same("frame_stack", "n_stack", "num_stack", "framestack", "frame_stacks", "num_frames"),
    **_same("device", "gpu", "cuda", "use_cuda", "use_gpu", "num_gpus", "cpu", note="Its values: auto, cpu or cuda."),
    **_same("num_workers", "workers", "n_workers", "n_jobs", "num_cpus", "n_cpus", "num_procs", "num_cpu"),
    **_same("num_workers", "num_env_runners", "num_rollout_workers", "vec_num_workers"),
    **_same("num_processes", "world_size", "nproc_per_node", "nproc", "num_learners", "num_learner_workers", "ranks"),
    **_same("num_threads", "threads", "n_threads", "torch_threads", "num_cpu_threads"),
    **_same("seed", "random_seed", "rng_seed"),
    **_same("checkpoint.every", "save_freq", "save_interval", "checkpoint_freq", "checkpoint_interval", "save_every"),
    **_same("checkpoint.keep_last_n", "keep_checkpoints", "keep_checkpoints_num", "num_to_keep"),
    **_same("eval.every", "eval_freq", "eval_interval", "evaluation_interval", "eval_every"),
    **{
        name: Ours(("episodes", "eval.episodes"))
        for name in ("n_episodes", "num_episodes", "n_eval_episodes", "eval_episodes", "evaluation_duration")
    },
    **_same("run_name", "exp_name", "name", "experiment_name", "exp", "run_id", "tb_log_name"),
    **_same("runs_dir", "log_dir", "logdir", "out_dir", "save_dir", "local_dir", "data_dir", "output", "storage_path"),
    **_same("config", "config_file", "conf", "cfg", "config_path", "yaml"),
    **_same("display", "verbose", "verbosity", "progress_bar", "quiet", note="Its values: auto, live, plain or quiet."),
    **_same(
        "resume",
        "load",
        "load_path",
        "load_model_path",
        "model_path",
        "restore",
        "from_checkpoint",
        "pretrained",
        "checkpoint_path",
        note="It goes on with a run; a new run from a checkpoint is begun with fork.",
    ),
    **_same("fused", "compile", "torch_compile", "jit", "executor"),
    **_none(_WORLD, "env_id", "env_name", "environment", "task", "game", "world", "env"),
    **_same("track", "wandb", "use_wandb", "tensorboard", "tensorboard_log", "logger", "mlflow", "aim", note=_TRACK),
    **_same("track_project", "wandb_project_name", "wandb_project"),
    **_same("log_info", "info_keywords", "info_keys"),
    **_same("video_every", "capture_video", "record_video", "video", "save_video", note=_VIDEO),
    **_none(_LOG, "log_interval", "neptune", "wandb_entity"),
    **_none(_PICTURES, "render", "render_mode"),
    **_none("The best and newest policy are always saved.", "save_model", "save", "save_best"),
    **_none("A run on the CPU is always the same twice.", "torch_deterministic", "deterministic", "cuda_deterministic"),
}


def suggestion(name: str, known: Iterable[str], spell: Callable[[str], str] = repr) -> str:
    """The end of a message about an unknown name: our name for it or the nearest of `known`, after a space; or empty.

    `name` is spelled as in Python; `spell` writes one of our names as the reader would type it.
    """
    known = list(known)
    brought = brought_name(name, known, spell)
    close = None if brought else nearest(name, known, _LIKENESS)
    return f" Did you mean {spell(close)}?" if close else brought


def brought_name(name: str, known: Iterable[str], spell: Callable[[str], str] = repr) -> str:
    """The end of a message about another library's name: our name for it, after a space; empty for any other name.

    `known` are the names of ours that can be given; without those of training its notes are left out.
    """
    known = set(known)
    ours = _TABLE.get(name.lower().replace("-", "_"), Ours(()))
    called = next((each for each in ours.names if each in known), None)
    if called is not None:
        return f" It is called {spell(called)} here.{' ' if ours.note else ''}{ours.note}"
    return f" {ours.note}" if ours.note and not ours.names and "learning_rate" in known else ""
