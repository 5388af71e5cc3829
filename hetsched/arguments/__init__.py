"""The arguments of public functions, checked before anything runs.

`checked` reads a function's annotations, which give the kinds of the arguments; a range is a `Rule`
by the argument's name.
"""

from hetsched.arguments.checks import check_array, check_count, check_indices, check_rows, within
from hetsched.arguments.decorator import checked
from hetsched.arguments.rules import COUNT, NUMBER, TEXT, Rule, amount, number, one_of, rule, shown, whole

__all__ = [
    "COUNT",
    "NUMBER",
    "TEXT",
    "Rule",
    "amount",
    "check_array",
    "check_count",
    "check_indices",
    "check_rows",
    "checked",
    "number",
    "one_of",
    "rule",
    "shown",
    "whole",
    "within",
]
