"""What tests share that start a small run very often."""
import os

ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_mpi_yield_when_idle="1", OMP_NUM_THREADS="1")
# What no run may say.
TRACES = ("terminate called", "Exception raised from", "what():", "Traceback", "Aborted", "SIGABRT", "SIGSEGV", "basic_string", "bad_alloc")


def configuration(folder, steps, more, width=4):
    """A run of a tiny model whose end depends on its steps alone; `more` has further sections."""
    return f"""
[run]
max_steps = {steps}
output_dir = "{folder}/runs"
name = "run"
deterministic = "bitwise"
[batch]
global_batch_size = 12
micro_batch_size = 6
[data]
kind = "synthetic"
shape = [{width}]
size = 48
[model]
kind = "mlp"
hidden = [2]
[probe]
steps_per_trial = 1
{more}"""
