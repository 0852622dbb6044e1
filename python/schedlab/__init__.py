"""Which scheduler should this workload run under? Recordings, comparisons and predictions as data frames.

>>> import schedlab as sl
>>> r = sl.open("recordings/redis-other-other-closed8.slt")
>>> s = sl.compare(r, variants={"batch idle": "sysbench policy=idle"})
>>> print(s.verdict)

Every table (:class:`Table`) speaks Arrow's PyCapsule protocol and has ``to_pandas()``, ``to_polars()``, ``to_arrow()`` and
``to_parquet()``; ``table["wait_ns"]`` is a column. Bad input raises :class:`ValueError` with the message that the command line has, in
which keywords stand for its options; a file that is not there raises :class:`FileNotFoundError`.
"""

from ._many import Recordings, open_many
from ._native import __version__
from ._recording import Recording, open, scenario
from ._scheduler import Scheduler, Waiting
from ._search import Setting, Tuned, sweep, tune
from ._space import Span, linear, log
from ._study import Study, compare, diff, scenarios, schedulers
from ._table import Table

__all__ = [
    "Recording",
    "Recordings",
    "Scheduler",
    "Setting",
    "Span",
    "Study",
    "Table",
    "__version__",
    "Tuned",
    "Waiting",
    "compare",
    "diff",
    "linear",
    "log",
    "open",
    "open_many",
    "scenario",
    "scenarios",
    "schedulers",
    "sweep",
    "tune",
]
