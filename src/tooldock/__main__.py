"""`python -m tooldock` and the `tooldock` command."""

from tooldock.cli import main

if __name__ == "__main__":
    main()
