"""``signalbox completion``: print what makes a shell complete the commands."""

import argparse

from argcomplete.shell_integration import shellcode

_EPILOG = """Examples:

  eval "$(signalbox completion bash)"                                        # in ~/.bashrc
  eval "$(signalbox completion zsh)"                                         # in ~/.zshrc
  signalbox completion fish > ~/.config/fish/completions/signalbox.fish

The script asks `signalbox` itself how a line may go on."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which shell."""
    parser.description = "Print what makes your shell complete commands, acts, options and files."
    parser.epilog = _EPILOG
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def run(arguments: argparse.Namespace) -> int:
    """Print the script; the exit status."""
    print(shellcode(["signalbox"], shell=arguments.shell))
    return 0
