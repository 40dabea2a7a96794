#!/usr/bin/env python3
"""Random models, plans and configurations against the same steps in plain PyTorch.

Every case trains a few steps with the program, often on several ranks, and the same steps on the same samples in one large batch in Python, and compares
losses, gradient norms, rates, weights, buffers, the optimizer's state and the validation's figures. What may differ is computed from the problem itself:
how far the large batch moves where its samples change places and its numbers are rounded otherwise. A verdict a run:

  equal       within that bound
  refused     the program said no, with its words, before it trained (exit code 2, 3 or 5)
  WRONG       it trained something else and did not say so
  failed      it broke: exit code 1 or 4, a signal, a hang
  not judged  the problem itself is too ill-conditioned to tell, or there is no reference for it

  random_runs.py PROGRAM                      the first cases of seed 1, until the budget of minutes is spent
  random_runs.py PROGRAM --seed 7 --case 12   one case, with everything that the program says; --keep leaves its files
  random_runs.py PROGRAM --seed 9 --cases 500 --precision float64 --jobs 2
  random_runs.py PROGRAM --compiled --minutes 30    the same of exported programs, trained by native code: half a minute a case
"""
import argparse
import collections
import concurrent.futures
import math
import multiprocessing
import os
import pathlib
import re
import shutil
import sys
import tempfile
import time
import traceback

import torch

import random_cases
from random_judge import judge, SPOILT, Verdict
from random_program import Program, Stopped

torch.set_num_threads(1)


DOUBTFUL = ("INTERNAL ASSERT", "it is not used", "nothing was said")  # of reasons to go on without native code


