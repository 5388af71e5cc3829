"""The application: commands, errors and exit codes.

Exit codes: 0 success; 1 the answer is "no" (invalid schedule, proven infeasible, no schedule found);
2 bad usage, bad input or a failure, reported in one line on stderr; 130 interrupted by Ctrl-C, 143 by SIGTERM.
"""

from __future__ import annotations

import copy
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from hetsched import __version__
from hetsched.cli.commands import (
    bound,
    capture,
    certify,
    check,
    coarsen,
    compare,
    convert,
    demo,
    devices,
    generate,
    instances,
    machine,
    methods,
    model,
    modules,
    plan,
    prepare,
    profile,
    reproduce,
    run,
    schema,
    show,
    solve,
    stages,
    verify,
)
from hetsched.cli.help import Command, Group
from hetsched.cli.terminal import INTERRUPTED, close_quietly, say, warn
from hetsched.cli.welcome import welcome
from hetsched.errors import HetschedError
from hetsched.stopping import reason, terminate

BAD = 2
ORDER = (
    "demo",
    "generate",
    "capture",
    "convert",
    "solve",
    "bound",
    "certify",
    "verify",
    "check",
    "show",
    "profile",
    "run",
    "compare",
    "modules",
    "coarsen",
    "stages",
    "plan",
    "model",
    "devices",
    "machine",
    "methods",
    "instances",
    "reproduce",
    "prepare",
    "schema",
)  # the order of a first session


class Application(Group):
    """A command group whose `main` turns every outcome into an exit code and at most one line of error."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands in the order in which help lists them."""
        return sorted(super().list_commands(ctx), key=ORDER.index)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run one command line and exit with its code."""
        words = list(sys.argv[1:] if args is None else args)
        debug = "--debug" in words  # accepted anywhere on the line
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, terminate)
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")  # names may not fit the terminal's encoding
        if debug:
            logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: warn(message, "warning")
            settings = {"complete_var": complete_var, **extra}
            code = self._run([word for word in words if word != "--debug"], prog_name or "hetsched", debug, settings)
            sys.exit(self._flush(code))

    def _run(self, words: list[str], name: str, debug: bool, settings: dict[str, Any]) -> int:
        try:
            code = int(super().main(words, name, standalone_mode=False, **settings) or 0)
        except KeyboardInterrupt as interruption:
            code = INTERRUPTED[reason(interruption)]
        except Exception as error:
            if debug:
                raise
            for failure in error.exceptions if isinstance(error, ExceptionGroup) else (error,):
                warn(explain(failure))
            return BAD
        for word, by in (("interrupted", "Ctrl-C"), ("terminated", "SIGTERM")):
            if code == INTERRUPTED[word]:
                warn(f"by {by}", word)
        return code

    @staticmethod
    def _flush(code: int) -> int:
        """Flush stdout while an error such as a full disk can still be reported."""
        try:
            if sys.stdout is not None:
                sys.stdout.flush()
        except BrokenPipeError:
            close_quietly(sys.stdout)
        except OSError as error:
            close_quietly(sys.stdout)
            warn(explain(error))
            return BAD
        return code


def explain(error: Exception) -> str:
    """Return the message of an error for the user."""
    if isinstance(error, typer.TyperException):
        context = getattr(error, "ctx", None)
        hint = f" (see: {context.command_path} --help)" if context is not None else ""
        return f"{error.format_message()}{hint}"
    if isinstance(error, HetschedError):
        return str(error)
    if isinstance(error, OSError):
        what = error.strerror or str(error) or type(error).__name__
        return what if error.filename is None else f"{os.fsdecode(error.filename)}: {what}"
    if isinstance(error, MemoryError):
        return "out of memory"
    return f"{type(error).__name__}: {error} (unexpected; --debug shows where)"


app = typer.Typer(
    cls=Application, rich_markup_mode="rich", pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]}
)


def _version(requested: bool) -> None:
    if requested:
        say(f"hetsched {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def hetsched(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks and log messages; accepted anywhere on the line.")] = False,
) -> None:
    """Map and schedule task graphs on heterogeneous devices, with bounds and proofs.

    What to do next: [bold]hetsched[/bold]

    Example: [bold]hetsched demo[/bold]
    """
    if context.invoked_subcommand is None:
        welcome()


app.add_typer(generate.generate, name="generate")
app.add_typer(instances.instances, name="instances")
app.command("demo", cls=Command)(demo.demo)
app.command("capture", cls=Command)(capture.capture)
app.command("convert", cls=Command)(convert.convert)
app.command("solve", cls=Command)(solve.solve)
app.command("bound", cls=Command)(bound.bound)
app.command("certify", cls=Command)(certify.certify)
app.command("verify", cls=Command)(verify.verify)
app.command("check", cls=Command)(check.check)
app.command("show", cls=Command)(show.show)
app.command("profile", cls=Command)(profile.profile)
app.command("run", cls=Command)(run.run)
app.command("compare", cls=Command)(compare.compare)
app.command("modules", cls=Command)(modules.modules)
app.command("coarsen", cls=Command)(coarsen.coarsen)
app.command("stages", cls=Command)(stages.stages)
app.command("plan", cls=Command)(plan.plan)
app.command("model", cls=Command)(model.model)
app.command("devices", cls=Command)(devices.devices)
app.command("machine", cls=Command)(machine.machine)
app.command("methods", cls=Command)(methods.methods)
app.command("reproduce", cls=Command)(reproduce.reproduce)
app.command("schema", cls=Command)(schema.schema)
app.command("prepare", cls=Command)(prepare.prepare)


def main() -> None:
    """Run the terminal; the console script calls this. Of a command that is named first the others are not made, which takes long."""
    chosen = copy.copy(app)
    own = [command for command in app.registered_commands if sys.argv[1:] and command.name == sys.argv[1]]
    if own:
        chosen.registered_commands, chosen.registered_groups = own, []
    chosen(prog_name="hetsched")
