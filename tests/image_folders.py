"""Folders of small PNG files that tests make, and a configuration that trains on one."""
import struct
import zlib

from program import SGD_IN_FLOAT64

CONFIG = """
[run]
max_steps = 6
output_dir = "{runs}"
name = "run"
[batch]
global_batch_size = 8
[data]
kind = "image_folder"
path = "{runs}/../images"
image_size = [8, 10]
resize = 12
[data.augment]
random_resized_crop = true
horizontal_flip = true
brightness = 0.3
hue = 0.1
rand_augment_ops = 1
[model]
kind = "mlp"
hidden = [5]
[probe]
steps_per_trial = 1
[checkpoint]
resume = "never"
""" + SGD_IN_FLOAT64
MIXED = CONFIG.replace("hue = 0.1", "mixup_alpha = 0.4\ncutmix_alpha = 1.0")


def colour(x, y, c, seed):
    return (x * 9 + y * 5 * c + seed * 31 + c * 70) % 256


def png(height, width, seed):
    """Without any library."""
    row = lambda y: b"\0" + bytes(colour(x, y, c, seed) for x in range(width) for c in range(3))
    chunk = lambda name, data: struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"".join(map(row, range(height))))) + chunk(b"IEND", b"")


def make_images(folder, classes=("ant", "bee", "cow"), size=lambda number: (12 + number, 20 - number)):
    for label, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for number in range(10):
            (folder / name / f"{number}.png").write_bytes(png(*size(number), label * 50 + number))
