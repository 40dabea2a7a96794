"""The register of random model families: what each is, what data it takes, and what is to be known about it to judge a run."""
import dataclasses

FAMILIES = {}


@dataclasses.dataclass
class Family:
    name: str
    make: object  # (random.Random, dimensions) -> nn.Module
    data: str  # vector [N, F], image [N, C, H, W], tokens [N, T], series [N, T, F], signal [N, C, L]
    out: str = "classes"  # classes [N, K], tokens [N, T, K], second [N, K, T], pixels [N, K, H, W], values [N, D], column [N, 1], own: (sum, weight)
    ways: tuple = ("script", "trace")
    honest: bool = True  # a sum over samples, or BatchNorm: there is nothing to refuse
    batch_norm: bool = False
    random: str = ""  # "keyed": dropout, which is drawn by sample; "unkeyed": any other noise
    alone: bool = True  # a sample's loss does not depend on the others of its batch (BatchNorm apart)
    ordered: bool = False  # and if it does, the order of samples matters
    padding: bool = False  # ignores what lies beyond a sample's length
    precisions: tuple = ("float64", "float32", "bfloat16", "float16")
    judge_validation: bool = True  # false: the model's evaluation depends on how samples are batched
    weighted: bool = False  # an own loss that takes weights
    builtin: str = ""  # the [model] section of one of the program's own models
    hungry: bool = False  # a few samples fill the memory of a simulated device
    least: int = 1  # samples that PyTorch's training forward needs


def family(name, data, **facts):
    def register(make):
        FAMILIES[name] = Family(name, make, data, **facts)
        return make

    return register