def run_case(program, seed, number, options):
    """One case from its drawing to its verdict; whatever breaks in the oracle itself is a failure too."""
    case = random_cases.draw_case(seed, number, options.precision, options.only, options.family)
    if options.compiled and case.family.random and case.precision.endswith("16"):  # what is drawn is compared with the program, which rounds to 16 bits elsewhere
        case = random_cases.draw_case(seed, number, "float32", options.only, options.family)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="onebatch-random-"))
    try:
        runner = Program(program, folder, options.verbose, options.compiled)
        verdict = judge(case, runner, options)
    except Stopped as stopped:
        verdict = Verdict(stopped.kind, stopped.words)
    except Exception:  # one case must not end the others; it counts as failed
        verdict = Verdict("failed", "the oracle itself: " + traceback.format_exc(limit=-3))
    try:
        verdict.verify = runner.verify(case) if options.verify else ""
    finally:
        if options.keep:
            print(f"{case.name}: kept in {folder}", flush=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    verdict.case = f"--seed {seed} --case {number} --family {case.family.name} --precision {case.precision}"
    verdict.natively = runner.natively
    verdict.family, verdict.honest, verdict.precision = case.family.name, case.family.honest, case.precision
    verdict.facts = f"{case.way}, {case.ranks} rank(s), batch {case.sections['batch']['global_batch_size']}" + (
        f", BatchNorm {case.batch_norm}" if case.batch_norm else "") + (f", resumed on {case.resume_ranks}" if case.resume_ranks else "")
    return verdict


def numbers(options):
    """(seed, case) in the order in which they are done."""
    if options.case is not None:
        return [(options.seed, options.case)]
    return [(options.seed, number) for number in range(options.first, options.first + options.cases)]


def report_line(verdict):
    if verdict.verify.startswith("fail") and verdict.kind == "equal":
        print(f"verify     {verdict.case}  ({verdict.facts})\n           equal, but verify says {verdict.verify}", flush=True)
    for why in dict.fromkeys(verdict.natively):
        if any(words in why for words in DOUBTFUL):
            print(f"uncompiled {verdict.case}  ({verdict.facts})\n           {why}", flush=True)
    if verdict.kind == "equal":
        return
    print(f"{verdict.kind:10} {verdict.case}  ({verdict.facts})\n           {verdict.words}", flush=True)


def table(verdicts, seconds, asked):
    kinds = collections.Counter(verdict.kind for verdict in verdicts)
    print(f"\n{len(verdicts)} of {asked} cases in {seconds:.0f} s")
    for precision in ("float64", "float32", "bfloat16", "float16"):
        of_precision = collections.Counter(verdict.kind for verdict in verdicts if verdict.precision == precision)
        if of_precision:
            print(f"  {precision:9} " + ", ".join(f"{count} {kind}" for kind, count in sorted(of_precision.items())))
    errors = sorted(verdict.error for verdict in verdicts if verdict.precision == "float64" and verdict.error is not None)
    if errors:
        print(f"  float64: what was added to the weights, relative L2: median {errors[len(errors) // 2]:.1e}, 99 % {errors[int(len(errors) * 0.99)]:.1e}, most {errors[-1]:.1e}")
    for precision in ("float32", "bfloat16", "float16"):
        ratios = sorted(verdict.ratio for verdict in verdicts if verdict.precision == precision and verdict.ratio is not None)
        if ratios:
            within = sum(ratio <= 2 for ratio in ratios) / len(ratios)
            print(f"  {precision}: error over the one batch's own: median {ratios[len(ratios) // 2]:.2f}, most {ratios[-1]:.2f}, within 2: {100 * within:.1f} % of {len(ratios)}")
    parts = collections.Counter(verdict.noticed for verdict in verdicts if verdict.noticed is not None)
    print("  equal results, spoilt on purpose by ever larger parts of what training added, are found to be wrong from: " +
          ", ".join(f"{part:.0e} on: {count}" for part, count in sorted(parts.items())))
    late = sorted((verdict for verdict in verdicts if verdict.noticed is not None and verdict.noticed > SPOILT[verdict.precision]), key=lambda verdict: -verdict.noticed)
    for verdict in late[:12]:
        print(f"    from {verdict.noticed:.0e} on: {verdict.case}")
    for (kind, words), count in sorted(collections.Counter((verdict.kind, verdict.verify) for verdict in verdicts if verdict.verify).items()):
        print(f"  verify says {words} of {count} that are {kind}")
    natively = collections.Counter(re.sub(r"[0-9]+", "N", re.sub(r"\S*/\S*", "…", why))[:150] for verdict in verdicts for why in verdict.natively)
    for why, count in natively.most_common():
        print(f"  {count:4} runs by native code" if why == "" else f"  uncompiled {count:4}: {why}")
    reasons = collections.Counter((verdict.honest, re.sub(r"[0-9]+", "N", re.sub(r'"[^"]*"|\S*/\S*', "…", verdict.words.splitlines()[0]))[:150])
                                  for verdict in verdicts if verdict.kind == "refused")
    for (honest, words), count in reasons.most_common():
        print(f"  refused {count:4}{' (an honest model)' if honest else ''}: {words}")
    doubtful = collections.Counter((verdict.family, verdict.kind) for verdict in verdicts if verdict.kind in ("WRONG", "failed"))
    for (name, kind), count in doubtful.most_common():
        print(f"  {kind} {count:4}: {name}")
    return kinds


def initialise_worker():
    torch.set_num_threads(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--cases", type=int, default=10**6)
    parser.add_argument("--minutes", type=float, default=4.5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--precision", choices=list(random_cases.TYPES))
    parser.add_argument("--family")
    parser.add_argument("--verify", action="store_true", help="ask the program's verify too, and count where it is wrong")
    parser.add_argument("--only", help="families whose name contains this")
    parser.add_argument("--compiled", action="store_true", help="exported programs, by the native code that the run makes")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--set", action="append", default=[], help="section.key=value for every run, over what was drawn")
    options = parser.parse_args()
    if options.case is not None:
        options.verbose = True
    options.program = os.path.abspath(options.program)
    start, todo, verdicts = time.monotonic(), iter(numbers(options)), []
    context = multiprocessing.get_context("forkserver")
    with concurrent.futures.ProcessPoolExecutor(options.jobs, mp_context=context, initializer=initialise_worker) as pool:
        running = set()
        asked = 0
        while True:
            while len(running) < options.jobs and time.monotonic() - start < 60 * options.minutes:
                following = next(todo, None)
                if following is None:
                    break
                asked += 1
                running.add(pool.submit(run_case, options.program, *following, options))
            if not running:
                break
            done, running = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in done:
                verdicts.append(future.result())
                report_line(verdicts[-1])
    kinds = table(verdicts, time.monotonic() - start, asked)
    print(", ".join(f"{kinds[kind]} {kind}" for kind in ("equal", "refused", "not judged", "WRONG", "failed")))
    blind = any(verdict.noticed == math.inf for verdict in verdicts)
    return 1 if kinds["WRONG"] or kinds["failed"] or not kinds["equal"] or blind else 0


if __name__ == "__main__":
    sys.exit(main())
