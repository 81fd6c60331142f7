"""`python -m untrimmed`: the command line, for launchers that start modules, such as torchrun."""

from untrimmed.cli.app import start

if __name__ == "__main__":
    start()
