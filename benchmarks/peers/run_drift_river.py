"""river: a detector of each kind for every column, row by row, defaults."""

from drift_windows import run
from river import drift

KINDS = {"river, ADWIN": drift.ADWIN, "river, Page-Hinkley": drift.PageHinkley}


def detect(told):
    columns = told.columns()
    last, first = told.windows * told.rows, told.watch * told.rows
    for detector, kind in KINDS.items():
        told.tell_window(detector, 0, [])
        for name, column in columns.items():
            one = kind()
            for row, value in enumerate(column[:last].tolist()):
                one.update(value)
                if one.drift_detected and row >= first:
                    told.tell(detector, row + 1, name)


run(detect)
