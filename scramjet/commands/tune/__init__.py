"""`scramjet tune`: a study of settings, new or resumed."""

from scramjet.commands.tune.command import tune_command as tune_command
