"""The table of planted causes, scenarios.ini, for both tests that play it."""

import configparser
import pathlib
import types

TABLE = pathlib.Path(__file__).with_name("scenarios.ini")


def scenarios(player):
    """Those that `player` ("program" or "torch") plays."""
    table = configparser.ConfigParser(interpolation=None)
    table.read(TABLE)
    rows = [types.SimpleNamespace(name=name, **table[name]) for name in table.sections()]
    for row in rows:
        row.stranded_in = getattr(row, "in")
    return [row for row in rows if player in row.on.split()]


def expected(scenario):
    return scenario.verdict, scenario.cause, scenario.stranded_in or None


def told(answer):
    """The same of an explanation, or of one of its moments."""
    return answer["verdict"], answer["cause"], answer["stranded_in"]
