"""``python -m hetsched`` is the terminal."""

from hetsched.cli.app import main

if __name__ == "__main__":
    main()
