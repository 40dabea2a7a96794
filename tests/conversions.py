"""python -m onebatch convert as tests start it, and what it has written."""
import os
import subprocess
import sys

import pytest

from program import ROOT


def joined(folder):
    import numpy
    from safetensors.numpy import load_file

    pieces = [load_file(path) for path in sorted(folder.glob("*.safetensors"))]
    return {name: numpy.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}


def same(found, expected):
    import numpy

    return set(found) == set(expected) and all(numpy.array_equal(found[name], expected[name]) and found[name].dtype == expected[name].dtype for name in found)


def environment():
    return dict(os.environ, PYTHONPATH=os.pathsep.join([str(ROOT / "python"), *filter(None, sys.path)]))


def words(*arguments):
    return [sys.executable, "-m", "onebatch", "convert", *map(str, arguments)]


def command(*arguments):
    return subprocess.run(words(*arguments), env=environment(), text=True, capture_output=True, timeout=120)


def refusal(*arguments, **options):
    from onebatch.converting import convert
    from onebatch.refusals import ConversionError

    with pytest.raises(ConversionError) as refused:
        convert(*arguments, workers=1, **options)
    return str(refused.value)
